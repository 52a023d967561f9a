"""Deep Q-networks (Mnih et al. 2015) and what Rainbow (Hessel et al. 2018) adds to them, M members at once.

    y = r + γ max_a Q'(s', a),    double: Q'(s', argmax_a Q(s', a))
    min  E[Huber(Q(s, a) - y)],   distributional: the distance of distributions in place of numbers

Double, dueling, n-step, distributional (C51, QR), noisy networks and prioritised replay are options. A member explores
by epsilon, which falls, or by the noise of its networks.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.off_policy import OffPolicy, OffPolicySettings, ahead
from podium.core import streams as random
from podium.core.errors import ConfigError
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.nets.critics import Critics, CriticSettings
from podium.nets.encoder import Mask
from podium.nets.noisy import factors
from podium.nets.settings import NetSettings
from podium.nets.towers import Towers
from podium.ops import ensemble
from podium.ops.shape import per_member
from podium.ops.value_heads import Atoms, Head, Quantiles, Scalar


class DQNSettings(OffPolicySettings):
    """`algo.*` for DQN."""

    name: Importable = "dqn"
    lr: GeneValue = gene(1e-3, 1e-6, 1.0, search=(1e-5, 1e-2))
    max_norm: GeneValue = gene(10.0, 0.01, 100.0, optional=True)
    epsilon: GeneValue = gene(1.0, 0.0, 1.0, "linear", most=1)
    epsilon_end: GeneValue = gene(0.05, 0.0, 1.0, "linear", most=1, search=(0.01, 0.2))
    epsilon_steps: GeneValue = gene(10_000, 1.0, 1e7, least=1)

    updates: float = Field(0.25, gt=0, le=1000, description="updates per stored step; replay.ratio takes its place")
    batch: int = Field(64, ge=1, description="what an update learns from, drawn from the replay")
    target_every: int = Field(1, ge=1, description="updates between two of the targets")
    double: bool = Field(False, description="the online critic chooses the action that the target values")
    dueling: bool = Field(False, description="a value and an advantage for each action in place of action values")
    distribution: Literal["none", "c51", "qr"] = Field("none", description="of returns: atoms (c51), quantiles (qr)")
    atoms: int = Field(51, ge=2, description="of the distribution")
    low: float = Field(-10.0, description="the least return that c51 knows")
    high: float = Field(10.0, description="the greatest return that c51 knows")
    noisy: bool = Field(False, description="explore by noise on the weights, whose size is learnt, in place of epsilon")
    noisy_sigma: float = Field(0.5, gt=0, description="that noise to begin with, for layers of one input")

    def dead(self, prioritised: bool, styled: bool) -> dict[str, str]:
        exploring = dict.fromkeys(("epsilon", "epsilon_end", "epsilon_steps"), "algo.noisy=false") if self.noisy else {}
        return super().dead(prioritised, styled) | exploring

    def check(self, spec: Spec) -> None:
        self.needs_discrete(spec)
        if self.low >= self.high:
            raise ConfigError("algo.low", self.low, f"less than algo.high, {self.high:g}")


def _head(settings: DQNSettings, device: torch.device) -> Head:
    if settings.distribution == "c51":
        return Atoms(settings.atoms, settings.low, settings.high, device)
    return Quantiles(settings.atoms, device) if settings.distribution == "qr" else Scalar()


class DQN(OffPolicy):
    """A stack of DQN agents."""

    Settings = DQNSettings
    settings: DQNSettings

    def __init__(
        self,
        spec: Spec,
        settings: DQNSettings,
        net: NetSettings,
        genes: dict[str, Tensor],
        streams: Streams,
        critic: CriticSettings,
    ) -> None:
        super().__init__(spec, settings, genes, images=True)
        self._mask = Mask(spec.obs)
        self._actions, agent = int(spec.action.n), streams.agent  # type: ignore[attr-defined]
        self._head = _head(settings, spec.device)
        outputs = (self._actions + settings.dueling) * self._head.atoms
        sigma = settings.noisy_sigma if settings.noisy else None
        self.critics = Critics(agent, net, critic, self.size, outputs, spec.device, spec.obs, sigma)
        self._dice = Block(lambda: random.uniform(agent, ahead(2 * spec.envs), 2, spec.envs).to(spec.device))
        self.blocks = {"act": self._dice, "subset": self.critics.drawn}
        if settings.noisy:
            size = critic.count, self.critics.online.noisy.numbers
            self.blocks["noise"] = Block(lambda: factors(agent, ahead(size[0] * size[1]), *size).to(spec.device))

    @torch.no_grad()
    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> actions `[M, E]`, with epsilon or noise to explore, or greedy."""
        seen = self.inputs(obs)
        self._perturb(self.critics.online, explore)
        greedy = self._values(seen).argmax(-1)
        if not explore:
            return {"action": greedy}, carry
        chance, which = self._dice.next().unbind(1)
        anyone = self._mask.choose(which, self._actions, seen)
        return {"action": torch.where(chance < per_member(self._epsilon(), chance), anyone, greedy)}, carry

    def _perturb(self, net: Towers, noisy: bool = True) -> None:
        """Draw new noise for noisy networks, or take it away."""
        if self.settings.noisy:
            net.noisy.perturb(self.blocks["noise"].next() if noisy else None)

    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        self._perturb(self.critics.online, noisy=False)
        values = self._values(self.inputs(obs))
        return {"action": values.argmax(-1), "values": values}

    def _values(self, seen: Tensor) -> Tensor:
        """`[M, E, A]`"""
        q = self._head.mean(self._returns(self.critics.online(seen)))
        return self._mask(ensemble.combine(q, self.critics.settings.policy), seen)

    def _epsilon(self) -> Tensor:
        """How often each member acts at random now, `[M]`: always while warming up, then along its schedule."""
        acted, genes = self.acted, self.genes
        if self.settings.noisy:
            return self.cold(acted).float()
        left = (1 - acted / genes["epsilon_steps"]).clamp_(min=0)
        epsilon = genes["epsilon_end"] + left * (genes["epsilon"] - genes["epsilon_end"])
        return torch.where(acted < self.settings.warmup, 1.0, epsilon)

    def _returns(self, out: Tensor) -> Tensor:
        """What the networks put out, `[M, K, B, ...]`, as returns of each action, `[M, K, B, A, Z]`."""
        each: Tensor = out.unflatten(-1, (-1, self._head.atoms))
        if not self.settings.dueling:
            return each
        value, advantage = each[..., :1, :], each[..., 1:, :]
        return value + advantage - advantage.mean(-2, keepdim=True)

    def _pull_returns(self, g: Tensor) -> Tensor:
        """The gradient of `_returns`, `[M, K, B, A, Z]` -> `[M, K, B, ...]`."""
        if self.settings.dueling:
            value = g.sum(-2, keepdim=True)
            g = torch.cat([value, g - value / self._actions], -2)
        return g.flatten(-2)

    def update(self, batch: Batch, genes: dict[str, Tensor]) -> dict[str, Tensor]:
        active, target = batch.get("active"), self._target(batch)
        self._perturb(self.critics.online)
        out, pull = self.critics.online.vjp(self.inputs(batch["obs"]))
        returns = self._returns(out)
        chosen = batch["action"][:, None, :, None, None]
        x = torch.take_along_dim(returns, chosen, -2).squeeze(-2)
        loss, g = self._head.loss(x, target)
        weighted = batch["weight"].unsqueeze(1) if "weight" in batch else None
        if weighted is not None:
            g = g * weighted.unsqueeze(-1)
        g = torch.zeros_like(returns).scatter_(-2, chosen.expand_as(x.unsqueeze(-2)), g.div(x.shape[2]).unsqueeze(-2))
        pull(self._pull_returns(g))
        self.critics.step(genes, active)
        self._follow(genes["tau"], active)
        total = (loss if weighted is None else loss * weighted).sum(1).mean(1)
        error = (self._head.mean(x) - target[..., 0].unsqueeze(1)).abs() if self._head.atoms == 1 else loss
        value = self._head.mean(x).mean((1, 2))
        return {"critic": total, "value": value, "epsilon": self._epsilon(), "error": error.mean(1)}

    def _follow(self, tau: Tensor, active: Tensor | None) -> None:
        due = self.updates % self.settings.target_every == 0
        due = due if active is None else due & active
        if bool(due.any()):
            self.critics.follow(tau, due)

    def _target(self, batch: Batch) -> Tensor:
        """What the returns of the actions in the batch should be, `[M, B, Z]`."""
        obs, critics, head = self.inputs(batch["next_obs"]), self.critics, self._head
        self._perturb(critics.target)
        after = self._returns(critics.next_values(obs))
        if self.settings.double:
            self._perturb(critics.online)
            values = self._values(obs)
        else:
            values = self._mask(critics.bootstrap(head.mean(after)), obs)
        best = values.argmax(-1)[:, None, :, None, None]
        x = head.combine(torch.take_along_dim(after, best, -2).squeeze(-2), critics.how)
        return head.backup(x, self.reward(batch), batch["decay"])
