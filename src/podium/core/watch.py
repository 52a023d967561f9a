"""A watch over a process that this one starts, so that nothing of it outlives this one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SCRIPT = 'read pid; read _; kill -s KILL -- "-$pid"; rm -f -- "$@"; rmdir -- "$0"'
"""A process that is stopped or hangs cannot end itself, so a shell waits beside it. It costs next to nothing."""


class Watch:
    """Kills a process and all that it started once this one has ended, in whatever way; then deletes their files.

    It is there before the process is, so that there is no moment without it. `folder` is deleted if it is empty then.
    """

    def __init__(self, files: Sequence[Path] = (), folder: Path | None = None) -> None:
        command = ["/bin/sh", "-c", _SCRIPT, str(folder or ""), *map(str, files)]
        quiet = subprocess.DEVNULL  # nobody who reads what this process says is to wait for it
        self._shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
        self.pid = self._shell.pid

    def over(self, pid: int) -> None:
        """Names the process, which leads a session of its own."""
        assert self._shell.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has killed the shell
            self._shell.stdin.write(f"{pid}\n".encode())
            self._shell.stdin.flush()

    def end(self) -> None:
        """Ends the watch; the process has been ended."""
        self._shell.kill()
        self._shell.communicate()
