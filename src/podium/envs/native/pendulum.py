"""Pendulum-v1: swing a pendulum up and hold it there with a weak motor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from podium.envs.native.base import Simulator, State

GRAVITY, MASS, LENGTH, DT, TORQUE, SPEED = 10.0, 1.0, 1.0, 0.05, 2.0, 8.0
HIGH = np.array([1.0, 1.0, SPEED], np.float32)


class Pendulum(Simulator):
    """Observation: cos and sin of the angle (0 is up), speed. Action: torque. Reward: minus a squared distance."""

    obs_space = Box(-HIGH, HIGH)
    action_space = Box(-TORQUE, TORQUE, (1,))
    names = ("angle", "speed")
    numbers = 2
    time_limit = 200

    def prepare(self) -> None:
        self.never = torch.zeros_like(self.s["angle"], dtype=torch.bool)

    def start(self, u: Sequence[Tensor]) -> State:
        return {"angle": math.pi * (2 * u[0] - 1), "speed": 2 * u[1] - 1}

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        angle, speed = s["angle"], s["speed"]
        torque = action[..., 0].clamp(-TORQUE, TORQUE)
        off = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        reward = off.square_().add_(speed * speed, alpha=0.1).add_(torque * torque, alpha=0.001).neg_()
        # The motor's share stays in the action's float32, as the twin rounds it.
        gain = torch.sin(angle).mul_(1.5 * GRAVITY / LENGTH).add_(torque * (3 / (MASS * LENGTH**2)))
        speed.add_(gain, alpha=DT).clamp_(-SPEED, SPEED)
        angle.add_(speed, alpha=DT)
        return reward, self.never

    def observe(self, s: State) -> Tensor:
        return torch.stack((s["angle"].cos(), s["angle"].sin(), s["speed"]), -1)
