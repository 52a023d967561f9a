"""A peer in a process of its own, where its threads wait as torch has it, and its memory is kept as it asks itself."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from typing import IO

import torch

from podium.bench._side_by_side import Side, Work

LONGEST, PATIENCE = 600.0, 10.0
"""Seconds of silence, and seconds to end in."""

OURS = ("GOMP_SPINCOUNT",)
"""What importing podium sets for the whole process, and for those that it starts."""

CODE = """
import os
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a program prints must not be taken for an answer
import torch
from podium.bench._apart import serve
import {module} as m
serve(answers, m.{call}, {threads})
"""


def apart(name: str, build: str, threads: int) -> Side:
    """A side whose `build` is an expression, `module:expression of what the module has`, for the other process."""
    module, call = build.split(":", 1)
    code = CODE.format(module=module, call=call, threads=threads)
    return Side(name, lambda: _Remote(name, code), threads)


def serve(answers: IO[str], build: Callable[[], Work], threads: int) -> None:
    """In the other process: a line of input is a number of pieces, a line of output is what their work came to."""
    torch.set_num_threads(threads)
    work = build()
    torch.set_num_threads(threads)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(work(int(line)), file=answers, flush=True)


class _Remote:
    """Work that another process does; it ends with this object."""

    def __init__(self, name: str, code: str) -> None:
        env = {name: value for name, value in os.environ.items() if name not in OURS}
        command, pipe = [sys.executable, "-c", code], subprocess.PIPE
        self._name, self._said = name, tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
        self._process = subprocess.Popen(command, bufsize=0, env=env, stdin=pipe, stdout=pipe, stderr=self._said)
        self._end = weakref.finalize(self, _end, self._process, self._said)
        self._hear()

    def __call__(self, pieces: int) -> float:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{pieces}\n".encode())
        except BrokenPipeError as error:
            raise self._ended() from error
        return float(self._hear())

    def _hear(self) -> bytes:
        answers = self._process.stdout
        assert answers is not None
        if not select.select([answers], [], [], LONGEST)[0]:
            self._end()  # a late answer must not be taken for that of the next call
            raise RuntimeError(f"{self._name}: nothing for {LONGEST:.0f} seconds")
        line: bytes = answers.readline()
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> RuntimeError:
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        return RuntimeError(f"{self._name} in a process of its own has ended:\n{said}")


def _end(process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    for file in (process.stdin, process.stdout, said):
        if file is not None:
            file.close()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)
