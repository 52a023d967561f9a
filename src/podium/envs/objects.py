"""Env objects of Gymnasium, stepped one after another, in numpy: no torch, so that a worker starts in no time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from podium.core.actions import Actions
from podium.core.errors import ConfigError
from podium.core.parts import Row, is_bytes

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

    `row` lays out observations that are no Box. `measures` are keys of `info`: the mean of each over an episode is one
    of its objectives.
    """

    def __init__(self, objects: Sequence[Any], measures: Sequence[str] = (), row: Row | None = None) -> None:
        self._objects, self._measures, self._row = objects, tuple(measures), row
        self._steps = [env.step for env in objects]  # bound once: a look-up a step for every env saved
        self._rows = range(len(objects))
        self._sums = np.zeros((len(objects), len(measures)))
        self._begin()

    def _begin(self) -> None:
        self._now, self._total, self._born = 0, [0.0 for _ in self._rows], [0 for _ in self._rows]  # running episodes
        self._sums.fill(0)

    def reset(self, seeds: Iterable[int], out: Arrays) -> None:
        for i, seed in enumerate(seeds):
            self._show(self._objects[i].reset(seed=seed)[0], out.obs, i)
        self._begin()

    def step(self, actions: Iterable[Any], out: Arrays) -> None:
        self._now += 1
        last, total, plain, ended = out.last, self._total, self._row is None, []
        rewards: list[Any] = []
        for i, step, a in zip(self._rows, self._steps, actions, strict=True):
            obs, reward, terminated, truncated, info = step(a)
            if plain:
                if (terminated or truncated) and np.shape(obs) != last.shape[1:]:  # one number would fill them all
                    raise ValueError(f"an observation of shape {np.shape(obs)}, and its space has {last.shape[1:]}")
                last[i] = obs  # before a reset, which may write into the same array
            else:
                self._show(obs, last, i)
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
            flags[i] = True
            self._show(obs, out.obs, i)
            out.total[i], out.length[i] = total[i], self._now - self._born[i]
            total[i], self._born[i], self._sums[i] = 0.0, self._now, 0

    def close(self) -> None:
        for env in self._objects:
            env.close()

    def _measure(self, i: int, info: dict[str, Any]) -> None:
        for k, name in enumerate(self._measures):
            self._sums[i, k] += measured(info, name)

    def _show(self, obs: Any, array: Array, i: int) -> None:
        if self._row is None:
            array[i] = obs
        else:
            self._row.write(obs, array[i])


def measured(info: dict[str, Any], name: str) -> Any:
    """What `info` holds under a name of env.measures."""
    if name not in info:
        found = ", ".join(info) or "nothing"
        raise ConfigError("env.measures", name, f"a key of what the env puts into info at every step ({found})")
    return info[name]


def spaces_of(env: gym.Env[Any, Any]) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of one env as members see them, or a ConfigError: a Box, or a Row of what else there is."""
    name, obs = name_of(env), env.observation_space
    try:
        action = Actions(env.action_space).space
    except TypeError as error:
        raise ConfigError("env.id", name, f"its actions are {error}") from error
    try:
        found = seen(obs)
    except TypeError as error:
        raise ConfigError("env.id", name, f"its observations are {error} can be used") from error
    if 0 in (found.shape or ()):
        raise ConfigError("env.id", name, f"its observations are {obs}, and they need a number at least")
    return found, action


def seen(obs: gym.Space[Any]) -> gym.Space[Any]:
    """Bytes stay as they are; all else becomes float32."""
    if not isinstance(obs, Box):
        return Row(obs)
    if obs.dtype == np.float32 or is_bytes(obs):
        return obs
    return Box(obs.low.astype(np.float32), obs.high.astype(np.float32))


def name_of(env: gym.Env[Any, Any]) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__
