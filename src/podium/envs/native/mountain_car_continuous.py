"""MountainCarContinuous-v0: the mountain car with a throttle; effort costs, the goal pays."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gymnasium.spaces import Box
from torch import Tensor

from podium.envs.native.base import Simulator, State
from podium.envs.native.mountain_car import MountainCar, roll

GOAL, POWER = 0.45, 0.0015


class MountainCarContinuous(Simulator):
    """Observation: position and speed. Action: throttle. Reward: 100 at the goal, minus 0.1 throttle^2 a step."""

    obs_space = MountainCar.obs_space
    action_space = Box(-1.0, 1.0, (1,))
    names = ("position", "speed")
    numbers = 1
    time_limit = 999
    dtype = torch.float32  # as the twin keeps it

    def start(self, u: Sequence[Tensor]) -> State:
        return {"position": 0.2 * u[0] - 0.6, "speed": torch.zeros_like(u[0])}

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        throttle = action[..., 0].clamp(-1, 1)
        home = roll(s["position"], s["speed"], throttle * POWER, GOAL)
        return 100 * home - 0.1 * throttle.square(), home
