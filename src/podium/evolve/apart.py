"""Members that train beside each other and never meet: `podium train`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from podium.core import tree
from podium.core.tree import Tree
from podium.evolve import saved
from podium.evolve.population import Population
from podium.evolve.turn import Outcome, Refills, Task
from podium.store.snapshot import kept

TURN = 64
"""Steps of each member, or updates, in a turn: less would be spent on the turns themselves, more would keep Ctrl-C
waiting."""


class Apart:
    """One pod, a few updates at a turn; each member is evaluated every so many steps and kept as it was at its best."""

    cut = frozenset[int]()  # an evaluation that was cut short is made up for as the last one of a finished run is

    def __init__(self, population: Population, every: int, stop: int | None = None, work: float = 1) -> None:
        """`work` is how many updates a rollout brings."""
        self.population, self._every, self._stop, self._work = population, every, stop or math.inf, work
        self.best = [-math.inf] * population.size
        self.evaluated, self.owed = -1, False  # at which step; an evaluation that was cut short

    def ask(self, pod: int, seconds: float) -> Task | None:
        steps, place = self.population.steps[pod], self.population.places[pod]
        if self.owed:
            return Task(0, range(place.rows))
        due = (steps // self._every + 1) * self._every
        left = -(-(min(due, self._stop) - steps) // place.rollout)  # updates
        updates = int(max(1, min(left, TURN // max(place.rollout, self._work))))
        return Task(updates, range(place.rows) if steps + updates * place.rollout >= due else ())

    def tell(self, pod: int, outcome: Outcome) -> Refills:
        if not outcome.task.rows:  # most turns: nothing is entered, so there is nothing to commit
            self.population.advance(pod, outcome)
            self.owed = False
            return {}
        with self.population.run.ledger.together():
            self.population.advance(pod, outcome)
            self.owed = outcome.cut_short
            for index in self.population.score(pod, outcome, strict=False):  # nobody would take its place
                self._keep(index, outcome)
            if outcome.evaluation is not None:
                self.evaluated = outcome.steps
        return {}

    def last(self, pod: int) -> Task | None:
        """What a finished run still has to do: score what was trained since the last evaluation."""
        done = self.evaluated == self.population.steps[pod]
        return None if done else Task(0, range(self.population.places[pod].rows))

    def _keep(self, index: int, outcome: Outcome) -> None:
        row = self.population.rows[0][index]
        fitness = self.population.fitness(row)
        if fitness > self.best[index] and outcome.members is not None:
            self.best[index] = fitness
            learnt = tree.take(outcome.members, torch.tensor([index]))
            about = {"step": outcome.steps, "fitness": fitness, "kind": 0}
            score = {"seconds": outcome.seconds, "returns": row.returns}  # should the ledger be lost
            self.population.run.snapshot(row.member, learnt, about | score)

    @property
    def leader(self) -> float | None:
        """The best fitness so far."""
        best = max(self.best)
        return best if math.isfinite(best) else None

    @property
    def generation(self) -> int:
        return 0

    def reached(self, fitness: float) -> bool:
        """Members are independent agents: whether every healthy one has come so far."""
        rows = self.population.rows[0]
        return all(best >= fitness for best, row in zip(self.best, rows, strict=True) if not row.failed)

    def failed(self) -> bool:
        """Whether there is nobody left to train."""
        return all(row.failed for row in self.population.rows[0])

    def state(self) -> Tree:
        return self.population.state()

    def info(self) -> dict[str, Any]:
        best = [None if math.isinf(b) else b for b in self.best]
        return {"population": self.population.info(), "best": best, "evaluated": self.evaluated, "owed": self.owed}

    def load(self, state: Tree, info: Mapping[str, Any]) -> None:
        saved.check(info, saved.Independent)
        self.population.load(state, info["population"])
        if len(info["best"]) != self.population.size:
            raise ValueError(f"best: {len(info['best'])} numbers for {self.population.size} members")
        self.best = [-math.inf if b is None else b for b in info["best"]]
        self.evaluated, self.owed = info["evaluated"], info["owed"]

    def restore(self) -> None:
        """The snapshots on disk are the best there were; one that is damaged makes way for the next that is scored."""
        for index, row in enumerate(self.population.rows[0]):
            path = self.population.run.snapshot_path(row.member)
            if math.isfinite(self.best[index]) and kept(path) is None:
                self.best[index] = -math.inf
                lost = f"{path} is missing or damaged"
                self.population.note(f"{lost}: the next score of member {row.member} replaces it")
