"""The native CartPole against Gymnasium's and EnvPool's: env steps a second with random actions drawn beforehand.

Torch has one thread in every row, which favours EnvPool: its two threads are its own. Each env resets as it does by
default: ours within the step that ended an episode, the others in a step that is counted, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from podium.bench._side_by_side import Row, Side, Work, compare, effort
from podium.core.streams import Streams
from podium.envs.from_envpool import envpool
from podium.envs.native.base import Simulator
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pong import Pong

ENV = "CartPole-v1"
DRAWN = 128  # actions of so many steps, used over and over


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    envpool()
    turns, seconds = effort(rounds, quick)
    rows = []
    for key, name, number, peer in (
        ("env/gymnasium-64", "64 envs; Gymnasium SyncVectorEnv", 64, sync),
        ("env/gymnasium-1024", "1024 envs; Gymnasium SyncVectorEnv", 1024, sync),
        ("env/gymnasium-numpy-1024", "1024 envs; Gymnasium CartPoleVectorEnv (NumPy)", 1024, vector),
        ("env/envpool-4096", "4096 envs, 1 thread; EnvPool, 2 threads of its own", 4096, pool),
    ):
        ours, theirs = Side("podium", partial(native, number)), Side(name, partial(peer, number))
        rows.append(compare(name, "env steps/s", ours, [theirs], turns, seconds, key=key, envs=number))
    ours = Side("podium", partial(native, 1024, Pong))
    theirs = Side("its plain twin", partial(sync, 1024, "VectorPong-v0"))
    rows.append(
        compare(
            "1024 envs of Vector Pong; its plain twin in SyncVectorEnv",
            "env steps/s",
            ours,
            [theirs],
            turns,
            seconds,
            key="env/pong-1024",
            envs=1024,
        )
    )
    return rows


def native(number: int, simulator: type[Simulator] = CartPole) -> Work:
    env = simulator(1, number)
    env.reset(Streams(0, [0]))
    choices = int(env.action_space.n)  # type: ignore[attr-defined]
    actions = torch.randint(choices, (DRAWN, 1, number), generator=torch.Generator().manual_seed(0))
    return _stepped(env.step, list(actions), number)


def sync(number: int, id: str = ENV) -> Work:
    """One object an env; without Gymnasium's checker, which is for authors and only costs time."""
    env = gym.vector.SyncVectorEnv([partial(gym.make, id, disable_env_checker=True)] * number)
    return _gymnasium(env, number)


def vector(number: int) -> Work:
    """Gymnasium's own vectorised CartPole, on NumPy arrays."""
    return _gymnasium(gym.make_vec(ENV, number, vectorization_mode="vector_entry_point"), number)


def pool(number: int, threads: int = 2) -> Work:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the precision of its spaces
        env = envpool().make_gymnasium(ENV, num_envs=number, num_threads=threads, seed=0)
        return _gymnasium(env, number)


def _gymnasium(env: Any, number: int) -> Work:
    env.reset()
    return _stepped(env.step, list(np.random.default_rng(0).integers(0, 2, (DRAWN, number))), number)


def _stepped(step: Callable[[Any], Any], actions: list[Any], number: int) -> Work:
    def work(steps: int) -> float:
        with torch.no_grad():
            for i in range(steps):
                step(actions[i % DRAWN])
        return float(steps * number)

    return work
