"""Proportional prioritised replay (Schaul et al. 2016): how often each member draws each of its steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.replay.shapes import shaped
from podium.replay.sum_tree import SumTree

EPSILON, LARGEST = 1e-6, 1e12  # added to an error; more than this is as good as it


class Priorities:
    """P(i) = p_i / Σ p, p = (|error| + ε)^α. A new step has the largest |error| + ε that its member saw, to the α now.

    That maximum is kept as it was before the exponent: else new steps would get it to the power of α².
    """

    def __init__(self, members: int, slots: int, device: torch.device) -> None:
        self.tree = SumTree(members, slots, device)
        self.top = torch.ones(members, device=device)  # largest |error| + ε
        self.alpha = torch.ones(members, device=device)
        self._fresh = torch.ones(members, device=device)
        self._slot: Tensor | None = None

    def begin(self, first: int, count: int) -> None:
        """New steps stand in consecutive slots."""
        self.tree.fill(first, count, self._fresh)

    def end(self, first: int, count: int) -> None:
        """Consecutive slots hold no step any more."""
        self.tree.fill(first, count, torch.zeros_like(self.top))

    def sample(self, u: Tensor) -> Tensor:
        """Slots `[M, B]` from numbers in [0, 1)."""
        self._slot = self.tree.sample(u)
        return self._slot

    def weight(self, beta: Tensor | None) -> Tensor:
        """(N P)^-β of the last sample over the largest of the member's batch: (p_min / p)^β, without N and Σ p."""
        p = self.tree.read(self._last())
        return torch.ones_like(p) if beta is None else (p.amin(1, keepdim=True) / p).pow_(beta[:, None])

    def update(self, error: Tensor, alpha: Tensor) -> None:
        """New priorities of the last sample. A slot that holds no step (any more) gets none."""
        slot = self._last()
        held = self.tree.read(slot) > 0
        raw = error.abs().nan_to_num_(0.0, posinf=LARGEST).add_(EPSILON).clamp_(max=LARGEST)
        torch.maximum(self.top, (raw * held).amax(1), out=self.top)
        self.alpha.copy_(alpha)
        self._fresh = self.top**self.alpha
        self.tree.update(slot, raw.pow_(self.alpha[:, None]).mul_(held))

    def clear(self, rows: Sequence[int], filled: bool) -> None:
        """The members `rows` have no steps any more; or (`filled`: the steps are not theirs) no errors of them."""
        at = torch.tensor(list(rows), device=self.top.device)
        self.top[at] = 1
        self._fresh[at] = 1
        held = (self.tree.leaves[at] > 0).float()
        self.tree.put(at, held if filled else torch.zeros_like(held))

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
        self.alpha.copy_(tree["alpha"])
        self._fresh, self._slot = self.top**self.alpha, None

    def _last(self) -> Tensor:
        if self._slot is None:
            raise ValueError("nothing was drawn yet")
        return self._slot
