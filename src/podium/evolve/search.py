"""What a tournament and generations have in common: a champion, and evaluations that are owed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from podium.evolve.population import Population
from podium.evolve.turn import Outcome, Task


class Search:
    """An orchestrator of members that replace each other."""

    def __init__(self, population: Population) -> None:
        self.population, self.closing = population, False
        self.cut: set[int] = set()  # pods that owe an evaluation because it was cut short
        self._owed: dict[int, Task] = {}  # evaluations to be done, or done again

    def _paid(self, pod: int, outcome: Outcome) -> bool:
        """Whether an outcome is what its task asked for; an evaluation that was cut short is owed."""
        self._owed.pop(pod, None)
        self.cut.discard(pod)
        if outcome.cut_short:
            self._owed[pod] = replace(outcome.task, updates=0)
            self.cut.add(pod)
        return not outcome.cut_short

    def idle(self, pod: int) -> bool:
        """Whether nothing is open between a pod and the others."""
        return pod not in self._owed

    def split(self, pod: int, keep: int) -> None:
        """A pod that is idle keeps its first rows; the others are those of a new pod, the last."""
        self.population.split(pod, keep)

    @property
    def leader(self) -> float | None:
        """The champion's fitness."""
        best = self.population.board.best()
        return best.fitness if best is not None else None

    def reached(self, fitness: float) -> bool:
        """Whether the champion has come so far."""
        return self.leader is not None and self.leader >= fitness

    def failed(self) -> bool:
        """Never: a failed member is replaced."""
        return False

    def info(self) -> dict[str, Any]:
        """What a resume needs, as JSON holds it."""
        owed = {pod: [list(task.rows), task.again] for pod, task in self._owed.items()}
        return {"population": self.population.info(), "owed": owed, "cut": sorted(self.cut)}

    def load_info(self, info: Mapping[str, Any]) -> None:
        """Owe again what `info` said."""
        self.cut = set(info["cut"])
        self._owed = {int(pod): Task(0, rows, again) for pod, (rows, again) in info["owed"].items()}

    def restore(self) -> None:
        self.population.restore()
