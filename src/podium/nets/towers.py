"""N networks of every member on one input: a policy (N = 1) or an ensemble of critics, ours or a user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from podium.core.errors import ConfigError
from podium.core.imports import named
from podium.core.streams import Generators
from podium.core.tree import Tree
from podium.nets.mlp import Mlp
from podium.nets.settings import NetSettings
from podium.nets.user import Factory, Stacked

Pull = Callable[[Tensor], None]
PullInput = Callable[[Tensor], Tensor]


class Towers:
    """`[M, B, I]` -> `[M, N, B, A]`."""

    def __init__(
        self,
        generators: Generators,
        settings: NetSettings,
        n_in: int,
        n_out: int,
        towers: int = 1,
        device: torch.device | None = None,
    ) -> None:
        self.autograd = settings.module is not None  # whether `vjp` needs autograd
        self._net: Mlp | Stacked
        if settings.module is None:
            self._net = Mlp(
                generators,
                (n_in, *settings.hidden),
                [n_out] * towers,
                activation=settings.activation,
                layer_norm=settings.layer_norm,
                device=device,
            )
        else:
            factory: Factory = named("net.module", settings.module)
            self._net = Stacked(generators, factory, n_in, n_out, device, towers)
            self._try(settings.module, torch.zeros(len(generators), 2, n_in, device=device), (towers, 2, n_out))
        self.params = self._net.params

    def _try(self, name: str, x: Tensor, wanted: tuple[int, ...]) -> None:
        """Refuse a module that cannot be stacked, before anything has begun."""
        try:
            shape = tuple(self(x).shape[1:])
        except Exception as error:
            raise ConfigError("net.module", name, f"it cannot be run as a stack ({error})") from error
        if shape != wanted:
            made = f"from [B, {x.shape[2]}] it must make [B, {wanted[2]}], not {['B', *shape[2:]]}"
            raise ConfigError("net.module", name, made)

    def __call__(self, x: Tensor) -> Tensor:
        """All of them, without gradient."""
        if isinstance(self._net, Mlp):
            return self._net.together(x)
        with torch.no_grad():
            return self._net(x)

    def some(self, x: Tensor, which: Tensor) -> Tensor:
        """Of each member the towers `which[M, S]`, without gradient: `[M, S, B, A]`."""
        if isinstance(self._net, Mlp):
            return self._net.together(x, which)
        return torch.take_along_dim(self(x), which[:, :, None, None], 1)

    def input_vjp(self, x: Tensor, first: bool = False) -> tuple[Tensor, PullInput]:
        """All of them, or the first alone, and a function from the output's gradient to that of `x`, once."""
        if isinstance(self._net, Mlp):
            return self._net.input_vjp(x, first)
        x = x.detach().requires_grad_()
        out = self._net(x)[:, : 1 if first else None]
        return out.detach(), lambda g: torch.autograd.grad(out, x, g)[0]

    def vjp(self, x: Tensor) -> tuple[Tensor, Pull]:
        """All of them, and a function that takes the output's gradient and sets `.grad` of the weights, once."""
        if isinstance(self._net, Mlp):
            return self._net.together_vjp(x)
        out = self._net(x)

        def pull(g: Tensor) -> None:
            wanted = [p for p in self.params if p.requires_grad]
            grads = torch.autograd.grad(out, wanted, g, allow_unused=True)
            for p, grad in zip(wanted, grads, strict=True):
                p.grad = grad

        return out.detach(), pull

    def twin(self) -> Towers:
        """A network of its own with the same weights: a target."""
        other = copy.copy(self)
        other._net = self._net.twin()
        other.params = other._net.params
        return other

    def finite(self) -> Tensor:
        """Which members' weights are all finite, `[M]`."""
        return torch.stack([p.detach().flatten(1).sum(1).isfinite() for p in self.params]).all(0)

    def state(self) -> Tree:
        buffers = self._net.buffers if isinstance(self._net, Stacked) else []
        return {str(i): t.detach() for i, t in enumerate([*self.params, *buffers])}
