"""Stacked convolutions: M encoders of images, each row of the input through its own.

On a CPU a loop over members with channels last is faster than one grouped convolution, on a GPU the other way round.
So weights have their channels last, too, and the linear layer's go by pixel: on a CPU neither they nor what lies
between the layers is ever reordered.
Pixels of 0 to 255 are scaled to 0 to 1 in the weights of the first layer: there are fewer of these.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from podium.core.errors import ConfigError
from podium.core.streams import Generators
from podium.nets.layers import orthogonal

Layers = tuple[tuple[int, int, int], ...]
"""Of each layer: filters, the size of their kernels, their stride."""

NATURE: Layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015
SMALL: Layers = ((16, 3, 1), (32, 3, 2))
LEAST = 36
"""Pixels of a side that Nature's layers need."""


def layers_of(shape: tuple[int, ...], layers: Layers | None) -> Layers:
    """The layers for images of a shape, where none are asked for."""
    return layers or (NATURE if min(_sides(shape)[1:]) >= LEAST else SMALL)


def planes(shape: tuple[int, ...], layers: Layers) -> list[tuple[int, int, int]]:
    """Channels, height and width of an image, and of what each layer makes of it."""
    found = [_sides(shape)]
    for filters, kernel, stride in layers:
        _, height, width = found[-1]
        if min(height, width) < kernel:
            left = f"kernels of at most what is left of the image, {height} x {width}"
            raise ConfigError("net.conv", [list(layer) for layer in layers], left)
        found.append((filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1))
    return found


def _sides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width; the channels are the shortest side, first or last, or there are none."""
    if len(shape) == 2:
        return 1, *shape
    a, b, c = shape
    return (a, b, c) if a < c else (c, a, b)


class Conv:
    """Images `[M, B, *shape]`, or `packed`, bytes or numbers of 0 to 255, -> features `[M, B, size]`; by autograd."""

    def __init__(
        self,
        generators: Generators,
        shape: tuple[int, ...],
        layers: Layers | None,
        size: int,
        device: torch.device | None = None,
    ) -> None:
        self.size, self._shape = size, shape
        layers = layers_of(shape, layers)
        self._strides = [stride for _, _, stride in layers]
        self.params: list[Tensor] = []
        for (filters, kernel, _), (channels, _, _) in zip(layers, planes(shape, layers), strict=False):
            flat = channels * kernel * kernel
            self._add(generators, (filters, flat), (filters, kernel, kernel, channels), device)
        left = math.prod(planes(shape, layers)[-1])
        self._add(generators, (size, left), (size, left), device)

    def _add(
        self, generators: Generators, flat: tuple[int, int], shape: tuple[int, ...], device: torch.device | None
    ) -> None:
        weight = torch.stack([orthogonal(flat, math.sqrt(2), g).view(shape) for g in generators])
        bias = torch.zeros(len(generators), shape[0])
        self.params += [weight.to(device).requires_grad_(), bias.to(device).requires_grad_()]

    def twin(self) -> Conv:
        """One of its own with the same weights: a target's."""
        other = copy.copy(self)
        other.params = [p.detach().clone().requires_grad_() for p in self.params]
        return other

    def packed(self, image: Tensor) -> Tensor:
        """The same images with their channels last, as the CPU reads them: for those that are read several times."""
        first = image.ndim == 5 and image.shape[2] < min(image.shape[3:]) and not image.is_cuda
        return torch.stack(image.unbind(2), -1) if first else image  # bytes in half the time of a transposed copy

    def __call__(self, image: Tensor) -> Tensor:
        image = self._channels_first(self.packed(image))
        seen = self._grouped(image) if image.is_cuda else self._one_by_one(image)
        features: Tensor = _Dense.apply(seen, *self.params[-2:])  # type: ignore[no-untyped-call]
        return features.relu_()

    def _one_by_one(self, image: Tensor) -> Tensor:
        out, convs = [], [(weight.unbind(), bias.unbind(), stride) for weight, bias, stride in self._convs()]
        for m, x in enumerate(image):
            x = x.float()
            for weight, bias, stride in convs:
                x = _ConvRelu.apply(x, weight[m], bias[m], stride)  # type: ignore[no-untyped-call]
            out.append(x.movedim(1, -1).flatten(1))
        return torch.stack(out) if len(out) > 1 else out[0].unsqueeze(0)

    def _grouped(self, image: Tensor) -> Tensor:
        """`[M, B, C, H, W]` as `[B, M * C, H, W]`, a group of filters for every member."""
        x = image.transpose(0, 1).flatten(1, 2).float()
        for weight, bias, stride in self._convs():
            weight = weight.flatten(0, 1).movedim(-1, 1)
            x = F.conv2d(x, weight, bias.flatten(), stride, groups=len(image)).relu_()
        seen: Tensor = x.unflatten(1, (len(image), -1)).permute(1, 0, 3, 4, 2).flatten(2)
        return seen

    def _convs(self) -> list[tuple[Tensor, Tensor, int]]:
        """Of each layer its weights `[M, O, k, k, C]`, its biases `[M, O]` and its stride."""
        first, *rest = self.params[:-2:2]
        return list(zip([first / 255, *rest], self.params[1:-2:2], self._strides, strict=True))

    def _channels_first(self, image: Tensor) -> Tensor:
        """`[M, B, C, H, W]`"""
        if len(self._shape) == 2:
            return image.unsqueeze(2)
        return image if image.shape[2] < image.shape[4] else image.movedim(-1, 2)


class _ConvRelu(torch.autograd.Function):
    """max(0, w * x + b) of one member, `w[O, k, k, C]`.

    Backwards it writes over the gradient that it is given. Here that has memory of its own, and nothing else reads it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        weight = weight.movedim(-1, 1)
        y = F.conv2d(x, weight, bias, stride).relu_()
        ctx.save_for_backward(x, weight, y)
        ctx.stride = stride
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        none, wanted = [0, 0], ctx.needs_input_grad[:3]
        torch.ops.aten.threshold_backward.grad_input(g, y, 0, grad_input=g)
        rest = [len(weight)], [ctx.stride] * 2, none, [1, 1], False, none, 1
        g_x, g_weight, g_bias = torch.ops.aten.convolution_backward(g, x, weight, *rest, wanted)
        return g_x, None if g_weight is None else g_weight.movedim(1, -1), g_bias, None


class _Dense(torch.autograd.Function):
    """x Wᵀ + b of every member, with a gradient of W that stands in memory as W does: autograd's would be copied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return g @ weight, g.mT @ x, g.sum(1)
