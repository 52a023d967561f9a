"""From an observation to what an MLP takes: images through convolutions, all else as it is, side by side."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from podium.core.parts import Part, parts_of
from podium.core.streams import Generators
from podium.nets.conv import Conv
from podium.nets.settings import NetSettings
from podium.ops.norm import numbers

FORBIDDEN = -1e8
"""A logit that is never drawn; times a probability of 0 it is still a number."""


class Encoder:
    """`[M, B, *O]` -> features `[M, B, size]`. A module of a user's gets the pixels, in numbers of 0 to 1."""

    def __init__(
        self, generators: Generators, space: Space[Any], settings: NetSettings, device: torch.device | None = None
    ) -> None:
        parts = parts_of(space)
        self._alone, conv = len(parts) == 1, settings.module is None
        self._mask = next((part for part in parts if part.mask), None)
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

    def allowed(self, logits: Tensor, obs: Tensor) -> Tensor:
        """Without the actions that the observation's mask forbids; one that forbids all is ignored."""
        if self._mask is None:
            return logits
        mask = _of(self._mask, obs) > 0
        return logits.masked_fill(~mask & mask.any(-1, keepdim=True), FORBIDDEN)


def _of(part: Part, row: Tensor) -> Tensor:
    return row.narrow(-1, part.first, part.size)
