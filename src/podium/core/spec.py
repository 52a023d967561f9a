"""What the layers hand to each other: spaces, and the record of one environment step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor


class Episode(NamedTuple):
    """Totals of the episode that ended at this step; meaningful only where `terminated | truncated`."""

    reward: Tensor  # [M, E]     sum of rewards
    length: Tensor  # [M, E]     steps; 0 where the episode was lost to a failure of its env, and counts nowhere
    objectives: Tensor  # [M, E, K]  what else the env measures (K may be 0)


class Step(NamedTuple):
    """One step of every env, with same-step autoreset."""

    obs: Tensor  # [M, E, *O]  where the next action is taken (already reset where done)
    reward: Tensor  # [M, E]
    terminated: Tensor  # [M, E] bool  the task ended: do not bootstrap
    truncated: Tensor  # [M, E] bool  time ran out: bootstrap from `last`
    last: Tensor  # [M, E, *O]  what the action truly led to
    episode: Episode
    style: Tensor | None = None  # [M, E]  how it was done, where an env tells; the gene `style` says what it is worth


@dataclass(frozen=True)
class Spec:
    """What an algorithm must know of the world it will act in."""

    obs: spaces.Space  # type: ignore[type-arg]
    action: spaces.Space  # type: ignore[type-arg]
    members: int
    envs: int
    normalise_obs: bool = False
    normalise_reward: bool = False
    device: torch.device = torch.device("cpu")
