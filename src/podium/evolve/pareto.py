"""Fronts and crowding of NSGA-II (Deb et al. 2002), for objectives `[n, K]` that are all maximised.

A row with an objective that is not finite comes after all others. Of rows with equal objectives all but the first have
crowding 0: copies are the first to go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor


def dominates(a: Tensor, b: Tensor) -> Tensor:
    """Whether a is nowhere worse than b and somewhere better: `[..., K]`, `[..., K]` -> `[...]`."""
    return (a >= b).all(-1) & (a > b).any(-1)


def fronts(objectives: Tensor) -> Tensor:
    """The front of each row, `[n]`: 0 for those that none dominates, 1 for those that only front 0 does, and so on."""
    sound = objectives.isfinite().all(1, keepdim=True)
    no_worse = _in_all(torch.where(sound, objectives, -math.inf), torch.ge)
    below = (no_worse & ~no_worse.T).float()
    deeper = torch.ones(len(objectives))
    rank = torch.zeros_like(deeper)
    while deeper.any():  # a row lies deeper than front r if a row that lies deeper than front r - 1 dominates it
        deeper = (deeper @ below).sign()
        rank += deeper
    return rank.long()


def crowding(objectives: Tensor, rank: Tensor) -> Tensor:
    """How far apart each row's neighbours in its front are, `[n]`, added up over objectives; inf for a front's ends."""
    copies = _in_all(objectives, torch.eq).tril(-1).any(1)
    counts = objectives.isfinite().all(1) & ~copies
    out = torch.zeros(len(objectives), dtype=torch.float64)
    if counts.any():
        out[counts] = _gaps(objectives[counts].double(), rank[counts])
    return out


def _gaps(objectives: Tensor, rank: Tensor) -> Tensor:
    """`crowding` of rows that differ and are finite: sort each objective within the fronts, and look at neighbours."""
    n, K = objectives.shape
    order = objectives.argsort(dim=0, stable=True)
    order = order.gather(0, rank[order].argsort(dim=0, stable=True))  # by front, then by objective, [n, K]
    value, change = objectives.gather(0, order), rank.sort().values.diff() != 0
    edge = change.new_ones(1)
    starts, ends = torch.cat([edge, change]), torch.cat([change, edge])
    span = (value[ends] - value[starts])[starts.cumsum(0) - 1]
    gap = torch.zeros_like(value)
    gap[1:-1] = value[2:] - value[:-2]
    gap = torch.where(span > 0, gap / span, 0.0)
    gap[starts | ends] = math.inf
    return torch.zeros_like(value).scatter_(0, order, gap).sum(1)


def survive(objectives: Tensor, n: int) -> Tensor:
    """The best `n` rows, best first: by front, then by crowding, then by index."""
    rank = fronts(objectives)
    return _order(rank, crowding(objectives, rank))[:n]


def parents(rank: Tensor, crowding: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """The winners of `count` duels, `[count]`; every row fights equally often, as nearly as that can be."""
    n, order = len(rank), _order(rank, crowding)
    shuffles = torch.rand(math.ceil(2 * count / n), n, generator=rng).argsort(1)
    # A row's number is its place in the order: the lower of two wins.
    return order[shuffles.flatten()[: 2 * count].view(count, 2).amin(1)]


def _order(rank: Tensor, crowding: Tensor) -> Tensor:
    """Indices by front, then by crowding, then by index."""
    order = crowding.argsort(descending=True, stable=True)
    return order[rank[order].argsort(stable=True)]


def _in_all(objectives: Tensor, compare: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Whether a comparison of two rows holds in every objective, `[n, n]`; one at a time is faster than `all(-1)`."""
    return reduce(torch.logical_and, (compare(x.unsqueeze(1), x) for x in objectives.unbind(1)))
