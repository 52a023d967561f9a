"""A crew: ranks of MPI that work in step, rank 0 among them. Its word is broadcast, all do it, their answers come back.

    crew = Crew("package.module:Class", 4, ...)         # on rank 0; an object of the class on each of ranks 0 to 3
    crew.call("train", 100)                             # answers of all, in order
    crew.call("load", each=[[a], [b], [c], [d]])        # with arguments of their own

Between themselves the ranks swap buffers: the class is given their `Peers`. What goes wrong on any rank ends the job.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from podium.core import machine
from podium.core.errors import PodiumError
from podium.fleet import mpi, wire
from podium.fleet.errors import NodeLost
from podium.fleet.mpi import MPI, WORLD, wait
from podium.fleet.node import find, make, path_of

SPEC, OWN, ANSWER, SWAP = 1, 3, 4, 5
"""Tags: what a rank is to be, arguments of its own, what it answers, and buffers between any two."""
DONE = "close"


Move = tuple[int, int, Any]
"""From rank, to rank, and the buffer: filled on the one, to be filled on the other, None elsewhere."""


class Peers:
    """The ranks of a crew among themselves."""

    def __init__(self, size: int) -> None:
        self.rank = mpi.rank()
        self._ranks = WORLD.Create_group(WORLD.Get_group().Incl(list(range(size))))
        self._size = size

    def broadcast(self, frames: Sequence[wire.Frame] | None) -> list[wire.Frame]:
        """Rank 0's message, on every rank."""
        lengths = np.array([len(frames) if frames is not None else 0], dtype=np.int64)
        wait([self._ranks.Ibcast([lengths, MPI.INT64_T])])
        sizes = np.array([memoryview(f).nbytes for f in frames or ()] or [0] * int(lengths[0]), dtype=np.int64)
        wait([self._ranks.Ibcast([sizes, MPI.INT64_T])])
        bodies: list[wire.Frame] = list(frames or (bytearray(size) for size in sizes.tolist()))
        wait([self._ranks.Ibcast([body, MPI.BYTE]) for body in bodies])
        return bodies

    def p2p(self, moves: Sequence[Move]) -> None:
        """Each buffer straight from its rank to the other; all ranks are given the same moves, in the same order."""
        begun = [WORLD.Irecv([buffer, MPI.BYTE], source, SWAP) for source, to, buffer in moves if to == self.rank]
        begun += [WORLD.Isend([buffer, MPI.BYTE], to, SWAP) for source, to, buffer in moves if source == self.rank]
        wait(begun)

    def collective(self, moves: Sequence[Move]) -> None:
        """The same in one all-to-all."""
        out, outs = self._by_rank((to, buffer) for source, to, buffer in moves if source == self.rank)
        into, ins = self._by_rank((source, buffer) for source, to, buffer in moves if to == self.rank)
        sent = np.concatenate([np.empty(0, np.uint8), *out])
        came = np.empty(sum(ins), dtype=np.uint8)
        wait([self._ranks.Ialltoallv([sent, (outs, _starts(outs)), MPI.BYTE], [came, (ins, _starts(ins)), MPI.BYTE])])
        at = 0
        for buffer in into:
            buffer[:] = came[at : at + len(buffer)]
            at += len(buffer)

    def _by_rank(self, moves: Iterable[tuple[int, Any]]) -> tuple[list[Any], list[int]]:
        """Buffers in the order of the ranks at their other end, and the bytes of each rank."""
        ordered, sizes = sorted(moves, key=lambda move: move[0]), [0] * self._size
        for other, buffer in ordered:
            sizes[other] += buffer.nbytes
        return [np.frombuffer(buffer, np.uint8) for _, buffer in ordered], sizes

    def free(self) -> None:
        self._ranks.Free()


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes))]


class Crew:
    """Rank 0's end: calls every rank, and does its own part. `each` are more arguments of the class, a list a rank."""

    def __init__(
        self,
        target: Any,
        size: int,
        *args: Any,
        each: Sequence[Sequence[Any]] = (),
        threads: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._size, self._timeout, self._open = size, timeout, True
        spec = {"crew": size, "path": path_of(target), "search": sys.path, "threads": threads}
        specs = [spec | {"args": [*args, *(each[r] if each else ())]} for r in range(size)]
        for r in range(1, size):
            mpi.send(wire.pack(specs[r]), r, SPEC)
        try:
            self._peers, self._mine = enlist(wire.copy(specs[0]))  # as the others get it
        except Exception:
            mpi.abort()

    def __len__(self) -> int:
        return self._size

    def call(self, method: str, *args: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """All do the same; their answers in order. Who does not answer in time takes the job with it."""
        message = wire.pack([method, list(args), each is not None])
        own = [wire.pack(list(more)) for more in each[1:]] if each is not None else []
        try:
            self._peers.broadcast(message)
            for r, frames in enumerate(own, 1):
                mpi.send(frames, r, OWN)
            mine, failed = self._do(find(self._mine, method), *args, *(each[0] if each is not None else ()))
            answers = [wire.unpack(mpi.receive(r, ANSWER, self._timeout)) for r in range(1, self._size)]
        except NodeLost as error:
            mpi.end(str(error))
        except BaseException:  # the others would wait for what does not come
            mpi.abort()
        if failed is not None:
            raise failed
        return [mine, *answers]

    def _do(self, method: Callable[..., Any], *args: Any) -> tuple[Any, PodiumError | None]:
        """This rank's part; what a user can cause is raised once the others have come to the end of theirs."""
        try:
            return method(*args), None
        except PodiumError as error:
            return None, error

    def close(self) -> None:
        """Let the ranks go, and wait for their last answers."""
        if self._open:
            self._open = False
            self.call(DONE)
            self._peers.free()


def enlist(spec: Mapping[str, Any]) -> tuple[Peers, object]:
    """Become one of a crew."""
    sys.path[:] = [*spec["search"], *(p for p in sys.path if p not in spec["search"])]
    machine.share_cores(spec["threads"] or mpi.share())
    peers = Peers(spec["crew"])
    return peers, make(spec["path"], [peers, *spec["args"]])


def serve(spec: Mapping[str, Any]) -> None:
    """The life of any rank of a crew but the first."""
    peers, mine = enlist(spec)
    method = ""
    while method != DONE:
        method, args, own = wire.unpack(peers.broadcast(None))
        more = wire.unpack(mpi.receive(0, OWN)) if own else []
        mpi.send(wire.pack(find(mine, method)(*args, *more)), 0, ANSWER)
    peers.free()
