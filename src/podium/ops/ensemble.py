"""One number from an ensemble's K: pure functions of `q[M, K, ...]`."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

How = Literal["min", "mean", "first"]


def combine(q: Tensor, how: How) -> Tensor:
    """`[M, K, ...]` -> `[M, ...]`: the least of them guards against over-estimation, their mean lowers the variance."""
    if q.shape[1] == 1 or how == "first":
        return q[:, 0]
    return q.amin(1) if how == "min" else q.mean(1)


def share(q: Tensor, how: How) -> Tensor:
    """∂ combine(q) / ∂q, `[M, K, ...]`."""
    if how == "mean":
        return torch.full_like(q, 1 / q.shape[1])
    if how == "min":
        least = (q == q.amin(1, keepdim=True)).float()
        return least.div_(least.sum(1, keepdim=True))  # equal ones share
    first = torch.zeros_like(q)
    first[:, 0] = 1
    return first


def some(u: Tensor, count: int) -> Tensor:
    """`count` different ones of K for every member, from numbers `u[M, K]`: `[M, count]`, all choices alike likely."""
    return u.topk(count, 1).indices
