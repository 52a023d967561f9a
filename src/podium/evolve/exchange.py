"""The exchange at the end of a generation: rows that select.py tells to copy become children of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from podium.evolve import select
from podium.evolve.population import Entries, Population
from podium.evolve.rows import Row
from podium.evolve.settings import EvolveSettings
from podium.evolve.turn import Refill, Refills

Seated = tuple[int, int, Row]
"""Pod, row, who sits there."""
Rule = Callable[[Tensor, Tensor, torch.Generator, EvolveSettings], Tensor]
"""(fitness [M], returns [M, n], dice, settings) -> parents [M]"""

RULES: dict[str, Rule] = {
    "wta": lambda fitness, returns, rng, s: select.winner_takes_all(fitness, rng),
    "truncation": lambda fitness, returns, rng, s: select.truncation(fitness, rng, s.fraction),
    "tournament-selection": lambda fitness, returns, rng, s: select.tournament(fitness, rng, s.rivals),
    "t-test": lambda fitness, returns, rng, s: select.t_test(returns, rng, s.alpha),
    "softmax": lambda fitness, returns, rng, s: select.softmax(fitness, rng),
}


def refill(population: Population, entries: Entries) -> Refills:
    """Each kind among itself: select, explore. Failed members are replaced whatever the rule says.

    Rows that were not evaluated take no part: their pod is away, and has new members already.
    """
    refills: Refills = {}
    for kind in range(len(population.kinds)):
        seats = [seat for seat in population.all_rows() if seat[2].kind == kind]
        seats = [(pod, index, row) for pod, index, row in seats if row.failed or (pod, index) in entries]
        for pod, new in _refill_kind(population, seats, entries) if seats else ():
            refills.setdefault(pod, []).append(new)
    return refills


def _refill_kind(population: Population, seats: Sequence[Seated], entries: Entries) -> Iterator[tuple[int, Refill]]:
    settings, kind = population.settings, seats[0][2].kind
    fitness = torch.tensor([population.fitness(row) for _, _, row in seats], dtype=torch.float64)
    parents = RULES[settings.strategy](fitness, _returns(seats), population.rng, settings).tolist()
    moved = [i for i, parent in enumerate(parents) if parent != i or settings.mutate == "all"]
    moved = [i for i in moved if not seats[parents[i]][2].failed]
    genes = population.mutated(kind, [seats[parents[i]][2].genes for i in moved])
    for i, new in zip(moved, genes, strict=True):
        (pod, index, _), (source_pod, source, _) = seats[i], seats[parents[i]]
        parent = entries[source_pod, source]
        yield pod, population.copy(pod, index, parent, new, (source_pod, source))
    for pod, index, row in seats:
        if row.failed and population.rows[pod][index] is row:  # nobody of its kind is well
            yield pod, population.revive(pod, index)


def _returns(seats: Sequence[Seated]) -> Tensor:
    """Of the last evaluation, `[M, n]`; NaN for the failed."""
    lists = [[] if row.failed else row.returns for _, _, row in seats]
    n = min((len(r) for r in lists if r), default=1)
    return torch.tensor([r[-n:] or [float("nan")] * n for r in lists], dtype=torch.float64)
