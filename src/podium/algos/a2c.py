"""Advantage actor-critic (Mnih et al. 2016, synchronous), M members at once.

    max  E[ log π(a|s) A ] - c E[(V - G)²] + β E[H]

One gradient step on each rollout, RMSProp.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from podium.algos.base import AlgoSettings, Batch, annealed
from podium.algos.on_policy import OnPolicy
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.nets.optim import Adam, RMSProp
from podium.nets.settings import NetSettings
from podium.ops.dist import Distribution, Params
from podium.ops.grad import clip_by_norm
from podium.ops.returns import standardise
from podium.ops.shape import per_member


class A2CSettings(AlgoSettings):
    """`algo.*` for A2C."""

    name: Importable = "a2c"
    lr: GeneValue = gene(7e-4, 1e-6, 1.0, search=(1e-4, 1e-2))
    discount: GeneValue = gene(0.99, 0.5, 0.9999, "one-minus-log", most=1, search=(0.9, 0.999))
    lam: GeneValue = gene(1.0, 0.0, 1.0, "one-minus-log", most=1)
    entropy: GeneValue = gene(0.0, 0.0, 1.0, search=(0.0, 0.03))
    critic: GeneValue = gene(0.5, 0.01, 10.0)
    max_norm: GeneValue = gene(0.5, 0.01, 100.0)
    style: GeneValue = gene(0.0, -1.0, 1.0, "linear", least=-1, most=1)

    steps: int = Field(5, ge=1, description="steps of each env in a rollout")
    normalise_advantage: bool = False
    optimiser: Literal["rmsprop", "adam"] = "rmsprop"
    log_std: float = Field(0.0, description="initial log standard deviation of continuous actions")
    anneal: tuple[Literal["lr", "entropy"], ...] = Field((), description="genes that fall to 0 over the run")


def a2c_loss(
    dist: Distribution, params: Params, value: Tensor, batch: Batch, genes: dict[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor], tuple[Params, Tensor]]:
    """Policy gradient with a baseline. `[M, B, ...]` -> loss of each member `[M]`, its terms, and its gradient."""
    size = value.shape[1]
    logp, entropy, pull = dist.vjp(params, batch["action"])
    error = value - batch["return"]
    policy = -(logp * batch["advantage"]).mean(1)
    critic = error.square().mean(1)
    loss = policy + genes["critic"] * critic - genes["entropy"] * entropy
    g_params = pull(batch["advantage"] / -size, -genes["entropy"])
    g_value = error * per_member(genes["critic"] * (2 / size), error)
    return loss, {"policy": policy, "critic": critic, "entropy": entropy}, (g_params, g_value)


class A2C:
    """A stack of A2C agents."""

    Settings = A2CSettings
    needs: Literal["rollout"] = "rollout"

    def __init__(
        self, spec: Spec, settings: A2CSettings, net: NetSettings, genes: dict[str, Tensor], streams: Streams
    ) -> None:
        self.settings, self.genes = settings, genes
        self.core = OnPolicy(spec, net, streams, settings.steps, settings.log_std)
        params, rmsprop = self.core.net.params, settings.optimiser == "rmsprop"
        self.optimiser: RMSProp | Adam = RMSProp(params, eps=1e-5) if rmsprop else Adam(params, eps=1e-5)
        self.act, self.propose = self.core.act, self.core.propose

    def learn(self, batch: Batch, remaining: Tensor | None = None) -> dict[str, Tensor]:
        genes = annealed(self.genes, self.settings.anneal, remaining)
        net, style = self.core.net, genes.get("style")
        data = self.core.experience(batch, genes["discount"], genes["lam"], style)
        if self.settings.normalise_advantage:
            data["advantage"] = standardise(data["advantage"])
        params, value, pull = net.vjp(data["obs"])
        loss, terms, gradient = a2c_loss(net.dist, params, value, data, genes)
        pull(*gradient)
        terms["norm"] = clip_by_norm(net.params, genes["max_norm"])
        self.optimiser.step(genes["lr"])
        self.core.observe(batch)
        return terms | {"finite": loss.isfinite() & net.finite()}

    def learnt(self) -> Tree:
        return self.core.learnt() | {"optimiser": self.optimiser.state(), "genes": self.genes}

    def slot(self) -> Tree:
        return self.core.slot()

    def restart(self) -> None:
        self.core.restart()
