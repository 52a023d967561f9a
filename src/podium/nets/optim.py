"""Optimisers over parameters `[M, ...]` with a learning rate for every member."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.ops.shape import per_member


class Adam:
    """Adam (Kingma & Ba 2015) with `lr[M]`; `m̂ / (√v̂ + ε)` as in torch.optim.

    The decays β₁ᵗ and β₂ᵗ are kept for every member, so that a member copied from another brings its own age along.
    """

    def __init__(self, params: Sequence[Tensor], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        self.params, self.beta1, self.beta2, self.eps = list(params), beta1, beta2, eps
        self.mean = [torch.zeros_like(p, requires_grad=False) for p in self.params]
        self.square = [torch.zeros_like(p, requires_grad=False) for p in self.params]
        first = self.params[0]
        self._betas = torch.tensor([beta1, beta2], dtype=torch.float64, device=first.device)
        self.decay = torch.ones(len(first), 2, dtype=torch.float64, device=first.device)

    @torch.no_grad()
    def step(self, lr: Tensor, active: Tensor | None = None) -> None:
        """One update from `.grad`, which is left as it was; members that are not `active` stay as they are."""
        if active is not None:
            return self._step_some(lr, active)
        # lr m̂ / (√v̂ + ε) = rate m / (√v + small), with the corrections of m̂ and v̂ drawn into two numbers a member
        correction = (1 - self.decay.mul_(self._betas)).sqrt_()
        root = correction[:, 1]
        rate, small = (lr * root / correction[:, 0].square()).float(), (self.eps * root).float()
        for p, m, v in zip(self.params, self.mean, self.square, strict=True):
            g = p.grad
            if g is None:  # a part of a user's module that is frozen or unused
                continue
            m.lerp_(g, 1 - self.beta1)
            v.lerp_(torch.mul(g, g), 1 - self.beta2)
            step = v.sqrt().add_(per_member(small, v))
            p.sub_(torch.div(m, step, out=step).mul_(per_member(rate, p)))

    def _step_some(self, lr: Tensor, active: Tensor) -> None:
        before = [[t.clone() for t in leaves] for leaves in (self.params, self.mean, self.square, [self.decay])]
        self.step(lr)
        after = (self.params, self.mean, self.square, [self.decay])
        for olds, news in zip(before, after, strict=True):
            for old, new in zip(olds, news, strict=True):
                new.copy_(torch.where(per_member(active, new), new, old))

    def state(self) -> Tree:
        """The live tensors: `tree.take` copies them, `tree.copy` and `tree.put` write into them."""
        mean = {str(i): t for i, t in enumerate(self.mean)}
        square = {str(i): t for i, t in enumerate(self.square)}
        return {"mean": mean, "square": square, "decay": self.decay}


class RMSProp:
    """RMSProp with `lr[M]`: g / √(v + ε), v starting at `start` (1 as in TensorFlow, which A2C's results come from)."""

    def __init__(self, params: Sequence[Tensor], decay: float = 0.99, eps: float = 1e-5, start: float = 1.0) -> None:
        self.params, self.decay, self.eps = list(params), decay, eps
        self.square = [torch.full_like(p, start, requires_grad=False) for p in self.params]

    @torch.no_grad()
    def step(self, lr: Tensor) -> None:
        for p, v in zip(self.params, self.square, strict=True):
            g = p.grad
            if g is None:  # a part of a user's module that is frozen or unused
                continue
            v.mul_(self.decay).addcmul_(g, g, value=1 - self.decay)
            # TensorFlow's form: ε inside the root, so that the first steps stay bounded
            p.sub_((v + self.eps).rsqrt_().mul_(g).mul_(per_member(lr, p)))

    def state(self) -> Tree:
        return {"square": {str(i): t for i, t in enumerate(self.square)}}
