"""An env that breaks Gymnasium's rules is refused before training, with its name and the rule."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest
import torch
from gymnasium.spaces import Box

from podium import experiment
from podium.core.errors import ConfigError, PodiumError
from podium.core.streams import Streams
from podium.envs import contract
from podium.envs.make import try_out
from worlds import make, settings

ODD = f"{Path(__file__).parent / 'broken_envs.py'}:Odd"
RULES = {
    "reset": r"reset has to return \(observation, info\), not ndarray",
    "info": "the info of reset has to be a dict, not NoneType",
    "shape": r"the observation of reset has the shape \(1,\), its space \(2,\)",
    "step": "step has to return .* not tuple",
    "dtype": "the observation of step has the dtype float64, its space float32",
    "outside": "the observation of step lies outside its space Box",
    "nan": "the observation of step lies outside its space Box",
    "reward": "the reward has to be a finite number, not NoneType None",
    "nan reward": "the reward has to be a finite number, not float nan",
    "array": "the reward has to be a finite number, not ndarray",
    "flag": "terminated has to be True or False, not str",
    "raise": "step raised ValueError: no licence",
    "action": "its actions are Dict",
}


@pytest.mark.parametrize("rule", RULES)
def test_it_is_refused_by_its_rule(rule: str) -> None:
    tree = {"env": {"id": ODD, "kwargs": {"rule": rule}}, "algo": {"name": "ppo"}}
    with pytest.raises(ConfigError, match=f"env.id: 'Odd' is not allowed; {RULES[rule]}"):
        experiment.validate(tree)


def test_one_that_keeps_them_is_not() -> None:
    experiment.validate({"env": {"id": ODD}, "algo": {"name": "ppo"}})


@pytest.mark.parametrize("rule", ["shape", "dtype", "step"])
def test_a_worker_refuses_it_too(rule: str) -> None:
    env = make(ODD, 1, 1, "workers", kwargs={"rule": rule}, workers=1)
    with pytest.raises(PodiumError, match=RULES[rule]):
        env.reset(Streams(0, [0]))
        env.step(torch.zeros(1, 1, dtype=torch.int64))
    env.close()


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "CliffWalking-v1", "VectorPong-v0"])
def test_gymnasiums_own_keep_them(id: str) -> None:
    try_out(settings(id, "gymnasium"), 1)


def test_an_object_that_others_share_a_space_with_is_left_alone() -> None:
    class Shared(gym.Env):  # type: ignore[type-arg]
        observation_space = action_space = Box(0, 1, (1,))

        def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
            return self.observation_space.low, {}

        def step(self, action):  # type: ignore[no-untyped-def]
            return self.observation_space.low, 0.0, False, False, {}

    Shared.action_space.seed(1)
    first = Shared.action_space.sample()
    Shared.action_space.seed(1)
    contract.check(Shared())
    assert Shared.action_space.sample() == first


def test_measures_are_tried_where_they_will_be_taken() -> None:
    with pytest.raises(ConfigError, match=r"env.measures: 'cost'.*nothing"):
        try_out(settings(ODD, measures=["cost"]), 1)
    with pytest.raises(ConfigError, match=r"env.measures.*none"):
        try_out(settings("CartPole-v1", "native", measures=["cost"]), 1)
