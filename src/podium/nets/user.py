"""A user's own single-agent `nn.Module`, stacked: `factory(n_in, n_out)` is called for every member."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from podium.core.errors import PodiumError
from podium.core.imports import named
from podium.core.streams import Generators

Factory = Callable[[int, int], nn.Module]


def factory_of(name: str) -> Factory:
    """The factory that `net.module` names; what goes wrong in it is refused in one line."""
    factory = named("net.module", name)

    def build(n_in: int, n_out: int) -> nn.Module:
        try:
            made = factory(n_in, n_out)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            text = f"net.module: {name} could not be built: {said}. It is called as factory(n_in, n_out)"
            raise PodiumError(text) from error
        if not isinstance(made, nn.Module):
            raise PodiumError(f"net.module: {name} must return an nn.Module, got {type(made).__name__}")
        return made

    return build


class Stacked:
    """M copies of a single-agent module (with `towers` M times N), run as one by `torch.func`, slower than `Mlp`.

    The module must be a function of its input: no dropout, which draws from a stream of nobody's, and no running
    statistics, which acting would move. Layer normalisation, convolutions, attention and the like are fine.
    A stack of one runs the module itself. Buffers belong to the member and are copied with it.
    """

    def __init__(
        self,
        generators: Generators,
        factory: Factory,
        n_in: int,
        n_out: int,
        device: torch.device | None = None,
        towers: int | None = None,
    ) -> None:
        modules = []
        self._lead = (len(generators),) if towers is None else (len(generators), towers)
        for g in (g for g in generators for _ in range(towers or 1)):
            # The factory draws from torch's global stream: lend it the member's.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=g)))
                modules.append(factory(n_in, n_out).to(device))
        self._module = modules[0]
        self.named = {
            name: self._stack([dict(m.named_parameters())[name].detach() for m in modules]).requires_grad_(
                p.requires_grad
            )
            for name, p in self._module.named_parameters()
        }
        self._buffers = {
            name: self._stack([dict(m.named_buffers())[name] for m in modules])
            for name, _ in self._module.named_buffers()
        }
        self.params, self.buffers = list(self.named.values()), list(self._buffers.values())

    def _stack(self, tensors: list[Tensor]) -> Tensor:
        if len(shapes := {tensor.shape for tensor in tensors}) > 1:
            made = " and ".join(str(list(shape)) for shape in shapes)
            raise PodiumError(f"net.module: its factory must always make the same parameters, and made {made}")
        stacked: Tensor = torch.stack(tensors).unflatten(0, self._lead).clone()
        return stacked

    def twin(self) -> Stacked:
        """Copies of their own with the same weights: targets."""
        other = copy.copy(self)
        other.named = {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in self.named.items()}
        other._buffers = {name: b.clone() for name, b in self._buffers.items()}
        other.params, other.buffers = list(other.named.values()), list(other._buffers.values())
        return other

    def __call__(self, x: Tensor) -> Tensor:
        """`[M, B, n_in]` -> `[M, B, n_out]`, with towers `[M, N, B, n_out]`"""
        weights = self.named | self._buffers
        if len(self._lead) == 2:
            weights = {name: t.flatten(0, 1) for name, t in weights.items()}
            out: Tensor = self._run(weights, x.repeat_interleave(self._lead[1], 0)).unflatten(0, self._lead)
            return out
        return self._run(weights, x)

    def _run(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        if len(x) == 1:
            return self._one({name: t[0] for name, t in weights.items()}, x[0])[None]
        return torch.func.vmap(self._one)(weights, x)

    def _one(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(self._module, weights, (x,))  # type: ignore[no-any-return]
