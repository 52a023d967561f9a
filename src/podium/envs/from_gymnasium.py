"""Gymnasium's own env objects, stepped one after another in this process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from podium.core.actions import Actions
from podium.core.errors import EnvRaised, PodiumError
from podium.core.parts import Row
from podium.core.spec import Episode, Step
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.envs import objects
from podium.envs.objects import Array, Arrays, Objects, name_of, spaces_of


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
        first, count = make(), members * envs
        self.obs_space, self.action_space = spaces_of(first)
        every = [first, *(make() for _ in range(count - 1))]
        self._actions, self._name = Actions(first.action_space), name_of(first)
        self._objects = Objects(every, measures, self.obs_space if isinstance(self.obs_space, Row) else None)
        obs = self.obs_space.shape or (), self.obs_space.dtype
        self._out, self._spare = (Out(Arrays.of(count, obs, len(measures)), members, envs) for _ in range(2))

    def reset(self, streams: Streams) -> Tensor:
        try:
            self._objects.reset(seeds(streams, self.envs).tolist(), self._out.arrays)
        except Exception as error:
            self._blame(error)
        return self._out.step.obs.to(self.device)

    def step(self, action: Tensor) -> Step:
        self._out, self._spare = out, _ = self._spare, self._out
        rows = self._actions.to_env(flat(action))
        try:
            self._objects.step(rows.tolist() if isinstance(self.action_space, Discrete) else list(rows), out.arrays)
        except Exception as error:
            self._blame(error)
        return out.on(self.device)

    def _blame(self, error: Exception) -> NoReturn:
        """Raise what the env raised, by the env's name and with the part of the traceback that is its own."""
        if isinstance(error, PodiumError):
            raise error
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename != objects.__file__:
            trace = trace.tb_next
        own = traceback.format_exception(type(error), error, trace and (trace.tb_next or trace))
        raise EnvRaised(self._name, "".join(own).strip()) from error

    def state(self) -> Tree | None:
        return None

    def load(self, tree: Tree) -> Tensor:
        raise PodiumError("Gymnasium's envs cannot be put back into a state; reset them")

    def close(self) -> None:
        self._objects.close()


class Out:
    """Arrays that a step of M x E envs fills, and the Step that is made of the same memory."""

    def __init__(self, arrays: Arrays, members: int, envs: int) -> None:
        def tensor(array: Array) -> Tensor:
            return torch.from_numpy(array).reshape(members, envs, *array.shape[1:])

        self.arrays = arrays
        obs, last, reward, total, length, terminated, truncated, objectives = map(tensor, arrays)
        self.step = Step(obs, reward, terminated, truncated, last, Episode(total, length, objectives))

    def on(self, device: torch.device) -> Step:
        if device.type == "cpu":
            return self.step
        obs, reward, terminated, truncated, last = (x.to(device) for x in self.step[:5])
        return Step(obs, reward, terminated, truncated, last, Episode(*(x.to(device) for x in self.step.episode)))


def seeds(streams: Streams, envs: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number for each env to reset with, from its member's stream; `[M * E]`."""
    return torch.cat([torch.randint(2**31, (envs,), generator=g) for g in streams.env]).numpy()


def flat(action: Tensor) -> Array:
    """`[M, E, *A]` -> `[M * E, *A]`"""
    return action.flatten(0, 1).numpy(force=True)
