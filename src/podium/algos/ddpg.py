"""Deep deterministic policy gradient (Lillicrap et al. 2016), M members at once.

    y = r + γ Q'(s', π'(s'))
    critics  min  E[Σ_k (Q_k(s, a) - y)²]
    policy   max  E[Q(s, π(s))]

To explore, Gaussian noise or an Ornstein-Uhlenbeck process is added to the action.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.off_policy import Bounds, OffPolicy, OffPolicySettings, ahead, policy_rate, uniform_of
from podium.core import streams as random
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.nets.critics import Critics, CriticSettings
from podium.nets.optim import Adam
from podium.nets.settings import NetSettings
from podium.nets.towers import Towers
from podium.ops.grad import polyak
from podium.ops.shape import per_member

OU_PULL, OU_TIME = 0.15, 0.01
"""θ and dt of the Ornstein-Uhlenbeck process."""


class DDPGSettings(OffPolicySettings):
    """`algo.*` for DDPG."""

    name: Importable = "ddpg"
    lr: GeneValue = gene(1e-3, 1e-6, 1.0, search=(1e-5, 1e-2))
    policy_lr: GeneValue = gene(None, 1e-6, 1.0, optional=True)
    noise: GeneValue = gene(0.1, 0.0, 2.0, search=(0.02, 0.6))
    process: Literal["gaussian", "ou"] = Field("gaussian", description="of the noise: independent, or one that lingers")

    def check(self, spec: Spec) -> None:
        self.needs_box(spec)


class DDPG(OffPolicy):
    """A stack of DDPG agents."""

    Settings: type[DDPGSettings] = DDPGSettings
    settings: DDPGSettings

    def __init__(
        self,
        spec: Spec,
        settings: DDPGSettings,
        net: NetSettings,
        genes: dict[str, Tensor],
        streams: Streams,
        critic: CriticSettings,
    ) -> None:
        super().__init__(spec, settings, genes)
        self._bounds = Bounds(spec.action, spec.device)  # type: ignore[arg-type]
        actions, agent = self._bounds.size, streams.agent
        self.policy = Towers(agent, net, self.size, actions, device=spec.device)
        self.policy_target = self.policy.twin()
        self.policy_adam = Adam(self.policy.params)
        self.critics = Critics(agent, net, critic, self.size + actions, device=spec.device)
        count = ahead(spec.envs * actions)
        self._noise = Block(lambda: random.normal(agent, count, spec.envs, actions).to(spec.device))
        self.blocks = {"act": self._noise, "subset": self.critics.drawn}

    @torch.no_grad()
    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> actions `[M, E, A]`, with noise (at random while warming up) or without."""
        unit = self.policy(self.inputs(obs))[:, 0].tanh()
        if not explore:
            return {"action": self._bounds.to_env(unit)}, carry
        drawn = self._noise.next()
        spread = per_member(self.genes["noise"], unit)
        if self.settings.process == "ou":
            before = carry.get("noise", torch.zeros_like(unit))
            noise = before * (1 - OU_PULL * OU_TIME) + spread * math.sqrt(OU_TIME) * drawn
            carry = {"noise": noise}
        else:
            noise = spread * drawn
        unit = (unit + noise).clamp_(-1, 1)
        unit = torch.where(self.cold(unit), uniform_of(drawn), unit)
        return {"action": self._bounds.to_env(unit), "unit": unit}, carry

    def update(self, batch: Batch, genes: dict[str, Tensor]) -> dict[str, Tensor]:
        active = batch.get("active")
        obs, y = self.inputs(batch["obs"]), self._target(batch)
        critic, error, _ = self.critics.fit(self.obs_action(obs, batch), y, batch, genes, scale=1.0)
        metrics = {"critic": critic, "value": y.mean(1), "error": error}
        due = self.due(genes["delay"], active) if "delay" in genes else active
        if due is None or bool(due.any()):
            metrics["policy"] = self._improve(obs, genes, due)
            self.critics.follow(genes["tau"], due)
            polyak(self.policy_target.params, self.policy.params, genes["tau"], due)
        return metrics

    def _next_action(self, obs: Tensor) -> Tensor:
        return self.policy_target(obs)[:, 0].tanh()

    def _target(self, batch: Batch) -> Tensor:
        """y of every sample, `[M, B]`."""
        obs = self.inputs(batch["next_obs"])
        q = self.critics.next_values(torch.cat([obs, self._next_action(obs)], -1))[..., 0]
        return torch.addcmul(self.reward(batch), batch["decay"], self.critics.bootstrap(q))

    def _improve(self, obs: Tensor, genes: dict[str, Tensor], active: Tensor | None) -> Tensor:
        """One update of the policy; its loss `[M]`."""
        raw, pull = self.policy.vjp(obs)
        action = raw[:, 0].tanh()
        q, pull_q = self.critics.follow_up(torch.cat([obs, action], -1))
        g = pull_q(torch.full_like(q, -1 / q.shape[1]))[..., obs.shape[-1] :]
        pull(torch.ops.aten.tanh_backward(g, action).unsqueeze(1))
        self.policy_adam.step(policy_rate(genes), active)
        return -q.mean(1)

    def finite(self) -> Tensor:
        return super().finite() & self.policy.finite()

    def learnt(self) -> Tree:
        policy = {"policy": self.policy.state(), "policy_target": self.policy_target.state()}
        return super().learnt() | policy | {"policy_adam": self.policy_adam.state()}
