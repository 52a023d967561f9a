"""Gymnasium's own env objects, stepped one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor

from podium.core.errors import ConfigError, PodiumError
from podium.core.spec import Episode, Step
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.envs.base import VecEnv


class FromGymnasium:
    """A VecEnv of M x E env objects. Box actions are clipped to their bounds; a NaN in them becomes 0.

    `measures` are keys of `info`: the mean of each over an episode is one of its objectives.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        members: int,
        envs: int,
        device: torch.device | str = "cpu",
        measures: Sequence[str] = (),
    ) -> None:
        self.members, self.envs, self.device, self.objectives = members, envs, torch.device(device), tuple(measures)
        first = make()
        self.obs_space, self.action_space = spaces_of(first)
        self._objects = [first, *(make() for _ in range(members * envs - 1))]
        self._steps = [env.step for env in self._objects]  # bound once: a look-up a step for every env saved
        space = first.observation_space
        self._codes = np.eye(int(space.n), dtype=np.float32) if isinstance(space, Discrete) else None
        self._low = int(space.start) if isinstance(space, Discrete) else 0
        action = self.action_space
        self._first = int(action.start) if isinstance(action, Discrete) else 0
        self._bounds = (action.low, action.high) if isinstance(action, Box) else (0, 0)
        self._out, self._spare = _Out(self), _Out(self)
        self._now, self._rows = 0, range(members * envs)
        self._total, self._born = [0.0 for _ in self._rows], [0 for _ in self._rows]  # of the running episodes
        self._sums = np.zeros((members * envs, len(self.objectives)))

    def reset(self, streams: Streams) -> Tensor:
        obs = self._out.obs
        for m, generator in enumerate(streams.env):
            seeds = torch.randint(2**31, (self.envs,), generator=generator).tolist()
            for i, seed in enumerate(seeds, m * self.envs):
                obs[i] = self._code(self._objects[i].reset(seed=seed)[0])
        self._now, self._total, self._born = 0, [0.0 for _ in self._rows], [0 for _ in self._rows]
        self._sums.fill(0)
        return self._out.step.obs.to(self.device)

    def step(self, action: Tensor) -> Step:
        self._out, self._spare = out, _ = self._spare, self._out
        self._now += 1
        last, total, plain, ended = out.last, self._total, self._codes is None, []
        rewards: list[Any] = []
        for i, step, a in zip(self._rows, self._steps, self._actions(action), strict=True):
            obs, reward, terminated, truncated, info = step(a)
            last[i] = obs if plain else self._code(obs)  # before a reset, which may write into the same array
            rewards.append(reward)
            total[i] += reward  # type: ignore[operator]
            if self.objectives:
                self._measure(i, info)
            if terminated or truncated:
                ended.append((i, 0 if terminated else 1, self._objects[i].reset()[0]))
        out.reward[:] = rewards
        out.obs[:] = last
        out.flags.fill(False)
        if self.objectives:  # of the running episodes, too: an evaluator may cut one
            out.objectives[:] = self._sums / (self._now - np.array(self._born))[:, None]
        for i, kind, obs in ended:
            out.flags[kind, i], out.obs[i] = True, self._code(obs)
            out.total[i], out.length[i] = total[i], self._now - self._born[i]
            total[i], self._born[i], self._sums[i] = 0.0, self._now, 0
        return out.step if self.device.type == "cpu" else _moved(out.step, self.device)

    def state(self) -> Tree | None:
        return None

    def load(self, tree: Tree) -> Tensor:
        raise PodiumError("Gymnasium's envs cannot be put back into a state; reset them")

    def close(self) -> None:
        for env in self._objects:
            env.close()

    def _measure(self, i: int, info: dict[str, Any]) -> None:
        for k, name in enumerate(self.objectives):
            if name not in info:
                found = ", ".join(info) or "nothing"
                raise ConfigError("env.measures", name, f"a key of what the env puts into info at every step ({found})")
            self._sums[i, k] += info[name]

    def _code(self, obs: Any) -> Any:
        """One-hot of a discrete observation; others as they are."""
        return obs if self._codes is None else self._codes[int(obs) - self._low]

    def _actions(self, action: Tensor) -> Iterable[Any]:
        """What each env's `step` takes."""
        space = self.action_space
        if isinstance(space, Discrete):
            return (action.flatten() + self._first).tolist() if self._first else action.flatten().tolist()
        rows = action.numpy(force=True).reshape(len(self._rows), *(space.shape or ()))
        if isinstance(space, MultiDiscrete):
            return list(rows.astype(space.dtype) + space.start)
        low, high = self._bounds
        clipped = rows.clip(low, high)
        flat = clipped.ravel()
        total = flat.dot(flat)
        if total != total:  # a NaN, which is rare: one failed member must not stop the others
            clipped = np.where(np.isnan(rows), 0, rows).clip(low, high)
        return list(clipped.astype(space.dtype, copy=False))


class _Out:
    """Arrays that a step fills, `[M * E, ...]`, and the Step that is made of the same memory."""

    def __init__(self, env: VecEnv) -> None:
        M, E, n, space = env.members, env.envs, env.members * env.envs, env.obs_space
        self.obs, self.last = np.zeros((2, n, *(space.shape or ())), space.dtype)
        self.reward, self.total, self.length = np.zeros((3, n), np.float32)
        self.flags = np.zeros((2, n), np.bool_)
        self.objectives = np.zeros((n, len(env.objectives)), np.float32)

        def tensor(array: np.ndarray[Any, Any]) -> Tensor:
            return torch.from_numpy(array).reshape(M, E, *array.shape[1:])

        episode = Episode(tensor(self.total), tensor(self.length), tensor(self.objectives))
        terminated, truncated = map(tensor, self.flags)
        self.step = Step(tensor(self.obs), tensor(self.reward), terminated, truncated, tensor(self.last), episode)


def _moved(step: Step, device: torch.device) -> Step:
    obs, reward, terminated, truncated, last = (x.to(device) for x in step[:5])
    return Step(obs, reward, terminated, truncated, last, Episode(*(x.to(device) for x in step.episode)))


def spaces_of(env: gym.Env[Any, Any]) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of one env as tensors show them, or a ConfigError: images stay uint8, all else becomes float32."""
    name = env.spec.id if env.spec else type(env.unwrapped).__name__
    obs, action = env.observation_space, env.action_space
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
