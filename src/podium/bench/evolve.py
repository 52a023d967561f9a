"""Evolution: populations against Stable-Baselines3, with and without MPI, what evolution costs, and what it gains.

Sides of a comparison work in turn, a generation at a time. Our populations are real runs: orchestrator, leaderboard,
ledger, snapshots and checkpoints, in a folder that is deleted afterwards. Pictures are written to runs/bench-evolve.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from podium.bench._agents import DEFAULTS, RL_ZOO, need_sb3, sb3_sides, smaller, unshared
from podium.bench._evolve_curves import heavy_tails, side_by_side
from podium.bench._evolving import MEMBERS, at_most, evolving, experiment, timed
from podium.bench._mpi_peer import DISCOUNT, LR, Job, mpiexec
from podium.bench._side_by_side import Row, Side, Work, compare, effort, race, row
from podium.core import machine
from podium.evolve import exchange
from podium.evolve.turn import Task
from podium.settings import Evolution

EPISODES = 10  # of an evaluation, against MPI
EVENTS, EVENT_MS = 50, 5.0
OVERHEADS, OVERHEAD_PERCENT, OVERHEAD_STEPS = 3, 5.0, 61_440  # runs of each strategy, and how long: 15 intervals
SEEDS, STEPS = 5, 8192  # of the courses: eight intervals
FOLDER = Path("runs/bench-evolve")

SMALL: dict[str, Any] = {"evolve": {"members": 4, "interval": 512}, "eval": {"episodes": 2, "max_steps": 50}}
"""Of a population that takes a moment."""


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    need_sb3()
    mpiexec()
    turns, seconds = effort(rounds, quick)
    threads = 1 if quick else machine.cores()
    folder = FOLDER.with_name(f"{FOLDER.name}-quick") if quick else FOLDER
    small: dict[str, Any] = SMALL if quick else {}
    seeds = range(2 if quick else max(SEEDS, rounds))
    course = small | {"stop": {"steps": 2048 if quick else STEPS}}
    return [
        against_mpi(turns, 2 if quick else MEMBERS, threads, quick),
        against_one(turns, seconds, threads, quick),
        event(5 if quick else EVENTS, threads, small),
        *overhead(1 if quick else OVERHEADS, threads, small | {"stop": {"steps": 2048 if quick else OVERHEAD_STEPS}}),
        *side_by_side(seeds, threads, folder, course),
        *heavy_tails(seeds, threads, folder, course),
    ]


def against_mpi(rounds: int, members: int, threads: int, quick: bool) -> Row:
    """Steps of training a second of all members, with evaluation and evolution; a round is one generation."""
    plan = smaller(DEFAULTS) if quick else DEFAULTS
    sections: dict[str, Any] = {
        "algo": {"lr": list(LR), "discount": list(DISCOUNT)},
        "eval": {"episodes": EPISODES},
        "evolve": {"members": members, "interval": plan.rollout},
    }
    last: dict[str, Any] = {}
    scores: list[float] = []
    with ExitStack() as stack:

        def ours() -> Work:
            made = stack.enter_context(evolving(experiment(plan, "truncation", threads, **sections)))

            def work(generations: int) -> float:
                steps = made.generations(generations)
                scores[:] = [r.history[-1] for _, _, r in made.driver.population.all_rows() if r.history]
                return steps

            return work

        def theirs() -> Work:
            job = stack.enter_context(Job(plan, members, EPISODES))

            def work(generations: int) -> float:
                for _ in range(generations):
                    last.update(job.generation())
                return float(generations * members * plan.rollout)

            return work

        mine, other = race([Side("podium", ours, threads), Side("sb3, mpi", theirs, 1)], rounds, 0.0)
    note = (
        f"{plan.name}, {EPISODES} episodes of evaluation; SB3: an agent a rank, one thread each, no files; ours: one "
        "process with a leaderboard, a ledger and a checkpoint a generation, and new leaders are evaluated twice"
    )
    name = f"{members} PPO agents that evolve; SB3: {members} MPI ranks"
    found = row(name, "steps/s", mine.rates, other.rates)
    return found | {
        "key": "evolve/sb3-mpi",
        "threads": threads,
        "rounds": rounds,
        "cold": mine.cold,
        "peer_cold": other.cold,
        "peer_best": found["peer"],
        "peer_best_threads": 1,
        "ratio_best": found["ratio"],
        "low_best": found["low"],
        "note": note,
        "members": members,
        "ours_scores": scores,
        "peer_scores": last["scores"],
        "peer_last": {name: last[name] for name in ("seconds", "learn", "evaluate")},
    }


def against_one(rounds: int, seconds: float, threads: int, quick: bool) -> Row:
    """Steps of training a second of all members, with evaluation and evolution, against one agent that only trains."""
    settings = experiment(RL_ZOO, "truncation", threads, **(SMALL if quick else {}))
    members = settings.evolve.members
    with ExitStack() as stack:

        def build() -> Work:
            work: Work = stack.enter_context(evolving(settings)).generations
            return work

        name = f"{members} PPO agents that evolve, {RL_ZOO.name}; SB3: one agent"
        note = (
            f"ours is evaluated ({settings.eval.episodes} episodes every {settings.evolve.interval} steps) and writes "
            "its run's files; SB3's agent only trains, and anneals as its settings say"
        )
        ours, peers = Side("podium", build, threads), sb3_sides(RL_ZOO, threads, quick)
        found = compare(name, "steps/s", ours, peers, rounds, seconds, key="evolve/sb3-one", note=note, members=members)
    return found if quick else unshared(found, RL_ZOO, seconds)


def event(events: int, threads: int, sections: dict[str, Any]) -> Row:
    """One exchange at the end of a generation, between real updates: select, explore, ledger, copies in the stack."""
    settings, took = experiment(RL_ZOO, "truncation", threads, **sections | {"eval": {"episodes": 2}}), []
    start, copied = time.perf_counter(), 0
    with evolving(settings) as made:
        population, (pod,) = made.driver.population, made.pods
        cold = time.perf_counter() - start
        for _ in range(events + 1):
            outcome = pod.turn(Task(1, range(len(pod.ids))), lambda: made.driver.seconds, lambda: False)
            with population.run.ledger.together():
                population.advance(0, outcome)
                population.score(0, outcome)
            entries = population.healthy({0: outcome})
            start = time.perf_counter()
            with population.run.ledger.together():
                refills = exchange.refill(population, entries)
            pod.exchange(refills[0])
            took.append(1000 * (time.perf_counter() - start))
            copied = len(refills[0])
    name = f"one exploit-and-explore event in a stack of {len(pod.ids)}"
    note = f"{copied} rows copied and mutated, the ledger's commit included; no peer: `peer` is the most it may take"
    return at_most(name, "ms", EVENT_MS, took[1:], key="evolve/event", threads=threads, cold=cold, note=note)


def overhead(rounds: int, threads: int, sections: dict[str, Any]) -> list[Row]:
    """Per cent of a run's time that is neither in training nor in evaluation."""
    strategies = ("tournament", "truncation")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in strategies}
    for seed in range(rounds):
        for name in reversed(strategies) if seed % 2 else strategies:
            found[name].append(_overhead(experiment(RL_ZOO, name, threads, seed=seed, **sections)))
    note = "of the run from its first turn to its end, last checkpoint included; no peer: `peer` is the most it may be"
    return [
        at_most(
            f"neither training nor evaluation, {name}",
            "%",
            OVERHEAD_PERCENT,
            [run["percent"] for run in found[name]],
            key=f"evolve/overhead-{name}",
            threads=threads,
            cold=found[name][0]["cold"],
            note=note,
            runs=found[name],
        )
        for name in strategies
    ]


def _overhead(settings: Evolution) -> dict[str, float]:
    begun = time.perf_counter()
    with evolving(settings) as made, timed() as spent:
        start = time.perf_counter()
        made.driver.train()
        took = time.perf_counter() - start
        exchanges = made.driver.population.exchanges
    parts = {"train": spent.train, "evaluate": spent.evaluate, "exchanges": float(exchanges)}
    return {"percent": 100 * (1 - spent.total / took), "seconds": took, "cold": start - begun, **parts}
