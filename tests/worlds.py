"""Envs by their name, for tests."""

from __future__ import annotations

from typing import Any

from podium.envs import make as envs
from podium.envs.base import VecEnv
from podium.envs.settings import EnvSettings


def settings(id: str, source: str = "auto", **more: Any) -> EnvSettings:
    return EnvSettings(id=id, source=source, **more)  # type: ignore[arg-type]


def make(id: str, members: int, envs_each: int, source: str = "auto", **more: Any) -> VecEnv:
    return envs.make(settings(id, source, **more), members, envs_each)
