"""What SAC for numbers and SAC for choices have in common: a policy that is paid for its entropy.

y = r + γ V(s')
critics  min  E[½ Σ_k (Q_k(s, a) - y)²]
α        min  log α E[H(π(.|s)) - H]
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.off_policy import OffPolicy, OffPolicySettings
from podium.algos.temperature import Temperature
from podium.core.errors import ConfigError
from podium.core.hyper import GeneValue, gene
from podium.core.spec import Spec
from podium.core.streams import Generators
from podium.core.tree import Tree
from podium.nets.critics import Critics, CriticSettings
from podium.nets.optim import Adam
from podium.nets.settings import NetSettings
from podium.nets.towers import Towers

LEAST = 1e-30
"""Of a temperature that is learnt: its logarithm has to be a number."""


class SoftSettings(OffPolicySettings):
    """`algo.*` of every SAC."""

    policy_lr: GeneValue = gene(None, 1e-6, 1.0, optional=True)
    temperature: GeneValue = gene(1.0, 1e-4, 10.0)
    target_entropy: GeneValue = gene(None, -100.0, 10.0, "linear", least=-1e6, optional=True)
    delay: GeneValue = gene(1, 1, 32, "int", least=1)
    learn_temperature: bool = Field(True, description="else `temperature` stays as it is; if so, members begin with it")

    def dead(self, prioritised: bool, styled: bool) -> dict[str, str]:
        fixed = {} if self.learn_temperature else {"target_entropy": "algo.learn_temperature=true"}
        return super().dead(prioritised, styled) | fixed

    def check(self, spec: Spec) -> None:
        given: Any = self.temperature["each"] if isinstance(self.temperature, dict) else self.temperature
        if self.learn_temperature and min(given if isinstance(given, list) else [given]) < LEAST:
            raise ConfigError("algo.temperature", self.temperature, "more than 0, or algo.learn_temperature=false")


class SoftActorCritic(OffPolicy):
    """A policy, its critics and its temperature; what is expected over actions is each algorithm's own."""

    settings: SoftSettings

    def __init__(self, spec: Spec, settings: SoftSettings, genes: dict[str, Tensor], images: bool = False) -> None:
        super().__init__(spec, settings, genes, images)
        self._space = spec.obs if images else None
        self.temperature = Temperature(genes, settings.learn_temperature)

    def _build(
        self, agent: Generators, net: NetSettings, critic: CriticSettings, n_policy: int, n_in: int, n_out: int
    ) -> None:
        device = self.acted.device
        self.policy = Towers(agent, net, self.size, n_policy, device=device, space=self._space)
        self.critics = Critics(agent, net, critic, n_in, n_out, device, self._space)
        self.policy_adam = Adam(self.policy.params)
        self.blocks["subset"] = self.critics.drawn

    def update(self, batch: Batch, genes: dict[str, Tensor]) -> dict[str, Tensor]:
        active, alpha = batch.get("active"), self.temperature.now(genes)
        noise = self._draw()
        obs, y = self.inputs(batch["obs"]), self._target(batch, alpha, noise)
        critic, error, q = self._fit(obs, y, batch, genes)
        metrics = {"critic": critic, "value": y.mean(1), "temperature": alpha, "error": error}
        due = self.due(genes["delay"], active)
        if due is None or bool(due.any()):
            metrics |= self._improve(obs, q, noise, alpha, genes, due)
        self.critics.follow(genes["tau"], active)
        return metrics

    def _draw(self) -> tuple[Tensor, ...]:
        """Noise of an update, of target and of policy, whoever's policy is due: so members draw the same apart."""
        return ()

    def _target(self, batch: Batch, alpha: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        """y of every sample, `[M, B]`."""
        raise NotImplementedError

    def _fit(self, obs: Tensor, y: Tensor, batch: Batch, genes: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """One update of the critics, as `Critics.fit` gives it."""
        raise NotImplementedError

    def _improve(
        self,
        obs: Tensor,
        q: Tensor,
        noise: tuple[Tensor, ...],
        alpha: Tensor,
        genes: dict[str, Tensor],
        due: Tensor | None,
    ) -> dict[str, Tensor]:
        """One update of policy and temperature; `q` is what the critics said before theirs."""
        raise NotImplementedError

    def finite(self) -> Tensor:
        return super().finite() & self.policy.finite() & self.temperature.finite()

    def learnt(self) -> Tree:
        own = {"policy": self.policy.state(), "policy_adam": self.policy_adam.state()}
        return super().learnt() | own | self.temperature.learnt()
