"""The wire: trees of tensors, arrays and plain values as a msgpack header and raw frames. Nothing is ever pickled.

    frames = pack({"obs": tensor, "step": 3})      # [header, bytes of the tensor]; nothing is copied
    unpack(frames)                                 # {"obs": tensor, "step": 3}; tensors are views of the frames

The header is `[VERSION, value]`, with an extension in the place of every tensor or array: what it is, its dtype, its
shape and its first frame. One that is larger than `FRAME` goes on in the frames after that. A tuple arrives as a list,
a dataclass as a dict. Whatever is not such a message is refused with `WireError`, whoever sent it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
import zmq
from torch import Tensor

from podium.core.errors import PodiumError

VERSION = 1
LARGEST = 2 << 30
"""Bytes of a message, over all its frames."""
FRAMES = 1 << 16
"""Frames of a message."""
FRAME = 16 << 20
"""Bytes of a frame. ZeroMQ holds a frame in memory before it knows who sent it, so this is what a stranger can cost."""

Frame = bytes | bytearray | memoryview

_TENSOR, _ARRAY = 1, 2
_ENVELOPE = 1024  # what a node's protocol and CURVE put around a frame
_TORCH = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}
_NUMPY = {
    name: np.dtype(name)
    for name in (
        *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
        *("float16", "float32", "float64"),
    )
}


class WireError(PodiumError):
    """Something that the wire does not carry, or that is not a message."""


class _Leaf(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    frame: int


_leaf = msgspec.msgpack.Decoder(_Leaf)
_pack_leaf = msgspec.msgpack.Encoder().encode


def pack(value: Any) -> list[Frame]:
    """The frames of a message. Tensors of a device are copied to the CPU, others are not copied if they are contiguous.

    They must not change until the message has been sent.
    """
    bodies: list[Frame] = []

    def leaf(item: Any) -> Any:
        if isinstance(item, Tensor):
            return extension(_TENSOR, str(item.dtype).removeprefix("torch."), _TORCH, item.shape, _bytes_of(item))
        if isinstance(item, np.ndarray):
            item = item.astype(item.dtype.newbyteorder("="), copy=False)
            body = np.ascontiguousarray(item).reshape(-1).view(np.uint8).data if item.nbytes else memoryview(b"")
            return extension(_ARRAY, item.dtype.name, _NUMPY, item.shape, body)
        if isinstance(item, np.generic):
            return item.item()
        raise WireError(
            f"wire: {type(item).__name__} is not allowed; tensors, arrays, numbers, text, bytes, lists, dicts"
        )

    def extension(code: int, dtype: str, known: Any, shape: Sequence[int], body: memoryview) -> msgspec.msgpack.Ext:
        if dtype not in known:
            raise WireError(f"wire: dtype {dtype} is not allowed; one of {', '.join(known)}")
        first = len(bodies) + 1
        if len(body) <= FRAME:
            bodies.append(body)
        else:
            bodies.extend(body[at : at + FRAME] for at in range(0, len(body), FRAME))
        return msgspec.msgpack.Ext(code, _pack_leaf(_Leaf(dtype, tuple(shape), first)))

    try:
        header = msgspec.msgpack.encode([VERSION, value], enc_hook=leaf)
    except (TypeError, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise WireError(f"wire: {error}") from error
    frames = [header, *bodies]
    check(frames)
    return frames


def unpack(frames: Sequence[Frame]) -> Any:
    """The value of a message. Its tensors and arrays share memory with the frames."""
    check(frames)
    used: set[int] = set()

    def leaf(code: int, data: memoryview) -> Any:
        found = _leaf.decode(data)
        known: Any = {_TENSOR: _TORCH, _ARRAY: _NUMPY}.get(code)
        if known is None or found.dtype not in known:
            raise WireError(f"wire: no such leaf ({code}, {found.dtype})")
        dtype: Any = known[found.dtype]
        size = math.prod(found.shape) * dtype.itemsize
        first = last = found.frame
        if size > FRAME:
            last += (size - 1) // FRAME
        if not 0 < first <= last < len(frames) or not used.isdisjoint(range(first, last + 1)):
            raise WireError(f"wire: no frame {last} in a message of {len(frames)}")
        used.update(range(first, last + 1))
        body = memoryview(frames[first]).cast("B")
        if body.readonly or last > first:
            body = _joined(frames[first : last + 1])  # nobody may write to those
        if min(found.shape, default=0) < 0 or size != len(body):
            raise WireError(f"wire: {len(body)} bytes are no {list(found.shape)} of {found.dtype}")
        if code == _ARRAY:
            return np.frombuffer(body, dtype).reshape(found.shape)
        if not body:
            return torch.empty(found.shape, dtype=dtype)
        return torch.frombuffer(body, dtype=dtype).reshape(found.shape)

    try:
        message = msgspec.msgpack.decode(frames[0], ext_hook=leaf)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
        raise WireError(f"wire: not a message ({error})") from error
    if not isinstance(message, list) or len(message) != 2 or message[0] != VERSION or isinstance(message[0], bool):
        raise WireError(f"wire: not a message of version {VERSION}")
    if len(used) != len(frames) - 1:
        raise WireError(f"wire: {len(frames) - 1 - len(used)} frames that nothing refers to")
    return message[1]


def copy(value: Any) -> Any:
    """What arrives of a value: equal, and sharing no memory with it."""
    return unpack([bytes(frame) for frame in pack(value)])


def check(frames: Sequence[Frame]) -> None:
    """Refuses a message that is too large as a whole, or in what has to be parsed: all that is no tensor."""
    sizes = [memoryview(frame).nbytes for frame in frames]
    if sum(sizes) > LARGEST or not 0 < len(frames) <= FRAMES:
        allowed = f"at most {LARGEST} bytes in 1 to {FRAMES} frames"
        raise WireError(f"wire: {sum(sizes)} bytes in {len(frames)} frames are not allowed; {allowed}")
    if sizes[0] > FRAME:
        raise WireError(
            f"wire: text, bytes and numbers in one message must be at most {FRAME} bytes, got {sizes[0]}. "
            "Send larger data as a tensor or an array."
        )


def limit(socket: zmq.Socket[bytes]) -> None:
    """Lets a socket refuse frames that no message has; it closes the connection that they came from."""
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME + _ENVELOPE)


def _joined(frames: Sequence[Frame]) -> memoryview:
    """A copy of the bytes of some frames, in one piece."""
    whole = bytearray()
    for frame in frames:
        whole += frame
    return memoryview(whole)


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous()
    if not flat.numel():
        return memoryview(b"")
    # One element counts as contiguous whatever its stride; as_strided makes that stride 1.
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy().data
