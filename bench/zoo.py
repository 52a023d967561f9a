"""What the presets score, beside the scores that RL-Zoo publishes: `python bench/zoo.py [PRESET-ALGO ...]`.

A row is one run of `podium train PRESET ALGO train.members=SEEDS`: members that never meet, each a seed. The best
snapshot of each plays 100 episodes in Gymnasium's own env. Kept in bench/zoo.json, and as a table in docs/zoo.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from typing import Any

import numpy as np
from floors import PODIUM, ROOT, SCRATCH, commit, machine, run

KEPT, PAGE = ROOT / "bench/zoo.json", ROOT / "docs/zoo.md"
EPISODES, RESAMPLES = 100, 10_000

Row = dict[str, Any]
ROWS: dict[str, tuple[str, str, str, int, tuple[str, ...]]] = {
    "cartpole-dqn": ("cartpole", "dqn", "CartPole-v1", 10, ()),
    "acrobot-dqn": ("acrobot", "dqn", "Acrobot-v1", 10, ()),
    "pendulum-sac": ("pendulum", "sac", "Pendulum-v1", 10, ()),
    "pendulum-td3": ("pendulum", "td3", "Pendulum-v1", 10, ()),
    "pendulum-ddpg": ("pendulum", "ddpg", "Pendulum-v1", 10, ()),
    "pendulum-redq": ("pendulum", "redq", "Pendulum-v1", 3, ()),
    "mountaincar-continuous-td3": ("mountaincar-continuous", "td3", "MountainCarContinuous-v0", 5, ()),
    "mountaincar-continuous-ddpg": ("mountaincar-continuous", "ddpg", "MountainCarContinuous-v0", 5, ()),
    "lunarlander-dqn": ("lunarlander", "dqn", "LunarLander-v3", 3, ()),
    "lunarlander-rainbow": ("lunarlander", "rainbow", "LunarLander-v3", 3, ()),
    "halfcheetah-sac": ("halfcheetah", "sac", "HalfCheetah-v5", 3, ("stop.steps=50000",)),
    "halfcheetah-td3": ("halfcheetah", "td3", "HalfCheetah-v5", 3, ("stop.steps=50000",)),
    "hopper-sac": ("hopper", "sac", "Hopper-v5", 3, ("stop.steps=30000",)),
    "hopper-td3": ("hopper", "td3", "Hopper-v5", 3, ("stop.steps=50000",)),
}
"""Preset, algorithm, env, seeds, and settings that differ from the preset's."""

ZOO: dict[str, tuple[float, float, str, str]] = {
    "cartpole-dqn": (500.0, 0.0, "50k", "CartPole-v1"),
    "acrobot-dqn": (-76.6, 11.8, "100k", "Acrobot-v1"),
    "pendulum-sac": (-157.0, 88.7, "20k", "Pendulum-v1"),
    "pendulum-td3": (-151.9, 90.2, "20k", "Pendulum-v1"),
    "pendulum-ddpg": (-152.1, 94.3, "20k", "Pendulum-v1"),
    "mountaincar-continuous-td3": (93.5, 0.1, "300k", "MountainCarContinuous-v0"),
    "mountaincar-continuous-ddpg": (93.5, 0.05, "300k", "MountainCarContinuous-v0"),
    "lunarlander-dqn": (154.4, 79.2, "100k", "LunarLander-v2"),
    "halfcheetah-sac": (9535.5, 100.5, "1M", "HalfCheetah-v3"),
    "halfcheetah-td3": (9655.7, 969.9, "1M", "HalfCheetah-v3"),
    "hopper-sac": (2325.5, 1129.7, "1M", "Hopper-v3"),
    "hopper-td3": (3606.4, 4.0, "1M", "Hopper-v3"),
}
"""Mean, deviation, steps and env of the one agent that RL-Zoo publishes (rl-baselines3-zoo, benchmark.md)."""


def measure(name: str) -> Row:
    preset, algo, env, seeds, more = ROWS[name]
    path = SCRATCH / f"zoo-{name}"
    shutil.rmtree(path, ignore_errors=True)
    start = time.perf_counter()
    run(PODIUM, "train", preset, algo, *more, f"train.members={seeds}", "-o", str(path), timeout=8 * 3600)
    seconds = time.perf_counter() - start
    steps = max(row["steps"] for row in json.loads(run(PODIUM, "top", str(path), "--json")))
    means = []
    for member in range(seeds):
        words = ("--member", str(member), "--env", env, "--episodes", str(EPISODES), "--json")
        means.append(json.loads(run(PODIUM, "eval", str(path), *words))["mean"])
    shutil.rmtree(path)
    command = " ".join(["podium train", preset, algo, *more, f"train.members={seeds}"])
    where = {"commit": commit(), "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    return {"command": command, "means": means, "steps": steps, "seconds": seconds} | where


def iqm(values: np.ndarray[Any, Any]) -> Any:
    """Mean of the middle half along the last axis; quarters that are not whole count in part."""
    ordered, n = np.sort(values, -1), values.shape[-1]
    edges = np.clip(np.arange(n + 1), n / 4, 3 * n / 4)
    weights = np.diff(edges)
    return (ordered * weights).sum(-1) / weights.sum()


def interval(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """95 %, by the bootstrap over seeds."""
    rng = np.random.default_rng(0)
    found = iqm(values[rng.integers(0, len(values), (RESAMPLES, len(values)))])
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


def write(kept: dict[str, Row]) -> None:
    lines = [
        "# Presets with a replay, beside RL-Zoo's scores",
        "",
        "Each row is one run of its command; `python bench/zoo.py` measures it anew. Seeds are members of a stack that",
        "never meet. The best snapshot of each plays 100 episodes in Gymnasium's env; IQM is the mean of the middle",
        "half of the seeds' means, with a bootstrap interval of 95 %. RL-Zoo publishes the mean and deviation over the",
        "episodes of *one* agent, for some envs of an earlier version. Where it took a million steps, ours are",
        "the first 30,000 or 50,000: what one core of two does in ten to thirty minutes.",
        "",
        "| command | steps | seeds | IQM [95 %] | worst seed | minutes | RL-Zoo | its steps, its env |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in ((name, kept[name]) for name in ROWS if name in kept):
        means = np.array(row["means"])
        low, high = interval(means)
        zoo = ZOO.get(name)
        theirs = f"{zoo[0]:g} ± {zoo[1]:g} | {zoo[2]}, {zoo[3]}" if zoo else "- | -"
        lines.append(
            f"| `{row['command']}` | {row['steps']:,} | {len(means)} | {iqm(means):.1f} [{low:.1f}, {high:.1f}] "
            f"| {means.min():.1f} | {row['seconds'] / 60:.0f} | {theirs} |"
        )
    dates = sorted({row["date"] for row in kept.values()})
    lines += ["", f"{'; '.join(sorted({row['machine'] for row in kept.values()}))}; {dates[0]} to {dates[-1]}.", ""]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Score presets beside RL-Zoo's agents.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(ROWS)}; else all")
    names = parser.parse_args().names or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(ROWS)}")
    for name in names:
        print(f"{name} ...", end=" ", flush=True)
        row = measure(name)
        print(f"{iqm(np.array(row['means'])):.1f} in {row['seconds']:.0f} s", flush=True)
        kept: dict[str, Row] = json.loads(KEPT.read_text()) if KEPT.exists() else {}  # another may have written
        kept[name] = row
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        write(kept)


if __name__ == "__main__":
    main()
