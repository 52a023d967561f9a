"""Simulated pods on a virtual clock, under the real orchestrators, leaderboard and ledger.

A pod has one row. Its turn takes a log-normal time; its member has a skill that grows by chance, the faster the nearer
its one gene is to the best value.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from podium.core.hyper import Gene
from podium.evolve import exchange
from podium.evolve.explore import Searched, Space
from podium.evolve.generational import Generational
from podium.evolve.population import Population
from podium.evolve.rows import Kind, Place
from podium.evolve.settings import EvolveSettings
from podium.evolve.tournament import Tournament
from podium.evolve.turn import Evaluation, Outcome, Refill, Task
from podium.store.run import Run

EPISODES = 4
GENE = Searched("rate", Gene(1e-4, 1.0), 1e-4, 1.0)


class Virtual:
    """A pool of simulated pods, each on a slot of its own; time passes only as tasks take it."""

    def __init__(self, pods: int, sigma: float, seed: int = 0, work: int | None = None) -> None:
        # The k-th task takes the same time whoever gives it out: orchestrators are compared on equal work.
        self._rng, self._times = np.random.default_rng(seed), np.random.default_rng(seed + 10**6)
        self._sigma, self._left = sigma, math.inf if work is None else work
        self._steps, self._skill, self._rate = [0] * pods, [0.0] * pods, [0.01] * pods
        self._running: list[tuple[float, int, int, Task]] = []
        self._idle = set(range(pods))
        self.now, self.busy, self.done = 0.0, 0.0, 0
        self._count = 0

    def seconds(self) -> float:
        return self.now

    def free(self) -> Iterable[int]:
        """Nobody, once all the work there is has been given out."""
        return sorted(self._idle) if self._left > 0 else ()

    def start(self, pod: int, task: Task) -> None:
        if self._left <= 0:
            return
        took = float(self._times.lognormal(0.0, self._sigma))
        self._left -= 1
        self._idle.discard(pod)
        self._count += 1
        self.busy += took
        heapq.heappush(self._running, (self.now + took, self._count, pod, task))

    def next(self) -> tuple[int, Outcome] | None:
        if not self._running:
            return None
        self.now, _, pod, task = heapq.heappop(self._running)
        self._idle.add(pod)
        self.done += 1
        self._steps[pod] += task.updates
        self._skill[pod] += float(self._rng.exponential()) * math.exp(-abs(math.log(self._rate[pod] / 0.1)))
        returns = torch.from_numpy(self._skill[pod] + self._rng.normal(0, 0.1, (1, EPISODES)))
        evaluation = Evaluation(returns, torch.ones(1, EPISODES), torch.zeros(1, EPISODES, 0))
        return pod, Outcome(task, self._steps[pod], self.now, (False,), {}, evaluation)

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        """The child has its parent's genes, mutated. Skill stays with the pod, as there are no weights to copy."""
        self._rate[pod] = refills[0].genes["rate"]


@contextmanager
def population(pods: int, **settings: Any) -> Iterator[Population]:
    """A population of pods of one row each, its run in a folder that is deleted afterwards."""
    kind = Kind("simulated", "simulated", Space([GENE]), lambda member: {"rate": 0.01})
    evolve = EvolveSettings(members=pods, interval=1, slice=1, confirm=False, **settings)
    with TemporaryDirectory() as folder, Run.create(Path(folder) / "run", {}) as run:
        made = Population([kind], [Place(0, 1, 1)] * pods, evolve, run, seed=0)
        made.enter()
        yield made


def tournament(made: Population) -> Tournament:
    return Tournament(made)


def generational(made: Population) -> Generational:
    return Generational(made, Population.offer_all, exchange.refill)
