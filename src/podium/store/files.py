"""Files that are either whole or not there: a crash or a full disk never leaves half of one under its name."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

Bytes = bytes | bytearray | memoryview

_TEMP = ".tmp"
_turn = itertools.count()


def write_atomic(path: Path, *parts: Bytes) -> None:
    """Replace `path` by the bytes of `parts`: write beside it, fsync, rename, fsync the folder.

    On failure OSError is raised, the old file stays and nothing else is left behind.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}-{next(_turn)}{_TEMP}")
    try:
        file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for part in parts:
                _write(file, part)
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
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
