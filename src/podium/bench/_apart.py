"""A peer in a process of its own, as its users run it: memory and waiting threads are as glibc and torch have them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable

import torch

from podium.bench._side_by_side import Side, Work

LONGEST, PATIENCE = 600.0, 10.0
"""Seconds of silence, and seconds to end in."""
OURS = ("GOMP_SPINCOUNT",)
"""What importing podium sets for the whole process, and for those that it starts."""


def apart(name: str, build: str, threads: int) -> Side:
    """A side whose `build` is an expression, evaluated in the other process: `module:call`."""
    module, call = build.split(":", 1)
    code = f"import torch\nfrom podium.bench._apart import serve\nimport {module} as m\nserve(m.{call}, {threads})"
    return Side(name, lambda: _Remote(name, code), threads)


def serve(build: Callable[[], Work], threads: int) -> None:
    """In the other process: a line of input is a number of pieces, a line of output is what their work came to."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a program prints must not be taken for an answer
    torch.set_num_threads(threads)
    work = build()
    torch.set_num_threads(threads)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(work(int(line)), file=answers, flush=True)


class _Remote:
    """Work that another process does; it ends with this object."""

    def __init__(self, name: str, code: str) -> None:
        self._name, self._said = name, tempfile.TemporaryFile("w+")  # noqa: SIM115 (open as long as the process)
        env = {name: value for name, value in os.environ.items() if name not in OURS}
        command, pipe = [sys.executable, "-c", code], subprocess.PIPE
        self._process = subprocess.Popen(command, bufsize=0, env=env, stdin=pipe, stdout=pipe, stderr=self._said)
        weakref.finalize(self, _end, self._process)
        self._hear()

    def __call__(self, pieces: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pieces}\n".encode())
        return float(self._hear())

    def _hear(self) -> str:
        answers = self._process.stdout
        assert answers is not None
        if not select.select([answers], [], [], LONGEST)[0]:
            raise RuntimeError(f"{self._name}: nothing for {LONGEST:.0f} seconds")
        line = answers.readline().decode().strip()
        if not line:
            self._said.seek(0)
            raise RuntimeError(f"{self._name} in a process of its own has ended:\n{self._said.read()}")
        return line


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)
