"""What every source of experience looks like: M members with E envs each, stepped as one batch of tensors."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from gymnasium import Space
from torch import Tensor

from podium.core.spec import Step
from podium.core.streams import Streams
from podium.core.tree import Tree


@runtime_checkable
class VecEnv(Protocol):
    """Same-step autoreset: `Step.obs` is where the next action is taken, `Step.last` what the action truly led to.

    An env that meets its goal on the step at which its time runs out is `terminated`, never both.
    `step` writes into two sets of tensors in turn: what it returns stays as it is until the second next `step`, so that
    the obs of an action and the step it led to can be read together. Keep a clone of what must live longer.
    An env that fails and begins anew is `truncated` with an `episode.length` of 0: no episode ended that counts.
    """

    obs_space: Space[Any]  # of one env
    action_space: Space[Any]
    members: int
    envs: int
    device: torch.device
    objectives: tuple[str, ...]  # names of what `Episode.objectives` measures beside the reward

    def reset(self, streams: Streams) -> Tensor:
        """Start every env anew, `[M, E, *O]`; all later reset states come from `streams.env` too."""
        ...

    def step(self, action: Tensor) -> Step:
        """int64 `[M, E]` (Discrete), int64 `[M, E, A]` (MultiDiscrete) or float `[M, E, *A]` (Box)."""
        ...

    def state(self) -> Tree | None:
        """All that the next steps depend on but the streams, leaves `[M, ...]`; None where the source cannot tell."""
        ...

    def load(self, tree: Tree) -> Tensor:
        """Go on, after a `reset`, exactly from what `state` returned; the obs to act on, `[M, E, *O]`."""
        ...

    def close(self) -> None: ...


def notes(env: VecEnv) -> list[str]:
    """What an env has to say for the log since it was last asked; those that say nothing need no method for it."""
    said: list[str] = env.notes() if hasattr(env, "notes") else []
    return said
