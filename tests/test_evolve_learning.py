"""What evolution is for, on a task that every strategy solves: with two objectives it also finds calmer solutions."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

import podium
from podium import experiment as experiments

# Who looks less far ahead lets the pole lean further before it acts: the range of the discount makes room for a choice.
GENES = ("algo.lr=[1e-4,1e-2]", "algo.discount=[0.5,0.99]", "algo.lam=[0.2,0.99]", "algo.entropy=[0.0,0.1]")
PACE = ("evolve.members=16", "evolve.interval=512", "stop.steps=12288", "stop.fitness=null", "eval.episodes=40")
WORDS = ("cartpole", "ppo", *GENES, *PACE, "train.threads=1")


def behaviour(run: Path, member: int | None = None) -> tuple[float, float]:
    """Return and switching of a member (else the champion), over 100 episodes that played no part in its choice."""
    agent = podium.load(run, member)
    evaluator = experiments.build_evaluator(agent._experiment, 12345, 100, ["return", "switching"])
    found = evaluator.evaluate(lambda obs: agent._algorithm.act(obs, {}, explore=False)[0]["action"], ["again"], 100)
    reward, switching = found.objectives[0].mean(0).tolist()
    return reward, switching


@pytest.mark.slow
def test_nsga2_balances_the_pole_with_fewer_changes_of_the_action_than_truncation(tmp_path: Path) -> None:
    """At equal steps and seeds."""
    calm, plain = [], []
    for seed in range(2):
        two, one = tmp_path / f"nsga2-{seed}", tmp_path / f"truncation-{seed}"
        wanted = "evolve.objectives=[return,-switching]"
        result = podium.evolve(*WORDS, "nsga2", wanted, f"seed={seed}", out=two)
        front = [row for row in result.top if row["front"] == 0 and row["objectives"]["return"] >= 475]
        calmest = min(front, key=lambda row: float(row["objectives"]["switching"]))
        assert podium.evolve(*WORDS, "truncation", f"seed={seed}", out=one).step == result.step
        calm.append(behaviour(two, calmest["id"]))
        plain.append(behaviour(one))
    assert min(reward for reward, _ in (*calm, *plain)) >= 475
    assert fmean(switching for _, switching in calm) < fmean(switching for _, switching in plain) - 0.1, (calm, plain)
