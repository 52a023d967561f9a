"""The replay of off-policy learners: what the members did, kept in a ring and drawn from at random, M members at once.

Every member draws with its own generator, so what it gets does not depend on who stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from podium.core.spec import Spec
from podium.core.streams import Block, Generators, uniform
from podium.core.tree import Tree, flatten
from podium.replay.priorities import Priorities
from podium.replay.ring import Batch, Ring
from podium.replay.settings import ReplaySettings
from podium.replay.sum_tree import strata

DRAWN = 2**13  # numbers that a member draws at once
_LARGEST = 1 - 2.0**-32  # of a number drawn: times a capacity it must not round up to it


class Replay:
    """Steps of M members; each keeps and draws its own, or with `replay.shared` all draw from the steps of all."""

    def __init__(self, spec: Spec, settings: ReplaySettings, batch: int, n_step: int, generators: Generators) -> None:
        self.members, self.shared, self._batch, self._n = spec.members, settings.shared, batch, n_step
        self._envs = spec.envs * spec.members if settings.shared else spec.envs
        rows = 1 if settings.shared else spec.members
        steps = settings.capacity // self._envs
        if not steps:
            raise ValueError(f"{settings.capacity} steps are less than one of each env")
        self.ring = Ring(rows, self._envs, steps, spec)
        self.priorities = Priorities(spec.members, self.ring.length, spec.device) if settings.prioritised else None
        count = max(1, DRAWN // batch)

        def draw() -> Tensor:
            u = uniform(generators, count, batch, dtype=torch.float64).clamp_(max=_LARGEST)
            return (strata(u) if settings.prioritised else u).to(spec.device)

        self._numbers = Block(draw)
        self._span: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def insert(self, rollout: Batch) -> None:
        """Steps `[M, T, E, ...]`: obs, action (or `unit` in its place), reward, terminated, truncated, last."""
        if self.shared:
            rollout = {name: x.transpose(0, 1).flatten(1, 2)[None] for name, x in rollout.items()}
        places = self.ring.insert(rollout)
        self._span = None
        if self.priorities is not None:
            for first, count in places:
                self.priorities.begin(first * self._envs, count * self._envs)
            if self.ring.times > self.ring.steps:  # the time of the frame ahead holds no step
                self.priorities.end(self.ring.position * self._envs, self._envs)

    def sample(self, discount: Tensor, beta: Tensor | None = None) -> Batch:
        """`[M, B, ...]`: obs, action, reward, next_obs, decay, and obs_action where that is one tensor of floats.

        The target of a step is `reward + decay * value(next_obs)`. `weight` is there for a prioritised replay, whose
        draws it corrects with the exponent `beta`, and for a shared one, where it is 0 for what is not finite.
        """
        u = self._numbers.next()
        if self.priorities is not None:
            slot = self.priorities.sample(u)
        else:
            start, count = self._spans()
            slot = (u * count).long().add_(start).remainder_(self.ring.length)
        batch = self.ring.batch(slot, discount, self._n)
        if self.priorities is not None:
            batch["weight"] = self.priorities.weight(beta)
        if not self.all_ready:
            for x in batch.values():
                x[self.size.to(x.device) == 0] = 0
        return _finite(batch) if self.shared else batch

    def _spans(self) -> tuple[Tensor, Tensor]:
        """Of each row the slot of its oldest step, and how many it holds; `[R, 1]`."""
        if self._span is None:
            ring = self.ring
            start = (ring.position - ring.size) % ring.times * ring.envs
            self._span = start[:, None].to(ring.data.device), (ring.size * ring.envs)[:, None].to(ring.data.device)
        return self._span

    def prioritise(self, error: Tensor, alpha: Tensor, active: Tensor | None = None) -> None:
        """The errors `[M, B]` of the last sample: its priorities become (|error| + 1e-6)^alpha.

        Those of members that are not `active` `[M]` stay as they are: they did not learn from it.
        """
        if self.priorities is not None:
            self.priorities.update(error, alpha, active)

    @property
    def size(self) -> Tensor:
        """Steps to draw from, `[M]`, on the CPU."""
        return (self.ring.size * self._envs).expand(self.members)

    @property
    def ready(self) -> Tensor:
        """Whether a member has a batch of steps, `[M]`, on the CPU."""
        return self.size >= self._batch

    @property
    def all_ready(self) -> bool:
        return self.ring.least * self._envs >= self._batch

    @torch.no_grad()
    def clear(self, rows: Sequence[int]) -> None:
        """The members `rows` begin with nothing; of a shared replay only their priorities begin anew."""
        if not len(rows):
            return
        if not self.shared:
            self.ring.clear(rows)
            self._span = None
        if self.priorities is not None:
            self.priorities.clear(rows, self.shared)

    @torch.no_grad()
    def cut(self) -> None:
        """All running episodes end here, as if truncated: the envs were restarted."""
        self.ring.cut()

    def state(self) -> Tree:
        """All that is needed to go on bitwise; live, and only as much as was filled."""
        rest = self._numbers.rest()
        numbers = torch.empty(self.members, 0, self._batch, dtype=torch.float64) if rest is None else rest
        tree: Tree = {"ring": self.ring.state(), "numbers": numbers}
        if self.priorities is not None:
            tree["priorities"] = self.priorities.state(self.ring.written * self._envs)
        return tree

    @torch.no_grad()
    def load(self, tree: Tree) -> None:
        """Go on from what `state` gave; a ValueError if it is of another shape."""
        numbers, ring = tree.get("numbers"), tree.get("ring", {})
        wanted = (self.members, self._batch)
        if not isinstance(numbers, Tensor) or numbers.ndim != 3 or numbers.shape[::2] != wanted:
            raise ValueError(f"numbers: {wanted[0]} members and a batch of {wanted[1]} are needed")
        if ("priorities" in tree) != (self.priorities is not None):
            raise ValueError(f"it is {'' if 'priorities' in tree else 'not '}prioritised")
        self.ring.check(ring)
        if self.priorities is not None:
            self.priorities.check(tree["priorities"], ring["data"].shape[1] * self._envs)
            self.priorities.load(tree["priorities"])
        self.ring.load(ring)
        self._numbers.refill(numbers.to(self.ring.data.device, torch.float64, copy=True))
        self._span = None

    @property
    def nbytes(self) -> int:
        """Memory of the whole, whether filled yet or not."""
        held = sum(x.nbytes for x in self.ring.tensors)
        return held + (self.priorities.tree.nbytes if self.priorities is not None else 0)

    @property
    def saved_bytes(self) -> int:
        """What `state` would hold now."""
        return sum(x.nbytes for x in flatten(self.state()).values())


def _finite(batch: Batch) -> Batch:
    """Zeros with a weight of 0 for every draw that holds a number which is not finite."""
    bad = torch.zeros_like(batch["reward"], dtype=torch.bool)
    for x in batch.values():
        if x.is_floating_point():
            bad |= ~x.isfinite().flatten(2).all(-1) if x.ndim > 2 else ~x.isfinite()
    for x in batch.values():
        x.masked_fill_(bad.view(*bad.shape, *(1,) * (x.ndim - 2)), 0)
    batch.setdefault("weight", (~bad).to(batch["reward"].dtype))
    return batch
