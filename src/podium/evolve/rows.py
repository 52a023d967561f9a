"""A row of a pod and the member in it; the kinds of members and the pods that hold them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from podium.core.hyper import plain
from podium.evolve.explore import Space

Genes = dict[str, float]
"""By name; infinity where a gene is off."""


@dataclass(frozen=True)
class Kind:
    """What some members share. `born` are the genes of a member with new weights, by its id.

    Before `learns` steps no member has learnt anything.
    """

    name: str
    algo: str
    space: Space
    born: Callable[[int], Genes]
    learns: int = 0

    def values(self, genes: Sequence[Mapping[str, float]]) -> Tensor:
        """The searched genes of some members, `[n, G]`."""
        names = [searched.name for searched in self.space.searched]
        return torch.tensor([[g[name] for name in names] for g in genes], dtype=torch.float64)

    def with_values(self, genes: Sequence[Mapping[str, float]], values: Tensor) -> list[Genes]:
        """Copies of genes with other values of those that are searched, as float32 holds them."""
        names = [searched.name for searched in self.space.searched]
        return [{**g, **dict(zip(names, v, strict=True))} for g, v in zip(genes, values.float().tolist(), strict=True)]


@dataclass(frozen=True)
class Seat:
    """A pod to be: its kind of members, how many it has, and the id of the first."""

    kind: int
    rows: int
    first: int

    def split(self) -> tuple[Seat, Seat]:
        """Two pods in its place; the first has one more where they cannot be equal."""
        keep = self.rows - self.rows // 2
        return Seat(self.kind, keep, self.first), Seat(self.kind, self.rows - keep, self.first + keep)


@dataclass(frozen=True)
class Place:
    """A pod as the population knows it: the kind and number of its rows, and the steps of one update."""

    kind: int
    rows: int
    rollout: int


@dataclass
class Row:
    """A row of a pod and the member in it."""

    member: int
    kind: int
    genes: Genes
    parent: int | None = None
    parent_fitness: float | None = None
    generation: int = 0
    born: int = 0  # steps of the row at its birth
    inherited: int = 0  # steps of training behind what it copied
    history: list[float] = field(default_factory=list)  # mean returns of the last evaluations, its ancestors' too
    returns: list[float] = field(default_factory=list)  # of the last evaluation
    objectives: dict[str, float] = field(default_factory=dict)
    failed: bool = False

    def fitness(self, window: int) -> float:
        """Mean of the last evaluations; NaN where there is none, or where it failed."""
        return statistics.fmean(self.history[-window:]) if self.history and not self.failed else math.nan

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "genes": plain(self.genes)}
