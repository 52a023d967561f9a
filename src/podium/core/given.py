"""Observations as a user holds them, in rows: one or several, with floats of any precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Tuple
from numpy.typing import NDArray

from podium.core.parts import Row


def rows(space: Row, obs: Any) -> tuple[NDArray[np.float32], bool] | None:
    """As `space.rows`, which wants the very floats of the source space."""
    found = space.rows(_exact(space.source, obs))
    several = isinstance(obs, list | tuple) or (isinstance(obs, np.ndarray) and obs.ndim == 1)
    return found or (space.rows([_exact(space.source, one) for one in obs]) if several else None)


def _exact(space: Space[Any], obs: Any) -> Any:
    """The observation with floats as the space has them, where it has the same parts."""
    if isinstance(space, Dict):
        fits = isinstance(obs, Mapping) and obs.keys() == space.spaces.keys()
        return {name: _exact(part, obs[name]) for name, part in space.spaces.items()} if fits else obs
    if isinstance(space, Tuple):
        fits = isinstance(obs, Sequence) and len(obs) == len(space.spaces)
        return tuple(map(_exact, space.spaces, obs)) if fits else obs
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        return obs
    try:
        return np.asarray(obs, space.dtype)
    except (TypeError, ValueError):
        return obs
