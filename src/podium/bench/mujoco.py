"""MuJoCo's tasks as one batch against Gymnasium's vector envs and EnvPool: env steps a second, random actions.

All sides of a task work in the same rounds. Ours takes as many threads as the machine has cores, EnvPool two, and
Gymnasium's AsyncVectorEnv a process an env. EnvPool has no v5: its v4 is the same physics, less to observe with Ant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

import gymnasium as gym
import torch

from podium.bench._side_by_side import Row, Side, Timing, Work, effort, race, row
from podium.bench.env import DRAWN, _stepped
from podium.core import machine
from podium.core.streams import Streams
from podium.envs.from_envpool import envpool
from podium.envs.make import make
from podium.envs.settings import EnvSettings

ENVS = 64
TASKS = {"HalfCheetah-v5": 6, "Ant-v5": 8}  # numbers in an action, each from -1 to 1
Build = Callable[[str, ExitStack], Work]


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    envpool()
    turns, seconds = effort(rounds, quick)
    rows = []
    for id in TASKS:
        # Processes first: they are forked, which no thread should witness.
        builds: dict[str, Build] = {"async": processes, "sync": objects, "podium": batch, "envpool": pool}
        with ExitStack() as stack:
            sides = [Side(name, partial(build, id, stack)) for name, build in builds.items()]
            timings = dict(zip(builds, race(sides, turns, seconds), strict=True))
        better = max(("sync", "async"), key=lambda name: median(timings[name].rates))
        ours, name = timings["podium"], f"Gymnasium's better one ({better})"
        rows.append(_row(id, "gymnasium", name, ours, timings[better], 1 if better == "sync" else machine.cores()))
        rows.append(_row(id, "envpool", "EnvPool's v4, 2 threads", ours, timings["envpool"], 2))
    return rows


def batch(id: str, stack: ExitStack) -> Work:
    env = make(EnvSettings(id=id, source="mujoco"), 1, ENVS)
    stack.callback(env.close)
    env.reset(Streams(0, [0]))
    return _stepped(env.step, [x[None] for x in _actions(id)], ENVS)


def objects(id: str, stack: ExitStack) -> Work:
    return _vector(id, gym.vector.SyncVectorEnv([partial(gym.make, id, disable_env_checker=True)] * ENVS), stack)


def processes(id: str, stack: ExitStack) -> Work:
    return _vector(id, gym.vector.AsyncVectorEnv([partial(gym.make, id, disable_env_checker=True)] * ENVS), stack)


def pool(id: str, stack: ExitStack, threads: int = 2) -> Work:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the precision of its spaces
        env = envpool().make_gymnasium(id.replace("v5", "v4"), num_envs=ENVS, num_threads=threads, seed=0)
    return _vector(id, env, stack)


def _vector(id: str, env: Any, stack: ExitStack) -> Work:
    stack.callback(env.close)
    env.reset()
    return _stepped(env.step, [x.numpy() for x in _actions(id)], ENVS)


def _actions(id: str) -> list[torch.Tensor]:
    """The same for all sides, each `[E, A]`."""
    return list(torch.rand(DRAWN, ENVS, TASKS[id], generator=torch.Generator().manual_seed(0)) * 2 - 1)


def _row(id: str, key: str, name: str, ours: Timing, peer: Timing, threads: int) -> Row:
    found = row(f"{id}, {ENVS} envs; {name}", "env steps/s", ours.rates, peer.rates)
    best = {"peer_best": found["peer"], "ratio_best": found["ratio"], "low_best": found["low"]}
    return (
        found
        | best
        | {
            "peer_best_threads": threads,
            "key": f"mujoco/{id.partition('-')[0].lower()}-{key}",
            "threads": machine.cores(),
            "rounds": len(ours.rates),
            "cold": ours.cold,
            "peer_cold": peer.cold,
        }
    )
