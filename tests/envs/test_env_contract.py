"""An env that breaks Gymnasium's rules is refused before training, with its name and the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Space, Tuple

from podium import checks
from podium.core.errors import ConfigError, PodiumError
from podium.core.streams import Streams
from podium.envs import contract
from podium.envs.build import Masked
from podium.envs.make import try_out
from worlds import make, settings

ODD = f"{Path(__file__).parent / 'broken_envs.py'}:Odd"
RULES = {
    "reset": r"reset has to return \(observation, info\), not ndarray",
    "info": "the info of reset has to be a dict, not NoneType",
    "shape": r"the observation of reset has the shape \(1,\), its space \(2,\)",
    "step": "step has to return .* not tuple",
    "dtype": "the observation of step has the dtype float32, its space int32",
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
        checks.validate(tree)


def test_one_that_keeps_them_is_not() -> None:
    checks.validate({"env": {"id": ODD}, "algo": {"name": "ppo"}})


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


class Shows(gym.Env[Any, Any]):
    """Shows what it is told to, and may forbid actions."""

    action_space = Discrete(9, start=3)

    def __init__(
        self, space: Space[Any], obs: Any, allowed: list[int] | None = None, info: dict[str, Any] | None = None
    ) -> None:
        self.observation_space, self.obs, self.allowed, self.info = space, obs, allowed, info or {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.obs, self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.allowed is not None and action not in self.allowed:
            raise ValueError(f"{action} is forbidden")
        return self.obs, 0.0, False, False, self.info


ONE = np.eye(9, dtype=np.int8)[4]
BITS = Box(0, 1, (9,), np.int8)


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (Dict(x=Box(0, 1), action_mask=BITS), {"x": np.zeros(1), "action_mask": ONE}),
        (Dict(x=Dict(action_mask=BITS)), {"x": {"action_mask": ONE}}),
        (Dict(action_mask=Box(0, 1, (9,), np.uint8)), {"action_mask": ONE.astype(np.uint8)}),
        (Dict(action_mask=MultiBinary(9)), {"action_mask": ONE}),
    ],
)
def test_a_step_is_tried_with_an_action_that_is_allowed(space: Dict, obs: object) -> None:
    contract.check(Shows(space, obs, [3 + 4]))
    with pytest.raises(ConfigError, match="7 is forbidden"):
        contract.check(Shows(space, obs, [2]))


def test_what_info_allows_is_allowed() -> None:
    contract.check(Masked(Shows(Box(0, 1), np.zeros(1), [7], {"action_mask": ONE})))


NUMBERS = [(np.float32, np.float64), (np.int32, np.int64), (np.float32, np.int64), (np.uint8, np.uint8)]


@pytest.mark.parametrize(("wanted", "given"), NUMBERS)
def test_numbers_that_are_merely_more_exact_are_taken(wanted: type, given: type) -> None:
    box, obs = Box(0, 1, (2,), wanted), np.ones(2, given)
    contract.check(Shows(box, obs))
    contract.check(Shows(Dict(a=Tuple([box])), {"a": (obs,)}))


def test_bounds_are_as_exact_as_the_space() -> None:
    high = 0.7  # as float32 it is less
    assert high > float(np.float32(high))
    contract.check(Shows(Box(0, high), np.array([high])))


@pytest.mark.parametrize(
    ("space", "obs", "why"),
    [
        (Box(0, 1, (2,), np.int32), np.zeros(2), "the dtype float64, its space int32"),
        (Box(0, 1, (2,), np.uint8), np.zeros(2, np.int64), "the dtype int64, its space uint8"),
        (Box(0, 1, (2,)), np.full(2, 1.5), "outside its space Box"),
        (Box(0, 1, (2,)), np.full(2, np.nan), "outside its space Box"),
        (Box(0, 9, (2,), np.uint8), np.full(2, 256, np.uint16), "outside its space Box"),
        (Box(0, 1, (2,)), np.zeros(3), r"the shape \(3,\), its space \(2,\)"),
        (Box(0, 1, (2,)), np.array(["a", "b"]), "the dtype <U1, its space float32"),
        (Discrete(2), 2, "outside its space Discrete"),
    ],
)
def test_the_reason_is_the_true_one_and_the_part_is_named(space: Space[Any], obs: object, why: str) -> None:
    with pytest.raises(ConfigError, match=f"; the observation of reset .*{why}"):
        contract.check(Shows(space, obs))
    for whole, all in ((Dict(a=Tuple([space])), {"a": (obs,)}), (Dict(a=Dict({"0": space})), {"a": {"0": obs}})):
        with pytest.raises(ConfigError, match=f"; a.0 in the observation of reset .*{why}"):
            contract.check(Shows(whole, all))


@pytest.mark.parametrize("obs", [[[0.0], [0.0, 1.0]], ["a", "b"]])
def test_what_is_no_array_is_refused(obs: object) -> None:
    with pytest.raises(ConfigError, match=r"the observation of reset is list .*: .*(inhomogeneous|could not convert)"):
        contract.check(Shows(Box(0, 1, (2,)), obs))


@pytest.mark.parametrize("obs", [{}, {"a": 0, "b": 0}, (0,), None, 0])
def test_parts_are_all_there(obs: object) -> None:
    with pytest.raises(ConfigError, match=r"the observation of reset is .*, its space Dict"):
        contract.check(Shows(Dict(a=Discrete(2)), obs))
    with pytest.raises(ConfigError, match=r"the observation of reset is .*, its space Tuple"):
        contract.check(Shows(Tuple([Discrete(2)] * 2), obs))


def test_measures_are_tried_where_they_will_be_taken() -> None:
    with pytest.raises(ConfigError, match=r"env.measures: 'cost'.*nothing"):
        try_out(settings(ODD, measures=["cost"]), 1)
    with pytest.raises(ConfigError, match=r"env.measures.*none"):
        try_out(settings("CartPole-v1", "native", measures=["cost"]), 1)
