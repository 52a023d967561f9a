"""NSGA-II (Deb et al. 2002) over members that learn by gradient: several objectives, a front instead of a champion.

The leaderboard holds the survivors. Every generation all rows are their children: genes by crossover and mutation of
two parents, weights and all else that was learnt from the first of them, the winner of a binary tournament. The
children train and are evaluated; the best of survivors and children, by front and then by crowding, survive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from podium.core import tree
from podium.evolve import explore, pareto
from podium.evolve.leaderboard import Entry
from podium.evolve.population import Entries, Population
from podium.evolve.turn import Outcome, Refill, Refills


def refill(population: Population, entries: Entries) -> Refills:
    """The survivors' children fill all rows, except where the pod is away and has new members already."""
    refills: Refills = {}
    for kind in range(len(population.kinds)):
        rows = [(pod, index, row) for pod, index, row in population.all_rows() if row.kind == kind]
        seats = [(pod, index) for pod, index, row in rows if row.failed or (pod, index) in entries]
        for seat, new in zip(seats, _children(population, kind, seats), strict=True) if seats else ():
            refills.setdefault(seat[0], []).append(new)
    return refills


def survive(population: Population, outcomes: Mapping[int, Outcome]) -> Entries:
    """Put the best of leaderboard and evaluated rows on the leaderboard, as many of each kind as there are rows."""
    evaluated = population.healthy(outcomes)
    new = [entry for entry in evaluated.values() if not _was_better(population, entry)]
    kept: list[Entry] = []
    for kind in range(len(population.kinds)):
        mine = {e.member: e for e in [*population.board.of(kind), *(e for e in new if e.kind == kind)]}
        size = sum(place.rows for place in population.places if place.kind == kind)
        entries = list(mine.values())
        order = pareto.survive(_objectives(population, entries), size).tolist()
        kept += [replace(entries[i], place=place) for place, i in enumerate(order)]
    fronts = pareto.fronts(_objectives(population, kept)).tolist()
    entered = {e.member for e in new} & {e.member for e in kept}
    kept = [replace(e, front=front) for e, front in zip(kept, fronts, strict=True)]
    evaluated = population.fetched(evaluated, [seat for seat, e in evaluated.items() if e.member in entered])
    snapshots = {e.member: tree.clone(e.snapshot) for e in evaluated.values() if e.member in entered and e.snapshot}
    kept = [replace(e, snapshot=snapshots.get(e.member, e.snapshot)) for e in kept]
    left = population.board.replace(kept)
    population.ranked([e for e in kept if e.member in entered], left, [e for e in kept if e.member not in entered])
    return evaluated


def _was_better(population: Population, entry: Entry) -> bool:
    """Whether a member stands on the leaderboard already, as it was when it dominated what it is now."""
    old = population.board.get(entry.member)
    return old is not None and bool(pareto.dominates(*_objectives(population, [old, entry])))


def _objectives(population: Population, entries: Sequence[Entry]) -> Tensor:
    """`[n, K]`, all to be maximised."""
    names = [(name.removeprefix("-"), -1.0 if name.startswith("-") else 1.0) for name in population.settings.objectives]
    rows = [[sign * (e.objectives or {})[name] for name, sign in names] for e in entries]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(entries), len(names))


def _children(population: Population, kind: int, seats: Sequence[tuple[int, int]]) -> list[Refill]:
    board, rng, own = population.board.of(kind), population.rng, population.kinds[kind]
    if not board:
        return [population.fresh(pod, index) for pod, index in seats]
    # By their places among all that competed, not by fronts and crowding of those that are left: slightly better.
    place = torch.tensor([entry.place for entry in board])
    first, second = (pareto.parents(place, torch.zeros(len(board)), len(seats), rng).tolist() for _ in range(2))
    genes = [dict(board[i].genes) for i in first]
    if len(own.space):
        a, b = (own.values([board[i].genes for i in parents]) for parents in (first, second))
        eta, probability = population.settings.eta, population.settings.crossover
        crossed = explore.sbx(a, b, own.space, rng, eta, probability)
        genes = own.with_values(genes, explore.polynomial(crossed, own.space, rng, eta))
    parents = [board[i] for i in first]  # before the rows change
    return [population.copy(p, i, e, g) for (p, i), e, g in zip(seats, parents, genes, strict=True)]
