"""CartPole-v1: keep a pole upright on a cart (Barto, Sutton and Anderson 1983; equations of Florian 2007).

This file is the example to read before writing a simulator of your own: what is here is all that a task needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.envs.native.base import Simulator, State

GRAVITY, CART, POLE, HALF_LENGTH, PUSH, DT = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MASS, MOMENT = CART + POLE, POLE * HALF_LENGTH
FAR, TILTED = 2.4, math.radians(12)
HIGH = np.array([2 * FAR, np.inf, 2 * TILTED, np.inf], np.float32)


class CartPole(Simulator):
    """Observation: position, its speed, angle, its speed. Action: 0 pushes left, 1 right. Reward: 1 a step."""

    obs_space = Box(-HIGH, HIGH)
    action_space = Discrete(2)
    names = ("x", "x_speed", "angle", "angle_speed")
    numbers = 4
    time_limit = 500

    def prepare(self) -> None:
        # Pairs of rows of the table: place and angle move in one operation, and so do their speeds.
        self.places, self.speeds = self.table[0::2], self.table[1::2]
        self.gains = torch.empty_like(self.speeds)
        self.v_gain, self.w_gain = self.gains
        self.work = torch.empty_like(self.table).unbind()
        self.sizes, self.over = torch.empty_like(self.speeds), torch.empty_like(self.speeds, dtype=torch.bool)
        self.far, self.tilted = self.over
        self.limits = self.table.new_tensor([FAR, TILTED])[:, None, None]
        # torch shares a sine among its threads from 2048 numbers on, which at 4096 envs gains 5 us where the cores are
        # idle and loses 5 ms where they are not. All other operations are shared from 32768 on.
        part = 2047 if self.members * self.envs < 32768 else self.members * self.envs
        angle, cos, sin = (x.view(-1).split(part) for x in (self.s["angle"], *self.work[:2]))
        self.parts = list(zip(angle, cos, sin, strict=True))
        self.left = torch.full_like(self.work[0], -PUSH / MASS)
        self.inertia = torch.full_like(self.work[0], 4 / 3 * HALF_LENGTH / GRAVITY)
        self.one = torch.ones_like(self.work[0])

    def start(self, u: Sequence[Tensor]) -> State:
        return {name: 0.1 * x - 0.05 for name, x in zip(self.names, u, strict=True)}

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        # pull = (force + moment w^2 sin) / mass,    w' = (g sin - cos pull) / (l (4/3 - pole cos^2 / mass)),
        # v' = pull - moment w' cos / mass.    At few envs time is the number of operations: hence addcmul and out=.
        (cos, sin, pull, tmp), v_gain, w_gain, w = self.work, self.v_gain, self.w_gain, s["angle_speed"]
        for angle, cos_part, sin_part in self.parts:
            torch.cos(angle, out=cos_part)
            torch.sin(angle, out=sin_part)
        torch.add(self.left, pull.copy_(action), alpha=2 * PUSH / MASS, out=pull)
        pull.addcmul_(torch.mul(w, w, out=tmp), sin, value=MOMENT / MASS)
        sin.addcmul_(cos, pull, value=-1 / GRAVITY)
        torch.addcmul(self.inertia, cos, cos, value=-POLE * HALF_LENGTH / MASS / GRAVITY, out=tmp)
        torch.div(sin, tmp, out=w_gain)
        torch.addcmul(pull, w_gain, cos, value=-MOMENT / MASS, out=v_gain)
        self.places.add_(self.speeds, alpha=DT)
        self.speeds.add_(self.gains, alpha=DT)
        torch.gt(torch.abs(self.places, out=self.sizes), self.limits, out=self.over)
        return self.one, torch.logical_or(self.far, self.tilted)
