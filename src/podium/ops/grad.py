"""What happens to gradients and target networks, for each member apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from podium.ops.shape import per_member


def backward(loss: Tensor, params: Sequence[Tensor]) -> None:
    """Set each `.grad` by autograd from losses `[M]`; of their sum, every member gets the gradient of its own."""
    for p, g in zip(params, torch.autograd.grad(loss.sum(), params), strict=True):
        p.grad = g


@torch.no_grad()
def clip_by_norm(params: Sequence[Tensor], limit: Tensor) -> Tensor:
    """Scale each member's gradient to a norm of at most `limit[M]`, in place; returns the norms before, `[M]`."""
    grads = [p.grad for p in params if p.grad is not None]
    norms = [torch.linalg.vector_norm(g.flatten(1), dim=1) for g in grads]  # copies those left transposed by autograd
    norm: Tensor = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms), dim=0)
    scale = limit.div(norm + 1e-6).clamp_(max=1)
    for g in grads:
        g.mul_(per_member(scale, g))
    return norm


@torch.no_grad()
def polyak(targets: Sequence[Tensor], sources: Sequence[Tensor], tau: Tensor, active: Tensor | None = None) -> None:
    """target <- (1 - τ) target + τ source, with `tau[M]`, in place, of the members that are `active`, or of all."""
    tau = tau if active is None else tau * active
    for target, source in zip(targets, sources, strict=True):
        target.lerp_(source, per_member(tau, target))
