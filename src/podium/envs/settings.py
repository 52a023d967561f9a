"""`env.*`: which env, where it comes from, and what stands between it and a member."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from podium.core.config import Section
from podium.core.imports import Importable

Source = Literal["auto", "native", "mujoco", "atari", "envpool", "gymnasium", "workers"]


class EnvSettings(Section):
    """`env.*`"""

    id: Importable = Field(description="a Gymnasium id, or module:Class or file.py:Class of your own env")
    num: int = Field(8, ge=1, description="envs of each member")
    source: Source = Field("auto", description="auto: the fastest that steps this env as Gymnasium does")
    normalise_obs: bool = False
    normalise_reward: bool = False
    reward_scale: float = Field(1.0, gt=0, allow_inf_nan=False, description="what rewards are multiplied by to learn")
    reward_clip: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="rewards to learn from are at most so large, after the scale"
    )
    frame_stack: int = Field(1, ge=1, le=1000, description="observations that a member sees at once, the last so many")
    sticky: float = Field(0.0, ge=0, lt=1, description="how likely an env does the action before once more")
    time_limit: int | None = Field(None, ge=1, description="steps of an episode, then truncated; null: the env's own")
    time_aware: bool = Field(False, description="whether a member sees how much of the time limit has passed")
    action_mask: Literal["info"] | None = Field(
        None, description="info: which actions are allowed stands in info['action_mask']"
    )
    kwargs: dict[str, Any] = Field(default_factory=dict)
    measures: tuple[str, ...] = Field((), description="keys of Gymnasium's info; means over an episode, as objectives")
    workers: int | None = Field(None, ge=1, description="processes of `source=workers`; null: one a core")
    timeout: float = Field(
        60.0, gt=0, le=1e6, description="seconds of one call of an env in a worker; then it is built anew"
    )
    max_failures: int = Field(
        5, ge=1, description="of one env in a worker, without a whole episode in between, that end the run"
    )
