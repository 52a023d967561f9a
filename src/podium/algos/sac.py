"""Soft actor-critic (Haarnoja et al. 2018, with the learnt temperature of 1812.05905), M members at once.

y = r + γ (min_k Q'_k(s', a') - α log π(a'|s')),    a' ~ π(.|s')
critics  min  E[½ Σ_k (Q_k(s, a) - y)²]
policy   min  E[α log π(a|s) - min_k Q_k(s, a)],    a ~ π(.|s), reparameterised
α        min  -log α E[log π(a|s) + H]
"""

from __future__ import annotations

import torch
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.off_policy import Bounds, ahead, policy_rate, uniform_of
from podium.algos.soft import SoftActorCritic, SoftSettings
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.nets.critics import CriticSettings
from podium.nets.settings import NetSettings
from podium.ops.dist import TanhNormal
from podium.ops.shape import per_member


class SACSettings(SoftSettings):
    """`algo.*` for SAC."""

    name: Importable = "sac"

    def check(self, spec: Spec) -> None:
        self.needs_box(spec)
        super().check(spec)


class SAC(SoftActorCritic):
    """A stack of SAC agents."""

    Settings: type[SACSettings] = SACSettings

    def __init__(
        self,
        spec: Spec,
        settings: SACSettings,
        net: NetSettings,
        genes: dict[str, Tensor],
        streams: Streams,
        critic: CriticSettings,
    ) -> None:
        super().__init__(spec, settings, genes)
        self._bounds = Bounds(spec.action, spec.device)  # type: ignore[arg-type]
        actions, agent, batch = self._bounds.size, streams.agent, settings.batch
        self._dist = TanhNormal(actions)
        self._build(agent, net, critic, self._dist.size, self.size + actions, 1)
        draws = self._dist.noise
        self._noise = Block(lambda: draws(agent, ahead(spec.envs * actions), spec.envs).to(spec.device))
        self._pairs = Block(lambda: draws(agent, ahead(2 * batch * actions), 2, batch).to(spec.device))
        self.blocks |= {"act": self._noise, "learn": self._pairs}

    @torch.no_grad()
    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> actions `[M, E, A]`: sampled (at random while warming up), or the most likely ones."""
        params = (self.policy(self.inputs(obs))[:, 0],)
        if not explore:
            return {"action": self._bounds.to_env(self._dist.mode(params))}, carry
        noise = self._noise.next()
        unit = self._dist.sample(params, noise)
        unit = torch.where(self.cold(unit), uniform_of(noise), unit)
        return {"action": self._bounds.to_env(unit), "unit": unit}, carry

    @torch.no_grad()
    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        """The most likely `action`, which is the `mean`, and the `std` of actions close to it, in the env's units."""
        params = (self.policy(self.inputs(obs))[:, 0],)
        action = self._bounds.to_env(self._dist.mode(params))
        return {"action": action, "mean": action, "std": self._bounds.half * self._dist.spread(params)}

    def _draw(self) -> tuple[Tensor, ...]:
        return self._pairs.next().unbind(1)

    def _target(self, batch: Batch, alpha: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        obs = self.inputs(batch["next_obs"])
        action, logp = self._dist.sample_log_prob((self.policy(obs)[:, 0],), noise[0])
        q = self.critics.next_values(torch.cat([obs, action], -1))[..., 0]
        soft = self.critics.bootstrap(q) - per_member(alpha, logp) * logp
        return torch.addcmul(self.reward(batch), batch["decay"], soft)

    def _fit(self, obs: Tensor, y: Tensor, batch: Batch, genes: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return self.critics.fit(self.obs_action(obs, batch), y, batch, genes, scale=0.5)

    def _improve(
        self,
        obs: Tensor,
        q: Tensor,
        noise: tuple[Tensor, ...],
        alpha: Tensor,
        genes: dict[str, Tensor],
        due: Tensor | None,
    ) -> dict[str, Tensor]:
        params, pull = self.policy.vjp(obs)
        action, logp, pull_params = self._dist.sample_vjp((params[:, 0],), noise[1])
        q, pull_q = self.critics.follow_up(torch.cat([obs, action], -1))
        loss = (per_member(alpha, logp) * logp - q).mean(1)
        size = q.shape[1]
        g_action = pull_q(torch.full_like(q, -1 / size))[..., obs.shape[-1] :]
        (g,) = pull_params(g_action, per_member(alpha / size, logp).expand_as(logp))
        pull(g.unsqueeze(1))
        self.policy_adam.step(policy_rate(genes), due)
        entropy = -logp.mean(1)
        self.temperature.step(entropy, -float(action.shape[-1]), genes, due)
        return {"policy": loss, "entropy": entropy}
