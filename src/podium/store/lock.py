"""One writer a run: a lock that its holder's death releases."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from podium.core.errors import CheckpointError, PodiumError
from podium.store import files

_held: set[int] = set()
LOOKS = 10
"""Times to look for the lock, 5 ms apart: `held` may have it for an instant."""


class RunLocked(PodiumError):
    """Another process writes to this run."""


class Lock:
    """An exclusive `flock` on `path`, held from construction to `release` or death."""

    def __init__(self, path: Path) -> None:
        file = files.open_file(path, os.O_RDWR | os.O_CREAT, linked=True)
        for _ in range(LOOKS):
            if free := _take(file, fcntl.LOCK_EX):
                break
            time.sleep(0.005)
        if not free:
            holder = os.pread(file, 20, 0).decode(errors="replace").strip()
            os.close(file)
            raise RunLocked(f"{path.parent}: another process (pid {holder}) is writing to this run")
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file, self._path = file, path
        _held.add(file)

    def in_place(self) -> bool:
        """Whether the file that is locked is still the one at its path."""
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        mine = os.fstat(self._file)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._file in _held:
            _held.discard(self._file)
            fcntl.flock(self._file, fcntl.LOCK_UN)  # also for the copy of a child that is just being forked
            os.close(self._file)
            self._file = -1


def held(path: Path) -> bool:
    """Whether a living process holds the lock; in doubt, it does. A reader's look, over in an instant."""
    try:
        file = files.open_file(path, linked=True)
    except (FileNotFoundError, CheckpointError):  # nobody can hold what is no file
        return False
    except OSError:
        return True
    try:
        return not _take(file, fcntl.LOCK_SH)
    finally:
        os.close(file)  # which gives a lock back, too


def _take(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _forget() -> None:
    """A forked child drops its copies, or it would hold its dead parent's lock."""
    for file in _held:
        with contextlib.suppress(OSError):
            os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
