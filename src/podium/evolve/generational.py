"""Population-based training in generations (Jaderberg et al. 2017): train, evaluate, select, explore, all together.

Who is kept and who copies whom are functions of their own: see `exchange.py` and `nsga2.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podium.core.tree import Tree
from podium.evolve import saved
from podium.evolve.population import Entries, Population
from podium.evolve.search import Search
from podium.evolve.turn import Outcome, Refills, Task

Record = Callable[[Population, Mapping[int, Outcome]], Entries]
"""Puts members that have just been evaluated on the leaderboard, where they belong there."""
Refill = Callable[[Population, Entries], Refills]
"""From those members to the rows that get new ones."""


class Generational(Search):
    """Every pod trains for `evolve.interval` steps and waits for the others, except for those that are away."""

    def __init__(self, population: Population, record: Record, refill: Refill) -> None:
        super().__init__(population)
        self._record, self._refill, self.generation = record, refill, 0
        self._ends = [population.settings.interval for _ in population.places]  # steps at which this generation ends
        self._scored = [0] * len(population.places)  # steps at which a pod's rows were last evaluated
        self._told: dict[int, Outcome] = {}  # pods whose rows were evaluated
        self._away: set[int] = set()

    def ask(self, pod: int, seconds: float) -> Task | None:
        self._away.discard(pod)
        if self.cut and pod not in self.cut:  # it waits, and stays in step
            return None
        if pod in self._owed:
            return self._owed[pod]
        if pod in self._told:
            return None
        population, place = self.population, self.population.places[pod]
        left = self._ends[pod] - population.steps[pod]
        updates, slice = max(1, -(-left // place.rollout)), population.slice(pod)
        return Task(slice) if updates > slice else Task(updates, range(place.rows))

    def tell(self, pod: int, outcome: Outcome) -> Refills:
        with self.population.run.ledger.together():
            refills = self._take_in(pod, outcome)
        self.population.tidy()
        return refills

    def _take_in(self, pod: int, outcome: Outcome) -> Refills:
        population = self.population
        population.advance(pod, outcome)
        if outcome.away:
            self._away.add(pod)
        if not self._paid(pod, outcome):
            return {}
        if outcome.late and not outcome.task.again:  # the run ends, and this generation stays open
            return {}
        scored = population.score(pod, outcome)
        if outcome.task.rows and not outcome.task.again and not outcome.away:
            self._told[pod], self._scored[pod] = outcome, outcome.steps
            if claims := population.claims(pod, scored):
                self._owed[pod] = Task(0, claims, again=1)
        here = {*range(len(population.places))} - self._away
        if self._owed or not self._told or here - self._told.keys():
            return {}
        return self._next_generation()

    def _next_generation(self) -> Refills:
        population = self.population
        self._ends = [at + population.settings.interval * (pod in self._told) for pod, at in enumerate(self._ends)]
        entries, self._told = self._record(population, self._told), {}
        self.generation += 1
        if self.closing:
            return {}
        if max(population.steps) < population.burn_in:
            return population.revive_failed()
        return self._refill(population, entries)

    def idle(self, pod: int) -> bool:
        return super().idle(pod) and pod not in self._told

    def split(self, pod: int, keep: int) -> None:
        super().split(pod, keep)
        self._scored.append(self._scored[pod])
        self._ends.append(self._ends[pod])

    def last(self, pod: int) -> Task | None:
        """What a finished run still has to do: score what was trained since the last generation."""
        self.closing = True
        if pod in self._owed:
            return self._owed[pod]
        if self._scored[pod] == self.population.steps[pod]:
            return None
        return Task(0, range(self.population.places[pod].rows))

    def state(self) -> Tree:
        told = {str(pod): o.members for pod, o in self._told.items() if o.members is not None}
        return {**self.population.state(), "told": told}

    def info(self) -> dict[str, Any]:
        told = {pod: [o.steps, o.seconds, list(o.task.rows)] for pod, o in self._told.items()}
        counts = {"generation": self.generation, "ends": self._ends, "scored": self._scored}
        return {**super().info(), **counts, "told": told}

    def load(self, state: Tree, info: Mapping[str, Any]) -> None:
        saved.check(info, saved.Generations)
        self.population.load(state, info["population"])
        self.generation, self._ends, self._scored = info["generation"], info["ends"], info["scored"]
        self.load_info(info)
        self._told = {
            int(pod): Outcome(Task(0, rows), steps, seconds, members=state["told"].get(pod))
            for pod, (steps, seconds, rows) in info["told"].items()
        }
