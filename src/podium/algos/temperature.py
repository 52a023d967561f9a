"""SAC's temperature α, which weighs the entropy of a policy against its returns; one a member."""

from __future__ import annotations

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.nets.optim import Adam


class Temperature:
    """Learnt, so that the entropy comes to what is wanted, or fixed at the gene `temperature`."""

    def __init__(self, genes: dict[str, Tensor], learn: bool) -> None:
        self._learn = learn
        self.log = genes["temperature"].log().clone()
        self._adam = Adam([self.log])

    def now(self, genes: dict[str, Tensor]) -> Tensor:
        """α, `[M]`."""
        return self.log.exp() if self._learn else genes["temperature"]

    def step(self, entropy: Tensor, default: float | Tensor, genes: dict[str, Tensor], active: Tensor | None) -> None:
        """min  log α (H(π) - H),  with H the gene `target_entropy`, or `default` where that is off."""
        if self._learn:
            wanted = genes["target_entropy"]
            self.log.grad = entropy - torch.where(wanted.isinf(), default, wanted)
            self._adam.step(genes["lr"], active)

    def finite(self) -> Tensor:
        """Whose is finite, `[M]`; where it is fixed, the logarithm is not used, and 0 is as good as any other."""
        return self.log.isfinite() if self._learn else torch.ones_like(self.log, dtype=torch.bool)

    def learnt(self) -> Tree:
        return {"log_temperature": self.log, "temperature_adam": self._adam.state()}
