"""The orchestrator by itself: completions a second of many simulated pods, and how busy a tournament keeps a pool."""

from __future__ import annotations

import time
from statistics import median

from podium.bench import _simulated as simulated
from podium.bench._side_by_side import Row, interval
from podium.evolve import pool

PODS, SIGMA = 10_000, 1.0
LEAST = 500.0  # completions a second


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    rows = [throughput(200 if quick else PODS, 400 if quick else PODS, max(1, rounds))]
    for pods in (2, 16):
        rows.append(busy(pods, 20 if quick else 1000, max(1, rounds)))
    return rows


def throughput(pods: int, completions: int, rounds: int) -> Row:
    """Completions a second through orchestrator, leaderboard and ledger; a pod's own work takes no time."""
    rates = []
    for seed in range(rounds):
        with simulated.population(pods) as made:
            clock, orchestrator = simulated.Virtual(pods, SIGMA, seed), simulated.tournament(made)
            while clock.done < pods:  # until every pod has had a turn and the leaderboard is in use
                pool.step(clock, orchestrator)
            start, before = time.perf_counter(), clock.done
            while clock.done < before + completions:
                pool.step(clock, orchestrator)
            rates.append(completions / (time.perf_counter() - start))
    low, high = interval([rate / LEAST for rate in rates])
    name = f"{pods:,} simulated pods, tournament: completions through leaderboard and ledger"
    note = "no peer: `peer` is the least that it should be"
    numbers = {"ours": median(rates), "peer": LEAST, "ratio": median(rates) / LEAST, "low": low, "high": high}
    key = "orchestrator/completions"
    return {"name": name, "key": key, **numbers, "unit": "completions/s", "rounds": rounds, "note": note}


def busy(pods: int, generations: int, rounds: int) -> Row:
    """Virtual time that generations need, over what a tournament needs for as many turns of the same lengths.

    `peer` is that ratio for a pool that is always busy, the most there is to gain; `ratio` is the share of it reached.
    """
    gained, most = [], []
    for seed in range(rounds):
        took = {}
        for name, make in (("tournament", simulated.tournament), ("generational", simulated.generational)):
            with simulated.population(pods, **({} if name == "tournament" else {"strategy": "truncation"})) as made:
                clock, orchestrator = simulated.Virtual(pods, SIGMA, seed, pods * generations), make(made)
                while pool.step(clock, orchestrator) is not None:
                    pass
                took[name] = clock
        gained.append(took["generational"].now / took["tournament"].now)
        most.append(took["generational"].now / (took["tournament"].busy / pods))
    shares = [g / m for g, m in zip(gained, most, strict=True)]
    low, high = interval(shares)
    name = f"{pods} pods on {pods} slots, {generations} generations, log-normal turns: tournament"
    note = "times as fast as generations; `peer` is a pool that is always busy"
    numbers = {"ours": median(gained), "peer": median(most), "ratio": median(shares), "low": low, "high": high}
    key = f"orchestrator/busy-{pods}"
    return {"name": name, "key": key, **numbers, "unit": "times as fast", "rounds": rounds, "note": note}
