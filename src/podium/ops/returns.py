"""Returns and advantages: pure functions of a rollout `[M, T, E]`."""

from __future__ import annotations

import torch
from torch import Tensor

from podium.ops.shape import per_member


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    discount: Tensor,
    lam: Tensor,
) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16). `[M, T, E]`, `discount[M]`, `lam[M]`.

        A_t = δ_t + γλ (1 - done_t) A_{t+1},    δ_t = r_t + γ (1 - terminated_t) V(s'_t) - V(s_t)

    `next_value` is the value of what the action truly led to; `done` is terminated or truncated.
    """
    delta = (next_value * per_member(discount, reward)).masked_fill_(terminated, 0).add_(reward).sub_(value)
    decay = per_member(discount * lam, reward).expand_as(reward).masked_fill(done, 0)
    steps, decays = delta.unbind(1), decay.unbind(1)
    for t in range(len(steps) - 2, -1, -1):
        steps[t].addcmul_(decays[t], steps[t + 1])
    return delta


def n_step(reward: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor, discount: Tensor, n: int) -> Tensor:
    """n-step returns. `[M, T, E]` -> `[M, T, E]`

        G_t = r_t + γ r_{t+1} + ... + γᵏ V(s'),  k = n, or less at the end of an episode or of the rollout

    The bootstrap V(s') is left out where the episode terminated, and taken where it was truncated.
    """
    steps = reward.shape[1]
    gamma = discount[:, None]
    bootstrap = per_member(discount, reward) * next_value.masked_fill(terminated, 0)
    out = torch.empty_like(reward)
    for t in range(steps):
        end = min(t + n, steps) - 1
        total = reward[:, end] + bootstrap[:, end]
        for k in range(end - 1, t - 1, -1):
            total = reward[:, k] + torch.where(done[:, k], bootstrap[:, k], gamma * total)
        out[:, t] = total
    return out


def discounted(reward: Tensor, done: Tensor, discount: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
    """Running discounted sum of past rewards: R_t = γ R_{t-1} + r_t, from zero after each episode's end.

    `[M, T, E]` and the sum carried in `[M, E]` -> the sums `[M, T, E]` and the one to carry on, `[M, E]`.
    """
    out = torch.empty_like(reward)
    gamma, total = discount[:, None], carried
    for t in range(reward.shape[1]):
        total = gamma * total + reward[:, t]
        out[:, t] = total
        total = total.masked_fill(done[:, t], 0)
    return out, total


def standardise(x: Tensor) -> Tensor:
    """Each member's numbers to mean 0 and standard deviation 1. `[M, B]` -> `[M, B]`"""
    if x.shape[1] < 2:
        return x
    std, mean = torch.std_mean(x, 1, keepdim=True)
    return (x - mean).div_(std.add_(1e-8))
