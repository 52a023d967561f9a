"""Batches of other programs: the one of the guide learns, on its own device, without a copy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import podium
from podium.core.errors import ConfigError, PodiumError
from podium.core.streams import Streams
from podium.envs.base import VecEnv
from podium.envs.batch import Batch

GUIDE = Path(__file__).parents[2] / "docs" / "vectorised.md"


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    """The class as it stands in the guide."""
    code = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S) if "(Batch)" in block)
    file = tmp_path / "walk.py"
    file.write_text(code)
    return file


def build(file: Path, members: int, envs: int) -> VecEnv:
    space: dict[str, type] = {}
    exec(file.read_text(), space)
    return space["Walk"](members, envs, "cpu")  # type: ignore[no-any-return]


def test_totals_and_ends(walk: Path) -> None:
    env = build(walk, 2, 2)
    assert env.reset(Streams(0, [0, 1])).shape == (2, 2, 1)
    action = torch.tensor([[1, 1], [1, 0]])
    for _ in range(3):
        step = env.step(action)
    assert step.terminated.tolist() == [[True, True], [True, False]] and not step.truncated.any()
    assert step.last.flatten().tolist() == [3, 3, 3, -3] and step.obs.flatten().tolist() == [0, 0, 0, -3]
    torch.testing.assert_close(step.episode.reward[0], torch.full((2,), 0.7))
    assert step.episode.length[0].tolist() == [3, 3]
    for _ in range(17):
        step = env.step(action)
    assert step.truncated.tolist() == [[False, False], [False, True]] and float(step.episode.length[1, 1]) == 20


def test_nothing_is_copied(walk: Path) -> None:
    env = build(walk, 2, 3)
    env.reset(Streams(0, [0, 1]))
    given = []
    advance = env.advance  # type: ignore[attr-defined]
    env.advance = lambda action: given.append(advance(action)) or given[-1]  # type: ignore[attr-defined, func-returns-value]
    step = env.step(torch.zeros(2, 3, dtype=torch.int64))
    assert step.obs.data_ptr() == given[0][0].data_ptr() and step.last.data_ptr() == given[0][4].data_ptr()


@pytest.mark.parametrize(
    ("space", "chosen", "taken"),
    [
        (Discrete(3, start=5), [[0, 2]], [5, 7]),
        (MultiDiscrete([2, 3], start=[5, -1]), [[[0, 2], [1, 0]]], [[5, 1], [6, -1]]),
        (Box(-1, 2, (1,)), [[[3.0], [torch.nan]]], [[2.0], [0.0]]),
        (Box(-torch.inf, torch.inf, (1,)), [[[torch.inf], [1.0]]], [[torch.inf], [1.0]]),
    ],
    ids=str,
)
def test_actions_are_counted_as_the_space_does(space: Space, chosen: list, taken: list) -> None:
    env = Batch(1, 2)
    env.action_space = space
    assert env.chosen(torch.tensor(chosen)).tolist() == taken


def test_actions_that_nobody_supports_are_named() -> None:
    env = Batch(1, 1)
    env.action_space = Box(0, 3, (1,), int)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"env.id: 'Batch' is not allowed; its actions are .*of floats can be used"):
        env.chosen(torch.zeros(1, 1, 1))


def test_it_learns(walk: Path, tmp_path: Path) -> None:
    words = (
        f"{walk}:Walk",
        "ppo",
        "env.num=64",
        "algo.steps=32",
        "algo.lr=1e-3",
        "stop.steps=20000",
        "eval.every=4000",
    )
    result = podium.train(*words, out=tmp_path / "run")
    assert result.top[0]["fitness"] == pytest.approx(0.7, abs=1e-5)  # three steps to the right


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda obs, r, t, u, last: (obs, r[:, None], t, u, last), r"Walk, reward: shape \[6, 1\], .* be \[6\]"),
        (lambda obs, r, t, u, last: (obs[:, 0], r, t, u, last), r"Walk, obs: shape \[6\], .* be \[6, 1\]"),
        (lambda obs, r, t, u, last: (obs, r, t, u, last[:1]), r"Walk, last: shape \[1, 1\], .* be \[6, 1\]"),
        (
            lambda obs, r, t, u, last: (obs, r, t, u),
            "Walk.advance: 4 values, not obs, reward, terminated, truncated, last",
        ),
        (lambda *outcome: None, "Walk.advance: NoneType, not obs, reward"),
    ],
)
def test_what_has_another_shape_is_refused(wrong: Any, message: str, walk: Path) -> None:
    env = build(walk, 2, 3)
    env.reset(Streams(0, [0, 1]))
    advance = env.advance  # type: ignore[attr-defined]
    env.advance = lambda action: wrong(*advance(action))  # type: ignore[attr-defined]
    with pytest.raises(PodiumError, match=message):
        env.step(torch.zeros(2, 3, dtype=torch.int64))
