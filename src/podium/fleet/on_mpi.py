"""The fleet on MPI: `mpiexec` starts the ranks. Rank 0 runs the command, the others serve as nodes.

MPI launches the nodes and tells where they are, ZeroMQ moves the data: on rank 0's own machine over a path that only
the user may enter, elsewhere over TCP with CURVE keys that rank 0 makes anew. A rank that fails ends the job.
"""

from __future__ import annotations

import math
import os
import shutil
import socket as sockets
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from podium.core import machine
from podium.core.errors import ConfigError, PodiumError
from podium.fleet import wire
from podium.fleet.errors import NodeLost
from podium.fleet.group import Group
from podium.fleet.keys import Keys, bind
from podium.fleet.link import Handle, Wired
from podium.fleet.node import Node, make, path_of, router, serve

try:
    from mpi4py import MPI
except ImportError as missing:
    raise PodiumError("fleet=mpi needs MPI: pip install 'podium-rl[mpi]'") from missing

SPEC, WHERE = 1, 2
"""Tags: what a rank is to be, and where it then is. An empty spec ends it."""
PAUSE = 0.005
"""Seconds between two looks for a message: MPI's own waiting would take a whole core."""


def launched() -> bool:
    """Whether mpiexec started this process, with others."""
    return MPI.COMM_WORLD.Get_size() > 1


def rank() -> int:
    return MPI.COMM_WORLD.Get_rank()


def room(address: str | None, cpus: float) -> int:
    """All ranks but the first."""
    _need_mpiexec()
    return MPI.COMM_WORLD.Get_size() - 1


def _need_mpiexec() -> None:
    if not launched():
        raise ConfigError("fleet", "mpi", "under mpiexec only, for example: mpiexec -n 4 podium evolve ... fleet=mpi")


@contextmanager
def job() -> Iterator[None]:
    """On rank 0 what follows; the other ranks serve it meanwhile, and end. A rank that fails ends all."""
    if rank():
        try:
            serve_rank()
        except Exception:
            abort()
        raise SystemExit(0)
    try:
        yield
    finally:
        end()


def group(
    target: Any, size: int, *args: Any, each: Sequence[Sequence[Any]] = (), threads: int | None = None, **named: Any
) -> Group:
    """`size` nodes of a class on the ranks from 1 on that are free; `each` are more arguments, a list a node."""
    _need_mpiexec()
    free = [r for r in range(1, MPI.COMM_WORLD.Get_size()) if r not in _taken]
    if size > len(free):
        ranks = MPI.COMM_WORLD.Get_size()
        raise ConfigError("fleet.pods", size, f"at most {len(free)}: {ranks} ranks, of which rank 0 runs the command")
    path, keys, folder = path_of(target), Keys.new(), Path(tempfile.mkdtemp(prefix="podium-"))
    share, mine = threads or max(1, machine.cores() // size), free[:size]
    _taken.update(mine)
    _folders.add(folder)

    def launch(node: int, own: Sequence[Any]) -> Rank:
        what = {"path": path, "args": [*args, *own], "named": named, "search": sys.path}
        home = {"machine": machine.identity(), "folder": str(folder), "keys": keys.plain(), "threads": share}
        _send(wire.pack(what | home), mine[node], SPEC)
        return Rank(f"node {node}", mine[node], keys)

    def closed() -> None:
        _taken.difference_update(mine)
        shutil.rmtree(folder, ignore_errors=True)

    made = Group(launch, size, each, closed)
    try:
        made.whole()
    except BaseException:
        made.close(grace=0.0)
        raise
    return made


_taken: set[int] = set()
_folders: set[Path] = set()


class Rank:
    """A node in another rank."""

    def __init__(self, name: str, rank: int, keys: Keys) -> None:
        self._name, self._rank, self._keys = name, rank, keys

    def up(self) -> Wired | None:
        if not MPI.COMM_WORLD.Iprobe(self._rank, WHERE):
            return None
        address = wire.unpack(_receive(self._rank, WHERE))
        return Wired(Handle(self._name, address), self._keys if address.startswith("tcp") else None)

    def stop(self, grace: float) -> None:
        """Wait until the rank is free again; one that does not come to an end takes the job with it."""
        try:
            _receive(self._rank, WHERE, max(grace, 1.0))
        except NodeLost:
            print(f"rank {self._rank} does not come to an end: the job ends with it", file=sys.stderr, flush=True)
            MPI.COMM_WORLD.Abort(1)


def end() -> None:
    """Rank 0, at the very end: let the others go."""
    for r in range(1, MPI.COMM_WORLD.Get_size()):
        _send([b""], r, SPEC)


def serve_rank() -> None:
    """The life of any other rank: a node for as long as it is asked to be one, then the next."""
    while True:
        frames = _receive(0, SPEC)
        if not frames[0]:
            return
        spec: Mapping[str, Any] = wire.unpack(frames)
        sys.path[:] = [*spec["search"], *(p for p in sys.path if p not in spec["search"])]
        machine.use_threads(spec["threads"])
        socket = router()
        _folders.add(Path(spec["folder"]))
        if spec["machine"] == machine.identity():
            where = bind(socket, f"ipc://{spec['folder']}/{os.getpid()}-{time.monotonic_ns()}", None)
        else:
            where = bind(socket, f"tcp://{_ip()}:*", Keys.of(spec["keys"]))
        _send(wire.pack(where), 0, WHERE)
        serve(Node(lambda spec=spec: make(spec["path"], spec["args"], spec["named"])), socket)  # type: ignore[misc]
        socket.close(0)
        _send(wire.pack("free"), 0, WHERE)


def abort() -> NoReturn:
    """End the whole job because of what went wrong here: the others would wait for ever."""
    traceback.print_exc()
    print(f"rank {rank()} failed: the job ends with it", file=sys.stderr, flush=True)
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    MPI.COMM_WORLD.Abort(1)
    raise SystemExit(1)


def _ip() -> str:
    """The address under which other machines reach this one."""
    return sockets.gethostbyname(sockets.gethostname())


def _send(frames: Sequence[wire.Frame], to: int, tag: int) -> None:
    """Buffers, never pickles: the lengths, then each frame."""
    lengths = np.array([memoryview(frame).nbytes for frame in frames], dtype=np.int64)
    MPI.COMM_WORLD.Send([lengths, MPI.INT64_T], to, tag)
    for frame in frames:
        MPI.COMM_WORLD.Send([frame, MPI.BYTE], to, tag)


def _receive(source: int, tag: int, seconds: float = math.inf) -> list[wire.Frame]:
    """What a rank sent; rank 0's word is waited for without end, as mpiexec ends all ranks with it."""
    status, ends = MPI.Status(), time.monotonic() + seconds
    while not MPI.COMM_WORLD.Iprobe(source, tag, status):
        if time.monotonic() > ends:
            raise NodeLost(f"rank {source}: no word within {seconds:g} s")
        time.sleep(PAUSE)
    lengths = np.empty(status.Get_count(MPI.INT64_T), dtype=np.int64)
    MPI.COMM_WORLD.Recv([lengths, MPI.INT64_T], source, tag)
    frames: list[wire.Frame] = []
    for length in lengths.tolist():
        frame = bytearray(length)
        MPI.COMM_WORLD.Recv([frame, MPI.BYTE], source, tag)
        frames.append(frame)
    return frames
