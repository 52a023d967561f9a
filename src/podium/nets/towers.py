"""N networks of every member on one input: a policy (N = 1) or an ensemble of critics, ours or a user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from podium.core.errors import ConfigError
from podium.core.parts import parts_of
from podium.core.streams import Generators
from podium.core.tree import Tree
from podium.nets.encoder import Encoder
from podium.nets.mlp import Mlp
from podium.nets.noisy import NoisyMlp
from podium.nets.settings import NetSettings
from podium.nets.user import Stacked, factory_of

Pull = Callable[[Tensor], None]
PullInput = Callable[[Tensor], Tensor]


class Towers:
    """`[M, B, I]` -> `[M, N, B, A]`; observations of `space`, if there is one, through an encoder that all N share."""

    def __init__(
        self,
        generators: Generators,
        settings: NetSettings,
        n_in: int,
        n_out: int,
        towers: int = 1,
        device: torch.device | None = None,
        space: Space[Any] | None = None,
        sigma: float | None = None,
    ) -> None:
        """`sigma`: that of noisy networks to begin with; None: they are not noisy."""
        self._encoder = None
        if space is not None and (len(parts_of(space)) > 1 or parts_of(space)[0].image):
            self._encoder = Encoder(generators, space, settings, device)
            n_in = self._encoder.size
        encoding = self._encoder.params if self._encoder is not None else []
        self.autograd = settings.module is not None or bool(encoding)  # whether `vjp` needs autograd
        self._net: Mlp | Stacked
        if settings.module is None:
            sizes, heads = (n_in, *settings.hidden), [n_out] * towers
            more: dict[str, Any] = {"activation": settings.activation, "layer_norm": settings.layer_norm}
            make = Mlp if sigma is None else partial(NoisyMlp, sigma=sigma)
            self._net = make(generators, sizes, heads, device=device, **more)
        else:
            factory = factory_of(settings.module)
            self._net = Stacked(generators, factory, n_in, n_out, device, towers)
            self._try(settings.module, torch.zeros(len(generators), 2, n_in, device=device), (towers, 2, n_out))
        self.params = [*self._net.params, *encoding]

    @property
    def noisy(self) -> NoisyMlp:
        """The network, where it is noisy."""
        assert isinstance(self._net, NoisyMlp)
        return self._net

    def _seen(self, x: Tensor) -> Tensor:
        return x if self._encoder is None else self._encoder(x)

    def _all(self, x: Tensor) -> Tensor:
        """All of them, under autograd."""
        seen = self._seen(x)
        return torch.stack(self._net(seen), 1) if isinstance(self._net, Mlp) else self._net(seen)

    def _try(self, name: str, x: Tensor, wanted: tuple[int, ...]) -> None:
        """Refuse a module that cannot be stacked, before anything has begun."""
        try:
            with torch.no_grad():
                shape = tuple(self._net(x).shape[1:])  # type: ignore[union-attr]
        except Exception as error:
            raise ConfigError("net.module", name, f"it cannot be run as a stack ({error})") from error
        if shape != wanted:
            made = f"from [B, {x.shape[2]}] it must make [B, {wanted[2]}], not {['B', *shape[2:]]}"
            raise ConfigError("net.module", name, made)

    def __call__(self, x: Tensor) -> Tensor:
        """All of them, without gradient."""
        with torch.no_grad():
            seen = self._seen(x)
            return self._net.together(seen) if isinstance(self._net, Mlp) else self._net(seen)

    def some(self, x: Tensor, which: Tensor) -> Tensor:
        """Of each member the towers `which[M, S]`, without gradient: `[M, S, B, A]`."""
        if isinstance(self._net, Mlp):
            with torch.no_grad():
                return self._net.together(self._seen(x), which)
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
        if not self.autograd:
            return self._net.together_vjp(self._seen(x))  # type: ignore[union-attr]
        out = self._all(x)

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
        other._encoder = None if self._encoder is None else self._encoder.twin()
        other.params = [*other._net.params, *(other._encoder.params if other._encoder is not None else [])]
        return other

    def finite(self) -> Tensor:
        """Which members' weights are all finite, `[M]`."""
        return torch.stack([p.detach().flatten(1).sum(1).isfinite() for p in self.params]).all(0)

    def state(self) -> Tree:
        buffers = self._net.buffers if isinstance(self._net, Stacked) else []
        return {str(i): t.detach() for i, t in enumerate([*self.params, *buffers])}
