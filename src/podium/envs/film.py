"""One env that can be watched: its pictures, whatever stands between it and who acts in it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from torch import Tensor

from podium.core.errors import ConfigError, PodiumError
from podium.envs import wrappers
from podium.envs.base import VecEnv
from podium.envs.from_gymnasium import FromGymnasium
from podium.envs.make import limit_of, make, make_one, source_of
from podium.envs.objects import name_of
from podium.envs.settings import EnvSettings

Array = np.ndarray[Any, Any]
ZOOM = 4
"""Times that a game's own small frames are enlarged."""


class Film:
    """A VecEnv of one env, `world`, and what it looked like after each of its steps."""

    def __init__(self, env: EnvSettings) -> None:
        self._camera: Camera | None = None
        self.world: VecEnv
        if source_of(env, 1) == "atari":
            self.world = make(env, 1, 1, scored=True)
        else:
            self._camera = camera = Camera(_drawn(env))
            self.world = wrappers.wrap(FromGymnasium(lambda: camera, 1, 1), env, limit_of(env), scored=True)

    def picture(self, seen: Tensor) -> Array:
        """After a reset its obs, after a step its `last` -> `[height, width, 3]`."""
        if self._camera is not None:
            return self._camera.picture
        frame = seen[0, 0, -1].numpy(force=True)  # what ale-py shows of a game: its newest frame, as members see it
        return np.repeat(frame.repeat(ZOOM, 0).repeat(ZOOM, 1)[..., None], 3, -1)


class Camera(gym.Wrapper[Any, Any, Any, Any]):
    """Draws after the first reset and every step: the reset that follows an end at once is not in the picture."""

    picture: Array

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        answer = self.env.reset(**how)
        if not hasattr(self, "picture"):
            self.picture = self._draw()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        self.picture = self._draw()
        return answer

    def _draw(self) -> Array:
        try:
            frame = self.env.render()
        except Exception as error:  # a package, a display or a driver that is not there
            said = f"{name_of(self.env)} cannot be drawn: {error or type(error).__name__}"
            without = "; without a display MuJoCo needs MUJOCO_GL=egl or MUJOCO_GL=osmesa"
            raise PodiumError(f"{said}{without if 'GL' in str(error) else ''}") from error
        if not isinstance(frame, np.ndarray):
            raise PodiumError(f"{name_of(self.env)} does not draw pictures (render_mode rgb_array)")
        return frame


def _drawn(env: EnvSettings) -> gym.Env[Any, Any]:
    try:
        return make_one(env, render_mode="rgb_array")
    except TypeError as error:
        allowed = f"to be played an env takes render_mode and renders rgb_array ({error})"
        raise ConfigError("env.id", env.id, allowed) from error
