"""An ensemble of critics for every member, `[M, K, ...]`, with its targets."""

from __future__ import annotations

from typing import Any, Literal

import torch
from gymnasium import Space
from pydantic import Field
from torch import Tensor

from podium.core import streams
from podium.core.config import Section
from podium.core.errors import ConfigError
from podium.core.streams import Block, Generators
from podium.core.tree import Tree
from podium.nets.optim import Adam
from podium.nets.settings import NetSettings
from podium.nets.towers import PullInput, Towers
from podium.ops import ensemble
from podium.ops.grad import clip_by_norm, polyak

Batch = dict[str, Tensor]
DRAWN = 256
"""Choices of a subset that are drawn at once."""


class CriticSettings(Section):
    """`critic.*`: the ensemble of critics of each member, for learners with a replay."""

    count: int = Field(2, ge=1, description="critics of each member")
    target: Literal["min", "mean", "subset"] = Field(
        "min", description="what they bootstrap from: the least, the mean, or the least of a few drawn for each update"
    )
    subset: int = Field(2, ge=1, description="how many are drawn, for critic.target=subset")
    policy: Literal["min", "mean", "first"] = Field("min", description="what the policy follows")

    def check(self) -> None:
        if self.target == "subset" and self.subset > self.count:
            raise ConfigError("critic.subset", self.subset, f"at most critic.count, {self.count}")
        default = type(self)().subset
        if self.target != "subset" and self.subset != default:
            allowed = f"{default}, unless critic.target is subset: with {self.target} it means nothing"
            raise ConfigError("critic.subset", self.subset, allowed)


class Critics:
    """K networks of every member, K targets that follow them, and their optimiser."""

    def __init__(
        self,
        generators: Generators,
        net: NetSettings,
        settings: CriticSettings,
        n_in: int,
        n_out: int = 1,
        device: torch.device | None = None,
        space: Space[Any] | None = None,
        sigma: float | None = None,
    ) -> None:
        self.settings = settings
        self.online = Towers(generators, net, n_in, n_out, settings.count, device, space, sigma)
        self.target = self.online.twin()
        self.optimiser = Adam(self.online.params)
        self.drawn = Block(lambda: streams.uniform(generators, DRAWN, settings.count).to(device))

    def next_values(self, x: Tensor) -> Tensor:
        """All targets, or those that were drawn for this update: `[M, B, I]` -> `[M, S, B, A]`."""
        if self.settings.target != "subset":
            return self.target(x)
        return self.target.some(x, ensemble.some(self.drawn.next(), self.settings.subset))

    @property
    def how(self) -> Literal["min", "mean"]:
        """One bootstraps from the least or the mean of what `next_values` gave."""
        return "mean" if self.settings.target == "mean" else "min"

    def bootstrap(self, q: Tensor) -> Tensor:
        """One of what `next_values` gave: `[M, S, ...]` -> `[M, ...]`."""
        return ensemble.combine(q, self.how)

    def follow_up(self, x: Tensor) -> tuple[Tensor, PullInput]:
        """What the policy is to follow, `[M, B]`, and a function from its gradient to that of `x`."""
        how = self.settings.policy
        q, pull = self.online.input_vjp(x, first=how == "first")
        q = q[..., 0]
        return ensemble.combine(q, how), lambda g: pull((ensemble.share(q, how) * g.unsqueeze(1)).unsqueeze(-1))

    def fit(
        self, x: Tensor, y: Tensor, batch: Batch, genes: Batch, scale: float, action: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One update that lowers scale Σ_k (Q_k(x) - y)², with Q of the `action` `[M, B]` where there are many.

        The loss `[M]`, how far off they were, `[M, B]`, and what they said before, `[M, K, B, A]`.
        """
        q, pull = self.online.vjp(x)
        chosen = None if action is None else action[:, None, :, None].expand(-1, q.shape[1], -1, -1)
        error = (q if chosen is None else q.gather(-1, chosen))[..., 0] - y.unsqueeze(1)
        g = error * batch["weight"].unsqueeze(1) if "weight" in batch else error
        loss = (g * error).sum(1).mean(1).mul_(scale)
        g = (g * (2 * scale / y.shape[1])).unsqueeze(-1)
        pull(g if chosen is None else torch.zeros_like(q).scatter_(-1, chosen, g))
        self.step(genes, batch.get("active"))
        return loss, error.abs().mean(1), q

    def step(self, genes: Batch, active: Tensor | None) -> None:
        """One update from the gradient that a `vjp` of `online` has left; `max_norm` is infinite where none is set."""
        if bool(genes["max_norm"].isfinite().any()):
            clip_by_norm(self.online.params, genes["max_norm"])
        self.optimiser.step(genes["lr"], active)

    @torch.no_grad()
    def follow(self, tau: Tensor, active: Tensor | None = None) -> None:
        """target <- (1 - τ) target + τ online, of the members that are `active`, or of all."""
        polyak(self.target.params, self.online.params, tau, active)

    def learnt(self) -> Tree:
        return {"critic": self.online.state(), "target": self.target.state(), "critic_adam": self.optimiser.state()}
