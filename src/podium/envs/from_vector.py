"""Envs of another library that step together, in arrays: what is common to all such sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from torch import Tensor

from podium.core.errors import PodiumError
from podium.core.spec import Episode, Step
from podium.core.streams import Streams
from podium.core.tree import Tree

Array = NDArray[Any]


class FromVector:
    """A VecEnv of N = M x E envs of one vector. A subclass says how to `start` them and how to `advance`."""

    obs_space: Space[Any]
    action_space: Space[Any]
    objectives: tuple[str, ...] = ()

    def __init__(self, members: int, envs: int, device: torch.device | str) -> None:
        self.members, self.envs, self.device = members, envs, torch.device(device)
        self._tally = np.zeros((2, members * envs), np.float32)  # running episodes: reward, steps

    def start(self, seeds: list[int]) -> Array:
        """Seed and reset all envs, `[N, *O]`."""
        raise NotImplementedError

    def advance(self, action: Array) -> tuple[Array, Array, Array, Array, Array]:
        """obs, reward, terminated, truncated, last; `[N, ...]`, of arrays that later steps leave alone."""
        raise NotImplementedError

    def reset(self, streams: Streams) -> Tensor:
        seeds = [s for g in streams.env for s in torch.randint(2**31, (self.envs,), generator=g).tolist()]
        self._tally.fill(0)
        return self._tensor(self.start(seeds))

    def step(self, action: Tensor) -> Step:
        obs, reward, terminated, truncated, last = self.advance(self._chosen(action))
        self._tally += (reward, np.ones_like(reward))
        ended = self._tally.copy()
        self._tally[:, terminated | truncated] = 0
        none = torch.zeros(self.members, self.envs, 0, device=self.device)
        flags = self._tensor(terminated), self._tensor(truncated & ~terminated)
        episode = Episode(self._tensor(ended[0]), self._tensor(ended[1]), none)
        reward = reward.astype(np.float32, copy=False)
        return Step(self._tensor(obs), self._tensor(reward), *flags, self._tensor(last), episode)

    def _chosen(self, action: Tensor) -> Array:
        """`[N, ...]` as the library takes it."""
        rows: Array = action.flatten(0, 1).numpy(force=True)
        if isinstance(self.action_space, Discrete):
            rows = rows + self.action_space.start
            return rows
        assert isinstance(self.action_space, Box)
        clipped: Array = np.nan_to_num(rows).clip(self.action_space.low, self.action_space.high)
        return clipped

    def _tensor(self, x: Array) -> Tensor:
        return torch.from_numpy(x).view(self.members, self.envs, *x.shape[1:]).to(self.device)

    def state(self) -> Tree | None:
        return None

    def load(self, tree: Tree) -> Tensor:
        raise PodiumError("these envs cannot be put back into a state; reset them")

    def close(self) -> None:
        pass
