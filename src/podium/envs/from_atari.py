"""Atari games by ale-py's own vector env: frames are skipped, scaled, greyed and stacked in threads of C++."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from torch import Tensor

from podium.core import machine
from podium.core.errors import ConfigError
from podium.envs.batch import Batch
from podium.envs.build import atari
from podium.envs.objects import Array

FRAMES = "max_num_frames_per_episode"
OPTIONS: dict[str, Any] = {
    "frameskip": 4,
    "repeat_action_probability": 0.0,
    "stack_num": 4,
    "img_height": 84,
    "img_width": 84,
    "grayscale": True,
    "maxpool": True,
    "noop_max": 30,
    "episodic_life": False,
    "reward_clipping": False,
    "use_fire_reset": True,
    "full_action_space": False,
    FRAMES: 108_000,
}
"""`env.kwargs` of a game, and what they are if nothing is said."""

SCORED = {"episodic_life": False, "reward_clipping": False}
"""What an evaluation overrides: whole games, and the score as the game counts it."""


def game_of(id: str) -> str | None:
    """The name by which ale-py knows a game of Gymnasium's id, `ALE/SpaceInvaders-v5` -> `space_invaders`."""
    found = re.fullmatch(r"ALE/(\w+)-v5", id)
    return re.sub(r"(?<!^)(?=[A-Z])", "_", found[1]).lower() if found else None


def _check(name: str, value: Any) -> None:
    """Refuse what ale-py takes without a word, or refuses in words of C++."""
    usual, least = OPTIONS[name], 0 if name == "noop_max" else 1
    if isinstance(usual, bool):
        fits, allowed = isinstance(value, bool), "true or false"
    elif isinstance(usual, float):
        fits, allowed = _number(value, int | float) and 0 <= value <= 1, "a probability, from 0 to 1"
    else:
        fits, allowed = _number(value, int) and value >= least, f"a whole number of {least} or more"
    if not fits:
        raise ConfigError(f"env.kwargs.{name}", value, allowed)


def _number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def limit_of_game(kwargs: Mapping[str, Any]) -> float:
    """Steps of a game at most."""
    options = {**OPTIONS, **kwargs}
    return float(options[FRAMES] / options["frameskip"])


class FromAtari(Batch):
    """M x E copies of a game; images `[stack, height, width]` of bytes, in colour three times as many."""

    def __init__(
        self,
        id: str,
        members: int,
        envs: int,
        device: torch.device | str,
        kwargs: Mapping[str, Any],
        scored: bool = False,
        time_limit: int | None = None,
    ) -> None:
        super().__init__(members, envs, device)
        game = game_of(id)
        if game is None:
            raise ConfigError("env.id", id, "ALE/<Game>-v5 for env.source=atari")
        unknown = [name for name in kwargs if name not in OPTIONS]
        if unknown:
            raise ConfigError(f"env.kwargs.{unknown[0]}", kwargs[unknown[0]], f"one of {', '.join(OPTIONS)}")
        for name, value in kwargs.items():
            _check(name, value)
        options = {**OPTIONS, **kwargs, **(SCORED if scored else {})}
        if time_limit is not None:
            options[FRAMES] = time_limit * options["frameskip"]
        threads = min(machine.cores(), members * envs)
        self._vector = atari().vector_env.AtariVectorEnv(
            game, members * envs, num_threads=threads, autoreset_mode=AutoresetMode.SAME_STEP, **options
        )
        channels = options["stack_num"] * (1 if options["grayscale"] else 3)
        height, width = options["img_height"], options["img_width"]
        if channels >= min(height, width):
            raise ConfigError(
                "env.kwargs.stack_num", options["stack_num"], f"fewer channels than {height} x {width} pixels"
            )
        self.obs_space = Box(0, 255, (channels, height, width), np.uint8)
        self.action_space = self._vector.single_action_space

    def chosen(self, action: Tensor) -> Array:
        return action.flatten(0, 1).numpy(force=True)

    def start(self, seeds: list[int]) -> Array:
        return self._images(self._vector.reset(seed=np.array(seeds))[0]).copy()

    def advance(self, action: Array) -> tuple[Array, Array, Array, Array, Array]:
        obs, reward, terminated, truncated, info = self._vector.step(action)
        obs = last = self._images(obs)
        if (terminated | truncated).any():
            over = (terminated | truncated)[:, None, None, None]
            last = np.where(over, self._images(info["final_obs"]), obs)
        return obs, reward, terminated, truncated, last

    def _images(self, obs: Array) -> Array:
        """Frames in colour, `[N, stack, height, width, 3]`, as so many more channels."""
        return obs if obs.ndim == 4 else np.moveaxis(obs, -1, 2).reshape(len(obs), *self.obs_space.shape)  # type: ignore[misc]

    def close(self) -> None:
        self._vector.close()
