"""Files that are either whole or not there: a crash or a full disk never leaves half of one under its name."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

Bytes = bytes | bytearray | memoryview

_TEMP = ".tmp"
_turn = itertools.count()


def write_atomic(path: Path, *parts: Bytes, durable: bool = True) -> None:
    """Replace `path` by the bytes of `parts`: write beside it, fsync, rename, fsync the folder.

    On failure OSError is raised, the old file stays and nothing else is left behind. Without `durable` nothing is
    synced: a killed process cannot tear the file, a power failure can.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}-{next(_turn)}{_TEMP}")
    try:
        file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for part in parts:
                _write(file, part)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Make a file's bytes durable, or the names in a folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def clean(folder: Path) -> None:
    """Remove what a killed writer left behind. Only for the holder of the run's lock: another's temp may be in use."""
    for temp in folder.glob(f".*{_TEMP}"):
        temp.unlink(missing_ok=True)


def _write(file: int, part: Bytes) -> None:
    rest = memoryview(part).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]
