"""Proportional prioritised replay (Schaul et al. 2016): how often each member draws each of its steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.replay.shapes import shaped
from podium.replay.sum_tree import SumTree

EPSILON = 1e-6
LARGEST = torch.tensor(1e12)  # of an error; so priorities are finite and more than 0, for an α of up to 3


class Priorities:
    """P(i) = p_i / Σ p, p = (|error| + ε)^α. A new step has the largest |error| + ε that its member saw, to the α now.

    That maximum is kept as it was before the exponent: else new steps would get it to the power of α².
    """

    def __init__(self, members: int, slots: int, device: torch.device) -> None:
        self.tree = SumTree(members, slots, device)
        self.top = torch.ones(members, 1, device=device)  # largest |error| + ε
        self.alpha = torch.ones(members, 1, device=device)
        self._fresh: Tensor | None = None
        self._empty = True  # whether a member may have no step
        self.slot: Tensor | None = None  # of the last sample
        self._value, self._row = self.top, self.top
        self._held: Tensor | None = None  # where the last sample is of steps; None: everywhere

    def begin(self, first: int, count: int) -> None:
        """New steps stand in consecutive slots."""
        if self._fresh is None:
            self._fresh = self.top**self.alpha
        self.tree.fill(first, count, self._fresh)
        self._empty = False

    def end(self, first: int, count: int) -> None:
        """Consecutive slots hold no step any more."""
        self.tree.fill(first, count, torch.zeros_like(self.top))

    def sample(self, part: Tensor) -> Tensor:
        """Slots `[M, B]` at these parts of the whole."""
        self.slot, self._value, self._row = self.tree.sample(part, sure=not self._empty)
        self._held = self._value > 0 if self._empty else None
        return self.slot

    def weight(self, beta: Tensor | None) -> Tensor:
        """(N P)^-β of the last sample over the largest of the member's batch: (p_min / p)^β, without N and Σ p."""
        p = self._value
        return torch.ones_like(p) if beta is None else (p.amin(1, keepdim=True) / p).pow_(beta.unsqueeze(-1))

    def update(self, error: Tensor, alpha: Tensor, active: Tensor | None = None) -> None:
        """New priorities of the last sample, of the members that are `active`. A slot that holds no step gets none."""
        if self.slot is None:
            raise ValueError("nothing was drawn yet")
        raw = torch.fmin(error.detach().abs(), LARGEST).add_(EPSILON)  # also where it is NaN
        if self._held is not None:
            raw.mul_(self._held)
        top = raw.amax(1, keepdim=True)
        torch.maximum(self.top, top if active is None else top * active.unsqueeze(-1), out=self.top)
        self.alpha, self._fresh = alpha.unsqueeze(-1).clone(), None  # genes may change before the next insert
        value = raw.pow_(self.alpha)
        if self._held is not None:
            value.mul_(self._held)
        if active is not None:
            value = torch.where(active.unsqueeze(-1), value, self._value)
        self.tree.update(self.slot, value, self._row)

    def clear(self, rows: Sequence[int], filled: bool) -> None:
        """The members `rows` have no steps any more; or (`filled`: the steps are not theirs) no errors of them."""
        at = torch.tensor(list(rows), device=self.top.device)
        self.top[at] = 1
        self._fresh = None
        leaves = self.tree.leaves[at]
        self.tree.put(at, (leaves > 0).float() if filled else leaves[:, :0])
        if not filled:
            self._empty = True
            if self.slot is not None:
                self._held = torch.ones_like(self._value, dtype=torch.bool) if self._held is None else self._held
                self._held[at] = False

    def state(self, written: int) -> Tree:
        """Of the slots that were written so far; live."""
        return {"leaves": self.tree.leaves[:, :written], "top": self.top, "alpha": self.alpha}

    def check(self, tree: Tree, written: int) -> None:
        """A ValueError where `load` could not take this."""
        for name, leaf in self.state(written).items():
            shaped(tree, name, tuple(leaf.shape), leaf.dtype)

    def load(self, tree: Tree) -> None:
        """Go on from what `state` gave."""
        self.tree.load(tree["leaves"])
        self.top.copy_(tree["top"])
        self.alpha = tree["alpha"].to(self.top.device, copy=True)
        self._fresh, self._empty, self.slot, self._held = None, True, None, None
