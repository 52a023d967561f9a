"""Acrobot-v1: swing the tip of a double pendulum above a bar with a motor at the elbow (Sutton 1996).

Links of mass and length 1, centre of mass at 1/2, moment of inertia 1; the constants below have that worked in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.envs.native.base import Simulator, State

GRAVITY, DT, SPEED_1, SPEED_2 = 9.8, 0.2, 4 * math.pi, 9 * math.pi
HIGH = np.array([1.0, 1.0, 1.0, 1.0, SPEED_1, SPEED_2], np.float32)


def slope(y: Tensor, torque: Tensor) -> Tensor:
    """Time derivative of two angles and their speeds, `[4, M, E]`, by the equations of Sutton and Barto's book."""
    a1, a2, w1, w2 = y.unbind()
    cos, sin = a2.cos(), a2.sin()
    d1, d2 = cos + 3.5, 0.5 * cos + 1.25
    phi2 = (0.5 * GRAVITY) * torch.sin(a1 + a2)
    phi1 = phi2 + (1.5 * GRAVITY) * torch.sin(a1) - (0.5 * w2 + w1) * w2 * sin
    ratio = d2 / d1
    gain2 = (torque + ratio * phi1 - 0.5 * w1 * w1 * sin - phi2) / (1.25 - d2 * ratio)
    gain1 = (d2 * gain2 + phi1) / -d1
    return torch.stack((w1, w2, gain1, gain2))


class Acrobot(Simulator):
    """Observation: cos and sin of both angles, speeds. Action: torque -1, 0, 1. Reward: -1 a step, 0 at the goal."""

    obs_space = Box(-HIGH, HIGH)
    action_space = Discrete(3)
    names = ("angle_1", "angle_2", "speed_1", "speed_2")
    numbers = 4
    time_limit = 500

    def start(self, u: Sequence[Tensor]) -> State:
        # The twin rounds its start to float32.
        return {name: (0.2 * x - 0.1).float().to(x) for name, x in zip(self.names, u, strict=True)}

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        y, torque = self.table, action.to(self.table) - 1
        k1 = slope(y, torque)  # Runge and Kutta, 4th order
        k2 = slope(y.add(k1, alpha=DT / 2), torque)
        k3 = slope(y.add(k2, alpha=DT / 2), torque)
        k4 = slope(y.add(k3, alpha=DT), torque)
        y.add_(k2.add_(k3).mul_(2).add_(k1).add_(k4), alpha=DT / 6)
        angles = y[:2]
        angles.sub_(torch.ceil((angles - math.pi) / (2 * math.pi)), alpha=2 * math.pi)
        s["speed_1"].clamp_(-SPEED_1, SPEED_1)
        s["speed_2"].clamp_(-SPEED_2, SPEED_2)
        up = torch.cos(s["angle_1"]) + torch.cos(s["angle_1"] + s["angle_2"]) < -1
        return up.to(y) - 1, up

    def observe(self, s: State) -> Tensor:
        a, b = s["angle_1"], s["angle_2"]
        return torch.stack((a.cos(), a.sin(), b.cos(), b.sin(), s["speed_1"], s["speed_2"]), -1)
