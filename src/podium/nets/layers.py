"""Stacked layers, the building blocks: each holds M sets of weights and treats row m of its input with set m."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from podium.core.streams import Generators


def orthogonal(shape: torch.Size | tuple[int, ...], gain: float, generator: torch.Generator) -> Tensor:
    """A matrix with orthogonal rows or columns (Saxe et al. 2014), `gain` times as long."""
    rows, cols = shape
    square = torch.empty(max(rows, cols), min(rows, cols)).normal_(generator=generator)
    q, r = torch.linalg.qr(square)
    q *= r.diagonal().sign()  # makes the draw uniform over orthogonal matrices
    out: Tensor = q if rows >= cols else q.T
    return gain * out


LAYER_NORM_EPS = 1e-5


class Linear(nn.Module):
    """y[m] = x[m] W[m]ᵀ + b[m]: `[M, B, in]` -> `[M, B, out]`. Weights `[M, out, in]`, orthogonal."""

    def __init__(self, generators: Generators, n_in: int, n_out: int, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([orthogonal((n_out, n_in), gain, g) for g in generators]))
        self.bias = nn.Parameter(torch.zeros(len(generators), n_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias[:, None], x, self.weight.mT)


class LayerNorm(nn.Module):
    """Layer normalisation with a gain and a shift for every member: `[M, B, H]` -> `[M, B, H]`."""

    def __init__(self, members: int, size: int, eps: float = LAYER_NORM_EPS) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(members, size))
        self.shift = nn.Parameter(torch.zeros(members, size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        z = nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)
        return torch.addcmul(self.shift[:, None], z, self.gain[:, None])
