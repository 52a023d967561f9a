"""Files that are either whole or not there, and that are what they seem: opened by name, never through a link.

A run's folder may come from a stranger. Whatever stands in it under one of our names has to be a regular file, in a
folder that is no link; a link, a pipe or a device is refused before a byte of it is read or written.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from podium.core.errors import CheckpointError

Bytes = bytes | bytearray | memoryview

_TEMP = ".tmp"
_turn = itertools.count()


@contextmanager
def folder(path: Path, linked: bool = False) -> Iterator[int]:
    """A descriptor of the folder `path`, which may be a link only if `linked`, as the path that a user types may be."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if linked else os.O_NOFOLLOW)
    try:
        here = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _irregular(path) from error
        raise
    try:
        yield here
    finally:
        os.close(here)


def open_file(path: Path, flags: int = os.O_RDONLY, linked: bool = False, sole: bool = False) -> int:
    """A descriptor of a regular file; `linked` says that its folder may be a link.

    One that is opened to be written, or is to be `sole`, must have no second name: what is written shows there, too.
    """
    with folder(path.parent, linked) as here:
        how = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # non-blocking: a pipe would wait for its other end
        try:
            file = os.open(path.name, how, 0o644, dir_fd=here)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise _irregular(path) from error
            raise
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        os.close(file)
        raise _irregular(path)
    if (sole or flags & (os.O_WRONLY | os.O_RDWR)) and found.st_nlink > 1:
        os.close(file)
        raise CheckpointError(f"{path} is a hard link to another file: copy the run's folder, then use the copy")
    return file


def read(path: Path, limit: int, linked: bool = False) -> bytes:
    """The bytes of a regular file of at most `limit` bytes."""
    file = open_file(path, linked=linked)
    with os.fdopen(file, "rb") as stream:
        size = os.fstat(file).st_size
        if size > limit:
            raise CheckpointError(f"{path} has {size:,} bytes; at most {limit:,} are read")
        return stream.read(limit + 1)


def first(path: Path, size: int) -> bytes:
    """The first bytes of a regular file."""
    with os.fdopen(open_file(path, linked=True), "rb") as stream:
        return stream.read(size)


def names(path: Path) -> list[str]:
    """The names in a folder; none where there is no such folder."""
    try:
        with folder(path) as here:
            return sorted(os.listdir(here))
    except FileNotFoundError:
        return []


def unlink(path: Path) -> None:
    """Remove a name from a folder that is no link; one that is not there is fine."""
    with suppress(FileNotFoundError), folder(path.parent) as here:
        os.unlink(path.name, dir_fd=here)


def write_atomic(path: Path, *parts: Bytes, durable: bool = True, linked: bool = False) -> None:
    """Replace `path` by the bytes of `parts`: write beside it, fsync, rename, fsync the folder.

    On failure OSError is raised, the old file stays and nothing else is left behind. Without `durable` nothing is
    synced: a killed process cannot tear the file, a power failure can. `linked` says that its folder may be a link.
    """
    temp = f".{path.name}.{os.getpid()}-{next(_turn)}{_TEMP}"
    with folder(path.parent, linked) as here:
        try:
            file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=here)
            try:
                for part in parts:
                    _write(file, part)
                if durable:
                    os.fsync(file)
            finally:
                os.close(file)
            os.replace(temp, path.name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temp, dir_fd=here)
            raise
        if durable:
            os.fsync(here)


def sync(path: Path) -> None:
    """Make a file's bytes durable."""
    file = open_file(path, linked=True)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    with folder(path) as here:
        os.fsync(here)


def clean(path: Path, linked: bool = False) -> None:
    """Remove what a killed writer left behind. Only for the holder of the run's lock: another's temp may be in use."""
    with folder(path, linked) as here:
        for name in os.listdir(here):
            if name.startswith(".") and name.endswith(_TEMP):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=here)


def _write(file: int, part: Bytes) -> None:
    rest = memoryview(part).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]


def _irregular(path: Path) -> CheckpointError:
    what = "a link" if path.is_symlink() else "neither a plain file nor a folder" if path.exists() else "not there"
    return CheckpointError(f"{path} is {what}, and Podium uses only plain files and folders inside a run's folder")
