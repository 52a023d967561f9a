"""The last steps of every env, written over in a ring: one position for all members, since they step together.

A step is one record of float32 numbers,

    [obs | action | reward | terminated | ends | last]

so that a batch is one gather of records and then views of it; obs and action stand side by side as a critic takes them.
Images (uint8) are kept apart, each once, see `frames`; `obs` and `last` are then no part of the record. `ends` is 1
where the next step does not go on from this one: terminated, truncated, or cut because the envs were restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.core.spec import Spec
from podium.core.tree import Tree
from podium.replay.frames import Frames
from podium.replay.shapes import shaped

Batch = dict[str, Tensor]


class Ring:
    """Steps `[R, S, E]`: R rows of E envs, S times; row r holds the last `size[r]` times before `position`.

    A slot is time * E + env.
    """

    def __init__(self, rows: int, envs: int, steps: int, spec: Spec) -> None:
        self.layout = Layout(spec)
        self.rows, self.envs, self.steps = rows, envs, steps
        self.times = steps + self.layout.images  # the frame that the newest step led to takes a time of its own
        self.length = self.times * envs
        self.position, self.written = 0, 0
        self.size = torch.zeros(rows, dtype=torch.int64)  # times of each row, on the CPU
        self.least = 0  # the smallest of them
        shape = (rows, self.times, envs, self.layout.width)
        self.data = torch.empty(shape, device=spec.device)
        self.frames = Frames(rows, envs, steps, self.layout.obs, spec.device) if self.layout.images else None
        self._flat = self.data.view(-1, self.layout.width)
        self._ends = self.data[..., self.layout.reward + 2]  # [R, S, E]
        self._numbers = self._flat[:, self.layout.numbers]
        self._base = torch.arange(rows, device=spec.device)[:, None] * self.length

    def insert(self, rollout: Batch) -> list[tuple[int, int]]:
        """Steps `[R, T, E, ...]`; returns the times that were written, as (first, count)."""
        count = rollout["reward"].shape[1]
        if count > self.steps:
            rollout = {name: x[:, count - self.steps :] for name, x in rollout.items()}
            count = self.steps
        terminated = rollout["terminated"]
        ends = terminated | rollout["truncated"]
        action = rollout["unit"] if "unit" in rollout else rollout["action"]
        numbers = torch.stack((rollout["reward"], terminated, ends), -1)
        parts = [action if self.layout.continuous else action.unsqueeze(-1), numbers]
        if self.frames is not None:
            self.frames.insert(self.position, rollout["obs"], rollout["last"], ends & ~terminated)
        else:
            last = _wide(rollout["last"])
            # What an end shows counts 0 times; but it may be NaN, and 0 times NaN is NaN.
            unseen = last.isfinite().logical_not_().logical_and_(terminated.unsqueeze(-1))
            parts = [_wide(rollout["obs"]), *parts, last.masked_fill(unseen, 0)]
        record = torch.cat(parts, -1)
        places = self._places(count)
        for first, n, source in places:
            self.data.narrow(1, first, n).copy_(record if n == count else record.narrow(1, source, n))
        self.position = (self.position + count) % self.times
        self.written = min(self.written + count, self.times)
        if self.least < self.steps:
            self.size.add_(count).clamp_(max=self.steps)
            self.least = int(self.size.min())
        return [(first, n) for first, n, _ in places]

    def _places(self, count: int) -> list[tuple[int, int, int]]:
        """Where `count` steps go, in one or two pieces: (first time, how many, from which of them)."""
        head = min(count, self.times - self.position)
        return [(self.position, head, 0)] + ([(0, count - head, head)] if count > head else [])

    def clear(self, rows: Sequence[int]) -> None:
        """These rows hold nothing any more."""
        self.size[list(rows)] = 0
        self.least = 0

    def cut(self) -> None:
        """The running episodes end with the newest step."""
        if not self.written:
            return
        newest = (self.position - 1) % self.times
        ends = self._ends[:, newest]
        if self.frames is not None:
            self.frames.cut(self.position, ends == 0)
        ends.fill_(1)

    def batch(self, slot: Tensor, discount: Tensor, n: int) -> Batch:
        """The steps at `slot` `[M, B]` with their n-step returns; with one row all members read from it."""
        if self.frames is not None:
            slot = self.frames.usable(slot, self.position, self.size)
        layout, at = self.layout, slot if self.rows == 1 else slot + self._base
        record = torch.embedding(self._flat, at)  # [M, B, width]
        gamma, end = discount.unsqueeze(-1), at
        if n == 1:
            reward, terminated = record.select(-1, layout.reward), record.select(-1, layout.reward + 1)
            decay = torch.addcmul(gamma, gamma, terminated, value=-1)
        else:
            reward, decay, end = self._n_step(slot, gamma, n)
        batch = {"action": layout.action(record), "reward": reward, "decay": decay}
        if self.frames is not None:
            batch["obs"], batch["next_obs"] = self.frames.read(slot), self.frames.after(end - self._base)
        else:
            last = record if n == 1 else torch.embedding(self._flat, end)
            batch["obs"], batch["next_obs"] = layout.part(record, "obs"), layout.part(last, "last")
            if layout.continuous:
                batch["obs_action"] = record.narrow(-1, 0, layout.reward)
        return batch

    def _n_step(self, slot: Tensor, gamma: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Reward and decay of up to n steps from `slot` `[M, B]`, and the place in the data of the last of them."""
        i = torch.arange(n, device=slot.device)
        chain = (slot[..., None] + i * self.envs) % self.length  # [M, B, n]
        at = (chain + self._base[..., None]).view(-1)
        reward, terminated, ends = self._numbers.index_select(0, at).view(*chain.shape, 3).unbind(-1)
        left = (self.position - 1 - slot // self.envs) % self.times  # steps from here to the newest
        stop = (ends > 0) | (i >= left[..., None])  # behind the newest there may be anything, or nothing yet
        if self.frames is not None:
            stop[..., :-1] |= self.frames.stale(chain.flatten(1)).view(chain.shape)[..., 1:]
        going = stop.cumsum(-1) - stop.long() == 0
        steps = going.sum(-1, keepdim=True)
        total = torch.where(going, reward * gamma[..., None] ** i, 0).sum(-1)
        decay = gamma ** steps[..., 0] * (1 - terminated.gather(-1, steps - 1)[..., 0])
        return total, decay, chain.gather(-1, steps - 1)[..., 0] + self._base

    def state(self) -> Tree:
        """What was written so far; live."""
        numbers = torch.tensor([[self.position, self.written]]).repeat(self.rows, 1)
        tree: Tree = {"data": self.data[:, : self.written], "position": numbers, "size": self.size}
        return tree if self.frames is None else tree | {"frames": self.frames.state(self.written)}

    def check(self, tree: Tree) -> None:
        """A ValueError where `load` could not take this."""
        position, written = (int(x) for x in shaped(tree, "position", (self.rows, 2), torch.int64)[0])
        size = shaped(tree, "size", (self.rows,), torch.int64)
        wrapped = written == self.times
        if not (0 <= written <= self.times and (0 <= position < self.times if wrapped else position == written)):
            raise ValueError(f"position {position} after {written} steps, in a ring of {self.times}")
        if not ((size >= 0) & (size <= min(written, self.steps))).all():
            raise ValueError("more steps than were written")
        shaped(tree, "data", (self.rows, written, self.envs, self.layout.width), torch.float32)
        if self.frames is not None:
            self.frames.check(tree.get("frames", {}), written)

    def load(self, tree: Tree) -> None:
        """Go on from what `state` gave."""
        self.check(tree)
        self.position, self.written = map(int, tree["position"][0])
        self.data[:, : self.written].copy_(tree["data"])
        self.size.copy_(tree["size"])
        self.least = int(self.size.min())
        if self.frames is not None:
            self.frames.load(tree["frames"], self.written)

    @property
    def tensors(self) -> list[Tensor]:
        return [self.data] if self.frames is None else [self.data, *self.frames.tensors]


def _wide(obs: Tensor) -> Tensor:
    """`[R, T, E, *O]` -> `[R, T, E, n]`"""
    return obs.flatten(3) if obs.ndim > 3 else obs.unsqueeze(-1)


class Layout:
    """Which columns of a record hold what."""

    def __init__(self, spec: Spec) -> None:
        self.obs: tuple[int, ...] = spec.obs.shape or ()
        self.images = spec.obs.dtype == np.uint8
        self.continuous = isinstance(spec.action, Box)
        if not isinstance(spec.action, Box | Discrete):
            raise ValueError(f"a replay takes Discrete and Box actions, not {spec.action}")
        wide = 0 if self.images else prod(self.obs)
        action: tuple[int, ...] = spec.action.shape or ()
        sizes = {"obs": wide, "action": prod(action), "reward": 1, "terminated": 1, "ends": 1, "last": wide}
        self._shapes = {"obs": self.obs, "action": action, "last": self.obs}
        self.columns: dict[str, tuple[int, int]] = {}  # first, and how many
        self.width = 0
        for name, size in sizes.items():
            self.columns[name] = self.width, size
            self.width += size
        self.reward = self.columns["reward"][0]
        self.numbers = slice(self.reward, self.reward + 3)

    def part(self, record: Tensor, name: str) -> Tensor:
        """What `name` stands for in records `[..., width]`, in its own shape."""
        (first, size), shape = self.columns[name], self._shapes.get(name, ())
        if not shape:
            return record.select(-1, first)
        part = record.narrow(-1, first, size)
        return part if len(shape) == 1 else part.view(*record.shape[:-1], *shape)

    def action(self, record: Tensor) -> Tensor:
        """Actions of records `[M, B, width]`."""
        action = self.part(record, "action")
        return action if self.continuous else action.long()
