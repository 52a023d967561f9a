"""A batch of envs that another program steps together, in tensors or arrays: what a VecEnv still needs around it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from podium.core.errors import ConfigError, PodiumError
from podium.core.spec import Episode, Step
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.ops.actions import ToEnv

OUTCOME = ("obs", "reward", "terminated", "truncated", "last")
Outcome = tuple[Any, Any, Any, Any, Any]
"""obs, reward, terminated, truncated, last: tensors on the batch's device, or numpy arrays; `[N, ...]` each."""


class Batch:
    """A VecEnv of N = M x E envs that reset themselves. A subclass says how to `start` them and how to `advance`.

    Nothing is copied: tensors stay where they are, and arrays are looked at in place. What `advance` returns must stay
    as it is until the second next call.
    """

    obs_space: Space[Any]  # of one env
    action_space: Space[Any]
    objectives: tuple[str, ...] = ()

    def __init__(self, members: int, envs: int, device: torch.device | str = "cpu") -> None:
        self.members, self.envs, self.device = members, envs, torch.device(device)
        self._tally = torch.zeros(2, members, envs, device=self.device)  # running episodes: reward, steps

    def start(self, seeds: list[int]) -> Any:
        """Seed and reset all envs; their first observations, `[N, *O]`."""
        raise NotImplementedError

    def advance(self, action: Any) -> Outcome:
        """Step all envs and reset those that ended. `last` is what the actions led to, before any reset.

        `action` is `[N]` for Discrete or `[N, *A]` for MultiDiscrete, counted as the space does, or `[N, *A]` for Box,
        within its bounds.
        """
        raise NotImplementedError

    def reset(self, streams: Streams) -> Tensor:
        seeds = [s for g in streams.env for s in torch.randint(2**31, (self.envs,), generator=g).tolist()]
        self._tally = torch.zeros_like(self._tally)
        return self._tensor("start", self.start(seeds), self._shape)

    def step(self, action: Tensor) -> Step:
        outcome = self.advance(self.chosen(action))
        if not isinstance(outcome, tuple | list) or len(outcome) != len(OUTCOME):
            given = f"{len(outcome)} values" if isinstance(outcome, tuple | list) else type(outcome).__name__
            raise PodiumError(f"{type(self).__name__}.advance: {given}, not {', '.join(OUTCOME)}")
        shapes = self._shape, (), (), (), self._shape
        obs, reward, terminated, truncated, last = map(self._tensor, OUTCOME, outcome, shapes)
        reward, terminated = reward.float(), terminated.bool()
        truncated = truncated.bool() & ~terminated
        ended = self._tally + torch.stack((reward, torch.ones_like(reward)))
        self._tally = ended.masked_fill(terminated | truncated, 0)
        none = torch.zeros(self.members, self.envs, 0, device=self.device)
        return Step(obs, reward, terminated, truncated, last, Episode(ended[0], ended[1], none))

    def chosen(self, action: Tensor) -> Any:
        """`[M, E, ...]` as members choose -> `[N, ...]` as `advance` takes it."""
        return self._to_env(action.detach().flatten(0, 1))

    @cached_property
    def _to_env(self) -> ToEnv:
        try:
            return ToEnv(self.action_space, self.device)
        except TypeError as error:
            raise ConfigError("env.id", type(self).__name__, f"its actions are {error}") from error

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.obs_space.shape or ()

    def _tensor(self, what: str, x: Any, shape: tuple[int, ...]) -> Tensor:
        rows: Tensor = torch.as_tensor(x, device=self.device)
        wanted = (self.members * self.envs, *shape)
        if rows.shape != wanted:
            raise PodiumError(f"{type(self).__name__}, {what}: shape {[*rows.shape]}, and it has to be {[*wanted]}")
        return rows.view(self.members, self.envs, *shape)

    def state(self) -> Tree | None:
        return None

    def load(self, tree: Tree) -> Tensor:
        raise PodiumError("these envs cannot be put back into a state; reset them")

    def close(self) -> None:
        pass
