"""From what members choose to what an env takes: a small set of spaces for policies, any common one for envs."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

Array = NDArray[Any]
ALLOWED = "Discrete, MultiDiscrete, MultiBinary or Box"


class Actions:
    """`space` is what policies see: Discrete, a flat MultiDiscrete, or a flat Box; `source` is the env's own."""

    def __init__(self, source: Space[Any]) -> None:
        self.source = source
        self.space: Space[Any]
        if isinstance(source, Discrete):
            self.space = Discrete(int(source.n), start=int(source.start))
        elif isinstance(source, MultiDiscrete):
            self.space = MultiDiscrete(source.nvec.reshape(-1), start=source.start.reshape(-1))
        elif isinstance(source, MultiBinary):
            self.space = MultiDiscrete([2] * int(np.prod(source.shape)))
        elif isinstance(source, Box) and np.issubdtype(source.dtype, np.floating):
            self.space = Box(source.low.reshape(-1), source.high.reshape(-1), dtype=source.dtype)
        else:
            raise TypeError(f"{source}: {ALLOWED} of floats can be used")

    def to_env(self, chosen: Array) -> Array:
        """`[N, ...]`, counted from 0 or in numbers, as the env takes them. Numbers are clipped, and a NaN becomes 0."""
        source, count = self.source, len(chosen)
        if isinstance(source, Discrete):
            return np.asarray(chosen + source.start)
        rows = chosen.reshape(count, *(source.shape or ()))
        if isinstance(source, MultiDiscrete):
            return np.asarray(rows.astype(source.dtype) + source.start)
        if isinstance(source, Box):
            rows = rows.clip(source.low, source.high)
            total = rows.ravel().dot(rows.ravel())
            if total != total:  # a NaN, which is rare: one failed member must not stop the others
                rows = np.where(np.isnan(rows), 0, rows).clip(source.low, source.high)
        return np.asarray(rows.astype(source.dtype, copy=False))
