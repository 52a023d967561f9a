"""One action of many opinions: `[N, B, ...]`, of N members on B observations, to `[B, ...]`.

An action of choices is `[..., C]`, one option of each. `sizes` says how many options each choice has; scores of all of
them stand one after another, `[..., S]` with S = Σ sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium.spaces import Box, MultiDiscrete
from torch import Tensor

Sizes = Sequence[int]
FORBIDDEN = -1e8
"""A logit that is never drawn; times a probability of 0 it is still a number."""


def sizes_of(space: Any) -> list[int]:
    """How many options each choice has; in a Box there are none."""
    if isinstance(space, Box):
        return []
    return [int(n) for n in space.nvec] if isinstance(space, MultiDiscrete) else [int(space.n)]


def choose(scores: Tensor, sizes: Sizes) -> Tensor:
    """The best option of each choice, the first of equals. `[..., S]` -> `[..., C]`"""
    return torch.stack([part.argmax(-1) for part in scores.split(list(sizes), -1)], -1)


def draw(probabilities: Tensor, sizes: Sizes, generator: torch.Generator) -> Tensor:
    """An option of each choice. `[B, S]` -> `[B, C]`"""
    parts = probabilities.split(list(sizes), -1)
    return torch.cat([part.multinomial(1, generator=generator) for part in parts], -1)


def log_softmax(logits: Tensor, sizes: Sizes) -> Tensor:
    """Log-probabilities within each choice. `[..., S]` -> `[..., S]`"""
    return torch.cat([part.log_softmax(-1) for part in logits.split(list(sizes), -1)], -1)


def softmax(logits: Tensor, sizes: Sizes) -> Tensor:
    """Probabilities within each choice. `[..., S]` -> `[..., S]`"""
    return torch.cat([part.softmax(-1) for part in logits.split(list(sizes), -1)], -1)


def standardise(values: Tensor, sizes: Sizes) -> Tensor:
    """Values within each choice with mean 0 and deviation 1: members may have other scales. `[..., S]` -> `[..., S]`

    Forbidden options count for neither, and stay forbidden.
    """
    return torch.cat([_standard(part) for part in values.split(list(sizes), -1)], -1)


def _standard(values: Tensor) -> Tensor:
    out: Tensor = forbidden(values)
    count = (~out).sum(-1, keepdim=True).clamp(min=1)
    mean = values.masked_fill(out, 0).sum(-1, keepdim=True) / count
    off = (values - mean).masked_fill(out, 0)
    deviation = (off.square().sum(-1, keepdim=True) / count).sqrt()
    return (off / (deviation + 1e-8)).masked_fill(out, FORBIDDEN)


def forbidden(scores: Any) -> Any:
    """Which options an action mask has taken away; of a tensor or an array."""
    return scores <= FORBIDDEN / 2


def one_hot(action: Tensor, sizes: Sizes) -> Tensor:
    """All the probability on the action. `[..., C]` -> `[..., S]`"""
    each = zip(action.unbind(-1), sizes, strict=True)
    return torch.cat([F.one_hot(chosen, n).float() for chosen, n in each], -1)


def vote(action: Tensor, probabilities: Tensor, sizes: Sizes) -> Tensor:
    """What most members choose; of equals what is likelier on average. `[N, B, C]`, `[N, B, S]` -> `[B, C]`"""
    votes, likely = one_hot(action, sizes).sum(0), probabilities.mean(0)
    parts = zip(votes.split(list(sizes), -1), likely.split(list(sizes), -1), strict=True)
    leading = [p.masked_fill(v < v.amax(-1, keepdim=True), -1.0) for v, p in parts]
    return choose(torch.cat(leading, -1), sizes)


def densest(mean: Tensor, std: Tensor) -> Tensor:
    """Whose mode has the highest density under the mixture of all: argmax_i Σ_j N(μ_i; μ_j, σ_j). `[N, B, A]` -> `[B]`

    It is the best of the members' modes. The mixture's own mode may lie between them.
    """
    z = (mean[:, None] - mean) / std
    return (-0.5 * z.square() - std.log()).sum(-1).logsumexp(1).argmax(0)
