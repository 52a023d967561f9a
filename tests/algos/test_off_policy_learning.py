"""Every learner with a replay finds the known answer of every probe; two members with seeds and rates of their own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from probes import (
    ActionReward,
    AsymmetricTarget,
    ConstantReward,
    ContinuousTarget,
    DelayedReward,
    Elsewhere,
    ObsActionReward,
    ObsReward,
    Probe,
    TruncatedForever,
    boxed,
)
from stacks import Replaying, build_replaying

CONTINUOUS = ("ddpg", "td3", "sac", "redq")
COLD = {"learn_temperature": False, "temperature": 0.01}  # so that the entropy hardly counts
C51 = {"distribution": "c51", "low": -4.0, "high": 8.0, "atoms": 25}
THREE: dict[str, dict[str, Any]] = {
    "mean": {"count": 3, "target": "mean", "policy": "mean"},
    "subset": {"count": 3, "target": "subset", "subset": 2, "policy": "first"},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {}),
    "dqn-double-dueling": ("dqn", {"double": True, "dueling": True}),
    "dqn-three-steps": ("dqn", {"n_step": 3}),
    "dqn-c51": ("dqn", C51),
    "dqn-qr": ("dqn", {"distribution": "qr", "atoms": 11}),
    "dqn-prioritised": ("dqn", {"replay": {"prioritised": True}}),
    "dqn-mean": ("dqn", {"critic": THREE["mean"]}),
    "dqn-subset": ("dqn", {"critic": THREE["subset"]}),
    "dqn-noisy": ("dqn", {"noisy": True}),
    "rainbow": (
        "dqn",
        {"double": True, "dueling": True, "n_step": 3, **C51, "noisy": True, "replay": {"prioritised": True}},
    ),
    "sac-discrete": ("sac-discrete", {"tau": 0.1, **COLD}),
    "ddpg": ("ddpg", {"tau": 0.1}),
    "ddpg-ou": ("ddpg", {"tau": 0.1, "process": "ou", "noise": 0.5}),
    "td3": ("td3", {"tau": 0.1, "critic": {"policy": "first"}}),
    "td3-prioritised-mean": ("td3", {"tau": 0.1, "critic": THREE["mean"], "replay": {"prioritised": True}}),
    "sac": ("sac", {"tau": 0.1, **COLD}),
    "sac-three-steps": ("sac", {"tau": 0.1, "n_step": 3, **COLD}),
    "redq": ("redq", {"tau": 0.1, "critic": {**THREE["subset"], "policy": "mean"}, "updates": 0.3, "delay": 5, **COLD}),
}
ALONE = {"dqn": {"count": 1}, "ddpg": {"count": 1}}
DISCOUNT = [0.8, 0.5]
EACH = pytest.mark.parametrize("case", CASES)
DISCRETE = pytest.mark.parametrize("case", [c for c, (name, _) in CASES.items() if name not in CONTINUOUS])
BOX = pytest.mark.parametrize("case", [c for c, (name, _) in CASES.items() if name in CONTINUOUS])


def trained(case: str, probe: type[Probe], rounds: int = 60, warmup: int = 64) -> Replaying:
    """Some hundred updates; the action of `probe` is a number where the learner needs one."""
    name, settings = CASES[case]
    if name in CONTINUOUS and not probe.action_space.shape:
        probe = boxed(probe)
    plan = {"steps": 4, "updates": 0.25, "batch": 32, "warmup": warmup, "critic": ALONE.get(name)} | settings
    if name == "dqn":
        plan |= {"tau": 1.0, "target_every": 10, "epsilon_steps": 1000}
    genes = {"lr": [0.01, 0.005], "discount": DISCOUNT} | ({} if name == "dqn" else {"policy_lr": [0.002, 0.003]})
    stack = build_replaying(name, probe, range(2), envs=8, genes=genes, **plan)
    stack.update(rounds)
    assert stack.learner.finite().all()
    return stack


def policy(stack: Replaying, obs: float) -> Tensor:
    """The action of each member, `[M]` or `[M, A]`, without noise."""
    return stack.algorithm.act(torch.full((2, 1, 1), float(obs)), {}, explore=False)[0]["action"][:, 0]


def value(stack: Replaying, obs: float) -> Tensor:
    """What the critics say of the best action, `[M]`: the mean of all of them."""
    algorithm, x = stack.algorithm, torch.full((2, 1, 1), float(obs))
    if hasattr(algorithm, "_values"):
        return algorithm.propose(x)["values"][:, 0].amax(-1)
    if "logits" in algorithm.propose(x):
        q = algorithm.critics.online(x).mean(1)[:, 0]
        return torch.take_along_dim(q, policy(stack, obs)[:, None], 1)[:, 0]
    bounds = algorithm._bounds
    unit = (policy(stack, obs)[:, None] - bounds._middle) / bounds.half
    return algorithm.critics.online(torch.cat([x, unit], -1)).mean(1)[:, 0, 0]


def near(found: Tensor, expected: list[float], tolerance: float = 0.1) -> None:
    assert found.tolist() == pytest.approx(expected, abs=tolerance)


@EACH
def test_a_constant_reward_and_then_nothing(case: str) -> None:
    """With a bootstrap after the episode's end it would be 1 / (1 - discount)."""
    near(value(trained(case, ConstantReward, 40), 0), [1, 1])


@EACH
def test_what_is_seen(case: str) -> None:
    stack = trained(case, ObsReward)
    near(value(stack, -1), [-1, -1])
    near(value(stack, 1), [1, 1])


@EACH
def test_each_members_own_discount(case: str) -> None:
    stack = trained(case, DelayedReward)
    near(value(stack, 0), DISCOUNT)
    near(value(stack, 1), [1, 1])


@EACH
def test_truncation_bootstraps(case: str) -> None:
    near(value(trained(case, TruncatedForever, 90), 0), [1 / (1 - d) for d in DISCOUNT], 0.3)


@EACH
def test_truncation_bootstraps_from_where_the_action_led(case: str) -> None:
    stack = trained(case, Elsewhere, 90)
    near(value(stack, 1), [1 / (1 - d) for d in DISCOUNT], 0.3)
    near(value(stack, 0), [d / (1 - d) for d in DISCOUNT], 0.3)


@DISCRETE
def test_the_better_action(case: str) -> None:
    stack = trained(case, ActionReward)
    assert policy(stack, 0).tolist() == [1, 1]
    near(value(stack, 0), [1, 1])


@DISCRETE
def test_the_better_action_for_what_is_seen(case: str) -> None:
    stack = trained(case, ObsActionReward)
    assert policy(stack, 1).tolist() == [1, 1] and policy(stack, -1).tolist() == [0, 0]
    near(value(stack, 1), [1, 1])
    near(value(stack, -1), [1, 1])


@BOX
def test_the_best_number(case: str) -> None:
    """Within bounds that are not alike on both sides."""
    stack = trained(case, AsymmetricTarget, 100, 640)
    near(policy(stack, 0)[:, 0], [2, 2], 0.4)
    near(value(stack, 0), [0, 0], 0.15)


@BOX
def test_the_best_number_for_what_is_seen(case: str) -> None:
    stack = trained(case, ContinuousTarget, 100, 640)
    for obs in (-1, 1):
        near(policy(stack, obs)[:, 0], [obs / 2] * 2, 0.2)
        near(value(stack, obs), [0, 0], 0.15)


@pytest.mark.parametrize("case", ["sac", "sac-discrete", "redq"])
def test_the_temperature_brings_the_entropy_to_what_is_wanted(case: str) -> None:
    wanted = [0.6, 0.3] if case == "sac-discrete" else [0.2, -0.5]
    name, plan = CASES[case]
    plan = plan | {"learn_temperature": True, "temperature": 0.2, "steps": 4, "batch": 64, "warmup": 64}
    probe = ActionReward if case == "sac-discrete" else ContinuousTarget
    genes = {"lr": [0.01, 0.01], "policy_lr": [0.01, 0.01], "target_entropy": wanted}
    stack = build_replaying(name, probe, range(2), envs=8, genes=genes, **plan | {"updates": 0.25, "delay": 1})
    stack.update(60)
    near(torch.stack([stack.update()["entropy"] for _ in range(10)]).mean(0), wanted, 0.15)
