"""Proximal policy optimisation (Schulman et al. 2017), M members at once.

    max  E[ min(ρ A, clip(ρ, 1-ε, 1+ε) A) ] - c E[(V - G)²] + β E[H],    ρ = π(a|s) / π_old(a|s)

Advantages A by GAE, returns G = A + V. Several epochs of minibatches on each rollout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from podium.algos.base import AlgoSettings, Batch, annealed
from podium.algos.on_policy import Experience, OnPolicy
from podium.core import streams as random
from podium.core.errors import ConfigError
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.nets.optim import Adam
from podium.nets.settings import NetSettings
from podium.ops.dist import Distribution, Params
from podium.ops.grad import clip_by_norm
from podium.ops.returns import standardise
from podium.ops.shape import per_member


class PPOSettings(AlgoSettings):
    """`algo.*` for PPO."""

    name: Importable = "ppo"
    lr: GeneValue = gene(3e-4, 1e-6, 1.0, search=(1e-5, 1e-2))
    discount: GeneValue = gene(0.99, 0.5, 0.9999, "one-minus-log", most=1, search=(0.9, 0.999))
    lam: GeneValue = gene(0.95, 0.0, 1.0, "one-minus-log", most=1, search=(0.7, 0.99))
    clip: GeneValue = gene(0.2, 0.01, 1.0, search=(0.05, 0.5))
    entropy: GeneValue = gene(0.0, 0.0, 1.0, search=(0.0, 0.03))
    critic: GeneValue = gene(0.5, 0.01, 10.0)
    max_norm: GeneValue = gene(0.5, 0.01, 100.0)
    target_kl: GeneValue = gene(None, 1e-4, 1.0, optional=True)
    style: GeneValue = gene(0.0, -1.0, 1.0, "linear", least=-1, most=1)

    steps: int = Field(128, ge=1, description="steps of each env in a rollout")
    epochs: int = Field(10, ge=1, le=10_000)
    batch: int = Field(64, ge=1, description="minibatch; must divide steps * env.num")
    normalise_advantage: bool = True
    clip_value: bool = Field(False, description="clip the change of the value by `clip`, too")
    log_std: float = Field(0.0, description="initial log standard deviation of continuous actions")
    anneal: tuple[Literal["lr", "clip", "entropy"], ...] = Field((), description="genes that fall to 0 over the run")

    def rows(self, envs: int) -> int:
        return self.batch

    def check(self, spec: Spec) -> None:
        rollout = self.steps * spec.envs
        if self.batch > rollout or rollout % self.batch:
            shape = f"algo.steps {self.steps} * env.num {spec.envs} = {rollout}"
            raise ConfigError("algo.batch", self.batch, f"a divisor of the rollout ({shape})")


def ppo_loss(
    dist: Distribution, params: Params, value: Tensor, batch: Batch, genes: dict[str, Tensor], clip_value: bool = False
) -> tuple[Tensor, dict[str, Tensor], tuple[Params, Tensor]]:
    """Clipped surrogate (eq. 7 and 9). `[M, B, ...]` -> loss of each member `[M]`, its terms, and its gradient.

    The gradient is of `params` and `value`. By log π the surrogate has -ρ A / B where the free term is the smaller one.
    """
    size = value.shape[1]
    logp, entropy, pull = dist.vjp(params, batch["action"])
    log_ratio, clip = logp - batch["logp"], per_member(genes["clip"], logp)
    ratio = log_ratio.exp()
    free = ratio * batch["advantage"]
    bound = ratio.clamp_(1 - clip, 1 + clip).mul_(batch["advantage"])
    policy = -torch.minimum(free, bound).mean(1)
    moved = value - batch["value"]
    error = (batch["value"] + moved.clamp(-clip, clip) if clip_value else value) - batch["return"]
    critic = error.square().mean(1)
    loss = policy + genes["critic"] * critic - genes["entropy"] * entropy

    g_value = error.mul_(per_member(genes["critic"] * (2 / size), error))
    if clip_value:
        g_value.masked_fill_(moved.abs() > clip, 0)
    g_params = pull(free.masked_fill_(free > bound, 0).div_(-size), -genes["entropy"])
    terms = {"policy": policy, "critic": critic, "entropy": entropy, "log_ratio": log_ratio}
    return loss, terms, (g_params, g_value)


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """KL(old || new) by Schulman's low-variance estimator, E[ρ - 1 - log ρ]. `[M, B]` -> `[M]`"""
    return (log_ratio.exp() - 1 - log_ratio).mean(1)


class PPO:
    """A stack of PPO agents."""

    Settings = PPOSettings
    needs: Literal["rollout"] = "rollout"

    def __init__(
        self, spec: Spec, settings: PPOSettings, net: NetSettings, genes: dict[str, Tensor], streams: Streams
    ) -> None:
        self.settings, self.genes, self._streams = settings, genes, streams
        self.core = OnPolicy(spec, net, streams, settings.steps, settings.log_std)
        self.optimiser = Adam(self.core.net.params, eps=1e-5)
        self.act, self.propose = self.core.act, self.core.propose

    def learn(self, batch: Batch, remaining: Tensor | None = None) -> dict[str, Tensor]:
        with torch.inference_mode(not self.core.net.autograd):
            return self._learn(batch, annealed(self.genes, self.settings.anneal, remaining))

    def _learn(self, batch: Batch, genes: dict[str, Tensor]) -> dict[str, Tensor]:
        net, style = self.core.net, genes.get("style")
        data = self.core.experience(batch, genes["discount"], genes["lam"], style)
        limit = 1.5 * genes["target_kl"]
        active = torch.ones_like(limit, dtype=torch.bool) if bool(limit.isfinite().any()) else None
        terms, norm, total = dict[str, Tensor](), torch.zeros_like(limit), torch.zeros_like(limit)
        for part in self._minibatches(data):
            params, value, pull = net.vjp(part["obs"])
            loss, terms, gradient = ppo_loss(net.dist, params, value, part, genes, self.settings.clip_value)
            total += loss
            if active is not None:
                active &= approximate_kl(terms["log_ratio"]) <= limit
                if not active.any():
                    break
            pull(*gradient)
            norm = clip_by_norm(net.params, genes["max_norm"])
            self.optimiser.step(genes["lr"], active)
        log_ratio = terms.pop("log_ratio")
        terms |= {"norm": norm, "kl": approximate_kl(log_ratio)}
        terms["clipped"] = ((log_ratio.exp() - 1).abs() > per_member(genes["clip"], log_ratio)).float().mean(1)
        self.core.observe(batch)
        return terms | {"finite": total.isfinite() & net.finite()}

    def _minibatches(self, data: Experience) -> Iterator[Experience]:
        """Each epoch in an order of its own; a batch as large as the rollout needs no order."""
        settings, rollout = self.settings, data["logp"].shape[1]
        normalise = standardise if settings.normalise_advantage else lambda x: x
        if settings.batch == rollout:
            data["advantage"] = normalise(data["advantage"])
            for _ in range(settings.epochs):
                yield data
            return
        data["obs"] = self.core.net.packed(data["obs"])
        rows = torch.arange(len(data["logp"]), device=data["logp"].device)[:, None]
        orders = random.permutations(self._streams.agent, settings.epochs, rollout).to(rows.device)
        flat = {name: x.flatten(0, 1) for name, x in data.items()}
        for order in orders.unbind(1):
            places = (order + rows * rollout).flatten()  # one index for all members: seven times as fast for images
            shuffled = {name: flat[name].index_select(0, places).view_as(x) for name, x in data.items()}
            for parts in zip(*(x.split(settings.batch, 1) for x in shuffled.values()), strict=True):
                part = dict(zip(shuffled, parts, strict=True))
                part["advantage"] = normalise(part["advantage"])
                yield part

    def learnt(self) -> Tree:
        return self.core.learnt() | {"optimiser": self.optimiser.state(), "genes": self.genes}

    def slot(self) -> Tree:
        return self.core.slot()

    def restart(self) -> None:
        self.core.restart()
