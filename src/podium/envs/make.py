"""From the name of an env to M x E of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec

from podium.core.actions import Actions
from podium.core.errors import ConfigError
from podium.envs import contract
from podium.envs.base import VecEnv
from podium.envs.build import build, resolve
from podium.envs.from_atari import FromAtari, game_of
from podium.envs.from_gymnasium import FromGymnasium
from podium.envs.mujoco_tasks import TASKS
from podium.envs.native import SIMULATORS
from podium.envs.objects import spaces_of
from podium.envs.workers import Limits, Workers

SOURCES = ("auto", "native", "mujoco", "atari", "gymnasium", "workers")
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
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    scored: bool = False,
) -> VecEnv:
    """`id` is Gymnasium's, or `module:Class` of an own gymnasium.Env or VecEnv; `measures` are keys of its `info`.

    `scored` says that what counts is the score, and not what helps to learn (Atari's clipped rewards and single lives).
    """
    kwargs = dict(kwargs or {})
    if source not in SOURCES:
        raise ConfigError("env.source", source, f"allowed: {', '.join(SOURCES)}")
    target = resolve(id)
    twin = SIMULATORS.get(id)
    _check_source(id, source, measures)
    if source == "native":
        if twin is None:
            raise ConfigError("env.source", source, f"{id} has no simulator; there are {', '.join(SIMULATORS)}")
        if kwargs:
            raise ConfigError("env.kwargs", kwargs, "a simulator takes none; use env.source=gymnasium")
    if twin is not None and not measures and simulated(id, members * envs, source, kwargs):
        return twin(members, envs, device)
    if _is_vec_env(target):
        return target(members, envs, device, **kwargs)  # type: ignore[no-any-return, operator]
    if not measures and by_ale(id, source):
        return FromAtari(id, members, envs, device, kwargs, scored)
    if not measures and batched(id, source, kwargs):
        return _batch(target, kwargs, members, envs, device)
    if source == "mujoco":
        raise ConfigError("env.source", source, f"{id} with these settings is none of its tasks; use env.source=auto")
    if in_workers(source):
        return Workers(id, members, envs, device, kwargs, measures, limits)
    return FromGymnasium(partial(build, target, kwargs), members, envs, device, measures)


def simulated(id: str, count: int, source: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether `count` envs of this id would come from a native simulator."""
    return id in SIMULATORS and not kwargs and (source == "native" or (source == "auto" and count > FEW.get(id, 0)))


def batched(id: str, source: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether envs of this id would be MuJoCo's, stepped as one batch."""
    target = resolve(id)
    if source not in ("auto", "mujoco") or not isinstance(target, EnvSpec) or target.additional_wrappers:
        return False
    return target.entry_point in TASKS and (dict(target.kwargs) | dict(kwargs)).get("render_mode") is None


def by_ale(id: str, source: str) -> bool:
    """Whether it is a game of Atari's, stepped by ale-py's own vector env."""
    return source == "atari" or (source == "auto" and game_of(id) is not None)


def in_workers(source: str) -> bool:
    """Whether objects of Gymnasium's are stepped by processes of their own; a rule for `auto` would stand here."""
    return source == "workers"


def outside(id: str, count: int, source: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether they would be objects of Gymnasium's, stepped one by one."""
    found = simulated(id, count, source, kwargs) or batched(id, source, kwargs) or by_ale(id, source)
    return not found and not _is_vec_env(resolve(id))


def make_one(id: str, kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """One env object of Gymnasium's, to render or to act in by hand."""
    target = resolve(id)
    if _is_vec_env(target):
        raise ConfigError("env.id", id, "a Gymnasium id or a gymnasium.Env is needed to render")
    return build(target, dict(kwargs or {}))


def describe(
    id: str, kwargs: Mapping[str, Any] | None = None, source: str = "auto"
) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Spaces of the observations and actions of one env, as `make` would give them."""
    target, kwargs = resolve(id), dict(kwargs or {})
    if id in SIMULATORS and not kwargs:
        return SIMULATORS[id].obs_space, SIMULATORS[id].action_space
    if _is_vec_env(target) or by_ale(id, source):
        vec = make(id, 1, 1, source, "cpu", kwargs)
        vec.close()
        return vec.obs_space, vec.action_space
    env = build(target, kwargs)
    env.close()
    return spaces_of(env)


def actions(id: str, kwargs: Mapping[str, Any] | None = None, source: str = "auto") -> Actions:
    """How what members choose becomes what an env of this id takes."""
    target = resolve(id)
    if id in SIMULATORS or _is_vec_env(target) or by_ale(id, source):
        return Actions(describe(id, kwargs, source)[1])
    env = build(target, dict(kwargs or {}))
    env.close()
    return Actions(env.action_space)


def try_out(id: str, count: int, source: str, kwargs: Mapping[str, Any], measures: Sequence[str]) -> None:
    """Refuse an env of Gymnasium's that breaks its rules, or does not report what is to be measured.

    One that is meant for workers may crash or hang, and is tried by them.
    """
    _check_source(id, source, measures)
    if in_workers(source) or not (measures or outside(id, count, source, kwargs)):
        return
    env = build(resolve(id), dict(kwargs))
    try:
        contract.check(env, measures)
    finally:
        env.close()


def _check_source(id: str, source: str, measures: Sequence[str]) -> None:
    if measures and (source == "native" or _is_vec_env(resolve(id))):
        raise ConfigError("env.measures", list(measures), "none: this env reports its objectives itself")
    if source == "workers" and _is_vec_env(resolve(id)):
        raise ConfigError("env.source", source, f"workers step objects of gymnasium.Env, and {id} is a VecEnv")


def _is_vec_env(target: object) -> bool:
    return isinstance(target, type) and not issubclass(target, gym.Env) and hasattr(target, "load")


def _batch(target: Any, kwargs: dict[str, Any], members: int, envs: int, device: torch.device | str) -> VecEnv:
    made = build(target, kwargs)  # first: it says what is missing, should MuJoCo be
    from podium.envs.from_mujoco import FromMujoco

    return FromMujoco(made, TASKS[target.entry_point], members, envs, device)
