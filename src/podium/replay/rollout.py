"""A rollout: T steps of every env of every member, written once and learnt from at once."""

from __future__ import annotations

import torch
from torch import Tensor


class Rollout:
    """Tensors `[M, T, E, ...]`, allocated at the first step and written over by every later rollout."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.data: dict[str, Tensor] = {}
        self._rows: list[tuple[Tensor, ...]] = []

    def write(self, t: int, **values: Tensor) -> None:
        """Step `t`: one tensor `[M, E, ...]` a name, always the same names in the same order."""
        if not self.data:
            for name, value in values.items():
                shape = (len(value), self.steps, *value.shape[1:])
                with torch.inference_mode(False):  # else only inference mode could write to it later
                    self.data[name] = torch.empty(shape, dtype=value.dtype, device=value.device)
            self._rows = list(zip(*(x.unbind(1) for x in self.data.values()), strict=True))
        for row, value in zip(self._rows[t], values.values(), strict=True):
            row.copy_(value)
