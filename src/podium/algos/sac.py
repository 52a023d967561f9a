"""Soft actor-critic (Haarnoja et al. 2018, with the learnt temperature of 1812.05905), M members at once.

y = r + γ (min_k Q'_k(s', a') - α log π(a'|s')),    a' ~ π(.|s')
critics  min  E[½ Σ_k (Q_k(s, a) - y)²]
policy   min  E[α log π(a|s) - min_k Q_k(s, a)],    a ~ π(.|s), reparameterised
α        min  -log α E[log π(a|s) + H]
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.off_policy import Bounds, OffPolicy, OffPolicySettings, ahead, current, policy_rate, uniform_of
from podium.algos.temperature import Temperature
from podium.core.errors import ConfigError
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.nets.critics import Critics, CriticSettings
from podium.nets.optim import Adam
from podium.nets.policy_critic import NetSettings
from podium.nets.towers import Towers
from podium.ops.dist import TanhNormal
from podium.ops.shape import per_member


class SACSettings(OffPolicySettings):
    """`algo.*` for SAC."""

    name: Importable = "sac"
    policy_lr: GeneValue = gene(None, 1e-6, 1.0, optional=True)
    temperature: GeneValue = gene(1.0, 1e-4, 10.0)
    target_entropy: GeneValue = gene(None, -100.0, 10.0, "linear", least=-1e6, optional=True)
    delay: GeneValue = gene(1, 1, 32, "int", least=1)
    learn_temperature: bool = Field(True, description="else `temperature` stays as it is; if so, members begin with it")

    def check(self, spec: Spec) -> None:
        self.needs_box(spec)
        self.check_temperature()

    def check_temperature(self) -> None:
        values = self.temperature["each"] if isinstance(self.temperature, dict) else [self.temperature]
        if self.learn_temperature and 0 in values:
            raise ConfigError("algo.temperature", self.temperature, "more than 0, or algo.learn_temperature=false")


class SAC:
    """A stack of SAC agents."""

    Settings = SACSettings
    needs: Literal["replay"] = "replay"

    def __init__(
        self,
        spec: Spec,
        settings: SACSettings,
        net: NetSettings,
        genes: dict[str, Tensor],
        streams: Streams,
        critic: CriticSettings,
    ) -> None:
        self.settings, self.genes, self.core = settings, genes, OffPolicy(spec)
        self._bounds = Bounds(spec.action, spec.device)  # type: ignore[arg-type]
        actions, agent, batch = self._bounds.size, streams.agent, settings.batch
        self._dist = TanhNormal(actions)
        self.policy = Towers(agent, net, self.core.size, self._dist.size, device=spec.device)
        self.critics = Critics(agent, net, critic, self.core.size + actions, device=spec.device)
        self.policy_adam = Adam(self.policy.params)
        self.temperature = Temperature(genes, settings.learn_temperature)
        draws = self._dist.noise
        self._noise = Block(lambda: draws(agent, ahead(spec.envs * actions), spec.envs).to(spec.device))
        self._pairs = Block(lambda: draws(agent, ahead(2 * batch * actions), 2, batch).to(spec.device))
        self.core.blocks = {"act": self._noise, "learn": self._pairs, "subset": self.critics.drawn}

    @torch.no_grad()
    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> actions `[M, E, A]`: sampled (at random while warming up), or the most likely ones."""
        params = (self.policy(self.core.inputs(obs))[:, 0],)
        if not explore:
            return {"action": self._bounds.to_env(self._dist.mode(params))}, carry
        noise = self._noise.next()
        unit = self._dist.sample(params, noise)
        cold = per_member(self.core.acted < self.settings.warmup, unit)
        unit = torch.where(cold, uniform_of(noise), unit)
        return {"action": self._bounds.to_env(unit), "unit": unit}, carry

    @torch.no_grad()
    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        """The most likely `action`, which is the `mean`, and the `std` of actions close to it, in the env's units."""
        params = (self.policy(self.core.inputs(obs))[:, 0],)
        action = self._bounds.to_env(self._dist.mode(params))
        return {"action": action, "mean": action, "std": self._bounds.half * self._dist.spread(params)}

    def learn(self, batch: Batch, remaining: Tensor | None = None) -> dict[str, Tensor]:
        with torch.inference_mode(not self.policy.autograd):
            return self._learn(batch, current(self.genes, self.settings.anneal, remaining))

    def _learn(self, batch: Batch, genes: dict[str, Tensor]) -> dict[str, Tensor]:
        core, active = self.core, batch.get("active")
        obs, noise = core.inputs(batch["obs"]), self._pairs.next()
        alpha = self.temperature.now(genes)
        y = self._target(batch, alpha, noise[:, 0])
        critic, error = self.critics.fit(core.obs_action(obs, batch), y, batch, genes, scale=0.5)
        metrics = {"critic": critic, "value": y.mean(1), "temperature": alpha, "error": error}
        core.updates += 1 if active is None else active
        due = core.due(genes["delay"], active)
        if due is None or bool(due.any()):
            metrics |= self._improve(obs, noise[:, 1], alpha, genes, due)
        self.critics.follow(genes["tau"] if active is None else genes["tau"] * active)
        return metrics

    def _improve(
        self, obs: Tensor, noise: Tensor, alpha: Tensor, genes: dict[str, Tensor], due: Tensor | None
    ) -> dict[str, Tensor]:
        """One update of policy and temperature."""
        params, pull = self.policy.vjp(obs)
        action, logp, pull_params = self._dist.sample_vjp((params[:, 0],), noise)
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

    def _target(self, batch: Batch, alpha: Tensor, noise: Tensor) -> Tensor:
        """y of every sample, `[M, B]`."""
        obs = self.core.inputs(batch["next_obs"])
        action, logp = self._dist.sample_log_prob((self.policy(obs)[:, 0],), noise)
        q = self.critics.next_values(torch.cat([obs, action], -1))[..., 0]
        soft = self.critics.bootstrap(q) - per_member(alpha, logp) * logp
        return torch.addcmul(self.core.reward(batch), batch["decay"], soft)

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
