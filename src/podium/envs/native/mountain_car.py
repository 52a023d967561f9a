"""MountainCar-v0: rock an underpowered car out of a valley (Moore 1990)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.envs.native.base import Simulator, State

LEFT, RIGHT, SPEED, GOAL, FORCE, GRAVITY = -1.2, 0.6, 0.07, 0.5, 0.001, 0.0025


def roll(position: Tensor, speed: Tensor, push: Tensor, goal: float) -> Tensor:
    """Move the car under `push`, in place; whether it is at the goal, `[M, E]` bool."""
    speed.add_(push).add_(torch.cos(3 * position), alpha=-GRAVITY).clamp_(-SPEED, SPEED)
    position.add_(speed).clamp_(LEFT, RIGHT)
    speed.masked_fill_((position == LEFT) & (speed < 0), 0)  # the wall on the left stops the car
    return (position >= goal) & (speed >= 0)


class MountainCar(Simulator):
    """Observation: position and speed. Action: push left, not at all, right. Reward: -1 a step until the goal."""

    obs_space = Box(np.array([LEFT, -SPEED], np.float32), np.array([RIGHT, SPEED], np.float32))
    action_space = Discrete(3)
    names = ("position", "speed")
    numbers = 1
    time_limit = 200

    def prepare(self) -> None:
        self.cost = -torch.ones_like(self.s["speed"])

    def start(self, u: Sequence[Tensor]) -> State:
        return {"position": 0.2 * u[0] - 0.6, "speed": torch.zeros_like(u[0])}

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        push = (action.to(self.cost) - 1) * FORCE
        return self.cost, roll(s["position"], s["speed"], push, GOAL)
