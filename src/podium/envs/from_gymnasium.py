"""Gymnasium's own env objects, stepped one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class FromGymnasium:
    """A VecEnv of M x E env objects. Box actions are clipped to their bounds; a NaN in them becomes 0."""

    objectives: tuple[str, ...] = ()

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], members: int, envs: int, device: torch.device | str = "cpu"
    ) -> None:
        self.members, self.envs, self.device = members, envs, torch.device(device)
        first = make()
        self.obs_space, self.action_space = spaces_of(first)
        self._objects = [first, *(make() for _ in range(members * envs - 1))]
        self._steps = [env.step for env in self._objects]  # bound once: a look-up a step for every env saved
        space = first.observation_space
        self._codes = np.eye(int(space.n), dtype=np.float32) if isinstance(space, Discrete) else None
        self._low = int(space.start) if isinstance(space, Discrete) else 0
        self._out, self._spare = _Out(self), _Out(self)
        self._total, self._length = np.zeros((2, members * envs), np.float32)

    def reset(self, streams: Streams) -> Tensor:
        obs = self._out.obs
        for m, generator in enumerate(streams.env):
            seeds = torch.randint(2**31, (self.envs,), generator=generator).tolist()
            for i, seed in enumerate(seeds, m * self.envs):
                obs[i] = self._code(self._objects[i].reset(seed=seed)[0])
        self._total[:] = self._length[:] = 0
        return self._out.step.obs.to(self.device)

    def step(self, action: Tensor) -> Step:
        self._out, self._spare = out, _ = self._spare, self._out
        last, code, rewards, flags, i = out.last, self._codes is not None, [], out.flags, 0
        fresh: list[tuple[int, Any]] = []
        flags.fill(False)
        for step, a in zip(self._steps, self._actions(action), strict=True):
            obs, reward, terminated, truncated, _ = step(a)
            last[i] = self._code(obs) if code else obs  # before a reset, which may write into the same array
            rewards.append(reward)
            if terminated or truncated:
                flags[0 if terminated else 1, i] = True
                fresh.append((i, self._objects[i].reset()[0]))
            i += 1
        out.reward[:] = rewards
        np.add(self._total, out.reward, out=out.total)
        np.add(self._length, 1, out=out.length)
        self._total[:], self._length[:], out.obs[:] = out.total, out.length, last
        for i, obs in fresh:
            out.obs[i] = self._code(obs)
            self._total[i] = self._length[i] = 0
        return out.step if self.device.type == "cpu" else _moved(out.step, self.device)

    def state(self) -> Tree | None:
        return None

    def load(self, tree: Tree) -> Tensor:
        raise PodiumError("Gymnasium's envs cannot be put back into a state; reset them")

    def close(self) -> None:
        for env in self._objects:
            env.close()

    def _code(self, obs: Any) -> Any:
        """One-hot of a discrete observation; others as they are."""
        return obs if self._codes is None else self._codes[int(obs) - self._low]

    def _actions(self, action: Tensor) -> Iterable[Any]:
        """What each env's `step` takes."""
        space, flat = self.action_space, action.detach().cpu().flatten(0, 1)
        if isinstance(space, Discrete):
            start = int(space.start)
            return flat.tolist() if start == 0 else (flat + start).tolist()
        rows = flat.numpy()
        if isinstance(space, MultiDiscrete):
            return rows.astype(space.dtype) + space.start
        rows = np.where(np.isnan(rows), 0, rows)  # one failed member must not stop the others
        return np.clip(rows, space.low, space.high).astype(space.dtype, copy=False)  # type: ignore[attr-defined]


class _Out:
    """Arrays that a step fills, `[M * E, ...]`, and the Step that is made of the same memory."""

    def __init__(self, env: FromGymnasium) -> None:
        M, E, n, space = env.members, env.envs, env.members * env.envs, env.obs_space
        self.obs, self.last = np.zeros((2, n, *(space.shape or ())), space.dtype)
        self.reward, self.total, self.length = np.zeros((3, n), np.float32)
        self.flags = np.zeros((2, n), np.bool_)

        def tensor(array: np.ndarray[Any, Any]) -> Tensor:
            return torch.from_numpy(array).unflatten(0, (M, E))

        episode = Episode(tensor(self.total), tensor(self.length), torch.zeros(M, E, 0))
        terminated, truncated = map(tensor, self.flags)
        self.step = Step(tensor(self.obs), tensor(self.reward), terminated, truncated, tensor(self.last), episode)


def _moved(step: Step, device: torch.device) -> Step:
    *tensors, episode = step
    return Step(*(x.to(device) for x in tensors), Episode(*(x.to(device) for x in episode)))


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
