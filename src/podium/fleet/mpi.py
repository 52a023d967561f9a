"""MPI itself: who we are, messages between ranks as buffers (never pickled), and how a rank that fails ends the job."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from podium.core import machine
from podium.core.errors import ConfigError, MissingExtra
from podium.fleet import wire
from podium.fleet.errors import NodeLost

try:
    from mpi4py import MPI
except ImportError as missing:
    raise MissingExtra("mpi4py, which fleet=mpi needs,", "mpi") from missing

__all__ = ["MPI", "WORLD"]

WORLD = MPI.COMM_WORLD
SHORTEST, LONGEST = 2e-5, 5e-3
"""Seconds between two looks at whether something has come: MPI's own waiting would take a whole core."""

_BEFORE = dict(os.environ)
"""The environment as mpiexec left it."""

folders: set[Path] = set()
"""What is to be deleted if the job ends before its time."""


def launched() -> bool:
    """Whether mpiexec started this process, with others."""
    return WORLD.Get_size() > 1


def rank() -> int:
    return WORLD.Get_rank()


def ranks() -> int:
    return WORLD.Get_size()


def share() -> int:
    """This rank's part of the cores: what the user or Slurm says, those it is bound to, or an equal part of all."""
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        if (asked := _BEFORE.get(name, "")).isdigit() and int(asked):
            return min(machine.bound(), int(asked))
    names = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")
    here = next((int(_BEFORE[name]) for name in names if name in _BEFORE), ranks())
    alone = machine.bound() * here <= (os.cpu_count() or 1)
    return machine.bound() if alone else max(1, machine.bound() // here)


def need_mpiexec() -> None:
    if not launched():
        example = "mpiexec -n 4 podium evolve ... fleet=mpi (two ranks or more; to resume likewise)"
        raise ConfigError("fleet", "mpi", f"under mpiexec only, for example: {example}")


def send(frames: Sequence[wire.Frame], to: int, tag: int) -> None:
    """The lengths of the frames, then each of them."""
    lengths = np.array([memoryview(frame).nbytes for frame in frames], dtype=np.int64)
    sent = [WORLD.Isend([lengths, MPI.INT64_T], to, tag)]
    sent += [WORLD.Isend([frame, MPI.BYTE], to, tag) for frame in frames]
    wait(sent)


def has_sent(source: int, tag: int) -> bool:
    """Whether `receive` has something to take in."""
    return bool(WORLD.Iprobe(source, tag))


def receive(source: int, tag: int, seconds: float = math.inf) -> list[wire.Frame]:
    """What a rank sent; rank 0's word is waited for without end, as mpiexec ends all ranks with it."""
    status, ends, pause = MPI.Status(), time.monotonic() + seconds, SHORTEST
    while not WORLD.Iprobe(source, tag, status):
        if time.monotonic() > ends:
            raise NodeLost(f"rank {source}: no word within {seconds:g} s")
        pause = _sleep(pause)
    lengths = np.empty(status.Get_count(MPI.INT64_T), dtype=np.int64)
    WORLD.Recv([lengths, MPI.INT64_T], source, tag)
    frames: list[wire.Frame] = [bytearray(length) for length in lengths.tolist()]
    wait([WORLD.Irecv([frame, MPI.BYTE], source, tag) for frame in frames])
    return frames


def wait(requests: Sequence[Any]) -> None:
    """Until all that was begun is done."""
    pause = SHORTEST
    while not MPI.Request.Testall(list(requests)):
        pause = _sleep(pause)


def _sleep(pause: float) -> float:
    time.sleep(pause)
    return min(LONGEST, 2 * pause)


def abort() -> NoReturn:
    """End the whole job because of what went wrong here: the others would wait for ever."""
    traceback.print_exc()
    end(f"rank {rank()} failed")


def tidy() -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def tidy_when_told() -> None:
    """Where mpiexec ends a job because a rank was killed, the others can still leave nothing behind."""

    def end(*_: object) -> None:
        tidy()
        os._exit(1)

    signal.signal(signal.SIGTERM, end)


def end(why: str) -> NoReturn:
    """End the whole job, non-zero."""
    print(f"{why}: the job ends with it", file=sys.stderr, flush=True)
    tidy()
    WORLD.Abort(1)
    raise SystemExit(1)
