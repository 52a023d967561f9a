"""Images of a ring, each stored once: what a step led to is the frame of the next one.

Only where an episode was truncated or cut does the next frame belong to another episode. What such a step led to is
kept in a smaller ring beside the frames. When it was written over there, the step can no longer be used.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.replay.shapes import shaped

SHARE = 32  # one last frame for so many frames


class Frames:
    """`[R, S * E + L, *O]`: the frames of S times, one more than steps are kept, and then L last frames."""

    def __init__(self, rows: int, envs: int, steps: int, obs: tuple[int, ...], device: torch.device) -> None:
        self.envs, self.times = envs, steps + 1
        self.length, self.lasts = self.times * envs, side(envs, steps)
        self.data = torch.empty(rows, self.length + self.lasts, *obs, dtype=torch.uint8, device=device)
        self.number = torch.full(
            (rows, self.length), -1, device=device
        )  # which of all last frames is a step's; -1: none
        self.count = torch.zeros(rows, dtype=torch.int64, device=device)  # last frames so far
        self._flat = self.data.view(-1, *obs)
        self._steps = self.data[:, : self.length].unflatten(1, (self.times, envs))
        self._numbers = self.number.view(rows, self.times, envs)
        self._base = torch.arange(rows, device=device)[:, None] * (self.length + self.lasts)

    def insert(self, position: int, obs: Tensor, last: Tensor, keep: Tensor) -> None:
        """Steps `[R, T, E, ...]` from `position` on; `keep`: the next frame is not what the step led to."""
        T = obs.shape[1]
        for t in range(T):
            at = (position + t) % self.times
            self._steps[:, at].copy_(obs[:, t])
            self._numbers[:, at].fill_(-1)
        if keep.any():
            for t in range(T):
                self._keep((position + t) % self.times, keep[:, t], last[:, t])
        self._steps[:, (position + T) % self.times].copy_(last[:, -1])

    def cut(self, position: int, going: Tensor) -> None:
        """The newest step, before `position`, was the last of the episodes that are still `going` `[R, E]`."""
        self._keep((position - 1) % self.times, going, self._steps[:, position])

    def _keep(self, time: int, keep: Tensor, last: Tensor) -> None:
        row, env = keep.nonzero(as_tuple=True)
        number = (self.count[:, None] + keep.cumsum(1) - 1)[row, env]
        self.data[row, self.length + number % self.lasts] = last[row, env]
        self._numbers[row, time, env] = number
        self.count += keep.sum(1)

    def stale(self, slot: Tensor) -> Tensor:
        """Whether what the steps at `slot` `[M, B]` led to is lost."""
        number = self._number(slot)
        return (number >= 0) & (number < self.count[:, None] - self.lasts)

    def usable(self, slot: Tensor, position: int, size: Tensor) -> Tensor:
        """`slot`, but of a stale step the one before it, or the newest of that env, which never is stale."""
        before, time = (slot - self.envs) % self.length, slot // self.envs
        age = (position - 1 - time) % self.times + 1
        newest = (position - 1) % self.times * self.envs + slot % self.envs
        good = ~self.stale(before) & (age < size.to(slot.device)[:, None])
        return torch.where(self.stale(slot), torch.where(good, before, newest), slot)

    def read(self, slot: Tensor) -> Tensor:
        """Frames `[M, B, *O]`."""
        return self._flat.index_select(0, (slot + self._base).view(-1)).view(*slot.shape, *self.data.shape[2:])

    def after(self, slot: Tensor) -> Tensor:
        """What the steps at `slot` led to, `[M, B, *O]`."""
        number = self._number(slot)
        return self.read(torch.where(number >= 0, self.length + number % self.lasts, (slot + self.envs) % self.length))

    def _number(self, slot: Tensor) -> Tensor:
        return self.number.expand(len(slot), -1).gather(1, slot)

    def state(self, written: int) -> Tree:
        """What was written so far, and the frame ahead; live."""
        return self._parts(written, self.count)

    def check(self, tree: Tree, written: int) -> None:
        """A ValueError where `load` could not take this."""
        count = shaped(tree, "count", tuple(self.count.shape), torch.int64)
        for name, leaf in self._parts(written, count).items():
            shaped(tree, name, tuple(leaf.shape), leaf.dtype)

    def load(self, tree: Tree, written: int) -> None:
        """Go on from what `state` gave."""
        self.number.fill_(-1)
        for name, leaf in self._parts(written, tree["count"]).items():
            (self.count if name == "count" else leaf).copy_(tree[name])

    def _parts(self, written: int, count: Tensor) -> Tree:
        held = min(int(count.max()), self.lasts)
        return {
            "data": self._steps[:, : min(written + 1, self.times)],
            "last": self.data[:, self.length : self.length + held],
            "number": self._numbers[:, :written],
            "count": count,
        }

    @property
    def tensors(self) -> list[Tensor]:
        return [self.data, self.number, self.count]


def side(envs: int, steps: int) -> int:
    """Last frames that are kept beside the frames of so many steps."""
    return max(envs, envs * steps // SHARE)


def needed(rows: int, envs: int, steps: int, obs: tuple[int, ...]) -> int:
    """Bytes of such frames."""
    length = (steps + 1) * envs
    return rows * ((length + side(envs, steps)) * prod(obs) + length * 8 + 8)
