"""Tensor files: one tree of tensors and its info, checksummed, readable by any safetensors reader, never pickled.

The file is plain safetensors. Podium writes it itself (the library only reads it), so that no tensor is copied, leaves
may share memory, and equal trees give equal bytes. The metadata begins, at a fixed place, with the format version, the
size of the file and the SHA-256 of every other byte of it:

    <u64 length>{"__metadata__":{"podium":"1","size":"<16 digits>","sha256":"<64 digits>","kind":"member", ...}, ...}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from torch import Tensor

from podium.core import machine
from podium.core.errors import CheckpointError
from podium.core.tree import Tree, flatten
from podium.store.files import open_file, write_atomic

VERSION = 2

_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
_OPENING = b'{"__metadata__":{"podium":"'
_HEAD = re.compile(re.escape(_OPENING) + rb'([0-9]{1,6})","size":"([0-9]{16})","sha256":"([0-9a-f]{64})"')
_BLANK = "0" * 64
_LONGEST = 64 << 20
"""Bytes of a header: JSON takes many times its length in memory."""
_HEADROOM = 160
"""Bytes that hold the length and all that is checked before the rest is read."""


def save(path: Path, tree: Tree, info: dict[str, Any], kind: str, durable: bool = True) -> None:
    """Write `tree` and `info` (plain JSON data) to `path`, whole or not at all; `durable` as in `write_atomic`."""
    header, bodies = _encode(tree, info, kind)
    start = header.index(_BLANK.encode(), len(_OPENING))
    header[start : start + 64] = _digest(header, start, *bodies).encode()
    write_atomic(path, header, *bodies, durable=durable)


def load(path: Path, kind: str) -> tuple[Tree, dict[str, Any]]:
    """The tree and info of a file that `save` wrote. Anything else is refused with its reason, before it is parsed."""
    data = _read(path)
    try:
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        if metadata["kind"] != kind:
            raise CheckpointError(f"{path}: this is a {metadata['kind']} file, not a {kind} file")
        tree = _fill(json.loads(metadata["layout"]), parse(data))
        info: dict[str, Any] = json.loads(metadata["info"], parse_constant=_refuse)
        if not isinstance(info, dict):
            raise TypeError(f"info is a {type(info).__name__}")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"{path}: not a tensor file of Podium ({error})") from error
    return tree, info


def has_nan(tree: Tree) -> str | None:
    """The name of the first tensor that holds a NaN; None where there is none."""
    return next((name for name, leaf in flatten(tree).items() if leaf.is_floating_point() and leaf.isnan().any()), None)


def match(tree: Tree, like: Tree, path: Path) -> None:
    """Refuse a loaded `tree` whose names, shapes or dtypes are not `like`'s; names the first tensor that differs."""
    found, wanted = flatten(tree), flatten(like)
    for name in [*wanted, *found]:
        ours, theirs = wanted.get(name), found.get(name)
        if ours is None or theirs is None or (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            raise CheckpointError(
                f"{path}: wrong shape: tensor {name} is {_describe(theirs)} in the file, {_describe(ours)} in this run"
            )


def _encode(tree: Tree, info: dict[str, Any], kind: str) -> tuple[bytearray, list[bytes | memoryview]]:
    """The header, with a blank digest, and the tensors' bytes in the order of the file."""
    leaves = flatten(tree)
    if len(leaves) != _count(tree):
        raise ValueError("two leaves of the tree have the same dotted path")
    flat = {name: leaf.detach().cpu().contiguous() for name, leaf in leaves.items()}
    entries: dict[str, Any] = {}
    bodies: list[bytes | memoryview] = []
    end = 0
    for name in sorted(flat, key=lambda n: -flat[n].element_size()):  # widest first keeps every tensor aligned
        leaf, begin = flat[name], end
        if leaf.dtype not in _DTYPES:
            raise TypeError(f"{name}: a tensor file cannot hold {leaf.dtype}")
        end += leaf.nbytes
        entries[name] = {"dtype": _DTYPES[leaf.dtype], "shape": list(leaf.shape), "data_offsets": [begin, end]}
        if leaf.nbytes:
            # A row of one element counts as contiguous whatever its stride; as_strided makes that stride 1.
            bodies.append(leaf.as_strided((leaf.numel(),), (1,)).view(torch.uint8).numpy().data)
    metadata = {
        "podium": str(VERSION),
        "size": "0" * 16,
        "sha256": _BLANK,
        "kind": kind,
        "layout": json.dumps(_layout(tree), separators=(",", ":")),
        "info": json.dumps(info, separators=(",", ":"), allow_nan=False),
    }
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    text = text.replace('"size":"' + "0" * 16, f'"size":"{8 + len(text) + end:016d}', 1)
    return bytearray(len(text).to_bytes(8, "little") + text.encode("ascii")), bodies


def _layout(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree without its tensors: keeps the order of keys, dots within them and empty branches."""
    return {key: _layout(value) if isinstance(value, Mapping) else None for key, value in tree.items()}


def _fill(layout: dict[str, Any], flat: dict[str, Tensor], prefix: str = "") -> Tree:
    return {
        key: flat[prefix + key] if value is None else _fill(value, flat, f"{prefix}{key}.")
        for key, value in layout.items()
    }


def _count(tree: Mapping[str, Any]) -> int:
    return sum(_count(value) if isinstance(value, Mapping) else 1 for value in tree.values())


def _digest(header: bytes | bytearray, start: int, *bodies: memoryview | bytes) -> str:
    """SHA-256 of everything but the 64 digits at `start` of the header."""
    view = memoryview(header)
    hasher = hashlib.sha256(view[:start])
    hasher.update(view[start + 64 :])
    for body in bodies:
        hasher.update(body)
    view.release()
    return hasher.hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} in info")


def _read(path: Path) -> bytes:
    """All of a file whose checksum is right; its head is checked, and its size, before the rest is read."""
    try:
        with os.fdopen(open_file(path), "rb") as file:
            start, size = file.read(_HEADROOM), os.fstat(file.fileno()).st_size
            place, digest = _verify(path, start, size)
            file.seek(0)
            data = file.read(size)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if _digest(data, place) != digest:
        raise CheckpointError(f"{path}: damaged, its checksum does not match")
    return data


def _verify(path: Path, start: bytes, found: int) -> tuple[int, str]:
    """Where the checksum stands in a file that begins like this and has `found` bytes, and what it says."""
    head = _HEAD.match(start, 8)
    if head is None:
        cut = found < _HEADROOM and _OPENING.startswith(start[8 : 8 + len(_OPENING)])
        reason = f"truncated ({found} bytes)" if cut else "not a tensor file of Podium"
        raise CheckpointError(f"{path}: {reason}")
    version, size, digest = int(head[1]), int(head[2]), head[3].decode()
    if version != VERSION:
        raise CheckpointError(f"{path}: version {version}, this Podium reads {VERSION}")
    if found < size:
        raise CheckpointError(f"{path}: truncated ({found} of {size} bytes)")
    if found > size:
        raise CheckpointError(f"{path}: damaged, it has {found} bytes and says {size}")
    if int.from_bytes(start[:8], "little") > _LONGEST:
        raise CheckpointError(f"{path}: its header is longer than {_LONGEST >> 20} MiB")
    if size > machine.memory() // 4:
        raise CheckpointError(f"{path}: its {machine.in_units(size)} do not fit into this machine's memory")
    return head.start(3), digest


def _describe(leaf: Tensor | None) -> str:
    return "absent" if leaf is None else f"{list(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
