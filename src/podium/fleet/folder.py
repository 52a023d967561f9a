"""The folder of a fleet on one machine: its sockets, which only the user may reach."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from podium.core.errors import PodiumError

LONGEST = 107
"""Bytes of a socket's path, by the kernel's own limit."""
NAME = 20
"""Bytes that the name of a socket in the folder may take, more than any does."""


def private() -> Path:
    """Makes a new folder of mode 0700 whose path is short enough for sockets: in TMPDIR, or else in /tmp."""
    for parent in _parents():
        with suppress(OSError):
            folder = tempfile.mkdtemp(prefix="podium-", dir=parent)
            if len(os.fsencode(folder)) + 1 + NAME <= LONGEST:
                return Path(folder)
            os.rmdir(folder)
    raise PodiumError(
        f"a fleet needs a folder for its sockets whose path has at most {LONGEST - NAME - 1} bytes; none could be made "
        f"in {', '.join(_parents())}. Set TMPDIR to a short path that you can write to."
    )


def _parents() -> Iterator[str]:
    with suppress(FileNotFoundError):  # no folder for temporary files at all
        yield tempfile.gettempdir()
    yield "/tmp"
