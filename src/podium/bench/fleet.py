"""Fleets against each other: pods on two processes against one, and on MPI members that go from rank to rank.

Every side is a run of its own, started anew in each round, as a user would start it. What counts is its pace once it is
under way: starting up takes no part in it.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from podium import training
from podium.bench._mpi_peer import mpiexec
from podium.bench._side_by_side import Row, effort, row
from podium.core.errors import MissingExtra
from podium.store.ledger import Ledger

ENV = "HalfCheetah-v5"
MEMBERS, ENVS, WARM, SECONDS = 4, 8, 5.0, 20.0
RANKS, EACH, GENERATIONS, SKIPPED = 4, 8, 60, 5
LONGEST = 600.0
"""Seconds after which an MPI job is given up."""


@dataclass(frozen=True)
class Pace:
    """Of a run under way: units a second, the seconds that are not in it, and what else was seen."""

    rate: float
    cold: float
    seen: dict[str, float] = field(default_factory=dict)


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    if importlib.util.find_spec("mujoco") is None:
        raise MissingExtra("mujoco", "mujoco")
    mpiexec()
    turns, _ = effort(rounds, quick)
    return [scaling(turns, quick), *exchanges(turns, quick)]


def race(sides: Sequence[Callable[[], Pace]], rounds: int) -> list[list[Pace]]:
    """Every side once a round, in reverse order every other time."""
    found: list[list[Pace]] = [[] for _ in sides]
    for turn in range(rounds):
        for i in reversed(range(len(sides))) if turn % 2 else range(len(sides)):
            found[i].append(sides[i]())
    return found


def compared(name: str, unit: str, ours: Sequence[Pace], peer: Sequence[Pace], **more: Any) -> Row:
    rates = [[pace.rate for pace in side] for side in (ours, peer)]
    cold = {"cold": median(pace.cold for pace in ours), "peer_cold": median(pace.cold for pace in peer)}
    return row(name, unit, *rates) | {"threads": 1, "rounds": len(ours), **cold, **more}


def scaling(rounds: int, quick: bool) -> Row:
    """Steps of training a second of the same population, on two processes and on one."""
    members, envs, warm, seconds = (2, 2, 0.5, 2.5) if quick else (MEMBERS, ENVS, WARM, SECONDS)

    def side(pods: int) -> Callable[[], Pace]:
        return lambda: on_processes(pods, members, envs, warm, seconds)

    two, one = race([side(2), side(1)], rounds)
    name = f"{members} PPO agents on {ENV}, {envs} envs each: 2 process pods; 1"
    note = "one thread a pod; busy: share of the time that pods are at work; driver: share of a core that it takes"
    seen = {key: fmean(pace.seen[key] for pace in two) for key in two[0].seen}
    return compared(name, "steps/s", two, one, key="fleet/processes-2", note=note, members=members, **seen)


def on_processes(pods: int, members: int, envs: int, warm: float, seconds: float) -> Pace:
    """A tournament with little evaluation; its pace from report to report, after `warm` seconds."""
    words = [ENV, "ppo", "tournament", f"evolve.members={members}", f"env.num={envs}", f"algo.batch={32 * envs}"]
    words += ["fleet=processes", f"fleet.pods={pods}", "fleet.threads=1"]
    words += ["evolve.interval=16384", "evolve.slice=1", "eval.episodes=1"]
    words += ["stop.steps=null", "stop.fitness=null", f"stop.seconds={warm + seconds}"]
    steady: list[tuple[dict[str, Any], float]] = []

    def hear(report: dict[str, Any]) -> None:
        if report["seconds"] >= warm:
            steady.append((report, _processor_time()))

    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        training.evolve(*words, out=Path(folder) / "run", on_report=hear)
    if len(steady) < 2:
        raise RuntimeError(f"{seconds:g} seconds are too few on this machine: {len(steady)} reports")
    (first, spent), (last, spent_then) = steady[0], steady[-1]
    took = last["seconds"] - first["seconds"]
    busy = fmean(pod["busy"] for report, _ in steady[1:] for pod in report["pods"])
    cold = time.perf_counter() - start - warm - seconds
    rate = (last["steps_total"] - first["steps_total"]) / took
    return Pace(rate, cold, {"busy": busy, "driver": (spent_then - spent) / took})


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def exchanges(rounds: int, quick: bool) -> list[Row]:
    """Generations a second where most of the time goes to exchanges: a large network that hardly trains."""
    ranks, each, generations = (2, 2, 8) if quick else (RANKS, EACH, GENERATIONS)

    def side(exchange: str) -> Callable[[], Pace]:
        return lambda: on_mpi(exchange, ranks, each, generations)

    p2p, collective, driver = race([side("p2p"), side("collective"), side("inline")], rounds)
    name = f"generations of {ranks} ranks x {each} members, 256x256, on MPI"
    note = "every rank trains; by the driver: one rank more, which only drives"
    more = {"members": ranks * each, "note": note}
    unit = "generations/s"
    return [
        compared(f"{name}: from rank to rank; by the driver", unit, p2p, driver, key="fleet/mpi-p2p", **more),
        compared(f"{name}: collective; from rank to rank", unit, collective, p2p, key="fleet/mpi-collective", **more),
    ]


def on_mpi(exchange: str, ranks: int, each: int, generations: int) -> Pace:
    """A run under mpiexec with as many pods as ranks; its pace between the evaluations of its generations."""
    words = ["cartpole", "ppo", "truncation", "net.hidden=[256,256]", "env.num=1", "algo.steps=64", "algo.epochs=1"]
    words += [f"evolve.members={ranks * each}", "evolve.interval=64", "evolve.confirm=false", "eval.episodes=1"]
    words += ["stop.steps=null", "stop.fitness=null", f"stop.generations={generations}"]
    words += ["fleet=mpi", f"fleet.pods={ranks}", "fleet.threads=1", f"evolve.exchange={exchange}"]
    with TemporaryDirectory() as folder:
        run, start = Path(folder) / "run", time.perf_counter()
        under_mpi(ranks + (exchange == "inline"), "evolve", *words, "-o", str(run), "-q")
        took = time.perf_counter() - start
        with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
            ends: dict[int, float] = {}
            for score in ledger.scores():
                ends[score["step"]] = max(score["seconds"], ends.get(score["step"], 0.0))
    times = [ends[step] for step in sorted(ends)][min(SKIPPED, len(ends) // 2) :]
    each_took = [b - a for a, b in pairwise(times)]
    return Pace(1 / fmean(each_took), took - max(ends.values()))


def under_mpi(ranks: int, *words: str) -> None:
    """`podium WORDS` on some ranks of this machine; whatever happens, they end with it."""
    command = [str(mpiexec()), "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    job = subprocess.Popen(
        [*command, sys.executable, "-m", "podium", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **as_root, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C is for us, and we end the job
    )
    try:
        said, _ = job.communicate(timeout=LONGEST)
    finally:
        if job.poll() is None:
            job.terminate()  # mpiexec ends its ranks
            with suppress(subprocess.TimeoutExpired):
                job.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    if job.returncode:
        raise RuntimeError(f"the MPI job has ended with exit code {job.returncode}:\n{said[-2000:]}")
