"""Selection: who copies whom. Fitness `[M]` and dice -> parents `[M]`; a row that keeps itself is its own parent.

What holds for every rule:

- A row whose fitness is not finite has failed: it is always replaced and never a parent. If all have failed, all stay.
- The best row keeps itself, and so does a population of one.
- Of rows that are exactly equal, the one with the lower index is the better; no dice decide that.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

# Gauss-Legendre on [0, 1] for the integral of `tails`, to ten digits. The nodes are drawn to the right end by a cube,
# for there the integrand has a root.
_X, _W = (torch.from_numpy(x) / 2 for x in np.polynomial.legendre.leggauss(64))
NODES, WEIGHTS = 1 - (0.5 - _X) ** 3, 3 * (0.5 - _X) ** 2 * _W


def ranking(fitness: Tensor) -> Tensor:
    """`[M]` -> indices, best first; rows that failed come last."""
    return _healthy(fitness).argsort(descending=True, stable=True)


def winner_takes_all(fitness: Tensor, rng: torch.Generator) -> Tensor:
    """Everyone else copies the best."""
    best = ranking(fitness)[0]
    return torch.where(fitness[best].isfinite(), best, torch.arange(len(fitness)))


def truncation(fitness: Tensor, rng: torch.Generator, fraction: float = 0.25) -> Tensor:
    """The worst k copy a random one of the best k, k = max(1, fraction * M); also where a best and a worst tie."""
    M = len(fitness)
    k = max(1, int(fraction * M + 1e-9))  # 0.29 * 100 is a little less than 29
    healthy = int(fitness.isfinite().sum())
    parents, top = torch.arange(M), min(k, healthy)
    if top:
        order = ranking(fitness)
        replaced = order[max(top, min(M - k, healthy)) :]
        parents[replaced] = order[torch.randint(top, replaced.shape, generator=rng)]
    return parents


def tournament(fitness: Tensor, rng: torch.Generator, size: int = 2) -> Tensor:
    """Each row meets size - 1 others, and copies the best of them if that is strictly better than itself."""
    fitness, own = _healthy(fitness), torch.arange(len(fitness))
    order = fitness.argsort(descending=True, stable=True)
    place = torch.empty_like(order)
    place[order] = own
    best = order[place[_rivals(fitness, size - 1, rng)].amin(1)]
    return torch.where(fitness[best] > fitness, best, own)


def t_test(returns: Tensor, rng: torch.Generator, alpha: float = 0.05) -> Tensor:
    """Each row meets one other, and copies it if its mean of `[M, n]` returns is better and Welch's p is below alpha.

    A single return is no evidence: with n = 1 only rows that failed are replaced.
    """
    mean = _healthy(returns.double().mean(1))
    rival = _rivals(mean, 1, rng).squeeze(1)
    surely = (welch(returns, returns[rival]) < alpha) | (mean == -math.inf)
    return torch.where(surely & (mean[rival] > mean), rival, torch.arange(len(mean)))


def softmax(
    fitness: Tensor, rng: torch.Generator, worst_copies_best: bool = True, strictly_better: bool = True
) -> Tensor:
    """A parent is drawn by `chances`; with `strictly_better` a row stays as it is when the draw is no better."""
    p, fitness, own = chances(fitness), _healthy(fitness), torch.arange(len(fitness))
    order = fitness.argsort(descending=True, stable=True)
    if fitness[order[0]] == -math.inf:
        return own
    parents = torch.multinomial(p, len(own), replacement=True, generator=rng)
    if strictly_better:
        parents = torch.where(fitness[parents] > fitness, parents, own)
    if worst_copies_best:
        parents[order[-1]] = order[0]
    parents[order[0]] = order[0]
    return parents


def chances(fitness: Tensor) -> Tensor:
    """p ∝ exp(z) + 1e-6, z = (fitness - mean) / (std + 1e-6) of the rows that have not failed; 0 for those. `[M]`"""
    fitness = fitness.double()
    healthy = fitness.isfinite()
    if not healthy.all():
        out = torch.zeros_like(fitness)
        return out.masked_scatter_(healthy, chances(fitness[healthy])) if healthy.any() else out
    apart = fitness - fitness.mean()
    p = apart.div_(apart.square().mean().sqrt() + 1e-6).exp_().add_(1e-6)
    return p.div_(p.sum())


def welch(a: Tensor, b: Tensor) -> Tensor:
    """Two-sided p-values of Welch's t-test of the rows of `[..., n]` and `[..., m]` -> `[...]`.

    Where neither sample varies p is 0 if they differ and 1 if not; samples of one number say nothing, p = 1.
    """
    a, b = a.double(), b.double()
    n, m = a.shape[-1], b.shape[-1]
    if min(n, m) < 2:
        return torch.ones(torch.broadcast_shapes(a.shape[:-1], b.shape[:-1]), dtype=a.dtype)
    (var_a, mean_a), (var_b, mean_b) = torch.var_mean(a, -1), torch.var_mean(b, -1)
    of_a, of_b, apart = var_a / n, var_b / m, (mean_a - mean_b).abs()
    spread = of_a + of_b
    share = torch.where(spread > 0, of_a / spread, 0.5)
    df = 1 / (share.square() / (n - 1) + (1 - share).square() / (m - 1))
    return torch.where(apart == 0, 1.0, tails(apart / spread.sqrt(), df))


def tails(t: Tensor, df: Tensor) -> Tensor:
    """P(|T| > t) of Student's T with `df` degrees of freedom: the regularised incomplete beta I_x(df / 2, 1 / 2).

    I_x = 1 - 2 Γ((df + 1) / 2) / (√π Γ(df / 2)) ∫_0^θ cos(s)^(df - 1) ds,    tan θ = t / √df,  x = cos(θ)^2
    """
    root = df.sqrt()
    # Twelve standard deviations out the integrand has vanished, unless df is small: keep the nodes where it is not.
    end = torch.minimum(torch.atan(t / root), 12 / root)
    density = (torch.log(torch.cos(end.unsqueeze(-1) * NODES)) * (df - 1).unsqueeze(-1)).exp()
    scale = (torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2)).exp() * 2 / math.sqrt(math.pi)
    return (1 - scale * end * (density @ WEIGHTS)).clamp(0, 1)


def _healthy(fitness: Tensor) -> Tensor:
    """Fitness with -inf for all that is not finite: worse than any other, and equal."""
    return fitness.nan_to_num(-math.inf, -math.inf, -math.inf)


def _rivals(fitness: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """`count` different others for each row, `[M, count]`; failed ones, or the row itself, only for want of more."""
    M = len(fitness)
    key = torch.rand(M, M, generator=rng) + (fitness == -math.inf)
    return key.fill_diagonal_(3.0).topk(max(1, min(count, M - 1)), largest=False).indices
