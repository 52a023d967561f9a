"""A member that fails says which number was not finite, in which env, wherever its envs come from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import podium
import whole

SMALL = ("algo.steps=16", "env.num=2", "eval.episodes=2", "eval.max_steps=10", "stop.steps=256", "stop.fitness=null")


class Glitch(gym.Env[Any, Any]):
    """The 20th step of an env gives a NaN, as its reward or as `what` else."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, what: str = "reward") -> None:
        self.what, self.steps = what, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        odd = math.nan if self.steps == 20 else 0.0
        obs = np.array([0, odd if self.what == "obs" else 0], np.float32)
        return obs, odd if self.what == "reward" else 0.0, False, self.steps % 10 == 0, {}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("reward", "the reward of env 0 was nan (step 4 of the rollout)"),
        ("obs", "the observation of env 0 was nan (step 4 of the rollout)"),
    ],
)
def test_objects_of_gymnasium(what: str, said: str, tmp_path: Path) -> None:
    words = ("env=test_not_finite:Glitch", f"env.kwargs.what={what}", "a2c", *SMALL)
    code, _, err = whole.command("train", *words, "-o", tmp_path / "run")
    assert code == 1 and "all members failed" in err
    assert whole.members(tmp_path / "run")[0]["reason"] == said
    assert f"member 0 failed at step 64: {said}" in (tmp_path / "run/log.txt").read_text()


def explodes(n_in: int, n_out: int) -> torch.nn.Module:
    layer = torch.nn.Linear(n_in, n_out)
    torch.nn.init.constant_(layer.weight, 1e38)
    return layer


def test_a_gradient_by_itself(tmp_path: Path) -> None:
    words = ("CartPole-v1", "a2c", "net.module=test_not_finite:explodes", "algo.lr=1e30", *SMALL)
    podium.train(*words, out=tmp_path / "run")
    said = "a loss or gradient was nan or infinite, and all observations and rewards were finite"
    assert whole.members(tmp_path / "run")[0]["reason"] == said
