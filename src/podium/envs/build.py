"""From the name of an env to one object of it. No torch, so that a worker starts in no time."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.wrappers import TimeLimit

from podium.core import imports
from podium.core.errors import ConfigError, MissingExtra, PodiumError, UnknownName
from podium.core.parts import MASK

EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "ale_py": "atari"}  # part of an entry point: the extra it needs


def resolve(id: str) -> EnvSpec | Callable[..., Any]:
    """What `id` names, or UnknownName; builds nothing."""
    module, colon, name = id.rpartition(":")
    if id.startswith("ALE/"):
        atari()
    if not colon:
        if id not in gym.registry:
            raise UnknownName("env.id", id, gym.registry)
        return gym.registry[id]
    found = imports.module("env.id", id)
    target = getattr(found, name, None) or gym.registry.get(name)  # Gymnasium's own form names a module that registers
    if target is None:
        own = (n for n, value in vars(found).items() if getattr(value, "__module__", None) == found.__name__)
        raise UnknownName("env.id", id, (f"{module}:{n}" for n in own if not n.startswith("_")))
    if not callable(target) and not isinstance(target, EnvSpec):
        raise ConfigError("env.id", id, "a class or function that makes an env is allowed")
    return target  # type: ignore[no-any-return]


def atari() -> Any:
    """ale-py, which registers its games when it is imported."""
    try:
        import ale_py.vector_env
    except ImportError as error:
        raise MissingExtra("ale-py", "atari") from error
    return ale_py


def build(
    target: EnvSpec | Callable[..., Any], kwargs: dict[str, Any], limit: int | None = None, masked: bool = False
) -> gym.Env[Any, Any]:
    """One env object; `limit` are steps of an episode, `masked` takes the allowed actions from `info`."""
    registered = isinstance(target, EnvSpec)
    env = _build(target, {**kwargs, "max_episode_steps": limit} if registered and limit else kwargs)
    if limit and not registered:
        own = limiter(env)
        if own is None:
            env = TimeLimit(env, limit)
        else:
            own._max_episode_steps = limit
    return Masked(env) if masked else env


def _build(target: EnvSpec | Callable[..., Any], kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    if not isinstance(target, EnvSpec):
        made = target(**kwargs)
        if not isinstance(made, gym.Env):
            raise TypeError(f"{type(made).__name__} is no gymnasium.Env")
        return made
    try:
        # The checker is for authors, and the adapter never steps before a reset: two wrappers fewer in the hot loop.
        return gym.make(replace(target, order_enforce=False), disable_env_checker=True, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        for part, extra in EXTRAS.items():
            if part in str(target.entry_point):
                raise MissingExtra(extra, extra) from error
        raise ConfigError("env.id", target.id, str(error)) from error
    except Exception as error:
        if "mujoco" not in str(target.entry_point) or "mujoco" in sys.modules or "MUJOCO_GL" not in os.environ:
            raise
        reason = f"{type(error).__name__}: {error}"
        raise PodiumError(f"{target.id} cannot be made: MuJoCo does not start ({reason}). {gl_hint()}") from error


def gl_hint() -> str:
    """How to choose what MuJoCo draws with."""
    chosen = os.environ.get("MUJOCO_GL")
    now = f"MUJOCO_GL is {chosen!r} here. " if chosen else ""
    return f"{now}Without a display set MUJOCO_GL=egl (drivers of a GPU, or Mesa's) or MUJOCO_GL=osmesa (libOSMesa)."


class Masked(gym.Wrapper[Any, Any, Any, Any]):
    """Observations with the actions that are allowed, which the env puts into `info`, beside them.

    At the end of an episode it need not: nothing is done any more, and all are.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, Discrete):
            raise ConfigError("env.action_mask", "info", f"for Discrete actions, and these are {env.action_space}")
        mask = Box(0, 1, (int(env.action_space.n),), np.int8)
        self._all = np.ones(mask.shape, np.int8)
        self.observation_space = Dict({"obs": env.observation_space, MASK: mask})

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**how)
        return self._with(obs, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        known = info if MASK in info or not (terminated or truncated) else {MASK: self._all}
        return self._with(obs, known), reward, terminated, truncated, info

    def _with(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        if MASK not in info:
            raise ConfigError("env.action_mask", "info", f"{MASK} is not in info, which holds {list(info)}")
        return {"obs": obs, MASK: np.asarray(info[MASK], np.int8)}


def time_limit(made: gym.Env[Any, Any]) -> float:
    """Steps of an episode at most, by the wrapper that `gym.make` may have put around an env."""
    found = limiter(made)
    return math.inf if found is None else found._max_episode_steps


def limiter(made: gym.Env[Any, Any]) -> TimeLimit[Any, Any] | None:
    """The wrapper that cuts its episodes, if there is one."""
    while isinstance(made, gym.Wrapper):
        if isinstance(made, TimeLimit):
            return made
        made = made.env
    return None


def portable(id: str) -> tuple[str, str | None]:
    """The name of an env as another process knows it, and the JSON of its spec where it is a registered one."""
    module, _, name = id.rpartition(":")
    if module == "__main__":
        file = getattr(imports.module("env.id", id), "__file__", None)
        if file is None:
            raise ConfigError("env.id", id, "workers need an env of a module or a file")
        return f"{file}:{name}", None
    target = resolve(id)
    if not isinstance(target, EnvSpec):
        return id, None
    entry = target.entry_point
    if callable(entry):
        entry = f"{entry.__module__}:{getattr(entry, '__qualname__', '<nameless>')}"
    if entry is None or "<" in entry or entry.startswith("__main__:"):
        raise ConfigError("env.id", id, f"workers need an entry point that can be imported by name, not {entry}")
    try:
        return id, replace(target, entry_point=entry, vector_entry_point=None).to_json()
    except (TypeError, ValueError) as error:
        raise ConfigError("env.id", id, f"workers need a spec of plain data ({error})") from error
