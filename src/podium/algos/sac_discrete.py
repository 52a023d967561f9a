"""Soft actor-critic for one of n actions (Christodoulou 2019), M members at once.

    V(s) = Σ_a π(a|s) (min_k Q'_k(s, a) - α log π(a|s)),    y = r + γ V(s')
    critics  min  E[½ Σ_k (Q_k(s, a) - y)²]
    policy   min  E[Σ_a π(a|s) (α log π(a|s) - min_k Q_k(s, a))]
    α        min  log α E[H(π(.|s)) - H]

Expectations over the actions are sums, so nothing is sampled but the actions that are taken.
"""

from __future__ import annotations

import torch
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.off_policy import ahead, policy_rate
from podium.algos.soft import SoftActorCritic, SoftSettings
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.nets.critics import CriticSettings
from podium.nets.encoder import Mask
from podium.nets.settings import NetSettings
from podium.ops import ensemble
from podium.ops.dist import Categorical
from podium.ops.shape import per_member

CALM = 0.98
"""Share of the greatest entropy that is aimed at where `target_entropy` is null."""


class DiscreteSACSettings(SoftSettings):
    """`algo.*` for discrete SAC."""

    name: Importable = "sac-discrete"

    def check(self, spec: Spec) -> None:
        self.needs_discrete(spec)
        super().check(spec)


class DiscreteSAC(SoftActorCritic):
    """A stack of discrete SAC agents."""

    Settings = DiscreteSACSettings

    def __init__(
        self,
        spec: Spec,
        settings: DiscreteSACSettings,
        net: NetSettings,
        genes: dict[str, Tensor],
        streams: Streams,
        critic: CriticSettings,
    ) -> None:
        super().__init__(spec, settings, genes, images=True)
        self._mask = Mask(spec.obs)
        self._dist = Categorical(int(spec.action.n))  # type: ignore[attr-defined]
        actions, agent = self._dist.size, streams.agent
        self._build(agent, net, critic, actions, self.size, actions)
        self._noise = Block(lambda: self._dist.noise(agent, ahead(spec.envs * actions), spec.envs).to(spec.device))
        self.blocks["act"] = self._noise

    @torch.no_grad()
    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> actions `[M, E]`, sampled (at random while warming up), or the most likely ones."""
        logits = self._logits(self.inputs(obs))
        if not explore:
            return {"action": self._dist.mode((logits,))}, carry
        logits = self._mask(logits.masked_fill(self.cold(logits), 0), self.inputs(obs))
        return {"action": self._dist.sample((logits,), self._noise.next())}, carry

    @torch.no_grad()
    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        logits = self._logits(self.inputs(obs))
        return {"action": self._dist.mode((logits,)), "logits": logits}

    def _logits(self, seen: Tensor) -> Tensor:
        return self._mask(self.policy(seen)[:, 0], seen)

    def _target(self, batch: Batch, alpha: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        obs = self.inputs(batch["next_obs"])
        logp = self._logits(obs).log_softmax(-1)
        q = self.critics.bootstrap(self.critics.next_values(obs))
        soft = (logp.exp() * (q - per_member(alpha, logp) * logp)).sum(-1)
        return torch.addcmul(self.reward(batch), batch["decay"], soft)

    def _fit(self, obs: Tensor, y: Tensor, batch: Batch, genes: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return self.critics.fit(obs, y, batch, genes, 0.5, batch["action"])

    def _improve(
        self,
        obs: Tensor,
        q: Tensor,
        noise: tuple[Tensor, ...],
        alpha: Tensor,
        genes: dict[str, Tensor],
        due: Tensor | None,
    ) -> dict[str, Tensor]:
        """By the logits, J = Σ π f has the gradient π (f - J)."""
        logits, pull = self.policy.vjp(obs)
        logp = self._mask(logits[:, 0], obs).log_softmax(-1)
        p = logp.exp()
        f = per_member(alpha, logp) * logp - ensemble.combine(q, self.critics.settings.policy)
        cost = (p * f).sum(-1, keepdim=True)
        pull((p * (f - cost) / p.shape[1]).unsqueeze(1))
        self.policy_adam.step(policy_rate(genes), due)
        entropy = -(p * logp).sum(-1).mean(1)
        self.temperature.step(entropy, CALM * self._mask.most(self._dist.size, obs), genes, due)
        return {"policy": cost[..., 0].mean(1), "entropy": entropy}
