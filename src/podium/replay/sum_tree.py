"""Priorities of many items, for every member: sums that are quick to change and to draw from in proportion.

Two levels: priorities stand in blocks of 64, and each block has its sum. A draw runs along the sums once for all B
draws of a member (a cumulative sum of N / 64 numbers) and then along one block each. A binary tree would take 20 rounds
of torch calls instead, and three wide levels read B blocks more.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64
_BELOW = 1 - 1e-12  # times a sum: a little less than it


class SumTree:
    """Priorities `[M, N]`; 0 is never drawn as long as a member has any other."""

    def __init__(self, members: int, items: int, device: torch.device) -> None:
        blocks = -(-items // BLOCK)
        self.items = items
        self.leaves = torch.zeros(members, blocks * BLOCK, device=device)
        self.sums = torch.zeros(members, blocks, dtype=torch.float64, device=device)
        self._rows = self.leaves.view(-1, BLOCK)
        self._base = torch.arange(members, device=device)[:, None] * blocks
        self._strata = torch.empty(0)

    def fill(self, start: int, count: int, value: Tensor) -> None:
        """The same priority for consecutive items of a member, `value` is `[M]`."""
        self.leaves[:, start : start + count].copy_(value[:, None])
        first, end = start // BLOCK, (start + count - 1) // BLOCK + 1
        self._add_up(first, end)

    def update(self, item: Tensor, value: Tensor) -> None:
        """New priorities of items; both `[M, B]`. Of an item that comes twice the larger value stays."""
        self.leaves.scatter_reduce_(1, item, value, "amax", include_self=False)
        block = item // BLOCK
        rows = self._rows.index_select(0, (block + self._base).view(-1))
        self.sums.scatter_(1, block, rows.sum(-1, dtype=torch.float64).view(item.shape))

    def sample(self, u: Tensor) -> Tensor:
        """Items `[M, B]` in proportion to their priorities: the i-th from the i-th of B equal parts of the whole.

        `u` are `[M, B]` numbers in [0, 1). A member without any priority gets an item all the same, and any.
        """
        if len(self._strata) != u.shape[1]:
            self._strata = torch.arange(u.shape[1], dtype=torch.float64, device=u.device)
        sums = self.sums
        upto = sums.cumsum(1)
        total = upto[:, -1:]
        target = torch.minimum((u + self._strata).mul_(total / u.shape[1]), total * _BELOW)
        # The first block whose upper end lies above the target: its sum cannot be 0.
        block = torch.searchsorted(upto, target, right=True).clamp_(max=sums.shape[1] - 1)
        target.sub_(upto.gather(1, block).sub_(sums.gather(1, block))).clamp_(min=0)
        inside = self._rows.index_select(0, (block + self._base).view(-1)).cumsum(-1, dtype=torch.float64)
        target = torch.minimum(target.view(-1), inside[:, -1] * _BELOW)  # rounding must not lead out of the block
        leaf = torch.searchsorted(inside, target[:, None], right=True).view(u.shape)
        return block.mul_(BLOCK).add_(leaf).clamp_(max=self.items - 1)

    def read(self, item: Tensor) -> Tensor:
        """Priorities of items, `[M, B]`."""
        return self.leaves.gather(1, item)

    def put(self, rows: Tensor, leaves: Tensor) -> None:
        """All priorities of the members `rows`."""
        self.leaves[rows] = leaves
        self.sums[rows] = leaves.unflatten(1, (-1, BLOCK)).sum(-1, dtype=torch.float64)

    def load(self, leaves: Tensor) -> None:
        """Begin with the priorities of the first items, `[M, n]`."""
        self.leaves.zero_()
        self.leaves[:, : leaves.shape[1]].copy_(leaves)
        self._add_up(0, self.sums.shape[1])

    def _add_up(self, first: int, end: int) -> None:
        rows = self.leaves[:, first * BLOCK : end * BLOCK].unflatten(1, (end - first, BLOCK))
        torch.sum(rows, -1, dtype=torch.float64, out=self.sums[:, first:end])

    @property
    def nbytes(self) -> int:
        return self.leaves.nbytes + self.sums.nbytes

    @staticmethod
    def needed(members: int, items: int) -> int:
        """Bytes of such a tree."""
        return members * -(-items // BLOCK) * (BLOCK * 4 + 8)
