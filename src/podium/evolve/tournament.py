"""The tournament: an asynchronous search in which nobody waits for a generation.

Every row has a ready point of its own, staggered. A row that is ready is evaluated and offered to the leaderboard (the
updater decides); then the generator draws a parent from the leaderboard, and if that is better, the row goes on as its
child. The others train on meanwhile.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any

import torch

from podium.core.tree import Tree
from podium.evolve import saved
from podium.evolve.generator import GENERATORS
from podium.evolve.leaderboard import Entry
from podium.evolve.population import Population
from podium.evolve.search import Search
from podium.evolve.turn import Outcome, Refill, Refills, Task


class Tournament(Search):
    """Drives any number of pods; ready points count steps, or seconds where `evolve.seconds` is set.

    Pods that take turns in one process are kept `in_step`: while one proves a lead the others wait, so that its kind
    does not train less. Pods that run side by side wait for nobody.
    """

    def __init__(self, population: Population, in_step: bool = True) -> None:
        super().__init__(population)
        self._in_step = in_step
        settings, n = population.settings, population.size
        self._interval = settings.interval if settings.seconds is None else settings.seconds
        turn = iter(range(1, n + 1))
        self._ready = [[self._interval * next(turn) / n for _ in rows] for rows in population.rows]
        self._scored = [[-1] * len(rows) for rows in population.rows]  # steps at which a row was last scored
        self._live: list[list[float]] = [[] for _ in population.kinds]  # fitness of those in training, worst first
        self._known: dict[tuple[int, int], float] = {}  # the same by pod and row

    def ask(self, pod: int, seconds: float) -> Task | None:
        first = self.cut or (self._owed if self._in_step else ())
        if first and pod not in first:
            return None
        if pod in self._owed:
            return self._owed[pod]
        population, updates = self.population, self.population.slice(pod)
        steps = population.steps[pod] + updates * population.places[pod].rollout
        return Task(updates, self._due(pod, steps if population.settings.seconds is None else seconds))

    def _due(self, pod: int, now: float) -> list[int]:
        return [index for index, at in enumerate(self._ready[pod]) if at <= now]

    def tell(self, pod: int, outcome: Outcome) -> Refills:
        with self.population.run.ledger.together():
            refills = self._take_in(pod, outcome)
        self.population.tidy()
        return {pod: refills} if refills else {}

    def _take_in(self, pod: int, outcome: Outcome) -> list[Refill]:
        population, task = self.population, outcome.task
        population.advance(pod, outcome)
        if not self._paid(pod, outcome):  # nothing is decided before it has been made up for
            return []
        healthy = population.score(pod, outcome)
        for index in task.rows if outcome.evaluation is not None else ():
            self._count(pod, index)
            self._scored[pod][index] = outcome.steps
        claims = [] if task.again else population.claims(pod, healthy)
        if claims:
            self._owed[pod] = Task(0, claims, again=1)
        settled = [index for index in healthy if index not in claims]
        if outcome.late and task.again:  # a lead that there was no time to prove
            settled = [index for index in task.rows if not population.rows[pod][index].failed]
        failed = [index for index, row in enumerate(population.rows[pod]) if row.failed]
        for index in (*settled, *failed):
            now = outcome.steps if population.settings.seconds is None else outcome.seconds
            self._ready[pod][index] = now + self._interval
        refills = [self._settle(pod, index, outcome) for index in settled]
        refills += [self._replace(pod, index) for index in failed if not self.closing]
        return [refill for refill in refills if refill is not None]

    def _settle(self, pod: int, index: int, outcome: Outcome) -> Refill | None:
        """Offer a row to the leaderboard, and let the generator decide who trains on in it. None: the same member."""
        population, settings = self.population, self.population.settings
        entry = population.offer(pod, index, population.entry(pod, index, outcome))
        if self.closing or population.steps[pod] < population.burn_in:
            return None
        live = self._live[entry.kind]
        worst = len(live) > 1 and entry.fitness <= live[0]
        parent = population.board.best(entry.kind) if worst else self._draw(entry.kind)
        if parent is None or not parent.fitness > entry.fitness:
            return None
        if settings.fresh and float(torch.rand((), generator=population.rng)) < settings.fresh:
            return self._seated(pod, population.fresh(pod, index))
        return self._child(pod, index, parent)

    def _replace(self, pod: int, index: int) -> Refill:
        """Failure is selection: a child of a healthy parent, or new weights where there is none."""
        parent = self._draw(self.population.places[pod].kind)
        if parent is None:
            return self._seated(pod, self.population.fresh(pod, index))
        return self._child(pod, index, parent)

    def _draw(self, kind: int) -> Entry | None:
        board, settings = self.population.board, self.population.settings
        if not board.of(kind):
            return None
        return board.of(kind)[GENERATORS[settings.generator](board.fitness(kind), self.population.rng, settings)]

    def _child(self, pod: int, index: int, parent: Entry) -> Refill:
        genes = self.population.mutated(parent.kind, [parent.genes])[0]
        return self._seated(pod, self.population.copy(pod, index, parent, genes))

    def _seated(self, pod: int, refill: Refill) -> Refill:
        self._count(pod, refill.row)
        self._scored[pod][refill.row] = self.population.steps[pod]  # it has learnt nothing yet that could be scored
        return refill

    def _count(self, pod: int, index: int) -> None:
        """Keep the fitness of those in training in order."""
        live, old = self._live[self.population.places[pod].kind], self._known.pop((pod, index), None)
        if old is not None:
            del live[bisect_left(live, old)]
        fitness = self.population.fitness(self.population.rows[pod][index])
        if math.isfinite(fitness):
            self._known[pod, index] = fitness
            insort(live, fitness)

    def split(self, pod: int, keep: int) -> None:
        super().split(pod, keep)
        new = len(self._ready)
        self._ready.append(self._ready[pod][keep:])
        self._scored.append(self._scored[pod][keep:])
        del self._ready[pod][keep:], self._scored[pod][keep:]
        moved = {(p, index): (new, index - keep) for p, index in self._known if p == pod and index >= keep}
        self._known = {moved.get(seat, seat): fitness for seat, fitness in self._known.items()}

    def last(self, pod: int) -> Task | None:
        """What a finished run still has to do: score the rows that were trained since they were last scored."""
        self.closing = True
        if pod in self._owed:
            return self._owed[pod]
        steps = self.population.steps[pod]
        rows = [i for i, at in enumerate(self._scored[pod]) if at != steps]
        return Task(0, rows) if rows else None

    @property
    def generation(self) -> int:
        """As many evaluations as there are members count as one."""
        return self.population.evaluations // self.population.size

    def state(self) -> Tree:
        return self.population.state()

    def info(self) -> dict[str, Any]:
        return {**super().info(), "ready": self._ready, "scored": self._scored}

    def load(self, state: Tree, info: Mapping[str, Any]) -> None:
        saved.check(info, saved.Tournament)
        self.population.load(state, info["population"])
        self.load_info(info)
        self._ready, self._scored = info["ready"], info["scored"]
        for pod, index, _ in self.population.all_rows():
            self._count(pod, index)
