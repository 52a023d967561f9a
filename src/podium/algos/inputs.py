"""What a network is given of observations: rows of numbers, normalised where that is asked for, or images."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from podium.core.parts import Row, parts_of
from podium.core.spec import Spec
from podium.ops.norm import Running, numbers


class Inputs:
    """`[M, ..., *O]` -> `[M, B, O]`, or `[M, B, *O]` where the network takes `images`. Statistics are the member's.

    Parts that are images or masks are not normalised; a network that takes no images gets their bytes as 0 to 1.
    """

    def __init__(self, spec: Spec, images: bool = False) -> None:
        parts, shape = parts_of(spec.obs), spec.obs.shape or ()
        self.size = prod(shape)
        row = isinstance(spec.obs, Row)
        self._image = shape if images and not row and parts[0].image else None
        self.stats = Running(spec.members, shape, spec.device) if spec.normalise_obs else None
        self._kept = self._scale = None
        if row:
            columns = torch.zeros(2, *shape, dtype=torch.bool, device=spec.device)
            for part in parts:
                columns[0, part.first : part.first + part.size] = part.image or part.mask
                columns[1, part.first : part.first + part.size] = part.image and not images
            self._kept = columns[0] if columns[0].any() else None
            self._scale = torch.where(columns[1], 1 / 255, 1.0) if columns[1].any() else None

    def __call__(self, obs: Tensor) -> Tensor:
        if self._image is not None:
            return obs.reshape(len(obs), -1, *self._image)
        obs = numbers(obs)
        if self._scale is not None:
            obs = obs * self._scale
        if self.stats is not None:
            normal = self.stats.normalise(obs)
            obs = normal if self._kept is None else torch.where(self._kept, obs, normal)
        return obs.reshape(len(obs), -1, self.size)

    def observe(self, rollout: Tensor) -> None:
        """Take the observations `[M, T, E, *O]` of a rollout into the statistics."""
        if self.stats is not None:
            self.stats.update(numbers(rollout).flatten(1, 2))
