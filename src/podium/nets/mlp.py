"""Stacked multi-layer perceptrons: M members times N towers, trained as one batch of matrix products.

A tower is an MLP of its own; the towers of a member share their input and hidden sizes (policy and critic, or K
critics) and differ in how much of their head is used: outputs come one a tower, or, where all heads are alike, as one
tensor with an axis for the towers. All weights of a stack are one tensor `[M, N, Q]`: a tower is a
row, so that optimiser, clipping, averaging and exploit are each a few operations on one tensor. The backward pass is
written by hand: it reuses memory where autograd would allocate, and returns one gradient of that same shape.

Weights are `[out, in]`: narrow heads as `W xᵀ` are six times faster than `x W` (docs/design.md has the numbers).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from podium.core.streams import Generators
from podium.nets.layers import LAYER_NORM_EPS, orthogonal

aten = torch.ops.aten


class Activation(NamedTuple):
    """In-place forward of `scale` times the layer's output, and the gradient, in place, from the forward's result."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]
    scale: float = 1.0


_MINUS_ONE = torch.tensor(-1.0)


def _half_tanh(x: Tensor) -> Tensor:
    """tanh(x / 2) in place, as 2σ(x) - 1: a third of tanh's time on a CPU, error below 2e-7."""
    return torch.add(_MINUS_ONE, x.sigmoid_(), alpha=2, out=x)


def _elu_backward(g: Tensor, h: Tensor) -> Tensor:
    return g.mul_((h + 1).clamp_(max=1))  # d elu = exp(y) = h + 1 below zero, 1 above


ACTIVATIONS = {
    "tanh": Activation(_half_tanh, lambda g, h: aten.tanh_backward.grad_input(g, h, grad_input=g), scale=2.0),
    "relu": Activation(torch.relu_, lambda g, h: aten.threshold_backward.grad_input(g, h, 0, grad_input=g)),
    "elu": Activation(lambda x: torch.nn.functional.elu(x, inplace=True), _elu_backward),
}


class Layer(NamedTuple):
    """Views of one layer's weights; R rows are all towers of all members, or one tower of each."""

    weight: Tensor  # [R, out, in]
    bias: Tensor  # [R, 1, out]
    gain: Tensor | None = None  # [R, 1, out]  of the layer normalisation, if there is one
    shift: Tensor | None = None


class Mlp:
    """`[M, B, I]` -> one output `[M, B, A]` a tower, and, if asked for, free numbers `[M, X]` that are learnt too."""

    def __init__(
        self,
        generators: Generators,
        sizes: Sequence[int],
        heads: Sequence[int],
        *,
        gains: Sequence[float] | None = None,
        activation: str = "tanh",
        layer_norm: bool = False,
        extra: Sequence[float] = (),
        device: torch.device | None = None,
    ) -> None:
        self.heads, self.activation = tuple(heads), ACTIVATIONS[activation]
        self._shapes = _shapes(sizes, max(heads), layer_norm, len(extra))
        width = sum(math.prod(shape) for shape in self._shapes.values())
        weight = torch.zeros(len(generators), len(heads), width)
        for member, g in zip(weight, generators, strict=True):
            for row, head, gain in zip(member, heads, gains or (None,) * len(heads), strict=True):
                self._initialise(row, head, gain, g)
        weight[:, 0, width - len(extra) :] = torch.tensor(extra)
        self._own(weight.to(device))

    def _parts(self, rows: Tensor) -> dict[str, Tensor]:
        """The named parts of rows `[R, Q]`, as views."""
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        split = zip(self._shapes.items(), rows.split_with_sizes(sizes, dim=1), strict=True)
        return {name: part.unflatten(1, shape) for (name, shape), part in split}

    def _layers(self, rows: Tensor) -> list[Layer]:
        """Hidden layers and, last, the head."""
        parts = self._parts(rows)
        count = sum(name.endswith("weight") for name in parts)
        return [
            Layer(*(parts.get(f"{i}.{name}") for name in ("weight", "bias", "gain", "shift")))  # type: ignore[arg-type]
            for i in range(count)
        ]

    def twin(self) -> Mlp:
        """A network of its own with the same weights: a target."""
        other = copy.copy(self)
        other._own(self.weight.detach().clone())
        return other

    def _own(self, weight: Tensor) -> None:
        """Take `[M, N, Q]` for its weights."""
        self.weight = weight.requires_grad_()
        self.params = [self.weight]
        self._rows = rows = weight.detach()
        self._all = self._layers(rows.flatten(0, 1))
        self._grad: Tensor | None = None  # made when there is one
        self._tower = [self._layers(rows[:, n]) for n in range(rows.shape[1])]
        self.extra = self._parts(rows[:, 0])["extra"]

    def _initialise(self, row: Tensor, head: int, gain: float | None, generator: torch.Generator) -> None:
        """Orthogonal, the head `gain` times as long; without a gain as torch's own layers are."""
        *hidden, last = self._layers(row[None])
        if gain is None:
            for layer, size in zip((*hidden, last), [*(len(h.weight[0]) for h in hidden), head], strict=True):
                bound = 1 / math.sqrt(layer.weight.shape[2])
                layer.weight[0, :size].uniform_(-bound, bound, generator=generator)
                layer.bias[0, 0, :size].uniform_(-bound, bound, generator=generator)
                if layer.gain is not None:
                    layer.gain.fill_(1)
            return
        for layer in hidden:
            layer.weight[0] = orthogonal(layer.weight.shape[1:], math.sqrt(2), generator)
            if layer.gain is not None:
                layer.gain.fill_(1)
        last.weight[0, :head] = orthogonal((head, last.weight.shape[2]), gain, generator)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """All towers. Weights may change in place between forward and backward only at the caller's peril."""
        if torch.is_grad_enabled():
            return _Towers.apply(self._traced(), x, self)  # type: ignore[no-any-return, no-untyped-call]
        return self._outputs(self._forward(self._all, _repeat(x, len(self.heads)), None))

    def _traced(self) -> Tensor:
        """The weights that `_all` are views of, as autograd knows them."""
        return self.weight

    def vjp(self, x: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., None]]:
        """All towers without autograd, and a function that takes the outputs' gradients and sets `weight.grad`."""
        saved = [_repeat(x, len(self.heads))]
        outputs = self._outputs(self._forward(self._all, saved[0], saved))

        def pull(*grads: Tensor) -> None:
            self._pull(grads, saved, False)

        return outputs, pull

    def together(self, x: Tensor, which: Tensor | None = None) -> Tensor:
        """All towers as one, without gradient: `[M, B, I]` -> `[M, N, B, A]`. Their heads are of one size.

        Or of each member the towers `which[M, S]` only, `[M, S, B, A]`.
        """
        layers, towers = self._all, len(self.heads)
        if which is not None:
            rows = torch.take_along_dim(self._rows, which.unsqueeze(-1), 1)
            layers, towers = self._layers(rows.flatten(0, 1)), which.shape[1]
        out: Tensor = self._forward(layers, _repeat(x, towers), None).unflatten(0, (len(x), -1)).mT
        return out

    def together_vjp(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """`together`, and a function that takes the output's gradient and sets `weight.grad`, once."""
        saved = [_repeat(x, len(self.heads))]
        out = self._forward(self._all, saved[0], saved).unflatten(0, (len(x), -1)).mT

        def pull(g: Tensor) -> None:
            self._backward(g.mT.flatten(0, 1), saved, None, False)

        return out, pull

    def input_vjp(self, x: Tensor, first: bool = False) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """`together`, or the first tower alone, and a function from the output's gradient to that of `x`, once."""
        layers, saved = self._tower[0] if first else self._all, [_repeat(x, 1 if first else len(self.heads))]
        out = self._forward(layers, saved[0], saved).unflatten(0, (len(x), -1)).mT
        return out, lambda g: self._backward_input(layers, g.mT.flatten(0, 1), saved)

    def tower(self, n: int, x: Tensor) -> Tensor:
        """One tower alone, without gradient: `[M, B, I]` -> `[M, B, A]`."""
        return self._forward(self._tower[n], x, None)[:, : self.heads[n]].mT

    def _outputs(self, out: Tensor) -> tuple[Tensor, ...]:
        towers = out.unflatten(0, (-1, len(self.heads))).unbind(1)
        outputs = [tower.narrow(1, 0, size).mT for tower, size in zip(towers, self.heads, strict=True)]
        return (*outputs, self.extra.clone()) if self.extra.shape[1] else tuple(outputs)

    def _forward(self, layers: list[Layer], h: Tensor, saved: list[Tensor] | None) -> Tensor:
        """`[R, B, I]` -> `[R, A, B]`; appends what the backward pass needs to `saved`."""
        *hidden, head = layers
        act, scale = self.activation.forward, self.activation.scale
        for weight, bias, gain, shift in hidden:
            if gain is None or shift is None:
                h = act(torch.baddbmm(bias, h, weight.mT, beta=scale, alpha=scale))
            else:
                y = torch.baddbmm(bias, h, weight.mT)
                z, _, rstd = torch.native_layer_norm(y, y.shape[-1:], None, None, LAYER_NORM_EPS)
                h = act(torch.addcmul(shift, z, gain).mul_(scale))
                if saved is not None:
                    saved += [z, rstd]
            if saved is not None:
                saved.append(h)
        return torch.baddbmm(head.bias.mT, head.weight, h.mT)

    def _pull(self, grads: Sequence[Tensor], saved: list[Tensor], need_x: bool) -> Tensor | None:
        """From the gradients of the outputs: sets that of the weights, and returns that of the input `[M, B, I]`."""
        members, towers = self.weight.shape[:2]
        g = grads[0].new_zeros(members, towers, max(self.heads), grads[0].shape[1])
        for grad, tower, size in zip(grads, g.unbind(1), self.heads, strict=False):
            tower.narrow(1, 0, size).copy_(grad.mT)
        return self._backward(g.flatten(0, 1), saved, grads[towers] if self.extra.shape[1] else None, need_x)

    def _gradient(self) -> Tensor:
        """The gradient of the weights: always the same tensor, which each backward pass writes over."""
        if self._grad is None:
            with torch.inference_mode(False):
                self._grad = torch.zeros_like(self.weight, requires_grad=False)
        return self._grad

    def _backward(self, g: Tensor, saved: list[Tensor], extra: Tensor | None, need_x: bool) -> Tensor | None:
        """From the gradient `[R, A, B]` of the head down to the weights' and the input's; uses up `saved`."""
        *hidden, head = self._all
        h = saved.pop()
        parts = [g.sum(2), torch.bmm(g, h).flatten(1)]  # filled from the last to the first
        if extra is not None:  # of the first tower
            every = g.new_zeros(*self.weight.shape[:2], extra.shape[1])
            every[:, 0] = extra
            parts.insert(0, every.flatten(0, 1))
        below: Tensor | None = torch.bmm(g.mT, head.weight) if hidden or need_x else None
        for i in reversed(range(len(hidden))):
            weight, _, gain, _ = hidden[i]
            assert below is not None
            g = self.activation.backward(below, h)
            if gain is not None:
                rstd, z = saved.pop(), saved.pop()
                parts += [g.sum(1), (g * z).sum(1)]
                g = _layer_norm_backward(g.mul_(gain), z, rstd)
            h = saved.pop()
            parts += [g.sum(1), _outer(g, h).flatten(1)]
            below = torch.bmm(g, weight) if i or need_x else None
        grad = self._gradient()
        torch.cat(parts[::-1], 1, out=grad.flatten(0, 1))
        self.weight.grad = grad
        return below.unflatten(0, (len(self.weight), -1)).sum(1) if below is not None else None

    def _backward_input(self, layers: list[Layer], g: Tensor, saved: list[Tensor]) -> Tensor:
        """From the gradient `[R, A, B]` of the head to that of the input `[M, B, I]`, past the weights."""
        *hidden, head = layers
        below = torch.bmm(g.mT, head.weight)
        for weight, _, gain, _ in reversed(hidden):
            g = self.activation.backward(below, saved.pop())
            if gain is not None:
                rstd, z = saved.pop(), saved.pop()
                g = _layer_norm_backward(g.mul_(gain), z, rstd)
            below = torch.bmm(g, weight)
        out: Tensor = below.unflatten(0, (len(self.weight), -1)).sum(1)
        return out


def _shapes(sizes: Sequence[int], head: int, layer_norm: bool, extra: int) -> dict[str, tuple[int, ...]]:
    """Parts of a tower's row, in order."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        shapes |= {f"{i}.weight": (n_out, n_in), f"{i}.bias": (1, n_out)}
        if layer_norm:
            shapes |= {f"{i}.gain": (1, n_out), f"{i}.shift": (1, n_out)}
    last = len(sizes) - 1
    return shapes | {f"{last}.weight": (head, sizes[-1]), f"{last}.bias": (1, head), "extra": (extra,)}


def _repeat(x: Tensor, towers: int) -> Tensor:
    """`[M, B, I]` -> `[M * N, B, I]`"""
    return x if towers == 1 else x.repeat_interleave(towers, 0)


def _outer(g: Tensor, h: Tensor) -> Tensor:
    """Gradient of the weights, gᵀ h: `[R, B, out]`, `[R, B, in]` -> `[R, out, in]`. A narrow product is slow."""
    return torch.bmm(h.mT, g).mT if h.shape[2] < g.shape[2] else torch.bmm(g.mT, h)


def _layer_norm_backward(g: Tensor, z: Tensor, rstd: Tensor) -> Tensor:
    """Gradient through z = (y - mean) rstd: rstd (g - mean(g) - z mean(g z))."""
    return rstd * (g - g.mean(-1, keepdim=True) - z * (g * z).mean(-1, keepdim=True))


class _Towers(torch.autograd.Function):
    """`Mlp` under autograd, with its gradient written by hand."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, mlp: Mlp) -> tuple[Tensor, ...]:
        saved = [_repeat(x, len(mlp.heads))]
        out = mlp._forward(mlp._all, saved[0], saved)
        ctx.save_for_backward(*saved)
        ctx.mlp = mlp
        return mlp._outputs(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mlp = ctx.mlp
        before, mlp._grad = (mlp.weight.grad, mlp._grad), None  # autograd's is a tensor of its own
        grad_x = mlp._pull(grads, list(ctx.saved_tensors), ctx.needs_input_grad[1])
        grad, (mlp.weight.grad, mlp._grad) = mlp._grad, before
        return grad, grad_x, None
