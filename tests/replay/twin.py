"""A replay as a list of steps of one env after the other: slow, plain, and what the real one is held to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.core.spec import Spec
from podium.core.streams import Generators, generator
from podium.replay.replay import Replay
from podium.replay.settings import ReplaySettings

CONTINUOUS = Box(-1.0, 1.0, (2,))
FLOATS = Box(-9e9, 9e9, (3,))
IMAGES = Box(0, 255, (2, 4), np.uint8)


def spec(members: int = 2, envs: int = 3, obs: Box = FLOATS, action: Any = CONTINUOUS) -> Spec:
    return Spec(obs, action, members, envs)


def dice(members: int, seed: int = 0) -> Generators:
    return [generator(seed, m, "agent") for m in range(members)]


def replay(s: Spec, capacity: int, batch: int = 8, n_step: int = 1, seed: int = 0, **settings: Any) -> Replay:
    return Replay(s, ReplaySettings(capacity=capacity, **settings), batch, n_step, dice(s.members, seed))


@dataclass
class Moment:
    """One step of one env: observations are their own numbers, so that each can be told from all others."""

    obs: int
    reward: float
    terminated: bool
    ends: bool
    last: int
    action: float


class World:
    """Envs whose every observation is a new number; keeps the steps `history[m][e]` as plain lists."""

    def __init__(self, s: Spec, seed: int = 0, ends: float = 0.3) -> None:
        self.spec, self.ends = s, ends
        self.rng = np.random.default_rng(seed)
        self.seen = 0
        self.history: list[list[list[Moment]]] = [[[] for _ in range(s.envs)] for _ in range(s.members)]
        self.now = [[self._new() for _ in range(s.envs)] for _ in range(s.members)]

    def _new(self) -> int:
        self.seen += 1
        return self.seen

    def restart(self) -> None:
        """As if the envs were reset from outside."""
        for m, rows in enumerate(self.history):
            for e, steps in enumerate(rows):
                steps[-1].ends = True
                self.now[m][e] = self._new()

    def rollout(self, T: int) -> dict[str, Tensor]:
        """T more steps, `[M, T, E, ...]`."""
        s = self.spec
        steps: list[list[list[Moment]]] = []
        for m in range(s.members):
            steps.append([])
            for _ in range(T):
                steps[m].append([self._step(m, e) for e in range(s.envs)])
        truncated = torch.tensor([[[x.ends and not x.terminated for x in row] for row in rows] for rows in steps])
        action = self._of(steps, "action").float()
        if isinstance(s.action, Discrete):
            action = action.long()
        else:
            action = torch.stack([action, -action], -1)
        return {
            "obs": encode(self._of(steps, "obs"), s),
            "action": action,
            "reward": self._of(steps, "reward").float(),
            "terminated": self._of(steps, "terminated"),
            "truncated": truncated,
            "last": encode(self._of(steps, "last"), s),
        }

    def _step(self, m: int, e: int) -> Moment:
        u, last = self.rng.random(), self._new()
        done = u < self.ends
        step = Moment(self.now[m][e], float(self.rng.normal()), u < self.ends / 2, done, last, self.rng.integers(5))
        self.now[m][e] = self._new() if done else last
        self.history[m][e].append(step)
        return step

    def _of(self, steps: list[list[list[Moment]]], name: str) -> Tensor:
        return torch.tensor([[[getattr(x, name) for x in row] for row in rows] for rows in steps])

    def expected(self, m: int, obs: int, gamma: float, n: int, keep: int) -> tuple[float, float, int, float] | None:
        """Return, decay, next observation and action of the step at `obs`, if it is among the last `keep` of an env."""
        for steps in self.history[m]:
            for t in range(max(0, len(steps) - keep), len(steps)):
                if steps[t].obs == obs:
                    return (*n_step(steps, t, gamma, n), steps[t].action)
        return None


def n_step(steps: list[Moment], t: int, gamma: float, n: int) -> tuple[float, float, int]:
    """As the definition reads: up to n rewards, fewer where the episode or what is known of it ends."""
    total, factor = 0.0, 1.0
    for k in range(t, min(t + n, len(steps))):
        total += factor * steps[k].reward
        factor *= gamma
        if steps[k].ends:
            break
    return total, 0.0 if steps[k].terminated else factor, steps[k].last


def encode(number: Tensor, s: Spec) -> Tensor:
    """Observations from numbers: the number in the first entries, and the rest derived from it."""
    if s.obs.dtype == np.uint8:
        low, high = number % 256, number // 256
        return torch.stack([low, high, 255 - low, high, low, low, high, low], -1).to(torch.uint8).unflatten(-1, (2, 4))
    return torch.stack([number, -number, number * 2], -1).float()


def decode(obs: Tensor) -> Tensor:
    """The numbers of observations `[..., *O]`; an observation that is not one of ours fails."""
    if obs.dtype == torch.uint8:
        x = obs.flatten(-2).long()
        number = x[..., 0] + 256 * x[..., 1]
        assert torch.equal(encode(number, spec(obs=IMAGES)), obs)
        return number
    assert torch.equal(obs[..., 1], -obs[..., 0]) and torch.equal(obs[..., 2], 2 * obs[..., 0])
    return obs[..., 0].long()
