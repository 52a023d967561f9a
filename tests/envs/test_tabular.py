"""Every table beside Gymnasium's env: all outcomes of every action at every place, and the starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import podium
from podium.core.streams import Streams
from podium.envs.from_gymnasium import FromGymnasium
from podium.envs.native import SIMULATORS
from podium.envs.native.tabular import Tabular
from worlds import make

TABLES = [id for id, simulator in SIMULATORS.items() if issubclass(simulator, Tabular)]
tables = pytest.mark.parametrize("id", TABLES)


def at(id: str, places: list[int], chances: list[float]) -> Tabular:
    """A simulator `[1, E]` whose envs are at these places, about to draw these numbers."""
    env = SIMULATORS[id](1, len(places))
    env.reset(Streams(0, [0]))
    tree = env.state()
    for name, values in (("place", places), ("chance", chances)):
        tree["now"][name] = torch.tensor([values], dtype=env.table.dtype)
    env.load(tree)
    assert isinstance(env, Tabular)
    return env


@tables
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.5, 0.9, 0.999999])  # on both sides of a third and two thirds
def test_every_transition_is_that_of_the_twin(id: str, chance: float) -> None:
    twin: Any = gym.make(id, disable_env_checker=True).unwrapped
    twin.reset(seed=0)
    twin.np_random = SimpleNamespace(random=lambda: chance)
    pairs = [(place, action) for place in twin.P for action in twin.P[place]]
    env = at(id, [place for place, _ in pairs], [chance] * len(pairs))
    step = env.step(torch.tensor([[action for _, action in pairs]]))
    row = np.zeros(env.obs_space.shape, np.float32)
    for e, (place, action) in enumerate(pairs):
        twin.s = place
        obs, reward, terminated, truncated, _ = twin.step(action)
        env.obs_space.write(obs, row)
        np.testing.assert_array_equal(step.last[0, e].numpy(), row)
        assert (float(step.reward[0, e]), bool(step.terminated[0, e])) == (reward, terminated)
    assert 0 < int(step.terminated.sum()) < len(pairs) and not step.truncated.any()


def test_every_outcome_has_its_share() -> None:
    """On ice a step right from the first place leads down, right or, at the edge, nowhere, a third each."""
    env = SIMULATORS["FrozenLake-v1"](1, 6000)
    env.reset(Streams(0, [0]))
    first = env.s["chance"].clone()
    places = env.step(torch.full((1, 6000), 2)).last[0].argmax(1)
    counts = torch.bincount(places, minlength=16)
    assert counts.nonzero().flatten().tolist() == [0, 1, 4] and (counts[[0, 1, 4]] - 2000).abs().max() < 150
    assert (env.s["chance"] == first).sum() < 10, "the next step has chances of its own"


@tables
def test_starts_are_as_likely_as_the_twins(id: str) -> None:
    env = SIMULATORS[id](1, 30_000)
    first = env.reset(Streams(0, [0]))[0].argmax(1)
    share = torch.bincount(first, minlength=env.obs_space.shape[0]) / 30_000
    wanted = torch.as_tensor(gym.make(id).unwrapped.initial_state_distrib)
    assert torch.equal(share > 0, wanted > 0) and (share - wanted).abs().max() < 0.003


def test_what_the_table_does_not_say_is_left_to_gymnasium() -> None:
    assert type(make("FrozenLake-v1", 1, 2)) is SIMULATORS["FrozenLake-v1"]
    assert type(make("FrozenLake-v1", 1, 2, kwargs={"is_slippery": False})) is FromGymnasium
    assert type(make("Taxi-v4", 1, 2, action_mask="info")) is FromGymnasium


@tables
def test_a_step_shows_the_row_that_the_objects_show(id: str) -> None:
    native, objects = make(id, 1, 3, "native"), make(id, 1, 3, "gymnasium")
    assert (native.obs_space, native.action_space) == (objects.obs_space, objects.action_space)
    for env in (native, objects):
        seen = env.reset(Streams(0, [0]))
        for _ in range(5):
            assert (seen.sum(-1) == 1).all() and set(seen.unique().tolist()) == {0, 1}
            seen = env.step(torch.zeros(1, 3, dtype=torch.int64)).obs


@pytest.mark.slow
def test_the_preset_finds_the_shortest_way_along_the_cliff(tmp_path: Path) -> None:
    podium.train("cliffwalking", "ppo", "stop.steps=120000", "train.threads=1", out=tmp_path / "run")
    assert (podium.load(tmp_path / "run").evaluate(5, "CliffWalking-v1") >= -15).all()
