"""What all learners with a replay have in common: their settings, their critics, what they see, how far they are."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from pydantic import Field
from torch import Tensor

from podium.algos.base import AlgoSettings, Batch, annealed
from podium.algos.inputs import Inputs
from podium.core.errors import ConfigError
from podium.core.hyper import GeneValue, gene
from podium.core.spec import Spec
from podium.core.streams import Block
from podium.core.tree import Tree
from podium.nets.critics import Critics
from podium.ops.norm import Running
from podium.ops.returns import discounted
from podium.ops.shape import per_member

AHEAD = 65_536
"""Random numbers of a member that are drawn at once, about."""

WIDEST = 1e30
"""Distance of two bounds of an action: what is further apart is no bound, only the end of the numbers."""


class OffPolicySettings(AlgoSettings):
    """`algo.*` of every learner with a replay."""

    lr: GeneValue = gene(3e-4, 1e-6, 1.0, search=(1e-5, 1e-2))
    discount: GeneValue = gene(0.99, 0.5, 0.9999, "one-minus-log", most=1, search=(0.9, 0.999))
    tau: GeneValue = gene(0.005, 1e-4, 1.0, most=1, search=(1e-3, 0.1))
    max_norm: GeneValue = gene(None, 0.01, 100.0, optional=True)
    alpha: GeneValue = gene(0.6, 0.0, 1.0, "linear", most=1)
    beta: GeneValue = gene(0.4, 0.0, 1.0, "linear", most=1)

    steps: int = Field(1, ge=1, description="steps of each env between two rounds of updates")
    updates: float = Field(1.0, gt=0, le=1000, description="updates per stored step; replay.ratio takes its place")
    batch: int = Field(256, ge=1, description="what an update learns from, drawn from the replay")
    warmup: int = Field(100, ge=0, description="steps of each member with random actions before it learns")
    n_step: int = Field(1, ge=1, le=1000, description="rewards that are summed up before the critics take over")
    anneal: tuple[Literal["lr", "beta"], ...] = Field(
        (), description="genes that move over the run: lr to 0, beta to 1"
    )

    def rows(self, envs: int) -> int:
        return self.batch

    def dead(self, prioritised: bool, styled: bool) -> dict[str, str]:
        return {} if prioritised else dict.fromkeys(("alpha", "beta"), "replay.prioritised=true")

    def needs_discrete(self, spec: Spec) -> None:
        if not isinstance(spec.action, Discrete):
            allowed = f"it takes Discrete actions, and this env {spec.action}; {_fitting(spec.action)}"
            raise ConfigError("algo.name", self.name, allowed)

    def needs_box(self, spec: Spec) -> None:
        box = spec.action
        if not isinstance(box, Box) or len(box.shape) != 1:
            allowed = f"it takes Box actions, and this env {box}; {_fitting(box)}"
            raise ConfigError("algo.name", self.name, allowed)
        if not box.is_bounded() or not (box.high.astype(np.float64) - box.low < WIDEST).all():
            allowed = f"it needs bounds of its actions, and this env has {box}; for those there are ppo and a2c"
            raise ConfigError("algo.name", self.name, allowed)


def _fitting(actions: Space[Any]) -> str:
    """Which algorithms take such actions, in words."""
    fits = "ppo and a2c"  # take all
    if isinstance(actions, Discrete):
        fits = f"dqn, rainbow, sac-discrete, {fits}"
    elif isinstance(actions, Box) and len(actions.shape) == 1:
        fits = f"ddpg, td3, sac, redq, {fits}"
    return f"for those there are {fits}"


class OffPolicy:
    """A stack of members that learn from a replay; `act` and `update` are each algorithm's own.

    Normalisers, critics, the ages of the members (env steps and updates), and random numbers that are drawn ahead.
    """

    needs: Literal["replay"] = "replay"
    critics: Critics

    def __init__(self, spec: Spec, settings: OffPolicySettings, genes: dict[str, Tensor], images: bool = False) -> None:
        """`images`: whether its networks take them as they are."""
        self.settings, self.genes = settings, genes
        self.inputs = Inputs(spec, images)
        self.size = self.inputs.size
        self.return_stats = Running(spec.members, (), spec.device) if spec.normalise_reward else None
        self.carried = torch.zeros(spec.members, spec.envs, device=spec.device)
        self.acted, self.updates = torch.zeros(2, spec.members, dtype=torch.int64, device=spec.device)
        self.blocks: dict[str, Block] = {}

    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        raise NotImplementedError

    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        return self.act(obs, {}, explore=False)[0]

    def learn(self, batch: Batch, remaining: Tensor | None = None) -> dict[str, Tensor]:
        active = batch.get("active")
        self.updates += 1 if active is None else active
        with torch.inference_mode(not self.critics.online.autograd):
            return self.update(batch, current(self.genes, self.settings.anneal, remaining))

    def update(self, batch: Batch, genes: dict[str, Tensor]) -> dict[str, Tensor]:
        """One update by the genes as they are now; metrics `[M]`, and `error` `[M, B]`."""
        raise NotImplementedError

    def obs_action(self, obs: Tensor, batch: Batch) -> Tensor:
        """What a critic takes, `[M, B, O + A]`; a replay has it side by side."""
        if "obs_action" in batch and self.inputs.stats is None:
            return batch["obs_action"]
        return torch.cat([obs, batch["action"]], -1)

    def reward(self, batch: Batch) -> Tensor:
        """`[M, B]`, of n steps, in units of the returns' spread where that is asked for."""
        if self.return_stats is None:
            return batch["reward"]
        return self.return_stats.scale(batch["reward"], clip=10.0 * self.settings.n_step)

    def observe(self, rollout: Batch, discount: Tensor) -> None:
        """Take a rollout `[M, T, E, ...]` into ages and statistics."""
        self.acted += rollout["reward"][0].numel()
        self.inputs.observe(rollout["obs"])
        if self.return_stats is not None:
            done = rollout["terminated"] | rollout["truncated"]
            sums, carried = discounted(rollout["reward"], done, discount, self.carried)
            self.carried.copy_(carried.nan_to_num(0.0, 0.0, 0.0))  # a row's next member must not inherit a NaN
            self.return_stats.update(sums.flatten(1))

    def cold(self, x: Tensor) -> Tensor:
        """Who is still warming up, in the shape of `x` `[M, ...]`."""
        return per_member(self.acted < self.settings.warmup, x)

    def due(self, delay: Tensor, active: Tensor | None) -> Tensor | None:
        """Whose policy is updated now, `[M]`, of those that are active; None: everyone's."""
        due: Tensor = self.updates % delay.long() == 0
        if active is not None:
            return due & active
        return None if bool(due.all()) else due

    def finite(self) -> Tensor:
        """Which members' weights are all finite, `[M]`."""
        return self.critics.online.finite()

    def learnt(self) -> Tree:
        stats = {"obs": self.inputs.stats, "return": self.return_stats}
        found: Tree = {"genes": self.genes, "acted": self.acted, "updates": self.updates}
        found |= {f"{name}_stats": s.state() for name, s in stats.items() if s is not None}
        return found | self.critics.learnt()

    def slot(self) -> Tree:
        return {"carried": self.carried}

    def drawn(self) -> Tree:
        """Random numbers that were drawn ahead and are not used yet, `[M, n, ...]`."""
        return {name: rest for name, block in self.blocks.items() if (rest := block.rest()) is not None}

    def redraw(self, drawn: Tree) -> None:
        """Go on with what `drawn` returned."""
        for name, block in self.blocks.items():
            block.refill(drawn[name].to(self.acted.device) if name in drawn else None)

    def restart(self) -> None:
        self.carried.zero_()


def ahead(numbers: int) -> int:
    """How many draws of so many numbers are made at once."""
    return max(1, AHEAD // max(1, numbers))


def current(genes: dict[str, Tensor], names: tuple[str, ...], remaining: Tensor | None) -> dict[str, Tensor]:
    """Genes as they are used now: annealed ones fall to 0 over the run, `beta` rises to 1."""
    if remaining is None:
        return genes
    now = annealed(genes, tuple(name for name in names if name != "beta"), remaining)
    if "lr" in names and "policy_lr" in genes:
        own = genes["policy_lr"]
        now = now | {"policy_lr": torch.where(own.isinf(), own, own * remaining)}
    return now | {"beta": 1 - (1 - genes["beta"]) * remaining} if "beta" in names else now


def policy_rate(genes: dict[str, Tensor]) -> Tensor:
    """The policy's learning rate, `[M]`: the critics', where it has none of its own."""
    return torch.where(genes["policy_lr"].isinf(), genes["lr"], genes["policy_lr"])


class Bounds:
    """Actions of a Box in units of its bounds, -1..1."""

    def __init__(self, box: Box, device: torch.device) -> None:
        low, high = (torch.as_tensor(bound, dtype=torch.float32, device=device) for bound in (box.low, box.high))
        self.size, self._middle, self.half = len(low), (low + high) / 2, (high - low) / 2

    def to_env(self, unit: Tensor) -> Tensor:
        return torch.addcmul(self._middle, unit, self.half)


def uniform_of(noise: Tensor) -> Tensor:
    """Standard normal numbers turned into even ones in (-1, 1): a random action from the noise that is there anyway."""
    return torch.erf(noise / math.sqrt(2))
