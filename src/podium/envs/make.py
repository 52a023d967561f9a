"""From the name of an env to M x E of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec

from podium.core import imports
from podium.core.errors import ConfigError, MissingExtra, UnknownName
from podium.envs.base import VecEnv
from podium.envs.from_gymnasium import FromGymnasium, spaces_of
from podium.envs.mujoco_tasks import TASKS
from podium.envs.native import SIMULATORS

SOURCES = ("auto", "native", "mujoco", "gymnasium")
EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "ale_py": "atari"}  # part of an entry point: the extra it needs
# Up to so many envs Gymnasium's objects make a PPO run over 15 % faster: its step and share of the update take 1.7 ms,
# Acrobot's 100 operations 0.5 ms. The other simulators lose 0.1 ms at worst (1 env) and give an exact resume.
FEW = {"Acrobot-v1": 4}
# MuJoCo's tasks are always a batch. Against Gymnasium's objects its steps are 0.9-1.1 times as fast with 1 env, 1.1-1.7
# with 4, 1.4-2.5 with 16 and 1.4-3 with 64 (two cores, of which others took half); and a batch resumes exactly.


def make(
    id: str,
    members: int,
    envs: int,
    source: str = "auto",
    device: torch.device | str = "cpu",
    kwargs: Mapping[str, Any] | None = None,
    measures: Sequence[str] = (),
) -> VecEnv:
    """`id` is Gymnasium's, or `module:Class` of an own gymnasium.Env or VecEnv; `measures` are keys of its `info`."""
    kwargs = dict(kwargs or {})
    if source not in SOURCES:
        raise ConfigError("env.source", source, f"allowed: {', '.join(SOURCES)}")
    target = resolve(id)
    twin = SIMULATORS.get(id)
    if measures and (source == "native" or _is_vec_env(target)):
        raise ConfigError("env.measures", list(measures), "none: this env reports its objectives itself")
    if source == "native":
        if twin is None:
            raise ConfigError("env.source", source, f"{id} has no simulator; there are {', '.join(SIMULATORS)}")
        if kwargs:
            raise ConfigError("env.kwargs", kwargs, "a simulator takes none; use env.source=gymnasium")
    if twin is not None and not measures and simulated(id, members * envs, source, kwargs):
        return twin(members, envs, device)
    if _is_vec_env(target):
        return target(members, envs, device, **kwargs)  # type: ignore[no-any-return, operator]
    if not measures and batched(id, source, kwargs):
        return _batch(target, kwargs, members, envs, device)
    if source == "mujoco":
        raise ConfigError("env.source", source, f"{id} with these settings is none of its tasks; use env.source=auto")
    return FromGymnasium(partial(_build, target, kwargs), members, envs, device, measures)


def simulated(id: str, count: int, source: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether `count` envs of this id would come from a native simulator."""
    return id in SIMULATORS and not kwargs and (source == "native" or (source == "auto" and count > FEW.get(id, 0)))


def batched(id: str, source: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether envs of this id would be MuJoCo's, stepped as one batch."""
    target = resolve(id)
    if source not in ("auto", "mujoco") or not isinstance(target, EnvSpec) or target.additional_wrappers:
        return False
    return target.entry_point in TASKS and (dict(target.kwargs) | dict(kwargs)).get("render_mode") is None


def outside(id: str, count: int, source: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether they would be objects of Gymnasium's, stepped one by one."""
    found = simulated(id, count, source, kwargs) or batched(id, source, kwargs)
    return not found and not _is_vec_env(resolve(id))


def make_one(id: str, kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """One env object of Gymnasium's, to render or to act in by hand."""
    target = resolve(id)
    if _is_vec_env(target):
        raise ConfigError("env.id", id, "a Gymnasium id or a gymnasium.Env is needed to render")
    return _build(target, dict(kwargs or {}))


def describe(id: str, kwargs: Mapping[str, Any] | None = None) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Spaces of the observations and actions of one env, as `make` would give them."""
    target, kwargs = resolve(id), dict(kwargs or {})
    if id in SIMULATORS and not kwargs:
        return SIMULATORS[id].obs_space, SIMULATORS[id].action_space
    if _is_vec_env(target):
        vec = target(1, 1, "cpu", **kwargs)  # type: ignore[operator]
        vec.close()
        return vec.obs_space, vec.action_space
    env = _build(target, kwargs)
    env.close()
    return spaces_of(env)


def resolve(id: str) -> EnvSpec | Callable[..., Any]:
    """What `id` names, or UnknownName; builds nothing."""
    module, colon, name = id.rpartition(":")
    if not colon:
        if id not in gym.registry:
            raise UnknownName("env.id", id, gym.registry)
        return gym.registry[id]
    found = imports.module("env.id", id)
    target = getattr(found, name, None) or gym.registry.get(name)  # Gymnasium's own form names a module that registers
    if target is None:
        raise UnknownName("env.id", id, (f"{module}:{n}" for n in vars(found) if not n.startswith("_")))
    if not callable(target) and not isinstance(target, EnvSpec):
        raise ConfigError("env.id", id, "a class or function that makes an env is allowed")
    return target  # type: ignore[no-any-return]


def _is_vec_env(target: object) -> bool:
    return isinstance(target, type) and not issubclass(target, gym.Env) and hasattr(target, "load")


def _batch(target: Any, kwargs: dict[str, Any], members: int, envs: int, device: torch.device | str) -> VecEnv:
    made = _build(target, kwargs)  # first: it says what is missing, should MuJoCo be
    from podium.envs.from_mujoco import FromMujoco

    return FromMujoco(made, TASKS[target.entry_point], members, envs, device)


def _build(target: EnvSpec | Callable[..., Any], kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    """One env object."""
    if not isinstance(target, EnvSpec):
        return target(**kwargs)  # type: ignore[no-any-return]
    try:
        # The checker is for authors, and the adapter never steps before a reset: two wrappers fewer in the hot loop.
        return gym.make(replace(target, order_enforce=False), disable_env_checker=True, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        for part, extra in EXTRAS.items():
            if part in str(target.entry_point):
                raise MissingExtra(extra, extra) from error
        raise ConfigError("env.id", target.id, str(error)) from error
