"""Optimisers over parameters `[M, ...]` with a learning rate for every member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.ops.shape import per_member

_Call = tuple[float, tuple[list[Tensor], ...]]
"""A learning rate, and what the kernel takes: parameters, gradients, moments, nothing, and ages."""


class Adam:
    """Adam (Kingma & Ba 2015) with `lr[M]`; `m̂ / (√v̂ + ε)` as in torch.optim.

    The number of steps is kept for every member, so that one copied from another brings its own age along. On a CPU
    torch's fused kernel does a member in one pass over its memory, five times faster than the plain operations even
    though it takes one learning rate a call.
    """

    def __init__(self, params: Sequence[Tensor], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        self.params, self.beta1, self.beta2, self.eps = list(params), beta1, beta2, eps
        self.mean = [torch.zeros_like(p, requires_grad=False) for p in self.params]
        self.square = [torch.zeros_like(p, requires_grad=False) for p in self.params]
        self.age = torch.zeros(len(self.params[0]), device=self.params[0].device)
        self._rows = [[t.detach().unbind(0) for t in leaves] for leaves in self._leaves()]
        self._ages = self.age.unbind(0)
        self._key: Any = None
        self._grads: list[Tensor] = []
        self._calls: list[_Call] = []

    def _leaves(self) -> tuple[list[Tensor], ...]:
        return self.params, self.mean, self.square

    @torch.no_grad()
    def step(self, lr: Tensor, active: Tensor | None = None) -> None:
        """One update from `.grad`, which is left as it was; members that are not `active` stay as they are."""
        used = [i for i, p in enumerate(self.params) if p.grad is not None]  # users' modules may have unused parts
        self.age += 1 if active is None else active
        if self.age.device.type == "cpu":
            self._fused(used, lr, active)
        else:
            self._plain(used, lr, active)

    def _fused(self, used: list[int], lr: Tensor, active: Tensor | None) -> None:
        """Members with the same learning rate in one call."""
        rates, which = lr.tolist(), None if active is None else active.tolist()
        # The kernel goes by memory, and autograd may leave the gradient of a user's module transposed.
        grads = [self.params[i].grad.contiguous() for i in used]  # type: ignore[union-attr]
        same = len(grads) == len(self._grads) and all(a is b for a, b in zip(grads, self._grads, strict=True))
        if not same or (rates, which) != self._key:
            self._key, self._grads, self._calls = (rates, which), grads, self._groups(used, grads, rates, which)
        for rate, tensors in self._calls:
            torch._fused_adam_(
                *tensors,
                lr=rate,
                beta1=self.beta1,
                beta2=self.beta2,
                weight_decay=0.0,
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )

    def _groups(
        self, used: list[int], whole: list[Tensor], rates: list[float], which: list[bool] | None
    ) -> list[_Call]:
        """The tensors of each call; kept for the next step, which is most often the same."""
        grads = [g.unbind(0) for g in whole]
        params, mean, square = ([rows[i] for i in used] for rows in self._rows)
        calls = []
        for rate in dict.fromkeys(rates):
            rows = [m for m, other in enumerate(rates) if other == rate and (which is None or which[m])]
            each = [[leaf[m] for m in rows for leaf in leaves] for leaves in (params, grads, mean, square)]
            ages = [self._ages[m] for m in rows for _ in used]
            if rows:
                calls.append((rate, (*each, [], ages)))
        return calls

    def _plain(self, used: list[int], lr: Tensor, active: Tensor | None) -> None:
        """All members at once: lr m̂ / (√v̂ + ε) = rate m / (√v + small)."""
        age = self.age.double()
        age.clamp_(min=1)  # one that never stepped does not step now
        first, root = 1 - self.beta1**age, (1 - self.beta2**age).sqrt()
        live = torch.ones_like(lr) if active is None else active.float()
        rate, small = (live * lr * root / first).float(), (self.eps * root).float()
        for i in used:
            p, m, v = (leaves[i] for leaves in self._leaves())
            g = p.grad
            assert g is not None
            if active is not None:  # 0 times what is not finite would not be 0
                g = torch.where(per_member(active, g), g, 0)
            m.lerp_(g, per_member(live * (1 - self.beta1), g))
            v.lerp_(torch.mul(g, g), per_member(live * (1 - self.beta2), g))
            step = v.sqrt().add_(per_member(small, v))
            p.sub_(torch.div(m, step, out=step).mul_(per_member(rate, p)))

    def state(self) -> Tree:
        """The live tensors: `tree.take` copies them, `tree.copy` and `tree.put` write into them."""
        mean = {str(i): t for i, t in enumerate(self.mean)}
        square = {str(i): t for i, t in enumerate(self.square)}
        return {"mean": mean, "square": square, "age": self.age}


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
