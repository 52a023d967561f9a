"""The one idea of Podium, as a test: a population equals its members trained apart.

Four members with different genes are trained as one stack, and each of them alone with the streams of the same id.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.envs.native.base import Simulator
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pendulum import Pendulum
from stacks import Stack, TwoDials, build, gap, rows

IDS = (3, 0, 17, 8)
GENES = {
    "lr": [1e-3, 3e-4, 1e-4, 3e-3],
    "discount": [0.99, 0.9, 0.95, 0.999],
    "lam": [0.95, 0.5, 1.0, 0.0],
    "entropy": [0.0, 0.01, 0.1, 0.001],
    "critic": [0.5, 1.0, 0.1, 2.0],
    "max_norm": [0.5, 10.0, 0.05, 1.0],
}
PPO_GENES = {"clip": [0.2, 0.1, 0.3, 0.02], "target_kl": [0.02, 0.001, 1.0, 0.05]}
STEPS = 16
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {"epochs": 3, "batch": 16}),
    "ppo-full-batch": ("ppo", {"epochs": 3, "batch": 4 * STEPS, "clip_value": True}),
    "a2c": ("a2c", {}),
    "a2c-adam": ("a2c", {"optimiser": "adam", "normalise_advantage": True}),
}


def make(plan: str, env: type[Simulator], members: list[int], normalise: bool, seed: int = 5) -> Stack:
    """A stack of some of the four."""
    name, settings = PLANS[plan]
    genes = GENES | (PPO_GENES if name == "ppo" else {})
    some = {gene: [row[m] for m in members] for gene, row in genes.items()}
    ids = [IDS[m] for m in members]
    return build(name, env, ids, genes=some, normalise=normalise, steps=STEPS, seed=seed, **settings)


def follow(stack: Stack, actions: list[Tensor]) -> None:
    """Let the stack take these actions; it draws its noise as ever, so that its streams stay where they would be."""
    own, script = stack.algorithm.act, iter(actions)

    def act(obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        own(obs, carry, explore=explore)
        return {"action": next(script)}, carry

    stack.algorithm.act = act


def train(stack: Stack, updates: int) -> list[Tensor]:
    """All actions that were taken, `[M, E, ...]` a step."""
    actions: list[Tensor] = []
    for _ in range(updates):
        batch = stack.collector.collect()
        actions += [x.clone() for x in batch["action"].unbind(1)]
        stack.algorithm.learn(batch)
    return actions


def differences(plan: str, env: type[Simulator], updates: int, normalise: bool, replay: bool) -> list[float]:
    together = make(plan, env, [0, 1, 2, 3], normalise)
    before = together.learnt()
    actions = train(together, updates)
    assert gap(before["weights"], together.learnt()["weights"]) > 1e-5, "nothing was learnt, so nothing was tested"
    gaps = []
    for m in range(4):
        alone = make(plan, env, [m], normalise)
        if replay:
            follow(alone, [a[m : m + 1] for a in actions])
        train(alone, updates)
        gaps.append(gap(rows(together.learnt(), m), alone.learnt()))
        streams = together.streams.state(), alone.streams.state()
        assert all(torch.equal(streams[0][k][m], streams[1][k][0]) for k in ("env", "agent"))
    return gaps


@pytest.mark.parametrize("normalise", [False, True], ids=["", "normalised"])
@pytest.mark.parametrize("env", [CartPole, Pendulum, TwoDials])
@pytest.mark.parametrize("plan", PLANS)
def test_on_recorded_actions_after_three_updates(plan: str, env: type[Simulator], normalise: bool) -> None:
    assert max(differences(plan, env, 3, normalise, replay=True)) < 1e-5


@pytest.mark.parametrize("normalise", [False, True], ids=["", "normalised"])
@pytest.mark.parametrize("env", [CartPole, Pendulum, TwoDials])
@pytest.mark.parametrize("plan", PLANS)
def test_closed_loop_after_one_update(plan: str, env: type[Simulator], normalise: bool) -> None:
    assert max(differences(plan, env, 1, normalise, replay=False)) < 1e-5


@pytest.mark.parametrize("plan", ["ppo", "a2c"])
def test_the_order_of_the_rows_does_not_matter(plan: str) -> None:
    a, b = (make(plan, CartPole, order, normalise=True) for order in ([0, 1, 2, 3], [2, 0, 3, 1]))
    train(a, 1), train(b, 1)
    assert gap(rows(a.learnt(), 2, 0, 3, 1), b.learnt()) < 1e-5


def test_members_differ() -> None:
    """Else the tests above would pass with one member copied four times."""
    weights = make("ppo", CartPole, [0, 1, 2, 3], normalise=False).learnt()["weights"]
    for one in range(4):
        for other in range(one):
            assert gap(rows(weights, one), rows(weights, other)) > 0.1


def test_a_child_that_took_over_a_row_trains_like_its_parent_would() -> None:
    """Exploit copies what was learnt; from the same rollout parent and child then learn the same."""
    from podium.core import tree

    stack = make("ppo-full-batch", Pendulum, [0, 1, 2, 3], normalise=True)
    train(stack, 2)
    learnt = stack.algorithm.learnt()
    tree.put(learnt, torch.tensor([1]), tree.take(learnt, torch.tensor([2])))
    batch = stack.collector.collect()
    for x in batch.values():
        x[1] = x[2]
    stack.algorithm.slot()["carried"][1] = stack.algorithm.slot()["carried"][2]
    stack.algorithm.learn(batch)
    assert gap(rows(stack.learnt(), 1), rows(stack.learnt(), 2)) == 0
