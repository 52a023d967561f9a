"""Tiny tasks with a known answer, each of which isolates one thing that an algorithm can get wrong.

The value of an observation is named V(obs); `discount` is the learner's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.envs.native.base import Simulator, State
from podium.envs.native.pong import Pong


class Probe(Simulator):
    """One number is state and observation; an episode is one step unless a subclass says otherwise."""

    obs_space = Box(-1.0, 1.0, (1,))
    action_space: Box | Discrete = Discrete(2)
    names = ("x",)
    numbers = 1
    dtype = torch.float32

    def prepare(self) -> None:
        self.zero = torch.zeros_like(self.s["x"])
        self.always, self.never = self.zero == 0, self.zero != 0

    def start(self, u: Sequence[Tensor]) -> State:
        return {"x": torch.zeros_like(u[0])}


class SignStart(Probe):
    """Starts at -1 or 1 with equal chance."""

    def start(self, u: Sequence[Tensor]) -> State:
        return {"x": torch.where(u[0] < 0.5, -1.0, 1.0)}


class ConstantReward(Probe):
    """Reward 1, one step: V(0) = 1. Fails where the value loss or its optimiser is wrong."""

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.zero + 1, self.always


class ObsReward(SignStart):
    """The reward is the observation, one step: V(-1) = -1, V(1) = 1. Fails where observations are lost or mixed up."""

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return s["x"].clone(), self.always


class DelayedReward(Probe):
    """Observation 0 then 1, reward 0 then 1: V(0) = discount, V(1) = 1. Fails where discounting is wrong."""

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        second = s["x"] > 0
        s["x"].fill_(1)
        return second.float(), second


class ActionReward(Probe):
    """Reward 1 for action 1 and -1 for action 0, one step: the policy takes 1, V(0) = 1. Fails with the policy loss."""

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return action * 2.0 - 1, self.always


class ObsActionReward(SignStart):
    """Reward 1 where the action is (obs > 0), else -1, one step: V = 1. Fails where batches are misaligned."""

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return ((s["x"] > 0) == (action == 1)) * 2.0 - 1, self.always


class TruncatedForever(Probe):
    """Reward 1 a step, cut off after 5 steps: V(0) = 1 / (1 - discount). Fails where truncation does not bootstrap."""

    time_limit = 5

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.zero + 1, self.never


class Elsewhere(TruncatedForever):
    """Observation 0 then 1, reward 0 then 1, cut off after 2 steps: V(1) = 1 / (1 - discount), V(0) = discount V(1).

    Fails where the bootstrap is that of the next episode's first observation.
    """

    time_limit = 2

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        reward = s["x"].clone()
        s["x"].fill_(1)
        return reward, self.never


class ContinuousTarget(SignStart):
    """Reward -(action - obs / 2)^2, one step: the policy's mean is obs / 2, V = 0 once it is. For Box actions."""

    action_space = Box(-1.0, 1.0, (1,))

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return -(action[..., 0].clamp(-1, 1) - s["x"] / 2).square(), self.always


class AsymmetricTarget(Probe):
    """Reward -(action / 2 - 1)^2 for actions from -1 to 3, one step: the policy takes 2, V(0) = 0 once it does."""

    action_space = Box(-1.0, 3.0, (1,))

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return -(action[..., 0] / 2 - 1).square(), self.always


def boxed(probe: type[Probe]) -> type[Probe]:
    """The same for a number as action, where the action changes nothing."""
    return type(f"Boxed{probe.__name__}", (probe,), {"action_space": Box(-1.0, 1.0, (1,))})


class OpenPong(Pong):
    """Pong where the style of all steps counts, also of those that decide a round."""

    def style(self) -> Tensor:
        self.rightward.fill_(True)
        return super().style()


PROBES = (ConstantReward, ObsReward, DelayedReward, ActionReward, ObsActionReward, TruncatedForever, ContinuousTarget)
