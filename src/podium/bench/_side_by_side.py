"""Programs side by side: in each round every side works in turn, and what counts is the ratio of their speeds.

A machine that slows down slows both sides of a round, so the ratio of a round is steadier than either speed. Sides
run in this process (but for those of `_apart`), each with a number of torch threads that is set before it works and
stands in the row. The order is reversed from round to round. Construction and warm-up (with what is imported only then)
are timed apart, as `cold`.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch

ROUNDS, RESAMPLES = 5, 2000
Row = dict[str, Any]
Work = Callable[[int], float]
"""Do a number of pieces of work; how much that was in the unit of the row (steps, say)."""


@dataclass(frozen=True)
class Side:
    """A program to measure: `build` makes it ready to work."""

    name: str
    build: Callable[[], Work]
    threads: int = 1


@dataclass
class Timing:
    """Of one side: seconds of construction and warm-up, and units a second in each round."""

    cold: float
    rates: list[float] = field(default_factory=list)


def effort(rounds: int, quick: bool) -> tuple[int, float]:
    """Rounds, and seconds of work for each side in a round."""
    return (rounds, 0.1) if quick else (max(ROUNDS, rounds), 2.0)


def compare(name: str, unit: str, ours: Side, peers: Sequence[Side], rounds: int, seconds: float, **more: Any) -> Row:
    """Measure `ours` against the first of `peers`, which has as many threads.

    Further peers are the same program with other thread counts; `peer_best` is the fastest of them all.
    """
    if peers[0].threads != ours.threads:
        raise ValueError(f"{ours.threads} threads against {peers[0].threads}: the same number is needed on both sides")
    mine, *others = race([ours, *peers], rounds, seconds)
    fastest = max(range(len(peers)), key=lambda i: median(others[i].rates))
    best = ratios(mine.rates, others[fastest].rates)
    return row(name, unit, mine.rates, others[0].rates) | {
        "threads": ours.threads,
        "rounds": rounds,
        "cold": mine.cold,
        "peer_cold": others[0].cold,
        "peer_best": median(others[fastest].rates),
        "peer_best_threads": peers[fastest].threads,
        "ratio_best": median(best),
        "low_best": interval(best)[0],
        **more,
    }


def row(name: str, unit: str, ours: Sequence[float], peer: Sequence[float]) -> Row:
    """What a benchmark says of one comparison, from the rates of each round."""
    each = ratios(ours, peer)
    low, high = interval(each)
    numbers = {"ours": median(ours), "peer": median(peer), "ratio": median(each), "low": low, "high": high}
    return {"name": name, **numbers, "unit": unit, "ratios": each}


def ratios(ours: Sequence[float], peer: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(ours, peer, strict=True)]


def interval(each: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of the median, 95 %."""
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(np.asarray(each), (RESAMPLES, len(each))), 1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def race(sides: Sequence[Side], rounds: int, seconds: float) -> list[Timing]:
    """Every side once a round, for at least about `seconds`; forwards in one round, backwards in the next."""
    timings, works, pieces = [], [], []
    for side in sides:
        torch.set_num_threads(side.threads)
        start = time.perf_counter()
        work = side.build()
        torch.set_num_threads(side.threads)  # building may have chosen another number
        work(1)
        timings.append(Timing(time.perf_counter() - start))
        works.append(work)
        pieces.append(_enough(work, seconds))
    forwards = range(len(sides))
    for turn in range(rounds):
        gc.collect()
        for i in reversed(forwards) if turn % 2 else forwards:
            torch.set_num_threads(sides[i].threads)
            start = time.perf_counter()
            done = works[i](pieces[i])
            timings[i].rates.append(done / (time.perf_counter() - start))
    return timings


def _enough(work: Work, seconds: float) -> int:
    """Pieces of work that take about so many seconds, at least one."""
    pieces = 1
    while True:
        start = time.perf_counter()
        work(pieces)
        took = time.perf_counter() - start
        if took >= seconds / 4:
            return max(1, math.ceil(pieces * seconds / took))
        pieces *= 2
