"""From the name of an env to M x E of them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec

from podium.core.actions import Actions
from podium.core.errors import ConfigError
from podium.envs import contract, wrappers
from podium.envs.base import VecEnv
from podium.envs.build import build, resolve, time_limit
from podium.envs.from_atari import FromAtari, game_of, limit_of_game
from podium.envs.from_gymnasium import FromGymnasium
from podium.envs.mujoco_tasks import TASKS
from podium.envs.native import SIMULATORS
from podium.envs.native.base import Simulator
from podium.envs.objects import spaces_of
from podium.envs.settings import EnvSettings
from podium.envs.workers import Limits, Workers

# Up to so many envs Gymnasium's objects make a PPO run over 15 % faster: its step and share of the update take 1.7 ms,
# Acrobot's 100 operations 0.5 ms. The other simulators lose 0.1 ms at worst (1 env) and give an exact resume.
FEW = {"Acrobot-v1": 4}
# MuJoCo's tasks are always a batch. Against Gymnasium's objects its steps are 0.9-1.1 times as fast with 1 env, 1.1-1.7
# with 4, 1.4-2.5 with 16 and 1.4-3 with 64 (two cores, of which others took half); and a batch resumes exactly.
# Objects move to workers by request only: what an env costs is known once it runs, and below 50 us it loses by them.

OBJECTS = ("gymnasium", "workers")
"""Sources that are objects of the outside world, each stepped by itself."""


def make(env: EnvSettings, members: int, envs: int, device: torch.device | str = "cpu", scored: bool = False) -> VecEnv:
    """`envs` envs for each of `members`.

    `scored` says that what counts is the score, and not what helps to learn (clipped rewards, Atari's single lives).
    """
    return wrappers.wrap(_bare(env, members, envs, device, scored), env, limit_of(env), scored)


def _bare(env: EnvSettings, members: int, envs: int, device: torch.device | str, scored: bool) -> VecEnv:
    size, source, kwargs = (members, envs, device), source_of(env, members * envs), dict(env.kwargs)
    if source == "envpool":
        from podium.envs.from_envpool import FromEnvPool

        return FromEnvPool(env.id, *size, kwargs, env.time_limit, scored)
    if source == "native":
        return SIMULATORS[env.id](*size, time_limit=env.time_limit)
    if source == "own":
        if env.time_limit is not None and _is(resolve(env.id), Simulator):
            kwargs["time_limit"] = env.time_limit
        return resolve(env.id)(*size, **kwargs)  # type: ignore[no-any-return, operator]
    if source == "atari":
        return FromAtari(env.id, *size, kwargs, scored, env.time_limit)
    if source == "workers":
        limits = Limits(env.workers, env.timeout, env.max_failures)
        masked = env.action_mask is not None
        return Workers(env.id, *size, kwargs, env.measures, limits, env.time_limit, masked)
    if source == "mujoco":
        made = make_one(env)  # first: it says what is missing, should MuJoCo be
        from podium.envs.from_mujoco import FromMujoco

        return FromMujoco(made, TASKS[resolve(env.id).entry_point], *size)  # type: ignore[union-attr, index]
    return FromGymnasium(partial(make_one, env), *size, env.measures)


def source_of(env: EnvSettings, count: int) -> str:
    """Where `count` envs would come from: what `env.source` says, if it has them; `own` is a VecEnv of a user's."""
    if env.source == "envpool":
        _refuse_plain(env, "an env of EnvPool's")
        return "envpool"
    target = resolve(env.id)
    if _is_vec_env(target):
        _check_own(env, target)
        return "own"
    plain = not env.measures and env.action_mask is None  # nothing is asked of `info`, which only objects have
    simulated = env.id in SIMULATORS and not env.kwargs and plain
    batched = plain and _is_task(target, env.kwargs)
    if env.source == "auto":
        if simulated and count > FEW.get(env.id, 0):
            return "native"
        if game_of(env.id):
            _refuse_plain(env, "a game, whose images only ale-py's own vector env makes")
            return "atari"
        return "mujoco" if batched else "gymnasium"
    if env.source == "native" and not simulated:
        raise _no_simulator(env)
    if env.source == "atari":
        _refuse_plain(env, "a game of ale-py's own vector env")
    if env.source == "mujoco" and not batched:
        allowed = f"{env.id} with these settings is none of its tasks; use env.source=auto"
        raise ConfigError("env.source", env.source, allowed)
    return env.source


def make_one(env: EnvSettings, **more: Any) -> gym.Env[Any, Any]:
    """One env object of Gymnasium's, to render or to act in by hand."""
    target = resolve(env.id)
    if _is_vec_env(target):
        raise ConfigError("env.id", env.id, "a Gymnasium id or a gymnasium.Env is needed to render")
    return build(target, {**env.kwargs, **more}, env.time_limit, env.action_mask is not None)


def describe(env: EnvSettings) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Spaces of the observations and actions of one env, as members see them."""
    obs, action = _spaces(env)
    return wrappers.seen(obs, env, limit_of(env)), action


def _spaces(env: EnvSettings) -> tuple[gym.Space[Any], gym.Space[Any]]:
    source = source_of(env, 1)
    if env.id in SIMULATORS and source in ("native", "gymnasium") and not env.kwargs and env.action_mask is None:
        return SIMULATORS[env.id].obs_space, SIMULATORS[env.id].action_space
    if source in ("own", "atari", "envpool"):
        vec = _bare(env, 1, 1, "cpu", scored=False)
        vec.close()
        return vec.obs_space, vec.action_space
    one = make_one(env)
    one.close()
    return spaces_of(one)


def actions(env: EnvSettings) -> Actions:
    """How what members choose becomes what an env takes."""
    source = source_of(env, 1)
    if source in ("own", "atari", "envpool") or env.id in SIMULATORS:
        return Actions(_spaces(env)[1])
    one = make_one(env)
    one.close()
    return Actions(one.action_space)


def outside(env: EnvSettings, count: int) -> bool:
    """Whether they would be objects of the outside world, each stepped by itself."""
    return source_of(env, count) in OBJECTS


def styled(env: EnvSettings) -> bool:
    """Whether its steps tell how they were done."""
    source = source_of(env, env.num)
    kind = SIMULATORS[env.id] if source == "native" else resolve(env.id) if source == "own" else None
    return bool(getattr(kind, "styled", False))


def try_out(env: EnvSettings, count: int) -> None:
    """Refuse an env of Gymnasium's that breaks its rules, or does not report what is to be measured.

    One that is meant for workers may crash or hang, and is tried by them.
    """
    if source_of(env, count) != "gymnasium":
        return
    one = make_one(env)
    try:
        contract.check(one, env.measures)
    finally:
        one.close()


def limit_of(env: EnvSettings) -> float | None:
    """Steps of an episode at most, where that is known."""
    source = source_of(env, 1)
    if env.time_limit is not None or not env.time_aware or source == "envpool":
        return env.time_limit
    if source == "own":
        found = getattr(resolve(env.id), "time_limit", None) or math.inf
    elif env.id in SIMULATORS and not env.kwargs:
        found = SIMULATORS[env.id].time_limit
    elif source == "atari":
        found = limit_of_game(env.kwargs)
    else:
        one = make_one(env)
        one.close()
        found = time_limit(one)
    return found if math.isfinite(found) else None


def endless(env: EnvSettings) -> bool:
    """Whether nothing says when an episode ends, so that it may go on for ever."""
    if env.time_limit is not None:
        return False
    if env.id in SIMULATORS and not env.kwargs:
        return math.isinf(SIMULATORS[env.id].time_limit)
    if source_of(env, 1) not in OBJECTS:
        return False
    target = resolve(env.id)
    if isinstance(target, EnvSpec) and (target.max_episode_steps or env.kwargs.get("max_episode_steps")):
        return False
    one = make_one(env)
    one.close()
    return math.isinf(time_limit(one))


def _check_own(env: EnvSettings, target: Any) -> None:
    if env.measures:
        raise ConfigError("env.measures", list(env.measures), "none: this env reports its objectives itself")
    if env.action_mask is not None:
        raise ConfigError("env.action_mask", env.action_mask, f"null: {env.id} is a VecEnv, which has no info")
    if env.time_limit is not None and not _is(target, Simulator):
        raise ConfigError("env.time_limit", env.time_limit, f"null: {env.id} is a VecEnv, which ends its own episodes")
    if env.source == "workers":
        raise ConfigError("env.source", env.source, f"workers step objects of gymnasium.Env, and {env.id} is a VecEnv")
    if env.source in ("native", "mujoco", "atari"):
        raise ConfigError("env.source", env.source, f"auto: {env.id} is a VecEnv of its own")


def _refuse_plain(env: EnvSettings, what: str) -> None:
    """What stands in `info` cannot be had of a source that steps its envs together."""
    for name in ("measures", "action_mask"):
        if value := getattr(env, name):
            raise ConfigError(f"env.{name}", value, f"none for {what}; use env.source=gymnasium")


def _no_simulator(env: EnvSettings) -> ConfigError:
    if env.id not in SIMULATORS:
        return ConfigError("env.source", env.source, f"{env.id} has no simulator; there are {', '.join(SIMULATORS)}")
    if env.kwargs:
        return ConfigError("env.kwargs", env.kwargs, "a simulator takes none; use env.source=gymnasium")
    if env.measures:
        return ConfigError("env.measures", list(env.measures), "none: this env reports its objectives itself")
    return ConfigError("env.action_mask", env.action_mask, "null: a simulator has no info; use env.source=gymnasium")


def _is_task(target: Any, kwargs: dict[str, Any]) -> bool:
    """Whether it is one of MuJoCo's tasks that can be stepped as one batch."""
    if not isinstance(target, EnvSpec) or target.additional_wrappers or target.entry_point not in TASKS:
        return False
    return (dict(target.kwargs) | kwargs).get("render_mode") is None


def _is_vec_env(target: object) -> bool:
    return isinstance(target, type) and not issubclass(target, gym.Env) and hasattr(target, "load")


def _is(target: object, kind: type) -> bool:
    return isinstance(target, type) and issubclass(target, kind)
