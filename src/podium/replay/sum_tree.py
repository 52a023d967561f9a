"""Priorities of many items, for every member: sums that are quick to change and to draw from in proportion.

Two levels: priorities stand in blocks of 32, and each block has its sum. A draw runs along the sums once for all B
draws of a member (a cumulative sum of N / 32 numbers) and then along one block each. A binary tree would take 20 rounds
of torch calls instead, and a third wide level reads another B blocks, which costs more than it saves.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 32
_BELOW = 1 - 1e-12  # times a sum: a little less than it


class SumTree:
    """Priorities `[M, N]`; 0 is never drawn as long as a member has any other."""

    def __init__(self, members: int, items: int, device: torch.device) -> None:
        blocks = -(-items // BLOCK)
        self.items, self._blocks = items, blocks
        # One block more than needed, always 0: a draw from nothing ends there.
        self.leaves = torch.zeros(members, (blocks + 1) * BLOCK, device=device)
        self.sums = torch.zeros(members, blocks + 1, dtype=torch.float64, device=device)
        self._upto = torch.zeros(members, blocks + 1, dtype=torch.float64, device=device)  # the sum before each block
        self._after, self._total = self._upto[:, 1:], self._upto[:, -1:]
        self._filled = self.sums[:, :-1]
        self._rows = self.leaves.view(-1, BLOCK)
        self._flat_sums, self._flat_upto = self.sums.view(-1), self._upto.view(-1)
        self._parts = self.leaves.view(members, -1, BLOCK)
        self._base = torch.arange(members, device=device)[:, None] * (blocks + 1)
        self._alone, self._in_order = members == 1, device.type == "cpu"
        self._ends = self._after[0].numpy() if self._alone and self._in_order else None

    def fill(self, start: int, count: int, value: Tensor) -> None:
        """The same priority for consecutive items of a member, `value` is `[M, 1]`."""
        self.leaves.narrow(1, start, count).copy_(value)
        first = start // BLOCK
        self._add_up(first, (start + count - 1) // BLOCK + 1 - first)

    def sample(self, part: Tensor, sure: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Items at `part` of the whole, `[M, B]` numbers of `strata`, with their priorities; and the rows for `update`.

        A member without any priority gets an item all the same, and any; `sure` says that there is none.
        """
        torch.cumsum(self._filled, 1, out=self._after)
        target = part * self._total
        row = self._row(self._block(target))
        target = target.view(-1).sub_(self._flat_upto.index_select(0, row)).mul_(_BELOW)  # must not round to its end
        if not self._in_order:  # a parallel cumulative sum may even round beyond it
            target = torch.minimum(target, self._flat_sums.index_select(0, row).mul_(_BELOW))
        inside = self._rows.index_select(0, row).cumsum(-1, dtype=torch.float64)
        leaf = torch.searchsorted(inside, target.unsqueeze(-1), right=True)
        item = torch.add(leaf.view(part.shape), row.view(part.shape), alpha=BLOCK)
        if not self._alone:
            item.sub_(self._base, alpha=BLOCK)
        if not sure:
            item.clamp_(max=self.items - 1)
        return item, self.leaves.gather(1, item), row

    def _block(self, target: Tensor) -> Tensor:
        """The first block of each member that ends above the target `[M, B]`: on a CPU its sum cannot be 0."""
        if self._ends is not None:  # NumPy makes use of the targets being in order
            return torch.from_numpy(self._ends.searchsorted(target.numpy(), "right"))
        return torch.searchsorted(self._upto, target, right=True).sub_(1)

    def update(self, item: Tensor, value: Tensor, row: Tensor | None = None) -> None:
        """New priorities of items; both `[M, B]`. If one comes twice its last value stays (on a GPU: its largest)."""
        if self._in_order:
            self.leaves.scatter_(1, item, value)
        else:
            self.leaves.scatter_reduce_(1, item, value, "amax", include_self=False)
        if row is None:
            row = self._row(item // BLOCK)
        sums = self._rows.index_select(0, row).sum(-1, dtype=torch.float64)
        self._flat_sums.scatter_(0, row, sums)  # a row that comes twice has the same sum twice

    def _row(self, block: Tensor) -> Tensor:
        """Blocks `[M, B]` of each member as rows of all blocks."""
        return (block if self._alone else block + self._base).view(-1)

    def put(self, rows: Tensor, leaves: Tensor) -> None:
        """The priorities of the first items of the members `rows`, `[R, n]`; the others have none."""
        self.leaves[rows] = 0
        self.leaves[rows, : leaves.shape[1]] = leaves
        self._add_up(0, self._blocks)

    def load(self, leaves: Tensor) -> None:
        """The priorities of the first items of all members, `[M, n]`."""
        self.put(torch.arange(len(leaves), device=self.leaves.device), leaves)

    def _add_up(self, first: int, count: int) -> None:
        sums = self.sums.narrow(1, first, count)
        torch.sum(self._parts.narrow(1, first, count), -1, dtype=torch.float64, out=sums)

    @property
    def nbytes(self) -> int:
        return self.leaves.nbytes + self.sums.nbytes + self._upto.nbytes

    @staticmethod
    def needed(members: int, items: int) -> int:
        """Bytes of such a tree."""
        return members * (-(-items // BLOCK) + 1) * (BLOCK * 4 + 16)


def strata(u: Tensor) -> Tensor:
    """Parts of a whole, one from each of B equal pieces of it, from numbers `[..., B]` in [0, 1)."""
    B = u.shape[-1]
    return (u + torch.arange(B, dtype=torch.float64, device=u.device)).div_(B).clamp_(max=_BELOW)
