"""Twin delayed DDPG (Fujimoto et al. 2018): DDPG with three changes, M members at once.

    y = r + γ min_k Q'_k(s', clip(π'(s') + ε)),    ε ~ clip(N(0, σ'), -c, c)

The least of two critics, a target action that is smoothed by clipped noise, and a policy (with all targets) that is
updated once in `delay` updates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from podium.algos.ddpg import DDPG, DDPGSettings
from podium.algos.off_policy import ahead
from podium.core import streams as random
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.nets.critics import CriticSettings
from podium.nets.settings import NetSettings
from podium.ops.shape import per_member


class TD3Settings(DDPGSettings):
    """`algo.*` for TD3."""

    name: Importable = "td3"
    target_noise: GeneValue = gene(0.2, 0.0, 1.0, search=(0.05, 0.5))
    target_clip: GeneValue = gene(0.5, 0.0, 2.0)
    delay: GeneValue = gene(2, 1, 8, "int", least=1)


class TD3(DDPG):
    """A stack of TD3 agents."""

    Settings = TD3Settings

    def __init__(
        self,
        spec: Spec,
        settings: TD3Settings,
        net: NetSettings,
        genes: dict[str, Tensor],
        streams: Streams,
        critic: CriticSettings,
    ) -> None:
        super().__init__(spec, settings, net, genes, streams, critic)
        size, agent = (settings.batch, self._bounds.size), streams.agent
        self._smoothing = Block(lambda: random.normal(agent, ahead(size[0] * size[1]), *size).to(spec.device))
        self.blocks["smoothing"] = self._smoothing

    def _next_action(self, obs: Tensor) -> Tensor:
        action = super()._next_action(obs)
        noise = self._smoothing.next() * per_member(self.genes["target_noise"], action)
        limit = per_member(self.genes["target_clip"], action)
        return torch.clamp(noise, -limit, limit).add_(action).clamp_(-1, 1)
