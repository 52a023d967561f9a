"""What the rest of Podium knows of an algorithm: a protocol, and the settings that all of them share."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import Field
from torch import Tensor

from podium.core.config import Section
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.tree import Tree

Batch = dict[str, Tensor]
"""A rollout: `obs`, `last` `[M, T, E, *O]`, `action`, `reward`, `terminated`, `truncated` `[M, T, E]`.

Or a batch from a replay: `obs`, `next_obs` `[M, B, *O]`, `action`, `reward` and `decay` `[M, B]`, so that
reward + decay V(next_obs) is the return; `weight` `[M, B]` where replay is prioritised, and `active` `[M]` where not
all members have enough to learn from.
"""


STYLED = "an env that tells how a step is done"


class AlgoSettings(Section):
    """`algo.*` of any algorithm: genes (declared with `gene`) and plan numbers (all others)."""

    name: Importable
    steps: int = Field(1, ge=1, description="steps of each env in a rollout")
    anneal: tuple[str, ...] = ()

    def rows(self, envs: int) -> int:
        """How many steps of a member go into one gradient: here, the whole rollout."""
        return self.steps * envs

    def dead(self, prioritised: bool, styled: bool) -> dict[str, str]:
        """Genes that mean nothing with this plan, replay and env, each with what would bring it to life."""
        return {} if styled or "style" not in type(self).model_fields else {"style": STYLED}

    def check(self, spec: Spec) -> None:
        """Refuse what does not fit together or does not fit the env; raises ConfigError."""


class Algorithm(Protocol):
    """A stack of M members that act and learn."""

    needs: Literal["rollout", "replay"]
    genes: dict[str, Tensor]

    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> what was decided (`action` `[M, E, ...]`) and the carry for the next step."""

    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        """`[M, E, *O]` -> the most likely `action`, and the parameters of what it would be drawn from, `[M, E, ...]`.

        `logits` (for each choice, one after another), or `mean` and `std` (in the env's units), or `values` (of each
        action, where there is no distribution), or nothing more. Callers use `proposed`: a user's may not have it.
        """

    def learn(self, batch: Batch, remaining: Tensor | None = None) -> dict[str, Tensor]:
        """Learn from one rollout, or one batch of a replay, as `needs` says. `remaining[M]` falls from 1 to 0.

        Metrics `[M]`; of a rollout, `finite` is among them; of a batch, `error` `[M, B]`, the surprise of each sample.
        """

    def learnt(self) -> Tree:
        """Live tensors of all that was learnt, leading M: what exploit copies."""

    def slot(self) -> Tree:
        """Live tensors that belong to the row and not to what was learnt."""

    def restart(self) -> None:
        """All episodes have ended: forget what was summed up over them, and numbers drawn for a rollout that broke."""


def proposed(algorithm: Algorithm, obs: Tensor) -> dict[str, Tensor]:
    """What an algorithm proposes; of one that cannot say, the action alone."""
    if hasattr(algorithm, "propose"):
        owners = [getattr(method, "__self__", None) for method in (algorithm.propose, algorithm.act)]
        if owners[0] is owners[1]:  # else somebody replaced `act`, and `propose` speaks for what it was
            return algorithm.propose(obs)
    return {"action": algorithm.act(obs, {}, explore=False)[0]["action"]}


def annealed(genes: dict[str, Tensor], names: tuple[str, ...], remaining: Tensor | None) -> dict[str, Tensor]:
    """Genes as they are used now: those in `names` fall linearly to zero over the run."""
    if remaining is None:
        return genes
    return genes | {name: genes[name] * remaining for name in names}
