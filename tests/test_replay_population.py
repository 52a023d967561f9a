"""A population equals its members trained apart, for learners with a replay.

Four members with different genes are trained as one stack, and each of them alone with the streams of the same id.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from podium import checks
from podium import experiment as experiments
from podium.core import hyper, tree
from podium.core.tree import Tree
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pendulum import Pendulum
from podium.lookup import ALGORITHMS
from podium.roles.pod import Pod
from stacks import Replaying, build_replaying, gap, rows

IDS = (3, 0, 17, 8)
GENES = {
    "lr": [1e-3, 3e-4, 1e-4, 3e-3],
    "discount": [0.99, 0.9, 0.95, 0.999],
    "tau": [0.1, 0.01, 1.0, 0.5],
    "max_norm": [0.5, 10.0, 0.05, 1.0],
    "alpha": [0.6, 1.0, 0.0, 0.3],
    "beta": [0.4, 0.0, 1.0, 0.7],
    "policy_lr": [1e-4, 1e-3, 3e-3, 3e-4],
    "delay": [1, 2, 1, 3],
    "noise": [0.1, 0.3, 0.0, 0.5],
    "target_noise": [0.2, 0.0, 0.5, 0.1],
    "target_clip": [0.5, 0.1, 0.2, 1.0],
    "temperature": [0.2, 1.0, 0.01, 0.5],
    "target_entropy": [-1.0, 0.5, -3.0, 0.1],
    "epsilon": [1.0, 0.5, 0.1, 0.9],
    "epsilon_end": [0.05, 0.5, 0.01, 0.2],
    "epsilon_steps": [100, 1000, 10, 64],
}
PRIORITISED = {"replay": {"prioritised": True, "capacity": 100}}  # so small that it is written over
SUBSET = {"critic": {"count": 4, "target": "subset", "subset": 2, "policy": "mean"}}
RAINBOW = {"double": True, "dueling": True, "distribution": "c51", "atoms": 11, "n_step": 3, "noisy": True}
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {"target_every": 2}),
    "rainbow": ("dqn", RAINBOW | PRIORITISED),
    "dqn-qr-mean": ("dqn", {"distribution": "qr", "atoms": 5, "critic": {"count": 3, "target": "mean"}}),
    "dqn-subset": ("dqn", SUBSET),
    "dqn-subset-noisy": ("dqn", SUBSET | {"noisy": True}),
    "sac-discrete": ("sac-discrete", {}),
    "sac-discrete-prioritised": ("sac-discrete", {"n_step": 2, **PRIORITISED, **SUBSET}),
    "ddpg": ("ddpg", {"critic": {"count": 1}}),
    "ddpg-ou": ("ddpg", {"process": "ou", "critic": {"count": 1}}),
    "td3": ("td3", {"critic": {"policy": "first"}}),
    "td3-prioritised": ("td3", {"n_step": 3, **PRIORITISED}),
    "sac": ("sac", {}),
    "sac-prioritised": ("sac", {"n_step": 3, **PRIORITISED}),
    "redq": ("redq", {"updates": 3 / 64, **SUBSET}),
}
CONTINUOUS = ("ddpg", "td3", "sac", "redq")
NORMALISED = pytest.mark.parametrize("normalise", [False, True], ids=["", "normalised"])
EACH = pytest.mark.parametrize("plan", PLANS)
SHAPE = {"steps": 16, "batch": 32, "warmup": 64, "updates": 1 / 64}  # one in each round of 16 steps of 4 envs


def genes_of(name: str) -> dict[str, list[float]]:
    return {gene: row for gene, row in GENES.items() if gene in hyper.genes(ALGORITHMS[name].Settings)}


def make(plan: str, members: list[int], normalise: bool, seed: int = 5) -> Replaying:
    """A stack of some of the four, which learns from its first round on."""
    name, settings = PLANS[plan]
    some = {gene: [row[m] for m in members] for gene, row in genes_of(name).items()}
    env, ids = Pendulum if name in CONTINUOUS else CartPole, [IDS[m] for m in members]
    return build_replaying(name, env, ids, genes=some, normalise=normalise, seed=seed, **SHAPE | settings)


def record(stack: Replaying) -> list[dict[str, Tensor]]:
    """Fills with what the stack decides at each step."""
    own, seen = stack.algorithm.act, []

    def act(obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        out, carry = own(obs, carry, explore=explore)
        seen.append(tree.clone(out))
        return out, carry

    stack.algorithm.act = act
    return seen


def follow(stack: Replaying, decided: list[dict[str, Tensor]]) -> None:
    """Let the stack do that; it draws its noise as ever, so that its streams stay where they would be."""
    own, script = stack.algorithm.act, iter(decided)

    def act(obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        _, carry = own(obs, carry, explore=explore)
        return next(script), carry

    stack.algorithm.act = act


def slot(stack: Replaying) -> Tree:
    """What belongs to the row: replay, numbers drawn ahead, streams."""
    return tree.clone({"learner": stack.learner.state(), "streams": stack.streams.state()})


def differences(plan: str, rounds: int, normalise: bool, recorded: bool) -> list[float]:
    together = make(plan, [0, 1, 2, 3], normalise)
    before, decided = together.learnt(), record(together)
    together.update(rounds)
    learnt = together.learnt()
    for part in {"critic", "policy", "target"} & before.keys():
        assert gap(before[part], learnt[part]) > 1e-5, f"{part} has not changed, so nothing was tested"
    gaps = []
    for m in range(4):
        alone = make(plan, [m], normalise)
        if recorded:
            follow(alone, [rows(out, m) for out in decided])
        alone.update(rounds)
        gaps.append(gap(rows(learnt, m), alone.learnt()))
        gaps.append(gap(rows(slot(together), m), slot(alone)))
    return gaps


@NORMALISED
@EACH
def test_on_recorded_actions_after_three_updates(plan: str, normalise: bool) -> None:
    assert max(differences(plan, 3, normalise, recorded=True)) < 1e-5


@NORMALISED
@EACH
def test_closed_loop_after_one_update(plan: str, normalise: bool) -> None:
    assert max(differences(plan, 2 if PLANS[plan][1].get("target_every") else 1, normalise, recorded=False)) < 1e-5


@EACH
def test_the_order_of_the_rows_does_not_matter(plan: str) -> None:
    a, b = (make(plan, order, normalise=True) for order in ([0, 1, 2, 3], [2, 0, 3, 1]))
    a.update(), b.update()
    assert gap(rows(a.learnt(), 2, 0, 3, 1), b.learnt()) < 1e-5
    assert gap(rows(slot(a), 2, 0, 3, 1), slot(b)) < 1e-5


def pod(plan: str, first: int, members: int) -> Pod:
    name, settings = PLANS[plan]
    dead = () if "replay" in settings else ("alpha", "beta")  # without priorities they are refused
    dead += ("epsilon", "epsilon_end", "epsilon_steps") if "noisy" in settings else ()
    each = {gene: {"each": row[first : first + members]} for gene, row in genes_of(name).items() if gene not in dead}
    algo = {key: value for key, value in settings.items() if key not in ("critic", "replay")}
    sections = {key: settings[key] for key in ("critic", "replay") if key in settings}
    config = {
        "env": {"id": "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1", "num": 4, "normalise_obs": True},
        "algo": {"name": name, **SHAPE, **each, **algo},
        "net": {"hidden": [16, 16]},
        "train": {"members": members},
        "replay": {"capacity": 4096} | sections.pop("replay", {}),
    }
    return experiments.build_pod(checks.validate(config | sections), first)


@EACH
def test_as_whole_pods(plan: str) -> None:
    together = pod(plan, 0, 4)
    together.train(1)
    state = tree.clone(together.state())
    scores = together.evaluate([0, 1, 2, 3], 2).returns
    for m in range(4):
        alone = pod(plan, m, 1)
        alone.train(1)
        found = alone.state()
        assert gap(rows(state["learnt"], m), found["learnt"]) < 1e-5
        assert gap(rows(state["slot"], m), found["slot"]) < 1e-5
        for name in ("env", "agent"):
            assert torch.equal(state["slot"]["streams"][name][m], found["slot"]["streams"][name][0])
        assert torch.allclose(alone.evaluate([0], 2).returns[0], scores[m], atol=0.01)


def test_members_differ() -> None:
    """Else the tests above would pass with one member copied four times."""
    learnt = make("sac", [0, 1, 2, 3], normalise=False).learnt()
    for one in range(4):
        for other in range(one):
            for part in ("policy", "critic"):
                assert gap(rows(learnt[part], one), rows(learnt[part], other)) > 0.1
