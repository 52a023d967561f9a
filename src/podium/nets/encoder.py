"""From an observation to what an MLP takes: images through convolutions, all else as it is, side by side."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from podium.core.parts import Part, Row, parts_of
from podium.core.streams import Generators
from podium.nets.conv import Conv
from podium.nets.settings import NetSettings
from podium.ops.combine import FORBIDDEN
from podium.ops.norm import numbers


class Encoder:
    """`[M, B, *O]` -> features `[M, B, size]`. A module of a user's gets the pixels, in numbers of 0 to 1."""

    def __init__(
        self, generators: Generators, space: Space[Any], settings: NetSettings, device: torch.device | None = None
    ) -> None:
        parts = parts_of(space)
        self._alone, conv = not isinstance(space, Row), settings.module is None
        self._plain = [part for part in parts if not part.mask and not (part.image and conv)]
        self._images = [
            (part, Conv(generators, part.shape, settings.conv, settings.features, device))
            for part in parts
            if part.image and conv
        ]
        self.size = sum(part.size for part in self._plain) + settings.features * len(self._images)
        self.params = [p for _, conv in self._images for p in conv.params]

    def __call__(self, obs: Tensor) -> Tensor:
        if self._alone:
            return self._images[0][1](obs) if self._images else numbers(obs).flatten(2)
        seen = [_of(part, obs) / 255 if part.image else _of(part, obs) for part in self._plain]
        seen += [conv(_of(part, obs).unflatten(-1, part.shape)) for part, conv in self._images]
        return torch.cat(seen, -1)

    def packed(self, obs: Tensor) -> Tensor:
        """Observations that are read several times, in the order that is quickest to read."""
        return self._images[0][1].packed(obs) if self._alone and self._images else obs

    def twin(self) -> Encoder:
        """One of its own with the same weights: a target's."""
        other = copy.copy(self)
        other._images = [(part, conv.twin()) for part, conv in self._images]
        other.params = [p for _, conv in other._images for p in conv.params]
        return other


class Mask:
    """Which actions an observation allows; all, where its space has no part that says so."""

    def __init__(self, space: Space[Any]) -> None:
        self.part = next((part for part in parts_of(space) if part.mask), None)

    def __call__(self, logits: Tensor, obs: Tensor) -> Tensor:
        """Logits or values without those of forbidden actions; a mask that forbids all is ignored."""
        if self.part is None:
            return logits
        return logits.masked_fill(~self._allowed(self.part, obs), FORBIDDEN)

    def most(self, count: int, obs: Tensor) -> Tensor:
        """The largest entropy of a choice among those of `count` actions that are allowed, on average; `[M]`."""
        if self.part is None:
            return torch.full((len(obs),), math.log(count), device=obs.device)
        return self._allowed(self.part, obs).sum(-1).log().mean(1)

    def choose(self, u: Tensor, count: int, obs: Tensor) -> Tensor:
        """One of the `count` actions that are allowed, all alike likely, from numbers `u` in [0, 1), `[M, B]`."""
        if self.part is None:
            return (u * count).long().clamp_(max=count - 1)
        order = self._allowed(self.part, obs).cumsum(-1)
        some = order[..., -1:]
        wanted = (u.unsqueeze(-1) * some).long().clamp_(max=some - 1) + 1
        return (order >= wanted).int().argmax(-1)

    def _allowed(self, part: Part, obs: Tensor) -> Tensor:
        mask = _of(part, obs) > 0
        return mask | ~mask.any(-1, keepdim=True)


def _of(part: Part, row: Tensor) -> Tensor:
    return row.narrow(-1, part.first, part.size)
