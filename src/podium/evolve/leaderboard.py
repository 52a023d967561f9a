"""The leaderboard: a bounded, ordered set of members as they were at their best.

Ranks are global: front, fitness, then fewer steps, then the lower id. Places are kept for each kind, so that one kind
of member cannot drive out another before it has learnt. Fitness that is not finite never enters.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from podium.core.hyper import plain
from podium.core.tree import Tree
from podium.store.records import Ranked

Key = tuple[int, float, int, int]


@dataclass(frozen=True)
class Entry:
    """A member on the leaderboard, with what it had learnt (`snapshot`, leaves `[1, ...]`; None in a simulation)."""

    member: int
    kind: int
    fitness: float
    step: int  # of its row, when the snapshot was taken
    seconds: float
    trained: int  # steps of training behind the snapshot, over all ancestors
    generation: int
    genes: Mapping[str, float]
    history: tuple[float, ...]
    std: float = 0.0
    episodes: int = 1
    objectives: Mapping[str, float] | None = None
    front: int = 0
    place: int = 0  # among the survivors of its kind, by front and crowding
    parent: int | None = None
    snapshot: Tree | None = None

    @property
    def key(self) -> Key:
        """Best first."""
        return self.front, -self.fitness, self.step, self.member

    def plain(self) -> dict[str, Any]:
        """All but the snapshot, as JSON holds it."""
        names = (name for name in self.__dataclass_fields__ if name != "snapshot")
        return {name: getattr(self, name) for name in names} | {"genes": plain(self.genes)}

    def row(self) -> dict[str, Any]:
        """As a table shows it."""
        names = ("parent", "fitness", "std", "episodes", "generation", "objectives", "seconds")
        return {"id": self.member, "steps": self.step, "genes": plain(self.genes)} | {
            n: getattr(self, n) for n in names
        }

    def ranked(self) -> Ranked:
        """As the ledger holds it."""
        return Ranked(
            self.member, self.fitness, self.step, self.seconds, self.std, self.episodes, self.front, self.objectives
        )


class Leaderboard:
    """At most `capacity[k]` entries of each kind k, one a member."""

    def __init__(self, capacity: Sequence[int]) -> None:
        self.capacity = [max(2, n) for n in capacity]
        self._entries: list[list[Entry]] = [[] for _ in capacity]  # best first
        self._fitness = [array("d") for _ in capacity]
        self._keys: list[list[Key]] = [[] for _ in capacity]
        self._by_member: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._by_member)

    def __iter__(self) -> Iterator[Entry]:
        """All entries, best first."""
        return heapq.merge(*self._entries, key=lambda e: e.key)

    def get(self, member: int) -> Entry | None:
        return self._by_member.get(member)

    def best(self, kind: int | None = None) -> Entry | None:
        """Rank 1, of all or of a kind."""
        if kind is not None:
            return self._entries[kind][0] if self._entries[kind] else None
        return min((entries[0] for entries in self._entries if entries), key=lambda e: e.key, default=None)

    def of(self, kind: int) -> Sequence[Entry]:
        """The entries of a kind, best first."""
        return self._entries[kind]

    def fitness(self, kind: int) -> Tensor:
        """Of the entries of a kind, best first."""
        return torch.from_numpy(np.array(self._fitness[kind]))

    def admits(self, entry: Entry) -> bool:
        """Whether there is a place for it, or a worse one to drive out; a member that is there already may move up."""
        old, entries = self._by_member.get(entry.member), self._entries[entry.kind]
        if not math.isfinite(entry.fitness):
            return False
        if old is not None:
            return entry.key < old.key
        return len(entries) < self.capacity[entry.kind] or entry.key < entries[-1].key

    def offer(self, entry: Entry) -> list[Entry]:
        """Enter what it admits; those that left."""
        if not self.admits(entry):
            return []
        if entry.member in self._by_member:
            self._drop(self._by_member[entry.member])
        self._insert(entry)
        left, entries = [], self._entries[entry.kind]
        while len(entries) > self.capacity[entry.kind]:
            left.append(entries[-1])
            self._drop(entries[-1])
        return left

    def replace(self, entries: Sequence[Entry]) -> list[Entry]:
        """Put others in the place of all that are there; those that left."""
        kept = {entry.member for entry in entries}
        left = [entry for entry in self if entry.member not in kept]
        for entry in list(self):
            self._drop(entry)
        for entry in entries:
            self._insert(entry)
        return left

    def _insert(self, entry: Entry) -> None:
        kind, key = entry.kind, entry.key
        place = bisect_left(self._keys[kind], key)
        self._keys[kind].insert(place, key)
        self._entries[kind].insert(place, entry)
        self._fitness[kind].insert(place, entry.fitness)
        self._by_member[entry.member] = entry

    def _drop(self, entry: Entry) -> None:
        kind = entry.kind
        place = bisect_left(self._keys[kind], entry.key)
        del self._keys[kind][place], self._entries[kind][place], self._fitness[kind][place]
        del self._by_member[entry.member]
