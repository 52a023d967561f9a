"""A user's own single-agent `nn.Module`, stacked: `factory(n_in, n_out)` is called for every member."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from podium.core.streams import Generators

Factory = Callable[[int, int], nn.Module]


class Stacked:
    """M copies of a single-agent module, run as one by `torch.func`, which is slower than `Mlp`.

    The module must be a function of its input: no dropout, which draws from a stream of nobody's, and no running
    statistics, which acting would move. Layer normalisation, convolutions, attention and the like are fine.
    A stack of one runs the module itself. Buffers belong to the member and are copied with it.
    """

    def __init__(
        self, generators: Generators, factory: Factory, n_in: int, n_out: int, device: torch.device | None = None
    ) -> None:
        modules = []
        for g in generators:  # the factory draws from torch's global stream: lend it the member's
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=g)))
                modules.append(factory(n_in, n_out).to(device))
        self._module = modules[0]
        self.named = {
            name: torch.stack([dict(m.named_parameters())[name].detach() for m in modules]).requires_grad_(
                p.requires_grad
            )
            for name, p in self._module.named_parameters()
        }
        self._buffers = {
            name: torch.stack([dict(m.named_buffers())[name] for m in modules])
            for name, _ in self._module.named_buffers()
        }
        self.params, self.buffers = list(self.named.values()), list(self._buffers.values())

    def __call__(self, x: Tensor) -> Tensor:
        """`[M, B, n_in]` -> `[M, B, n_out]`"""
        weights = self.named | self._buffers
        if len(x) == 1:
            return self._one({name: t[0] for name, t in weights.items()}, x[0])[None]
        return torch.func.vmap(self._one)(weights, x)

    def _one(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(self._module, weights, (x,))  # type: ignore[no-any-return]
