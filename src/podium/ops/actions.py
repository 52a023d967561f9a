"""`core.actions` in tensors: a worker needs those without torch, a graph or a device needs these."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor

from podium.core.actions import Actions


class ToEnv:
    """From what members choose, `[..., *A]`, to what an env of the space `source` takes, as `Actions.to_env` has it."""

    def __init__(self, source: Space[Any], device: torch.device | str = "cpu") -> None:
        self._axes, self._shape = len(Actions(source).space.shape or ()), source.shape or ()
        self._box = isinstance(source, Box)
        if isinstance(source, Box):
            self._dtype, self.exact = dtype_of(source.dtype), dtype_of(np.result_type(np.float32, source.dtype))
            bounds = source.low, source.high
            self._low, self._high = (torch.tensor(x, dtype=self.exact, device=device) for x in bounds)
        else:
            self._dtype = dtype_of(source.dtype) if self._axes else torch.int64
            self._start = torch.as_tensor(np.asarray(getattr(source, "start", 0), np.int64), device=device)

    def __call__(self, chosen: Tensor) -> Tensor:
        rows = chosen.reshape(*chosen.shape[: chosen.ndim - self._axes], *self._shape)
        if not self._box:
            return (rows + self._start).to(self._dtype)
        rows = rows.to(self.exact)
        return rows.masked_fill(rows.isnan(), 0).clamp(self._low, self._high).to(self._dtype)


def dtype_of(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
