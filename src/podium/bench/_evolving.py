"""Populations for benchmarks: real runs under the real driver, in folders that are deleted afterwards."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from podium import entrants, training
from podium.bench import _agents
from podium.bench._agents import Plan
from podium.bench._side_by_side import Row, row
from podium.core import config
from podium.evolve.pool import Inline
from podium.report.sink import Sink
from podium.roles.evaluator import Evaluator
from podium.roles.pod import Pod
from podium.settings import Evolution
from podium.store.run import Run
from podium.topologies.driver import Driver

MEMBERS = 16


def experiment(plan: Plan, strategy: str, threads: int, *, seed: int = 0, **sections: dict[str, Any]) -> Evolution:
    """A population with the settings of a plan; `sections` are laid over them. What a plan anneals stays as it is."""
    agent = _agents.experiment(plan, threads=threads, seed=seed).model_dump(mode="json")
    agent["train"].pop("members")
    evolve = {"evolve": {"strategy": strategy, "members": MEMBERS}, "stop": {"steps": None}}
    found = entrants.validate(entrants.complete(config.merge(agent, evolve, sections)))
    assert isinstance(found, Evolution)
    return found


class Evolving:
    """A run that goes on a few generations at a time, as if it were stopped and resumed: with a checkpoint each."""

    def __init__(self, pods: Sequence[Pod], driver: Callable[[Callable[[], bool]], Driver]) -> None:
        self.pods, self._until = pods, math.inf
        self.driver = driver(lambda: self.driver.orchestrator.generation >= self._until)

    def generations(self, number: int) -> float:
        """Train, evaluate and evolve; the steps of training of all members."""
        population = self.driver.population
        before, self._until = population.total_steps, self.driver.orchestrator.generation + number
        self.driver.train()
        return float(population.total_steps - before)


@contextmanager
def evolving(experiment: Evolution) -> Iterator[Evolving]:
    """A new run as `podium evolve` makes it: ledger, snapshots, checkpoints, event file, log."""
    with TemporaryDirectory() as folder, Sink(training.console(experiment, quiet=True)) as sink:
        pods = [pod for pod in entrants.build_pods(experiment) if isinstance(pod, Pod)]
        with Run.create(Path(folder) / "run", experiment.model_dump(mode="json")) as run:
            orchestrator = entrants.orchestrator(experiment, run)
            orchestrator.population.enter()
            sink.open(run, 0)
            made = Evolving(
                pods, lambda stop: Driver(Inline(pods), orchestrator, training.plan(experiment), sink, stop)
            )
            made.driver.checkpoint()
            try:
                yield made
            finally:
                for pod in pods:
                    pod.close()


class Spent:
    """Seconds in training and in evaluation."""

    def __init__(self) -> None:
        self.train, self.evaluate = 0.0, 0.0

    @property
    def total(self) -> float:
        return self.train + self.evaluate


@contextmanager
def timed() -> Iterator[Spent]:
    """What pods spend in `Pod.train` and `Evaluator.evaluate` meanwhile."""
    spent = Spent()

    def timer(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                setattr(spent, name, getattr(spent, name) + time.perf_counter() - start)

        return wrapped

    with (
        patch.object(Pod, "train", timer(Pod.train, "train")),
        patch.object(Evaluator, "evaluate", timer(Evaluator.evaluate, "evaluate")),
    ):
        yield spent


def at_most(name: str, unit: str, floor: float, each: list[float], **more: Any) -> Row:
    """A row of a number that should be small and has no peer: `peer` is what it may be, the ratio peer / ours."""
    found = row(name, unit, [floor] * len(each), each)
    return found | {"ours": found["peer"], "peer": floor, "rounds": len(each), "each": each, **more}
