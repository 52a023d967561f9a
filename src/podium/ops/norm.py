"""Running statistics of observations and returns, one set a member."""

from __future__ import annotations

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.ops.shape import per_member


def numbers(obs: Tensor) -> Tensor:
    """Observations as float32; bytes (images) scaled to 0..1."""
    return obs / 255 if obs.dtype == torch.uint8 else obs.float()


class Running:
    """Mean and variance of all numbers seen so far, `[M, *shape]` (Chan et al. 1979, parallel form)."""

    def __init__(self, members: int, shape: tuple[int, ...], device: torch.device | None = None) -> None:
        self.mean = torch.zeros(members, *shape, device=device)
        self.var = torch.ones(members, *shape, device=device)
        self.count = torch.full((members,), 1e-4, dtype=torch.float64, device=device)

    def update(self, x: Tensor) -> None:
        """Take in `[M, N, *shape]`."""
        var, mean = torch.var_mean(x, 1, correction=0)
        n = x.shape[1]
        total = self.count + n
        share = per_member((n / total).float(), mean)
        delta = mean - self.mean
        self.mean += delta * share
        self.var.lerp_(var, share).add_(delta.square() * share * (1 - share))
        self.count.copy_(total)

    def normalise(self, x: Tensor, clip: float = 10.0) -> Tensor:
        """(x - mean) / std of `[M, ..., *shape]`, within ±clip."""
        between = (1,) * (x.ndim - self.mean.ndim)
        mean, var = (t.view(len(t), *between, *t.shape[1:]) for t in (self.mean, self.var))
        return ((x - mean) * torch.rsqrt(var + 1e-8)).clamp_(-clip, clip)

    def scale(self, x: Tensor, clip: float = 10.0) -> Tensor:
        """x / std of `[M, ...]` (a statistic without shape), within ±clip: rewards keep their sign and zero."""
        return (x * per_member(torch.rsqrt(self.var + 1e-8), x)).clamp_(-clip, clip)

    def state(self) -> Tree:
        return {"mean": self.mean, "var": self.var, "count": self.count}
