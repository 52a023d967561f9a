"""A policy and a critic on the same observation: the networks of PPO and A2C."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from podium.core.errors import ConfigError
from podium.core.spec import Spec
from podium.core.streams import Generators
from podium.core.tree import Tree
from podium.nets.encoder import Encoder, Mask
from podium.nets.mlp import Mlp
from podium.nets.settings import NetSettings
from podium.nets.user import Stacked, factory_of
from podium.ops.dist import Params, of_space


class PolicyCritic:
    """`[M, B, O]` -> the policy's distribution parameters and the values `[M, B]`."""

    def __init__(self, spec: Spec, settings: NetSettings, generators: Generators, log_std: float = 0.0) -> None:
        self.dist = of_space(spec.action, log_std)
        self._encoder, self._mask = Encoder(generators, spec.obs, settings, spec.device), Mask(spec.obs)
        self.packed = self._encoder.packed
        n_in = self._encoder.size
        self._user: tuple[Stacked, Stacked] | None = None
        self.images = bool(self._encoder.params)  # whether it has convolutions
        self.autograd = settings.module is not None or self.images  # whether `vjp` needs autograd
        if settings.module is None:
            self._mlp = Mlp(
                generators,
                (n_in, *settings.hidden),
                (self.dist.size, 1),
                gains=(0.01, 1.0),
                activation=settings.activation,
                layer_norm=settings.layer_norm,
                extra=self.dist.extra,
                device=spec.device,
            )
            self.params, self._extra = [*self._mlp.params, *self._encoder.params], self._mlp.extra
        else:
            factory = factory_of(settings.module)
            self._user = (
                Stacked(generators, factory, n_in, self.dist.size, spec.device),
                Stacked(generators, factory, n_in, 1, spec.device),
            )
            self._try(settings.module, torch.zeros(spec.members, 2, n_in, device=spec.device))
            self._extra = torch.tensor([self.dist.extra] * spec.members, device=spec.device)
            self.params = [p for net in self._user for p in net.params]
            if self.dist.extra:
                self.params.append(self._extra.requires_grad_())

    def _try(self, name: str, obs: Tensor) -> None:
        """Refuse a module that cannot be stacked, before anything has begun."""
        for net, size in zip(self._user or (), (self.dist.size, 1), strict=True):
            try:
                shape = tuple(net(obs).shape)
            except Exception as error:
                raise ConfigError("net.module", name, f"it cannot be run as a stack ({error})") from error
            if shape != (*obs.shape[:2], size):
                wanted = f"from [B, {obs.shape[2]}] it must make [B, {size}], not {list(shape[1:])}"
                raise ConfigError("net.module", name, wanted)

    def __call__(self, obs: Tensor) -> tuple[Params, Tensor]:
        seen = self._encoder(obs)
        if self._user is None:
            policy, value, *extra = self._mlp(seen)
        else:
            policy, value = (net(seen) for net in self._user)
            extra = [self._extra] if self.dist.extra else []
        return (self._mask(policy, obs), *extra), value.squeeze(-1)

    def vjp(self, obs: Tensor) -> tuple[Params, Tensor, Callable[[Params, Tensor], None]]:
        """Parameters, values `[M, B]`, and a function that takes the gradients of both and sets `.grad`."""
        if not self.autograd:
            (policy, value, *extra), pull_mlp = self._mlp.vjp(self._encoder(obs))
            policy = self._mask(policy, obs)
            return (policy, *extra), value.squeeze(-1), lambda g, g_value: pull_mlp(g[0], g_value.unsqueeze(-1), *g[1:])
        params, value = self(obs)

        def pull(g: Params, g_value: Tensor) -> None:
            for p in self.params:
                p.grad = None
            torch.autograd.backward([*params, value], [*g, g_value])

        return tuple(p.detach() for p in params), value.detach(), pull

    def policy(self, obs: Tensor) -> Params:
        """The policy alone: all that acting needs."""
        seen = self._encoder(obs)
        out = self._mlp.tower(0, seen) if self._user is None else self._user[0](seen)
        out = self._mask(out, obs)
        return (out, self._extra) if self.dist.extra else (out,)

    def value(self, obs: Tensor) -> Tensor:
        """The critic alone, `[M, B]`."""
        seen = self._encoder(obs)
        return (self._mlp.tower(1, seen) if self._user is None else self._user[1](seen)).squeeze(-1)

    def finite(self) -> Tensor:
        """Which members' weights are all finite, `[M]`."""
        return torch.stack([p.detach().flatten(1).sum(1).isfinite() for p in self.params]).all(0)

    def state(self) -> Tree:
        buffers = [b for net in self._user or () for b in net.buffers]
        return {str(i): t.detach() for i, t in enumerate([*self.params, *buffers])}
