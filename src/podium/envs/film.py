"""One env that can be watched: its pictures, whatever stands between it and who acts in it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from typing import Any

import gymnasium as gym
import numpy as np
from torch import Tensor

from podium.core.errors import MissingExtra, PodiumError
from podium.envs import wrappers
from podium.envs.base import VecEnv
from podium.envs.build import gl_hint
from podium.envs.from_gymnasium import FromGymnasium
from podium.envs.make import limit_of, make, make_one, source_of
from podium.envs.objects import name_of
from podium.envs.settings import EnvSettings

Array = np.ndarray[Any, Any]
ZOOM = 4
"""Times that a game's own small frames are enlarged."""
_NEEDED = "podium play needs a gymnasium.Env that takes render_mode='rgb_array' and draws itself in render()."
OTHER = "Name one with the same spaces with --env ID."


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
            with _quiet():
                self.picture = self._draw()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        self.picture = self._draw()
        return answer

    def _draw(self) -> Array:
        """The env's picture, or one line that says why it has none."""
        name = name_of(self.env)
        try:
            frame = self.env.render()
        except gym.error.DependencyNotInstalled as error:
            raise _missing(name, error) from error
        except NotImplementedError as error:
            raise PodiumError(f"{name} cannot be drawn: its class has no render(). {_NEEDED}") from error
        except Exception as error:  # a display or a driver that is not there
            raise PodiumError(_failed(name, "render() raised", error)) from error
        if not isinstance(frame, np.ndarray):
            raise PodiumError(f"{name} cannot be drawn: render() returned {type(frame).__name__}, no array. {_NEEDED}")
        if frame.ndim != 3 or frame.shape[-1] != 3 or frame.dtype != np.uint8:
            got = f"{frame.dtype} {list(frame.shape)}"
            raise PodiumError(f"{name} cannot be drawn: render() must return uint8 [height, width, 3], got {got}.")
        return frame


def draw_without_screen() -> None:
    """Tell pygame and MuJoCo to draw without a screen, where there is none; call it before they are imported."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        backends = (name for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")) if find_library(library))
        if "MUJOCO_GL" not in os.environ and (found := next(backends, None)):
            os.environ["MUJOCO_GL"] = found


def _drawn(env: EnvSettings) -> gym.Env[Any, Any]:
    """One env that renders; an env that takes no render_mode, or refuses this one, cannot be played."""
    if source_of(env, 1) == "own":
        raise PodiumError(f"{env.id} cannot be drawn: it is a VecEnv, and those do not render. {_NEEDED} {OTHER}")
    try:
        with _quiet():
            return make_one(env, render_mode="rgb_array")
    except PodiumError:
        raise
    except Exception as error:
        raise PodiumError(_failed(env.id, "it cannot be made with render_mode='rgb_array'", error)) from error


def _missing(name: str, error: Exception) -> MissingExtra | PodiumError:
    if "pygame" in str(error):
        return MissingExtra("pygame", "render")
    return PodiumError(_failed(name, "a package is missing", error))


def _failed(name: str, what: str, error: Exception) -> str:
    """A message with what the env said; for MuJoCo, how to choose what draws."""
    said = f"{name} cannot be drawn: {what} ({type(error).__name__}{f': {error}' if str(error) else ''})."
    return f"{said} {gl_hint() if 'mujoco' in sys.modules and 'GL' in said else _NEEDED}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps back what libraries warn of before they fail: the error says it in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
