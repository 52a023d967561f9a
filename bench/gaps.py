"""Print the largest differences that some tests find: `python bench/gaps.py population|sb3|off-policy`, as JSON."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from podium.core import tree

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def population() -> dict[str, float]:
    """Between members trained together and apart, by algorithm: every plan, env and mode of the test."""
    test: Any = importlib.import_module("test_population")
    test.gap = strict_gap
    worst = {"ppo": 0.0, "a2c": 0.0}
    envs = (test.CartPole, test.Pendulum, test.TwoDials)
    for plan, env, normalise in itertools.product(test.PLANS, envs, (False, True)):
        name = test.PLANS[plan][0]
        for updates, replay in ((3, True), (1, False)):
            worst[name] = max(worst[name], *test.differences(plan, env, updates, normalise, replay))
    return worst | with_a_replay()


def with_a_replay() -> dict[str, float]:
    """The same of the learners with a replay."""
    test: Any = importlib.import_module("test_replay_population")
    worst: dict[str, float] = {}
    for plan, normalise in itertools.product(test.PLANS, (False, True)):
        name, settings = test.PLANS[plan]
        for rounds, recorded in ((3, True), (settings.get("target_every", 1), False)):
            found = test.differences(plan, rounds, normalise, recorded)
            worst[name] = max(worst.get(name, 0.0), *found)
    return worst


def strict_gap(a: Any, b: Any) -> float:
    """The largest difference between two trees; infinite where one of them is not finite."""
    left, right = tree.flatten(a), tree.flatten(b)
    if left.keys() != right.keys():
        return math.inf
    worst = 0.0
    for name, x in left.items():
        x, y = x.double(), right[name].double()
        same = (x == y) | (x.isnan() & y.isnan())
        apart = (x - y).abs().masked_fill(same, 0).nan_to_num(nan=math.inf)
        worst = max(worst, float(apart.max())) if apart.numel() else worst
    return worst


def sb3() -> dict[str, float]:
    """Between PPO's loss, its terms and its gradients and those of Stable-Baselines3."""
    test: Any = importlib.import_module("algos.test_against_sb3")
    found, measure = list[float](), test.worst

    def recorded(pairs: Any) -> float:
        found.append(float(measure(pairs)))
        return found[-1]

    test.worst = recorded
    for kind, clip_value in itertools.product(test.ACTIONS, (False, True)):
        test.test_ppo_loss_and_gradient(kind, clip_value)
    return {"ppo": max(found)}


def off_policy() -> dict[str, float]:
    """Between the losses and weights of learners with a replay and those of Stable-Baselines3, after each update."""
    test: Any = importlib.import_module("algos.test_off_policy_against_sb3")
    return {name: max(max(found) for found in test.differences(name)) for name in test.CLASSES}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    result = {"population": population, "sb3": sb3, "off-policy": off_policy}[sys.argv[1]]()
    # The tests print as they go: only the last line is the answer.
    print(json.dumps(result))
