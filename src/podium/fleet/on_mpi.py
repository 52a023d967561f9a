"""The fleet on MPI: `mpiexec` starts the ranks. Rank 0 runs the command, the others serve as nodes.

MPI launches the nodes and tells where they are, ZeroMQ moves the data: on rank 0's own machine over a path that only
the user may enter, elsewhere over TCP with CURVE keys that rank 0 makes anew. A rank that fails ends the job.
"""

from __future__ import annotations

import os
import shutil
import socket as sockets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from podium.core import machine
from podium.core.errors import ConfigError
from podium.fleet import crew, mpi, wire
from podium.fleet.errors import NodeLost
from podium.fleet.folder import private
from podium.fleet.group import Group
from podium.fleet.keys import Keys, bind
from podium.fleet.link import Handle, Wired
from podium.fleet.mpi import abort, launched, rank, receive, send
from podium.fleet.node import Node, make, path_of, router, serve

__all__ = ["abort", "end", "group", "job", "launched", "rank", "room", "serve_rank"]

SPEC, WHERE = crew.SPEC, 2
"""Tags: what a rank is to be, and where it then is. An empty spec ends it."""


def room(address: str | None, cpus: float) -> int:
    """All ranks but the first."""
    mpi.need_mpiexec()
    return mpi.ranks() - 1


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
    mpi.need_mpiexec()
    if rank():  # and rank 0 waits for it
        mpi.end("on MPI rank 0 alone makes groups; put `with podium.fleet.on_mpi.job():` around it")
    free = [r for r in range(1, mpi.ranks()) if r not in _taken]
    if size > len(free):
        ranks = mpi.ranks()
        raise ConfigError("fleet.pods", size, f"at most {len(free)}: {ranks} ranks, of which rank 0 runs the command")
    path, keys, folder = path_of(target), Keys.new(), private()
    mine = free[:size]
    _taken.update(mine)
    mpi.folders.add(folder)

    def launch(node: int, own: Sequence[Any]) -> Rank:
        what = {"path": path, "args": [*args, *own], "named": named, "search": sys.path}
        home = {"machine": machine.identity(), "folder": str(folder), "keys": keys.plain(), "threads": threads}
        send(wire.pack(what | home), mine[node], SPEC)
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


def crew_of(target: Any, size: int, *args: Any, **more: Any) -> crew.Crew:
    """Ranks 0 to size - 1, in step."""
    mpi.need_mpiexec()
    if size > mpi.ranks():
        allowed = f"at most {mpi.ranks()}: so many ranks did mpiexec start (a run keeps its number)"
        raise ConfigError("fleet.pods", size, allowed)
    return crew.Crew(target, size, *args, **more)


_taken: set[int] = set()


class Rank:
    """A node in another rank."""

    def __init__(self, name: str, rank: int, keys: Keys) -> None:
        self._name, self._rank, self._keys = name, rank, keys
        self._link: Wired | None = None

    def up(self) -> Wired | None:
        if not mpi.has_sent(self._rank, WHERE):
            return None
        address = wire.unpack(receive(self._rank, WHERE))
        self._link = Wired(Handle(self._name, address), self._keys if address.startswith("tcp") else None)
        return self._link

    def stop(self, grace: float) -> None:
        """Wait until the rank is free again; one that does not come to an end takes the job with it."""
        ends = time.monotonic() + max(grace, 1.0)
        while self._link is None and time.monotonic() < ends:  # nobody has told it to end
            if link := self.up():
                link.say_close()
            time.sleep(0.01)
        try:
            receive(self._rank, WHERE, max(grace, 1.0))
        except NodeLost:
            mpi.end(f"rank {self._rank} does not come to an end")


def end() -> None:
    """Rank 0, at the very end: let the others go."""
    for r in range(1, mpi.ranks()):
        send([b""], r, SPEC)


def serve_rank() -> None:
    """The life of any other rank: a node for as long as it is asked to be one, then the next."""
    mpi.tidy_when_told()
    while True:
        frames = receive(0, SPEC)
        if not frames[0]:
            return
        spec: Mapping[str, Any] = wire.unpack(frames)
        if "crew" in spec:
            crew.serve(spec)
            continue
        sys.path[:] = [*spec["search"], *(p for p in sys.path if p not in spec["search"])]
        machine.share_cores(spec["threads"] or mpi.share())
        socket = router()
        mpi.folders.add(Path(spec["folder"]))
        if spec["machine"] == machine.identity():
            where = bind(socket, f"ipc://{spec['folder']}/{os.getpid()}-{time.monotonic_ns()}", None)
        else:
            where = bind(socket, f"tcp://{_ip()}:*", Keys.of(spec["keys"]))
        send(wire.pack(where), 0, WHERE)
        serve(Node(lambda spec=spec: make(spec["path"], spec["args"], spec["named"])), socket)  # type: ignore[misc]
        socket.close(0)
        send(wire.pack("free"), 0, WHERE)


def _ip() -> str:
    """The address under which other machines reach this one."""
    return sockets.gethostbyname(sockets.gethostname())
