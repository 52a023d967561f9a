"""Noisy networks (Fortunato et al. 2018): weights with a noise of their own, whose deviation is learnt.

    w = μ + σ ⊙ f(ε_out) f(ε_in)ᵀ,    b = μ + σ ⊙ f(ε_out),    f(x) = sgn(x) √|x|    (eqs. 10 and 11)

The noise e of a stack is a tensor as the weights are, `[M, N, Q]`, made from one number for each input and output of
each layer. So w = μ + σ e is one operation on all members, and the gradient of σ is that of the weights times e.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from podium.core import streams
from podium.core.streams import Generators
from podium.nets.mlp import Mlp


def factors(generators: Generators, *shape: int) -> Tensor:
    """f of standard normal numbers, `[M, *shape]`."""
    x = streams.normal(generators, *shape)
    return x.abs().sqrt_().copysign_(x)


class NoisyMlp(Mlp):
    """An `Mlp` all of whose layers are noisy; it uses the means alone until noise is given, and after it is taken."""

    def __init__(
        self, generators: Generators, sizes: Sequence[int], heads: Sequence[int], *, sigma: float, **more: Any
    ) -> None:
        super().__init__(generators, sizes, heads, **more)
        self.numbers = sum(sizes) + sum(sizes[1:]) + max(heads)
        """Of noise, for each tower."""
        deviation = torch.zeros_like(self.weight, requires_grad=False)
        for layer in self._layers(deviation.flatten(0, 1)):
            start = sigma / math.sqrt(layer.weight.shape[2])
            layer.weight.fill_(start)
            layer.bias.fill_(start)
        self._own_noise(deviation)

    def twin(self) -> NoisyMlp:
        other = super().twin()
        assert isinstance(other, NoisyMlp)
        other._own_noise(self.sigma.detach().clone())
        return other

    def _own_noise(self, sigma: Tensor) -> None:
        """Take `[M, N, Q]` for its deviations; those of what is not noisy stay 0, since their e is 0."""
        self.sigma = sigma.requires_grad_()
        self.params = [self.weight, self.sigma]
        self._noise, self._noisy, self._sigma_grad = (torch.zeros_like(sigma, requires_grad=False) for _ in range(3))
        self._noises = self._layers(self._noise.flatten(0, 1))
        self._ways = {False: (self._all, self._rows), True: (self._layers(self._noisy.flatten(0, 1)), self._noisy)}
        self._shaken = False

    def perturb(self, factors: Tensor | None) -> None:
        """Use weights with the noise of these `factors[M, N, numbers]` from now on; None: the means."""
        self._shaken = factors is not None
        self._all, self._rows = self._ways[self._shaken]
        if factors is None:
            return
        sizes = [size for layer in self._noises for size in layer.weight.shape[:0:-1]]
        each = iter(factors.flatten(0, 1).split(sizes, 1))
        for layer, before, after in zip(self._noises, each, each, strict=True):
            torch.mul(after.unsqueeze(2), before.unsqueeze(1), out=layer.weight)
            layer.bias.copy_(after.unsqueeze(1))
        torch.addcmul(self.weight.detach(), self.sigma.detach(), self._noise, out=self._noisy)

    def _traced(self) -> Tensor:
        return torch.addcmul(self.weight, self.sigma, self._noise) if self._shaken else self.weight

    def together_vjp(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        out, pull_weight = super().together_vjp(x)

        def pull(g: Tensor) -> None:
            """Before the noise changes."""
            pull_weight(g)
            assert self.weight.grad is not None
            self.sigma.grad = self._sigma_grad
            if self._shaken:
                torch.mul(self.weight.grad, self._noise, out=self._sigma_grad)
            else:
                self._sigma_grad.zero_()

        return out, pull
