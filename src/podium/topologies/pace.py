"""From one report to the next: how fast and how busy the pods were, and what their members measured."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from podium.evolve.pool import Pods
from podium.evolve.population import Population


class Paces:
    """How fast the pods are, and how busy, from one report to the next."""

    def __init__(self, pool: Pods, population: Population) -> None:
        self._pool, self._population = pool, population
        self._at, self._steps, self._busy = time.perf_counter(), list(population.steps), pool.busy()

    def since(self) -> list[dict[str, float]]:
        """Of each pod: steps a second of all its members, and the share of the time that it was at work."""
        at, steps, busy = time.perf_counter(), list(self._population.steps), self._pool.busy()
        took = max(1e-9, at - self._at)
        found = [
            {
                "steps_per_second": (steps[i] - self._steps[i]) * place.rows / took,
                "busy": min(1.0, (busy[i] - self._busy[i]) / took),
            }
            for i, place in enumerate(self._population.places)
        ]
        self._at, self._steps, self._busy = at, steps, busy
        return found


class Window:
    """Metrics of a pod since the last report: the last ones, and the mean return of the episodes that ended."""

    def __init__(self, rows: int) -> None:
        self._episodes, self._returns = torch.zeros(rows), torch.zeros(rows)
        self._recent = torch.full((rows,), math.nan)
        self._last: Mapping[str, Tensor] = {}
        self.ids = [-1] * rows  # whose metrics these are

    def add(self, report: Mapping[str, Tensor], ids: Sequence[int]) -> None:
        for row in (i for i, (old, new) in enumerate(zip(self.ids, ids, strict=True)) if old != new):
            self._episodes[row], self._returns[row], self._recent[row] = 0, 0, math.nan  # another member's
        self._last, self.ids = report, list(ids)
        self._episodes += report["episodes"]
        self._returns += report["return"].nan_to_num(0) * report["episodes"]

    def metrics(self) -> dict[str, list[float]]:
        self._recent = torch.where(self._episodes > 0, self._returns / self._episodes, self._recent)
        since = {"episodes": self._episodes.tolist(), "return": self._recent.tolist()}
        self._episodes.zero_(), self._returns.zero_()
        return {name: value.tolist() for name, value in self._last.items()} | since


def side_by_side(pods: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """The rows of all pods in one list a metric; NaN where a pod's algorithm has no such metric."""
    names = dict.fromkeys(name for pod in pods for name in pod)
    return {name: [v for pod in pods for v in pod.get(name, [math.nan] * len(pod["return"]))] for name in names}
