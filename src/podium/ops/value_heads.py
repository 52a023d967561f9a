"""What a value learner predicts of an action's return: a number, probabilities of atoms (C51), or quantiles (QR).

Every class has: `atoms` Z, the numbers that stand for one return; `mean(x)`, its expectation, `[..., Z]` -> `[...]`;
`combine(x, how)` of an ensemble, `[M, S, B, Z]` -> `[M, B, Z]`; `backup(x, reward, decay)`, what r + γ x comes to,
`[M, B, Z]`; `loss(x, target)` of predictions `[M, K, B, Z]`: the loss `[M, K, B]` and its gradient.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from podium.ops import ensemble
from podium.ops.ensemble import How


class Scalar:
    """The expected return itself, with Huber's loss."""

    atoms = 1

    def mean(self, x: Tensor) -> Tensor:
        return x[..., 0]

    def combine(self, x: Tensor, how: How) -> Tensor:
        return ensemble.combine(x, how)

    def backup(self, x: Tensor, reward: Tensor, decay: Tensor) -> Tensor:
        return torch.addcmul(reward, decay, x[..., 0]).unsqueeze(-1)

    def loss(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        error = x - target.unsqueeze(1)
        return _huber(error)[..., 0], error.clamp(-1, 1)


class Atoms:
    """Probabilities of Z returns from `low` to `high`, as logits (Bellemare et al. 2017)."""

    def __init__(self, atoms: int, low: float, high: float, device: torch.device | None = None) -> None:
        self.atoms, self._low, self._high = atoms, low, high
        self._support = torch.linspace(low, high, atoms, device=device)

    def mean(self, x: Tensor) -> Tensor:
        return x.softmax(-1) @ self._support

    def combine(self, x: Tensor, how: How) -> Tensor:
        """The mixture of their distributions, or that of the least mean; probabilities."""
        p = x.softmax(-1)
        return p.mean(1) if how == "mean" else _least(p, p @ self._support)

    def backup(self, x: Tensor, reward: Tensor, decay: Tensor) -> Tensor:
        """The probabilities of r + γ z, each shared out between the two atoms beside it (algorithm 1)."""
        moved = torch.addcmul(reward.unsqueeze(-1), decay.unsqueeze(-1), self._support).clamp_(self._low, self._high)
        place = (moved - self._low) * ((self.atoms - 1) / (self._high - self._low))
        below = place.floor().clamp_(0, self.atoms - 1).nan_to_num_(0)  # a NaN stays in `up`, and in its member
        above = (below + 1).clamp_(max=self.atoms - 1)
        up = place - below
        out = torch.zeros_like(x).scatter_add_(-1, below.long(), x * (1 - up))
        return out.scatter_add_(-1, above.long(), x * up)

    def loss(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """KL(target || x), whose gradient by the logits is p - target."""
        logp, target = x.log_softmax(-1), target.unsqueeze(1)
        return (torch.xlogy(target, target) - target * logp).sum(-1), logp.exp() - target


class Quantiles:
    """Z quantiles of the return, at (i + ½) / Z (Dabney et al. 2018)."""

    def __init__(self, atoms: int, device: torch.device | None = None) -> None:
        self.atoms = atoms
        self._levels = (torch.arange(atoms, device=device) + 0.5) / atoms

    def mean(self, x: Tensor) -> Tensor:
        return x.mean(-1)

    def combine(self, x: Tensor, how: How) -> Tensor:
        return x.mean(1) if how == "mean" else _least(x, x.mean(-1))

    def backup(self, x: Tensor, reward: Tensor, decay: Tensor) -> Tensor:
        return torch.addcmul(reward.unsqueeze(-1), decay.unsqueeze(-1), x)

    def loss(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_i E_j[ |τ_i - 1(u < 0)| Huber(u) ],  u = target_j - x_i  (eq. 10)"""
        u = target[:, None, :, None, :] - x.unsqueeze(-1)
        weight = (self._levels[:, None] - (u < 0).float()).abs_()
        return (weight * _huber(u)).mean(-1).sum(-1), (weight * u.clamp(-1, 1)).mean(-1).neg_()


Head = Scalar | Atoms | Quantiles


def _least(x: Tensor, value: Tensor) -> Tensor:
    """Of `x[M, S, B, Z]` the one of the least `value[M, S, B]`."""
    if x.shape[1] == 1:
        return x[:, 0]
    return torch.take_along_dim(x, value.argmin(1, keepdim=True).unsqueeze(-1), 1)[:, 0]


def _huber(error: Tensor) -> Tensor:
    return F.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")
