"""EnvPool's envs: many kinds of them, in threads of C++."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Dict, MultiDiscrete
from torch import Tensor

from podium.core import machine
from podium.core.actions import Actions
from podium.core.errors import ConfigError, MissingExtra, UnknownName
from podium.core.parts import Row
from podium.envs.batch import Batch
from podium.envs.objects import Array, seen

OURS = {"num_envs", "batch_size", "num_threads", "max_num_players", "thread_affinity_offset", "base_path"}
OURS |= {"seed", "env_seed", "gym_reset_return_info", "reward_threshold"}
"""What EnvPool can be told, but not by `env.kwargs`."""

PIXELS = ("from_pixels", "render_width", "render_height", "render_camera_id")
"""What MuJoCo's tasks take beside their own settings."""

SCORED = {"episodic_life": False, "reward_clip": False}
"""What an evaluation overrides, where an env knows it: whole games, and the score as the game counts it."""

MOST = 2**31 - 1
"""The longest time limit that EnvPool knows: none."""

WRAPPED = {"envpool.box2d", "envpool.classic_control", "envpool.mujoco.gym", "envpool.toy_text"}
"""Envs whose time limit is no part of their task: Gymnasium has it in a wrapper around them."""


class FromEnvPool(Batch):
    """M x E envs of an id that EnvPool knows; Dict and Discrete observations become a Row.

    EnvPool takes seeds only when it makes its envs, so `reset` makes them anew. An env whose episode ended is reset
    before the step is returned. An end on the very step at which time runs out is called `truncated` by EnvPool; where
    the limit is `time_limit`, or that of an env of Gymnasium's, time is kept here, and it is `terminated`.
    """

    def __init__(
        self,
        id: str,
        members: int,
        envs: int,
        device: torch.device | str,
        kwargs: Mapping[str, Any],
        time_limit: int | None = None,
        scored: bool = False,
    ) -> None:
        super().__init__(members, envs, device)
        registry = envpool().registration.registry
        if id not in registry.specs:
            raise UnknownName("env.id", id, registry.specs)
        spec = _spec(registry, id, kwargs)
        known = spec.config._asdict()
        if known["max_num_players"] != 1:
            raise ConfigError("env.id", id, f"it is for {known['max_num_players']} players, and one can be used")
        settings = dict(kwargs) | {name: value for name, value in SCORED.items() if scored and name in known}
        if time_limit is None and registry.specs[id][0] in WRAPPED:
            time_limit = known["max_episode_steps"]
        self._limit: int | None = None
        if time_limit is not None:
            self._keep_time(known | settings, settings, time_limit)
        self._make = partial(_make, registry, id, settings)
        self._pool: Any = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on their precision
            obs, action = _bounded(spec.gymnasium_observation_space), _bounded(spec.gymnasium_action_space)
        try:
            self._actions = Actions(_counted(action))
            self.obs_space, self.action_space = seen(obs), self._actions.space
        except TypeError as error:
            raise ConfigError("env.id", id, f"its spaces are {error}") from error

    def _keep_time(self, known: Mapping[str, Any], settings: dict[str, Any], limit: int) -> None:
        """Let EnvPool's own limit come a step later than ours, so that it says how an episode ended."""
        if known.get("episodic_life"):
            settings["max_episode_steps"] = limit  # time is that of a game with all its lives, which only it knows
            return
        self._limit, own = limit, known["max_episode_steps"]
        settings["max_episode_steps"] = own and min(max(own, limit + 1), MOST)  # 0: as its level has it

    def start(self, seeds: list[int]) -> Array:
        self.close()
        self._pool = self._make(seeds)
        return self._seen(self._pool.reset()[0], len(seeds))

    def advance(self, action: Array) -> tuple[Array, Array, Array, Array, Array]:
        if self._pool is None:
            raise RuntimeError("reset the envs first")
        seen, reward, terminated, truncated, info = self._pool.step(action)
        if self._limit is not None:
            truncated = truncated | (info["elapsed_step"] >= self._limit)
        obs = last = self._seen(seen, len(reward))
        over = np.flatnonzero(terminated | truncated).astype(np.int32)
        if len(over):
            obs = last.copy()
            obs[over] = self._seen(self._pool.reset(over)[0], len(over))
        return obs, reward, terminated, truncated, last

    def chosen(self, action: Tensor) -> Array:
        return self._actions.to_env(action.detach().flatten(0, 1).numpy(force=True))

    def _seen(self, obs: Any, count: int) -> Array:
        """`[count, *O]`"""
        if not isinstance(self.obs_space, Row):
            return np.asarray(obs, self.obs_space.dtype)
        out = np.empty((count, *self.obs_space.shape), np.float32)
        for i, row in enumerate(out):
            self.obs_space.write(_one(obs, i), row)
        return out

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None  # its threads end with it


def _make(registry: Any, id: str, settings: Mapping[str, Any], seeds: list[int]) -> Any:
    """An env for every seed."""
    threads = min(machine.cores(), len(seeds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the precision of its spaces
        try:
            made = registry.make_gymnasium(id, num_envs=len(seeds), num_threads=threads, seed=seeds, **settings)
        except (RuntimeError, ValueError) as error:  # files that it needs are not there
            raise ConfigError("env.id", id, f"EnvPool cannot make it ({error})") from error
        _ = made.observation_space  # made when it is first asked for
    return made


def envpool() -> Any:
    try:
        return importlib.import_module("envpool")
    except ModuleNotFoundError as error:
        raise MissingExtra("envpool", "envpool") from error


def _spec(registry: Any, id: str, kwargs: Mapping[str, Any]) -> Any:
    """What EnvPool says of an env with these settings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = [*registry.make_spec(id).config._fields, *PIXELS]
            for name, value in kwargs.items():
                if name not in known or name in OURS:
                    allowed = ", ".join(other for other in known if other not in OURS)
                    raise ConfigError(f"env.kwargs.{name}", value, f"one of {allowed}")
            return registry.make_spec(id, **kwargs)
    except (ImportError, RuntimeError) as error:
        raise ConfigError("env.id", id, f"EnvPool cannot make it ({error})") from error
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError("env.kwargs", dict(kwargs), f"EnvPool refuses them ({str(error).splitlines()[0]})") from error


def _bounded(space: Any) -> Space[Any]:
    """The space with bounds that hold: EnvPool calls what is unbounded below the smallest number above 0."""
    if isinstance(space, Dict):
        return Dict({name: _bounded(inside) for name, inside in space.spaces.items()})
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        return space  # type: ignore[no-any-return]
    most = np.finfo(space.dtype)
    low = np.where(space.low == most.tiny, -np.inf, space.low)
    return Box(low, np.where(space.high == most.max, np.inf, space.high), dtype=space.dtype.type)


def _counted(space: Space[Any]) -> Space[Any]:
    """Whole numbers between bounds are so many choices each."""
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.integer):
        return space
    low = space.low.astype(np.int64)
    return MultiDiscrete(space.high - low + 1, start=low)


def _one(obs: Any, i: int) -> Any:
    """The observation of one env."""
    return {name: _one(inside, i) for name, inside in obs.items()} if isinstance(obs, dict) else obs[i]
