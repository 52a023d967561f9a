"""Env objects of Gymnasium, stepped one after another, in numpy: no torch, so that a worker starts in no time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from podium.core.errors import ConfigError

Array = np.ndarray[Any, Any]
New = Callable[[tuple[int, ...], Any], Array]
"""From shape and dtype to an array of zeros."""


class Arrays(NamedTuple):
    """What a step of n envs fills."""

    obs: Array  # [n, *O]
    last: Array  # [n, *O]
    reward: Array  # [n]
    total: Array  # [n]     of the episode that ended
    length: Array  # [n]
    terminated: Array  # [n] bool
    truncated: Array  # [n] bool
    objectives: Array  # [n, K]

    @classmethod
    def of(cls, n: int, obs: tuple[tuple[int, ...], Any], objectives: int, new: New = np.zeros) -> Arrays:
        """`obs` is the shape and dtype of one observation."""
        shape, dtype = obs
        seen, last = new((2, n, *shape), dtype)
        reward, total, length = new((3, n), np.float32)
        terminated, truncated = new((2, n), np.bool_)
        return cls(seen, last, reward, total, length, terminated, truncated, new((n, objectives), np.float32))

    def rows(self, begin: int, end: int) -> Arrays:
        return Arrays(*(array[begin:end] for array in self))


class Objects:
    """Env objects with same-step autoreset and the totals of their episodes.

    `codes` are the one-hot rows of a Discrete observation that counts from `low`. `measures` are keys of `info`: the
    mean of each over an episode is one of its objectives.
    """

    def __init__(
        self, objects: Sequence[Any], measures: Sequence[str] = (), codes: Array | None = None, low: int = 0
    ) -> None:
        self._objects, self._measures, self._codes, self._low = objects, tuple(measures), codes, low
        self._steps = [env.step for env in objects]  # bound once: a look-up a step for every env saved
        self._rows = range(len(objects))
        self._sums = np.zeros((len(objects), len(measures)))
        self._begin()

    def _begin(self) -> None:
        self._now, self._total, self._born = 0, [0.0 for _ in self._rows], [0 for _ in self._rows]  # running episodes
        self._sums.fill(0)

    def reset(self, seeds: Iterable[int], out: Arrays) -> None:
        for i, seed in enumerate(seeds):
            out.obs[i] = self._code(self._objects[i].reset(seed=seed)[0])
        self._begin()

    def step(self, actions: Iterable[Any], out: Arrays) -> None:
        self._now += 1
        last, total, plain, ended = out.last, self._total, self._codes is None, []
        rewards: list[Any] = []
        for i, step, a in zip(self._rows, self._steps, actions, strict=True):
            obs, reward, terminated, truncated, info = step(a)
            last[i] = obs if plain else self._code(obs)  # before a reset, which may write into the same array
            rewards.append(reward)
            total[i] += reward
            if self._measures:
                self._measure(i, info)
            if terminated or truncated:
                flags = out.terminated if terminated else out.truncated
                ended.append((i, flags, self._objects[i].reset()[0]))
        out.reward[:] = rewards
        out.obs[:] = last
        out.terminated.fill(False)
        out.truncated.fill(False)
        if self._measures:  # of the running episodes, too: an evaluator may cut one
            out.objectives[:] = self._sums / (self._now - np.array(self._born))[:, None]
        for i, flags, obs in ended:
            flags[i], out.obs[i] = True, self._code(obs)
            out.total[i], out.length[i] = total[i], self._now - self._born[i]
            total[i], self._born[i], self._sums[i] = 0.0, self._now, 0

    def close(self) -> None:
        for env in self._objects:
            env.close()

    def _measure(self, i: int, info: dict[str, Any]) -> None:
        for k, name in enumerate(self._measures):
            self._sums[i, k] += measured(info, name)

    def _code(self, obs: Any) -> Any:
        """One-hot of a discrete observation; others as they are."""
        return obs if self._codes is None else self._codes[int(obs) - self._low]


def measured(info: dict[str, Any], name: str) -> Any:
    """What `info` holds under a name of env.measures."""
    if name not in info:
        found = ", ".join(info) or "nothing"
        raise ConfigError("env.measures", name, f"a key of what the env puts into info at every step ({found})")
    return info[name]


def codes(space: gym.Space[Any]) -> tuple[Array | None, int]:
    """One-hot rows and the lowest value of a Discrete observation space; None and 0 of any other."""
    if not isinstance(space, Discrete):
        return None, 0
    return np.eye(int(space.n), dtype=np.float32), int(space.start)


def allowed(space: gym.Space[Any], rows: Array) -> Array:
    """Actions as an env of that space takes them. Box actions are clipped to their bounds; a NaN in them becomes 0."""
    if isinstance(space, Discrete):
        return rows + int(space.start) if space.start else rows
    if isinstance(space, MultiDiscrete):
        return rows.astype(space.dtype) + space.start
    assert isinstance(space, Box)
    clipped = rows.clip(space.low, space.high)
    flat = clipped.ravel()
    total = flat.dot(flat)
    if total != total:  # a NaN, which is rare: one failed member must not stop the others
        clipped = np.where(np.isnan(rows), 0, rows).clip(space.low, space.high)
    return clipped.astype(space.dtype, copy=False)


def spaces_of(env: gym.Env[Any, Any]) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of one env as tensors show them, or a ConfigError: images stay uint8, all else becomes float32."""
    name, obs, action = name_of(env), env.observation_space, env.action_space
    if not isinstance(action, Discrete | MultiDiscrete | Box) or (
        isinstance(action, MultiDiscrete) and action.nvec.ndim != 1
    ):
        raise ConfigError("env.id", name, f"its actions are {action}; Discrete, MultiDiscrete or Box can be used")
    if isinstance(obs, Discrete):
        return Box(0.0, 1.0, (int(obs.n),)), action
    if not isinstance(obs, Box):
        raise ConfigError("env.id", name, f"its observations are {obs}; Box or Discrete can be used")
    if obs.dtype not in (np.dtype(np.uint8), np.dtype(np.float32)):
        obs = Box(obs.low.astype(np.float32), obs.high.astype(np.float32))
    return obs, action


def name_of(env: gym.Env[Any, Any]) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__
