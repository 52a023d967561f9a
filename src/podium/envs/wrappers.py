"""What may stand between any VecEnv and its members: sticky actions, stacked frames, the time, other rewards.

All on tensors of all envs at once, so that every source has them. Limits of time are each source's own matter, since
only it can begin an episode anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Tuple
from torch import Tensor

from podium.core.errors import ConfigError
from podium.core.parts import Row, parts_of
from podium.core.spec import Step
from podium.core.streams import Block, Streams, uniform
from podium.core.tree import Tree
from podium.envs import base
from podium.envs.base import VecEnv
from podium.envs.settings import EnvSettings


def wrap(env: VecEnv, settings: EnvSettings, limit: float | None, scored: bool) -> VecEnv:
    """The env as its settings ask for; `limit` are steps of an episode, and `scored` leaves rewards as they are."""
    if settings.sticky:
        env = Sticky(env, settings.sticky)
    if settings.frame_stack > 1:
        env = FrameStack(env, settings.frame_stack)
    if settings.time_aware:
        env = TimeAware(env, limit)
    if not scored and (settings.reward_scale != 1 or settings.reward_clip is not None):
        env = Rewards(env, settings.reward_scale, settings.reward_clip)
    return env


def seen(space: Space[Any], settings: EnvSettings, limit: float | None) -> Space[Any]:
    """What of a space of observations `wrap` makes, or why it cannot."""
    if settings.frame_stack > 1:
        space = stacked(space, settings.frame_stack)
    if settings.time_aware:
        space = timed(space, limit)
    return space


class Wrapper:
    """Another VecEnv with all that it does; a subclass changes some of it. What it keeps itself is `own`."""

    def __init__(self, env: VecEnv) -> None:
        self.inner, self.members, self.envs, self.device = env, env.members, env.envs, env.device
        self.obs_space, self.action_space, self.objectives = env.obs_space, env.action_space, env.objectives

    def reset(self, streams: Streams) -> Tensor:
        return self.inner.reset(streams)

    def step(self, action: Tensor) -> Step:
        return self.inner.step(action)

    def own(self) -> Tree:
        return {}

    def load_own(self, tree: Tree, obs: Tensor) -> Tensor:
        """Take back what `own` told; the obs to act on, from what the inner env shows."""
        return obs

    def state(self) -> Tree | None:
        inner = self.inner.state()
        return None if inner is None else {"inner": inner, "own": self.own()}

    def load(self, tree: Tree) -> Tensor:
        return self.load_own(tree["own"], self.inner.load(tree["inner"]))

    def notes(self) -> list[str]:
        return base.notes(self.inner)

    def close(self) -> None:
        self.inner.close()


class Sticky(Wrapper):
    """With some probability an env gets the action before once more, not the one that was chosen (Machado et al. 2018).

    The first step of an episode is never sticky. Numbers are drawn at every step, so no member's depend on another's.
    """

    def __init__(self, env: VecEnv, probability: float) -> None:
        super().__init__(env)
        self._probability = probability
        self._streams: Streams | None = None
        self._block = Block(self._draw)
        self._first = torch.ones(self.members, self.envs, dtype=torch.bool, device=self.device)
        self._before: Tensor | None = None

    def _draw(self) -> Tensor:
        if self._streams is None:
            raise RuntimeError("call reset before step")
        return uniform(self._streams.env, 64, self.envs).to(self.device)

    def reset(self, streams: Streams) -> Tensor:
        self._streams, self._before = streams, None
        self._block.drop()
        self._first = torch.ones_like(self._first)
        return self.inner.reset(streams)

    def step(self, action: Tensor) -> Step:
        again = (self._block.next() < self._probability) & ~self._first
        before = action if self._before is None else self._before
        shape = (self.members, self.envs, *(1 for _ in action.shape[2:]))
        self._before = torch.where(again.view(shape), before, action).detach()
        step = self.inner.step(self._before)
        self._first = step.terminated | step.truncated
        return step

    def own(self) -> Tree:
        rest = self._block.rest()
        numbers = torch.zeros(self.members, 0, self.envs, device=self.device) if rest is None else rest
        own = {"first": self._first.clone(), "numbers": numbers}
        return own if self._before is None else own | {"before": self._before.clone()}

    def load_own(self, tree: Tree, obs: Tensor) -> Tensor:
        self._first = tree["first"].to(self.device)
        self._before = tree["before"].to(self.device) if "before" in tree else None
        numbers = tree["numbers"].to(self.device)
        self._block.refill(numbers if numbers.shape[1] else None)
        return obs


class FrameStack(Wrapper):
    """The last `count` observations side by side, the newest last. An episode begins with its first one repeated."""

    def __init__(self, env: VecEnv, count: int) -> None:
        super().__init__(env)
        self.obs_space, self._count = stacked(env.obs_space, count), count
        axis = _axis(env.obs_space)
        self._axis, self._bare = 2 + max(0, axis), axis < 0
        self._frames = torch.zeros(0)

    def reset(self, streams: Streams) -> Tensor:
        frame = self._frame(self.inner.reset(streams))
        self._frames = torch.cat([frame] * self._count, self._axis)
        return self._frames

    def step(self, action: Tensor) -> Step:
        step = self.inner.step(action)
        last, obs = self._frame(step.last), self._frame(step.obs)
        size = last.shape[self._axis]
        seen = torch.cat((self._frames.narrow(self._axis, size, size * (self._count - 1)), last), self._axis)
        self._frames, over = seen, step.terminated | step.truncated
        if over.any():
            over = over.view(*over.shape, *(1 for _ in seen.shape[2:]))
            self._frames = torch.where(over, torch.cat([obs] * self._count, self._axis), seen)
        return step._replace(obs=self._frames, last=seen)

    def own(self) -> Tree:
        return {"frames": self._frames.clone()}

    def load_own(self, tree: Tree, obs: Tensor) -> Tensor:
        self._frames = tree["frames"].to(self.device)
        return self._frames

    def _frame(self, obs: Tensor) -> Tensor:
        """With an axis to lay frames along."""
        return obs.unsqueeze(2) if self._bare else obs


class TimeAware(Wrapper):
    """One number more: how much of the time of an episode has passed, 0 to 1 (Pardo et al. 2018)."""

    def __init__(self, env: VecEnv, limit: float | None) -> None:
        super().__init__(env)
        self.obs_space = timed(env.obs_space, limit)
        self._limit = limit or 1.0
        self._clock = torch.zeros(self.members, self.envs, 1, device=self.device)

    def reset(self, streams: Streams) -> Tensor:
        self._clock = torch.zeros_like(self._clock)
        return self._with(self.inner.reset(streams))

    def step(self, action: Tensor) -> Step:
        step = self.inner.step(action)
        self._clock = self._clock + 1
        last = self._with(step.last)
        self._clock = self._clock.masked_fill((step.terminated | step.truncated).unsqueeze(-1), 0)
        return step._replace(obs=self._with(step.obs), last=last)

    def own(self) -> Tree:
        return {"clock": self._clock.clone()}

    def load_own(self, tree: Tree, obs: Tensor) -> Tensor:
        self._clock = tree["clock"].to(self.device)
        return self._with(obs)

    def _with(self, obs: Tensor) -> Tensor:
        return torch.cat((obs, self._clock / self._limit), -1)


class Rewards(Wrapper):
    """Rewards to learn from. The totals of episodes stay as the env counts them."""

    def __init__(self, env: VecEnv, scale: float, clip: float | None) -> None:
        super().__init__(env)
        self._scale, self._clip = scale, clip

    def step(self, action: Tensor) -> Step:
        step = self.inner.step(action)
        reward = step.reward * self._scale
        return step._replace(reward=reward if self._clip is None else reward.clamp_(-self._clip, self._clip))


def stacked(space: Space[Any], count: int) -> Space[Any]:
    """The space of `count` observations side by side."""
    if isinstance(space, Row):
        if any(part.mask for part in space.parts):
            raise ConfigError("env.frame_stack", count, "1 where observations hold an action mask")
        if any(part.image for part in space.parts):
            raise ConfigError("env.frame_stack", count, "1 where an image is one part of several")
        return Row(Tuple([space.source] * count))
    assert isinstance(space, Box)
    axis = _axis(space)
    low, high = ((x[None] if axis < 0 else x) for x in (space.low, space.high))
    low, high = (np.concatenate([x] * count, max(0, axis)) for x in (low, high))
    made = Box(low, high, dtype=space.dtype.type)
    if parts_of(space)[0].image and made.shape[max(0, axis)] >= min(made.shape[1:] if axis <= 0 else made.shape[:-1]):
        raise ConfigError("env.frame_stack", count, f"fewer channels than an image of {space.shape} has pixels a side")
    return made


def timed(space: Space[Any], limit: float | None) -> Space[Any]:
    """The space with the time as one number more."""
    if limit is None:
        raise ConfigError(
            "env.time_aware", True, "needs an end: set env.time_limit, or `time_limit` in a VecEnv's class"
        )
    if isinstance(space, Row):
        return Row(Tuple((space.source, Box(0.0, 1.0, (1,)))))
    assert isinstance(space, Box)
    if space.dtype != np.float32 or len(space.shape) != 1:
        raise ConfigError("env.time_aware", True, f"observations that are a row of numbers, not {space}")
    return Box(np.append(space.low, np.float32(0)), np.append(space.high, np.float32(1)), dtype=np.float32)


def _axis(space: Space[Any]) -> int:
    """Of an observation, the axis that frames are laid along; -1: there is none, they need one of their own."""
    shape, image = space.shape or (), parts_of(space)[0].image
    if not shape or (image and len(shape) == 2):
        return -1
    return 2 if image and len(shape) == 3 and shape[0] >= shape[2] else 0
