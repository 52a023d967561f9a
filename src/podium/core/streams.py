"""Randomness that belongs to a member: two streams each, drawn in blocks and never shared with a neighbour.

A member's numbers do not depend on how many members stand beside it, so a population can equal its members apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from podium.core.tree import Tree

Generators = list[torch.Generator]
"""One CPU generator a member."""
LARGEST_SEED = 2**63 - 1
"""Of a run: what YAML, JSON, SQLite and NumPy all hold exactly as a whole number."""


def generator(seed: int, *path: int | str) -> torch.Generator:
    """A CPU generator whose seed is a hash of the run's seed and a path such as (member id, "env")."""
    digest = hashlib.blake2b("/".join(map(str, (seed, *path))).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


class Streams:
    """The members' two streams: `env` (resets, noise of the env) and `agent` (weights, action noise, minibatches)."""

    def __init__(self, seed: int, ids: Sequence[int | str]) -> None:
        self.env: Generators = [generator(seed, i, "env") for i in ids]
        self.agent: Generators = [generator(seed, i, "agent") for i in ids]

    def __len__(self) -> int:
        return len(self.env)

    def state(self) -> Tree:
        return {
            "env": torch.stack([g.get_state() for g in self.env]),
            "agent": torch.stack([g.get_state() for g in self.agent]),
        }

    def load(self, state: Tree) -> None:
        for name in ("env", "agent"):
            for g, row in zip(getattr(self, name), state[name], strict=True):
                g.set_state(row.clone())  # a view into a larger tensor crashes torch 2.13


def uniform(generators: Generators, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers in [0, 1), `[M, *shape]`."""
    out = torch.empty(len(generators), *shape, dtype=dtype)
    for row, g in zip(out, generators, strict=True):
        row.uniform_(generator=g)
    return out


def normal(generators: Generators, *shape: int) -> Tensor:
    """Standard normal numbers, `[M, *shape]`."""
    out = torch.empty(len(generators), *shape)
    for row, g in zip(out, generators, strict=True):
        row.normal_(generator=g)
    return out


def gumbel(generators: Generators, *shape: int) -> Tensor:
    """Standard Gumbel noise, `[M, *shape]`: the argmax of logits plus it is a sample of their categorical."""
    out = torch.empty(len(generators), *shape)
    for row, g in zip(out, generators, strict=True):
        row.exponential_(generator=g)
    return out.log_().neg_()


def permutations(generators: Generators, count: int, n: int) -> Tensor:
    """`count` shuffles of range(n) for every member, `[M, count, n]`."""
    out = torch.empty(len(generators), count, n, dtype=torch.int64)
    for rows, g in zip(out, generators, strict=True):
        for row in rows:
            torch.randperm(n, generator=g, out=row)
    return out


class Block:
    """Numbers for many steps, drawn at once (`[M, N, ...]`) and handed out a step at a time (`[M, ...]`)."""

    def __init__(self, draw: Callable[[], Tensor]) -> None:
        self._draw = draw
        self._steps: tuple[Tensor, ...] = ()
        self._next = 0

    def next(self) -> Tensor:
        if self._next == len(self._steps):
            self._steps, self._next = self._draw().unbind(1), 0
        self._next += 1
        return self._steps[self._next - 1]

    def drop(self) -> None:
        """Forget what is left, so that the next step draws anew."""
        self._steps, self._next = (), 0

    def rest(self) -> Tensor | None:
        """What is left, `[M, n, ...]`; None when the block is used up."""
        return torch.stack(self._steps[self._next :], 1) if self._next < len(self._steps) else None

    def refill(self, rest: Tensor | None) -> None:
        """Go on from what `rest` returned."""
        self._steps, self._next = (() if rest is None else rest.unbind(1)), 0
