"""Shapes on the member axis."""

from __future__ import annotations

from torch import Tensor


def per_member(h: Tensor, like: Tensor) -> Tensor:
    """`[M]` shaped to broadcast against `[M, ...]`."""
    return h.view(-1, *(1,) * (like.ndim - 1))
