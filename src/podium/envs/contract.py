"""What Gymnasium asks of an env: tried with one reset and one step, so that a broken one is refused before training."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from numpy.typing import NDArray

from podium.core.errors import ConfigError, PodiumError
from podium.core.parts import Row, parts_of
from podium.envs.objects import measured, name_of, seen, spaces_of


def check(env: gym.Env[Any, Any], measures: Sequence[str] = ()) -> None:
    """One reset and one step of an env that nobody needs afterwards, or a ConfigError with the rule that it breaks."""
    spaces_of(env)
    answer = _try(env, "reset", lambda: env.reset(seed=0))
    check_reset(env, answer)
    action = copy.deepcopy(env.action_space)  # a class may share it among its objects
    action.seed(0)
    allowed = action.sample(_mask(env, answer[0]))
    check_step(env, _try(env, "step", lambda: env.step(allowed)), measures)


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


def _mask(env: gym.Env[Any, Any], obs: Any) -> NDArray[np.int8] | None:
    """Which of the actions an observation allows, where it says so: an env may raise at the others."""
    row, action = seen(env.observation_space), env.action_space
    part = next((part for part in parts_of(row) if part.mask), None)
    if not isinstance(row, Row) or not isinstance(action, Discrete) or part is None or part.size != action.n:
        return None
    numbers = np.empty(row.shape, np.float32)
    row.write(obs, numbers)
    return (numbers[part.first : part.first + part.size] > 0).astype(np.int8)


def _check_obs(env: gym.Env[Any, Any], obs: Any, method: str) -> None:
    try:
        wrong = _wrong(env.observation_space, obs)
    except (TypeError, ValueError) as error:  # numpy's, of what is no array
        wrong = "", f"is {_short(obs)}: {error}"
    if wrong:
        part, why = wrong
        raise _refused(env, f"{f'{part} in ' if part else ''}the observation of {method} {why}")


def _wrong(space: gym.Space[Any], obs: Any, name: str = "") -> tuple[str, str] | None:
    """The first part of an observation that is none of its space, and why."""
    if isinstance(space, Dict | Tuple):
        children, values = _items(space.spaces), _items(obs)
        if values.keys() != children.keys():
            return name, f"is {_short(obs)}, its space {space}"
        inside = ((key, child, values[key]) for key, child in children.items())
        parts = (_wrong(child, value, f"{name}.{key}" if name else str(key)) for key, child, value in inside)
        return next((wrong for wrong in parts if wrong), None)
    if isinstance(space, Box):
        if np.shape(obs) != space.shape:
            return name, f"has the shape {np.shape(obs)}, its space {space.shape}"
        if isinstance(obs, np.ndarray) and not np.can_cast(obs.dtype, space.dtype, "same_kind"):
            return name, f"has the dtype {obs.dtype}, its space {space.dtype}"
        with np.errstate(over="ignore"):  # bounds are as exact as the dtype of the space
            numbers = np.asarray(obs, space.dtype if space.dtype.kind == "f" else None)
        fits = bool(np.all(numbers >= space.low) and np.all(numbers <= space.high))
    else:
        fits = space.contains(obs)
    return None if fits else (name, f"lies outside its space {space}: {_short(obs)}")


def _items(value: Any) -> dict[Any, Any]:
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else {}


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
