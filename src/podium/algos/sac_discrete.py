"""Soft actor-critic for one of n actions (Christodoulou 2019), M members at once.

    V(s) = Σ_a π(a|s) (min_k Q'_k(s, a) - α log π(a|s)),    y = r + γ V(s')
    critics  min  E[½ Σ_k (Q_k(s, a) - y)²]
    policy   min  E[Σ_a π(a|s) (α log π(a|s) - min_k Q_k(s, a))]
    α        min  log α E[H(π(.|s)) - H]

Expectations over the actions are sums, so nothing is sampled but the actions that are taken.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.off_policy import OffPolicy, ahead, current, policy_rate
from podium.algos.sac import SACSettings
from podium.algos.temperature import Temperature
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.nets.critics import Critics, CriticSettings
from podium.nets.optim import Adam
from podium.nets.policy_critic import NetSettings
from podium.nets.towers import Towers
from podium.ops import ensemble
from podium.ops.dist import Categorical
from podium.ops.shape import per_member

CALM = 0.98
"""Share of the greatest entropy that is aimed at where `target_entropy` is null."""


class DiscreteSACSettings(SACSettings):
    """`algo.*` for discrete SAC."""

    name: Importable = "sac-discrete"

    def check(self, spec: Spec) -> None:
        self.needs_discrete(spec)
        self.check_temperature()


class DiscreteSAC:
    """A stack of discrete SAC agents."""

    Settings = DiscreteSACSettings
    needs: Literal["replay"] = "replay"

    def __init__(
        self,
        spec: Spec,
        settings: DiscreteSACSettings,
        net: NetSettings,
        genes: dict[str, Tensor],
        streams: Streams,
        critic: CriticSettings,
    ) -> None:
        self.settings, self.genes, self.core = settings, genes, OffPolicy(spec)
        self._dist = Categorical(int(spec.action.n))  # type: ignore[attr-defined]
        actions, agent = self._dist.size, streams.agent
        self.policy = Towers(agent, net, self.core.size, actions, device=spec.device)
        self.critics = Critics(agent, net, critic, self.core.size, actions, spec.device)
        self.policy_adam = Adam(self.policy.params)
        self.temperature = Temperature(genes, settings.learn_temperature)
        self._noise = Block(lambda: self._dist.noise(agent, ahead(spec.envs * actions), spec.envs).to(spec.device))
        self.core.blocks = {"act": self._noise, "subset": self.critics.drawn}

    @torch.no_grad()
    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> actions `[M, E]`, sampled (at random while warming up), or the most likely ones."""
        logits = self.policy(self.core.inputs(obs))[:, 0]
        if not explore:
            return {"action": self._dist.mode((logits,))}, carry
        cold = per_member(self.core.acted < self.settings.warmup, logits)
        return {"action": self._dist.sample((logits.masked_fill(cold, 0),), self._noise.next())}, carry

    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        logits = self.policy(self.core.inputs(obs))[:, 0]
        return {"action": self._dist.mode((logits,)), "logits": logits}

    def learn(self, batch: Batch, remaining: Tensor | None = None) -> dict[str, Tensor]:
        with torch.inference_mode(not self.policy.autograd):
            return self._learn(batch, current(self.genes, self.settings.anneal, remaining))

    def _learn(self, batch: Batch, genes: dict[str, Tensor]) -> dict[str, Tensor]:
        core, active = self.core, batch.get("active")
        alpha = self.temperature.now(genes)
        obs, y = core.inputs(batch["obs"]), self._target(batch, alpha)
        critic, error, q = self._fit(obs, y, batch, genes)
        core.updates += 1 if active is None else active
        metrics = {"critic": critic, "value": y.mean(1), "temperature": alpha, "error": error}
        due = core.due(genes["delay"], active)
        if due is None or bool(due.any()):
            metrics |= self._improve(obs, q, alpha, genes, due)
        self.critics.follow(genes["tau"] if active is None else genes["tau"] * active)
        return metrics

    def _target(self, batch: Batch, alpha: Tensor) -> Tensor:
        """y of every sample, `[M, B]`."""
        obs = self.core.inputs(batch["next_obs"])
        logp = self.policy(obs)[:, 0].log_softmax(-1)
        q = self.critics.bootstrap(self.critics.next_values(obs))
        soft = (logp.exp() * (q - per_member(alpha, logp) * logp)).sum(-1)
        return torch.addcmul(self.core.reward(batch), batch["decay"], soft)

    def _fit(self, obs: Tensor, y: Tensor, batch: Batch, genes: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """One update of the critics; their loss `[M]`, how far off they were, `[M, B]`, and their values before."""
        q, pull = self.critics.online.vjp(obs)
        chosen = batch["action"][:, None, :, None].expand(-1, q.shape[1], -1, -1)
        error = q.gather(-1, chosen)[..., 0] - y.unsqueeze(1)
        g = error * batch["weight"].unsqueeze(1) if "weight" in batch else error
        pull(torch.zeros_like(q).scatter_(-1, chosen, (g / y.shape[1]).unsqueeze(-1)))
        self.critics.step(genes, batch.get("active"))
        return 0.5 * (g * error).sum(1).mean(1), error.abs().mean(1), q

    def _improve(
        self, obs: Tensor, q: Tensor, alpha: Tensor, genes: dict[str, Tensor], due: Tensor | None
    ) -> dict[str, Tensor]:
        """One update of policy and temperature. By the logits J = Σ π f has the gradient π (f - J)."""
        logits, pull = self.policy.vjp(obs)
        logp = logits[:, 0].log_softmax(-1)
        p = logp.exp()
        f = per_member(alpha, logp) * logp - ensemble.combine(q, self.critics.settings.policy)
        cost = (p * f).sum(-1, keepdim=True)
        pull((p * (f - cost) / p.shape[1]).unsqueeze(1))
        self.policy_adam.step(policy_rate(genes), due)
        entropy = -(p * logp).sum(-1).mean(1)
        self.temperature.step(entropy, CALM * math.log(self._dist.size), genes, due)
        return {"policy": cost[..., 0].mean(1), "entropy": entropy}

    def finite(self) -> Tensor:
        """Which members' weights are all finite, `[M]`."""
        return self.policy.finite() & self.critics.online.finite() & self.temperature.finite()

    def learnt(self) -> Tree:
        return {
            "policy": self.policy.state(),
            "policy_adam": self.policy_adam.state(),
            "genes": self.genes,
            **self.temperature.learnt(),
            **self.critics.learnt(),
            **self.core.learnt(),
        }

    def slot(self) -> Tree:
        return self.core.slot()

    def restart(self) -> None:
        self.core.restart()
