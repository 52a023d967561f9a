"""Generators: which entry of the leaderboard is the parent of the next member. Fitness comes best first."""

from __future__ import annotations

import torch
from torch import Tensor

from podium.evolve.select import chances
from podium.evolve.settings import EvolveSettings


def softmax(fitness: Tensor, rng: torch.Generator, settings: EvolveSettings) -> int:
    """By the softmax of the standardised fitness."""
    total = chances(fitness).cumsum(0)
    u = torch.rand((), dtype=total.dtype, generator=rng) * total[-1]
    return min(int(torch.searchsorted(total, u, right=True)), len(fitness) - 1)


def top_k(fitness: Tensor, rng: torch.Generator, settings: EvolveSettings) -> int:
    """Any of the best `evolve.top`."""
    return int(torch.randint(min(settings.top, len(fitness)), (), generator=rng))


def tournament(fitness: Tensor, rng: torch.Generator, settings: EvolveSettings) -> int:
    """The best of `evolve.rivals` that are drawn at random."""
    return int(torch.randint(len(fitness), (settings.rivals,), generator=rng).min())


GENERATORS = {"softmax": softmax, "top-k": top_k, "tournament": tournament}
