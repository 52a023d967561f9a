"""PPO and A2C find the known answer of every probe; two members with seeds and rates of their own, one stack."""

import pytest
import torch
from torch import Tensor

from podium.envs.native.base import Simulator
from probes import (
    ActionReward,
    ConstantReward,
    ContinuousTarget,
    DelayedReward,
    Elsewhere,
    ObsActionReward,
    ObsReward,
    TruncatedForever,
)
from stacks import ALGORITHMS, Stack, build

PLAN = {
    "ppo": {"steps": 16, "epochs": 4, "batch": 64},
    "a2c": {"steps": 8, "optimiser": "adam"},
}
UPDATES = {"ppo": 60, "a2c": 250}
DISCOUNT = [0.8, 0.5]
BOTH = pytest.mark.parametrize("name", ALGORITHMS)


def trained(name: str, env: type[Simulator], more: float = 1.0, **plan) -> Stack:
    genes = {"lr": [0.01, 0.005], "discount": DISCOUNT, "entropy": [0.01, 0.0], "max_norm": [5.0, 5.0]}
    stack = build(name, env, range(2), envs=8, genes=genes, **PLAN[name] | plan)
    assert stack.update(int(more * UPDATES[name]))["finite"].all()
    return stack


def value(stack: Stack, obs: float) -> Tensor:
    return stack.algorithm.core.net.value(torch.full((2, 1, 1), float(obs)))[:, 0]


def chance(stack: Stack, obs: float) -> Tensor:
    """How likely action 1 is."""
    return stack.algorithm.core.net.policy(torch.full((2, 1, 1), float(obs)))[0].softmax(-1)[:, 0, 1]


def near(found: Tensor, expected: list[float], tolerance: float = 0.1) -> None:
    assert found.tolist() == pytest.approx(expected, abs=tolerance)


@BOTH
def test_the_value_of_a_constant_reward(name: str) -> None:
    near(value(trained(name, ConstantReward), 0), [1, 1])


@BOTH
def test_the_value_of_what_is_seen(name: str) -> None:
    stack = trained(name, ObsReward)
    near(value(stack, -1), [-1, -1])
    near(value(stack, 1), [1, 1])


@BOTH
def test_each_members_own_discount(name: str) -> None:
    stack = trained(name, DelayedReward)
    near(value(stack, 0), DISCOUNT)
    near(value(stack, 1), [1, 1])


@BOTH
def test_the_better_action(name: str) -> None:
    assert (chance(trained(name, ActionReward), 0) > 0.9).all()


@BOTH
def test_the_better_action_for_what_is_seen(name: str) -> None:
    stack = trained(name, ObsActionReward)
    assert (chance(stack, 1) > 0.9).all() and (chance(stack, -1) < 0.1).all()
    near(value(stack, 1), [1, 1], 0.3)


@BOTH
def test_truncation_bootstraps(name: str) -> None:
    near(value(trained(name, TruncatedForever, more=2), 0), [1 / (1 - d) for d in DISCOUNT], 0.3)


@BOTH
def test_truncation_bootstraps_from_where_the_action_led(name: str) -> None:
    stack = trained(name, Elsewhere, more=2)
    near(value(stack, 1), [1 / (1 - d) for d in DISCOUNT], 0.3)
    near(value(stack, 0), [d / (1 - d) for d in DISCOUNT], 0.3)


@BOTH
def test_continuous_actions(name: str) -> None:
    stack = trained(name, ContinuousTarget, more=2, log_std=-0.7)
    obs = torch.tensor([-1.0, 1.0]).expand(2, 2)[..., None]
    mean = stack.algorithm.core.net.policy(obs)[0][..., 0]
    assert torch.allclose(mean, obs[..., 0] / 2, atol=0.25)
