"""What Gymnasium asks of an env: tried with one reset and one step, so that a broken one is refused before training."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from podium.core.errors import ConfigError, PodiumError
from podium.envs.objects import measured, name_of, spaces_of


def check(env: gym.Env[Any, Any], measures: Sequence[str] = ()) -> None:
    """One reset and one step of an env that nobody needs afterwards, or a ConfigError with the rule that it breaks."""
    spaces_of(env)
    check_reset(env, _try(env, "reset", lambda: env.reset(seed=0)))
    action = copy.deepcopy(env.action_space)  # a class may share it among its objects
    action.seed(0)
    check_step(env, _try(env, "step", lambda: env.step(action.sample())), measures)


def check_reset(env: gym.Env[Any, Any], answer: Any) -> None:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise _refused(env, f"reset has to return (observation, info), not {_short(answer)}")
    obs, info = answer
    _check_obs(env, obs, "reset")
    _check_info(env, info, "reset")


def check_step(env: gym.Env[Any, Any], answer: Any, measures: Sequence[str] = ()) -> None:
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise _refused(
            env, f"step has to return (observation, reward, terminated, truncated, info), not {_short(answer)}"
        )
    obs, reward, terminated, truncated, info = answer
    _check_obs(env, obs, "step")
    if not (np.ndim(reward) == 0 and np.asarray(reward).dtype.kind in "biuf" and math.isfinite(reward)):
        raise _refused(env, f"the reward has to be a finite number, not {_short(reward)}")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_ | int):
            raise _refused(env, f"{name} has to be True or False, not {_short(flag)}")
    _check_info(env, info, "step")
    for name in measures:
        value = measured(info, name)
        if not (np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"):
            raise ConfigError("env.measures", name, f"a number in info, not {_short(value)}")


def _check_obs(env: gym.Env[Any, Any], obs: Any, method: str) -> None:
    space, said = env.observation_space, f"the observation of {method}"
    if isinstance(space, Box):
        if np.shape(obs) != space.shape:
            raise _refused(env, f"{said} has the shape {np.shape(obs)}, its space {space.shape}")
        if isinstance(obs, np.ndarray) and not np.can_cast(obs.dtype, space.dtype):
            raise _refused(env, f"{said} has the dtype {obs.dtype}, its space {space.dtype}")
        if not (np.all(np.asarray(obs) >= space.low) and np.all(np.asarray(obs) <= space.high)):
            raise _refused(env, f"{said} lies outside its space {space}: {_short(obs)}")
    elif not space.contains(obs):
        raise _refused(env, f"{said} lies outside its space {space}: {_short(obs)}")


def _check_info(env: gym.Env[Any, Any], info: Any, method: str) -> None:
    if not isinstance(info, dict):
        raise _refused(env, f"the info of {method} has to be a dict, not {_short(info)}")


def _try(env: gym.Env[Any, Any], method: str, call: Any) -> Any:
    try:
        return call()
    except PodiumError:
        raise
    except Exception as error:
        raise _refused(env, f"{method} raised {type(error).__name__}: {error}") from error


def _refused(env: gym.Env[Any, Any], rule: str) -> ConfigError:
    return ConfigError("env.id", name_of(env), rule)


def _short(value: object) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 120 else f"{text[:120]}..."
