"""A tournament against generations: how soon the champion is how good, over steps, seconds and virtual seconds.

The champion's fitness is read from the ledger as it was recorded: evaluations of the same weights count as one, and it
is the best of all until then, 0 before the first. The area under it is given as its mean over the time that counts.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from podium import entrants
from podium import experiment as experiments
from podium.bench._agents import RL_ZOO
from podium.bench._evolving import evolving, experiment, timed
from podium.bench._side_by_side import Row, row
from podium.core import config, machine
from podium.evolve import exchange, pool
from podium.evolve.generational import Generational
from podium.evolve.population import Population
from podium.evolve.rows import Place
from podium.evolve.tournament import Tournament
from podium.evolve.turn import Outcome, Refill, Task
from podium.report import plots
from podium.roles.pod import Pod
from podium.settings import Evolution
from podium.store.run import Run

STRATEGIES = {"tournament": "tournament", "generations": "truncation"}
WIDE = {
    "lr": [1e-5, 1e-1],
    "discount": [0.8, 0.9999],
    "lam": [0.5, 1.0],
    "clip": [0.02, 0.8],
    "entropy": [0.0, 0.3],
}
INTERVAL = 1024  # of such an easy task the champion is perfect by the second evaluation after 4096
PODS, SIGMA, POINTS = 4, 1.0, 400


@dataclass(frozen=True)
class Course:
    """A run: the champion's fitness where it changed, where the run ended, and which share of the time pods worked."""

    steps: list[float]
    seconds: list[float]
    fitness: list[float]
    end: dict[str, float]
    busy: float

    def at(self, axis: str, where: np.ndarray) -> np.ndarray:
        """The champion's fitness at some steps or seconds."""
        known = np.array([0.0, *self.fitness])
        found: np.ndarray = known[np.searchsorted(getattr(self, axis), where, side="right")]
        return found

    def mean(self, axis: str, end: float) -> float:
        """The area under the curve up to `end`, over `end`."""
        edges = np.unique(np.clip([0.0, *getattr(self, axis), end], 0, end))
        return float((self.at(axis, edges[:-1]) * np.diff(edges)).sum() / end)


Courses = dict[str, list[Course]]
"""By name of the strategy, a course a seed."""


def course(scores: Sequence[Mapping[str, Any]], steps: float, seconds: float, busy: float) -> Course:
    """From the scores of a ledger, in the order they were entered."""
    returns: dict[tuple[int, int], list[float]] = {}
    points = {}
    for score in scores:
        which = score["member"], score["step"]
        returns.setdefault(which, []).extend(score["returns"])
        points[which] = score["seconds"]
    each = sorted((at, which[1], fmean(returns[which])) for which, at in points.items())
    best = list(itertools.accumulate((fitness for _, _, fitness in each), max))
    ends = {"steps": steps, "seconds": seconds}
    return Course([float(step) for _, step, _ in each], [at for at, _, _ in each], best, ends, busy)


def side_by_side(seeds: Sequence[int], threads: int, folder: Path, sections: Mapping[str, Any]) -> list[Row]:
    """Both in this process, a pod of all members: over steps, and over seconds of this machine."""
    found: Courses = {name: [] for name in STRATEGIES}
    for seed in seeds:
        for name in reversed(STRATEGIES) if seed % 2 else STRATEGIES:
            settings = _settings(name, threads, seed, sections)
            with evolving(settings) as made, timed() as spent:
                start = time.perf_counter()
                made.driver.train()
                busy = spent.total / (time.perf_counter() - start)
                driver = made.driver
                found[name].append(course(driver.run.ledger.scores(), driver.step, driver.seconds, busy))
    title = "Champion of 16 PPO members on CartPole-v1"
    _picture(found, "steps", folder / "return-by-steps.png", "steps of each member", title)
    _picture(found, "seconds", folder / "return-by-seconds.png", "seconds", title)
    more = {"threads": threads, "cold": 0.0, "rounds": len(seeds), **_about(found)}
    by_steps = "mean over the steps of a run of the champion's fitness, from the ledger, 0 before the first score"
    by_seconds = f"{by_steps.replace('steps of a run', 'seconds of the shorter run')}; both have one pod, never idle"
    name = "champion of a tournament against generations (truncation), {}"
    return [
        _row(found, "steps", name.format("by steps"), "evolve/tournament-vs-generational", note=by_steps, **more),
        _row(
            found,
            "seconds",
            name.format("by seconds"),
            "evolve/tournament-vs-generational-seconds",
            note=by_seconds,
            **more,
        ),
    ]


def heavy_tails(seeds: Sequence[int], threads: int, folder: Path, sections: Mapping[str, Any]) -> list[Row]:
    """The same with pods whose turns take a log-normal time on a virtual clock; training is real."""
    found: Courses = {name: [] for name in STRATEGIES}
    for seed in seeds:
        for name in STRATEGIES:
            found[name].append(_virtual(_settings(name, threads, seed, sections), seed))
    title = f"Champion of {PODS} pods of 4 members, heavy-tailed turns"
    _picture(found, "seconds", folder / "return-by-virtual-seconds.png", "virtual seconds", title)
    ours, peer = ([c.end["seconds"] for c in found[name]] for name in STRATEGIES)
    more = {"threads": threads, "cold": 0.0, "rounds": len(seeds), "pods": PODS, "sigma": SIGMA, **_about(found)}
    turns = f"a turn takes its updates x log-normal({SIGMA:g}) virtual seconds, evaluation and exchange none"
    note = f"{turns}; the k-th turn takes equally long on both sides; ratio: generations' time over the tournament's"
    both = row(f"virtual time of as many turns, {PODS} pods, heavy tails", "virtual s", peer, ours)
    both |= {"ours": both["peer"], "peer": both["ours"], "key": "evolve/heavy-tails", "note": note, **more}
    area = f"{turns}; mean of the champion's fitness over the virtual seconds of the shorter run, from the ledger"
    by_seconds = "champion of a tournament against generations, by virtual seconds"
    return [both, _row(found, "seconds", by_seconds, "evolve/heavy-tails-return", note=area, **more)]


def _settings(name: str, threads: int, seed: int, sections: Mapping[str, Any]) -> Evolution:
    tree: dict[str, Any] = config.merge({"algo": WIDE, "evolve": {"interval": INTERVAL}}, sections)
    return experiment(RL_ZOO, STRATEGIES[name], threads, seed=seed, **tree)


class Paced:
    """Real pods on a virtual clock: each is a process of its own, and time passes only as turns take it."""

    def __init__(self, pods: Sequence[Pod], seed: int, updates: int) -> None:
        self._pods, self._left = pods, updates
        self._times = np.random.default_rng(seed)  # the k-th turn takes equally long whoever gives it out
        self._running: list[tuple[float, int, int, Task]] = []
        self._idle, self._count = set(range(len(pods))), itertools.count()
        self.now, self.busy = 0.0, 0.0

    def seconds(self) -> float:
        return self.now

    def free(self) -> Iterable[int]:
        return sorted(self._idle)

    def start(self, pod: int, task: Task) -> None:
        """Only what has been begun is evaluated, once all the work there is has been given out."""
        if task.updates and self._left <= 0:
            return
        took = task.updates * float(self._times.lognormal(0.0, SIGMA)) if task.updates else 0.0
        self._left -= task.updates
        self._idle.discard(pod)
        self.busy += took
        heapq.heappush(self._running, (self.now + took, next(self._count), pod, task))

    def next(self) -> tuple[int, Outcome] | None:
        if not self._running:
            return None
        self.now, _, pod, task = heapq.heappop(self._running)
        self._idle.add(pod)
        return pod, self._pods[pod].turn(task, self.seconds, lambda: False)

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        self._pods[pod].exchange(refills)


def _virtual(settings: Evolution, seed: int) -> Course:
    """A run of pods with an equal part of the members each."""
    members, steps = settings.evolve.members // PODS, settings.stop.steps or 0
    (kind,) = entrants.kinds(settings)
    part = kind.model_copy(update={"train": kind.train.model_copy(update={"members": members})})
    machine.keep_memory()
    machine.use_threads(settings.train.threads or 1)
    pods = [experiments.build_pod(part, first=i * members) for i in range(PODS)]
    rollout = kind.algo.steps * kind.env.num
    with TemporaryDirectory() as folder, Run.create(Path(folder) / "run", settings.model_dump(mode="json")) as run:
        kinds, places = entrants.orchestrator(settings, run).population.kinds, [Place(0, members, rollout)] * PODS
        population = Population(kinds, places, settings.evolve, run, settings.seed)
        population.enter()
        orchestrator: Tournament | Generational = Tournament(population)
        if settings.evolve.strategy != "tournament":
            orchestrator = Generational(population, Population.offer_all, exchange.refill)
        clock = Paced(pods, seed, PODS * math.ceil(steps / rollout))
        while pool.step(clock, orchestrator) is not None:
            pass
        for index, pod in enumerate(pods):
            while (task := orchestrator.last(index)) is not None:
                orchestrator.tell(index, pod.turn(task, clock.seconds, lambda: False))
        for pod in pods:
            pod.close()
        each = population.total_steps / population.size
        return course(run.ledger.scores(), each, clock.now, clock.busy / (PODS * clock.now))


def _row(found: Courses, axis: str, name: str, key: str, **more: Any) -> Row:
    """Means of each seed up to where both runs were under way."""
    ours, peer = found.values()
    ends = [min(a.end[axis], b.end[axis]) for a, b in zip(ours, peer, strict=True)]
    areas = [[c.mean(axis, end) for c, end in zip(side, ends, strict=True)] for side in (ours, peer)]
    return row(name, "return", *areas) | {"key": key, "ours_each": areas[0], "peer_each": areas[1], **more}


def _about(found: Courses) -> Row:
    """What lies behind the curves, the median over the seeds."""
    return {
        "busy": {name: median(c.busy for c in each) for name, each in found.items()},
        "seconds": {name: median(c.end["seconds"] for c in each) for name, each in found.items()},
        "steps": {name: median(c.end["steps"] for c in each) for name, each in found.items()},
        "last": {name: median(c.fitness[-1] for c in each) for name, each in found.items()},
    }


def _picture(found: Courses, axis: str, path: Path, xlabel: str, title: str) -> None:
    """Median and quartiles over the seeds, up to where most runs have ended; their champions stay what they are."""
    x = np.linspace(0, max(median(c.end[axis] for c in each) for each in found.values()), POINTS)
    series = []
    for name, each in found.items():
        low, middle, high = np.quantile([c.at(axis, x) for c in each], (0.25, 0.5, 0.75), axis=0)
        series.append({"name": name, "x": x, "median": middle, "low": low, "high": high})
    path.parent.mkdir(parents=True, exist_ok=True)
    seeds = len(next(iter(found.values())))
    plots.curves(series, path, xlabel, f"champion's return, median and quartiles of {seeds} seeds", title)
