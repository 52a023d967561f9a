"""An env of HalfCheetah's sizes that does nothing: benchmarks of updates only need its spaces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Still(gym.Env[Any, Any]):
    observation_space = Box(-np.inf, np.inf, (17,), np.float32)
    action_space = Box(-1.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(17, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(17, np.float32), 0.0, False, False, {}
