"""A stack of PPO agents against as many of Stable-Baselines3 one after another, and the memory of one more member."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from podium import experiment as experiments
from podium.bench._agents import (
    DEFAULTS,
    RL_ZOO,
    experiment,
    need_sb3,
    podium_side,
    sb3_learn,
    sb3_model,
    sb3_sides,
    smaller,
    unshared,
)
from podium.bench._side_by_side import Row, compare, effort, row
from podium.core import machine

MEMBERS = 32
FEW_AND_MANY = {"podium": (64, 192), "sb3": (8, 40)}
UPDATES = 2


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    need_sb3()
    turns, seconds = effort(rounds, quick)
    members, threads = (4, 1) if quick else (MEMBERS, machine.cores())
    rows = []
    for key, plan in (("stack/rl-zoo", RL_ZOO), ("stack/sb3-defaults", DEFAULTS)):
        plan = smaller(plan) if quick else plan
        name = f"{members} PPO agents, {plan.name}; SB3 one by one"
        note = "SB3's agents run one after another, so their rate is that of one, which is what was measured"
        ours, peers = podium_side(plan, members, threads), sb3_sides(plan, threads, quick)
        found = compare(name, "steps/s", ours, peers, turns, seconds, key=key, note=note, members=members)
        rows.append(found if quick else unshared(found, plan, seconds))
    return [*rows, memory(1 if quick else 3, quick)]


def memory(rounds: int, quick: bool = False) -> Row:
    """Megabytes of one more agent in a process. Here the smaller number is better, and the ratio is peer / ours."""
    sizes = {"podium": (16, 80), "sb3": (1, 9)} if quick else FEW_AND_MANY
    used: dict[str, list[float]] = {who: [] for who in sizes}
    for turn in range(rounds):
        for who in reversed(sizes) if turn % 2 else sizes:
            few, many = sizes[who]
            with ThreadPoolExecutor() as both:  # no time is taken, so they may run at once
                small, large = both.map(partial(_fresh, who), (few, many))
            used[who].append((large - small) / (many - few))
    note = (
        f"peak resident memory of fresh processes after {UPDATES} updates, {sizes} agents (few, many); less is better"
    )
    found = row("memory of one more agent, 64x64, 8 envs", "MB", used["sb3"], used["podium"])  # peer / ours
    found |= {"ours": found["peer"], "peer": found["ours"]}
    return found | {"threads": 1, "rounds": rounds, "cold": 0.0, "key": "stack/memory", "note": note, "each": used}


def _fresh(who: str, agents: int) -> float:
    """`resident` in a process of its own: what an earlier one freed would hide what this one needs."""
    code = f"from podium.bench.stack import resident; print(resident({who!r}, {agents}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {agents} {who} agents failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def resident(who: str, agents: int) -> float:
    """Peak resident megabytes of this process after it has trained so many agents for two updates."""
    if who == "podium":
        pod = experiments.build_pod(experiment(RL_ZOO, agents))
        pod.train(UPDATES)
    else:
        models = [sb3_model(RL_ZOO, seed) for seed in range(agents)]
        for model in models:
            sb3_learn(model, UPDATES * RL_ZOO.rollout)
    return _peak()


def _peak() -> float:
    """Linux hands a process its parent's getrusage peak, so there it is read from /proc."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
