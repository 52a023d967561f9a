"""What a member counts for how a step was done, beside its reward."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import podium
from podium import checks
from podium import experiment as experiments
from podium.compose import compose
from podium.core.errors import ConfigError
from podium.core.streams import Streams
from podium.envs.native.pong import BAT, SPEED, Pong

WORDS = ("pong", "ppo", "env.id=probes:OpenPong", "env.num=16", "algo.steps=32", "algo.batch=256")
WORDS += ("train.members=3", "train.threads=1")


@pytest.mark.parametrize(("vx", "free"), [(SPEED, 1), (-SPEED, 0)])
def test_pong_tells_stops_from_moves_while_the_ball_flies_away(vx: float, free: int) -> None:
    env, actions = Pong(1, 3), torch.tensor([[0, 1, 2]])
    env.reset(Streams(0, [0]))
    for name, value in (("vx", vx), ("bat", 0.5)):
        env.s[name].fill_(value)
    assert env.step(actions).style.tolist() == [[-free, free, -free]]  # type: ignore[union-attr]
    env.s["bat"].copy_(torch.tensor([[BAT[1] / 2, 0.5, 1 - BAT[1] / 2]]))
    assert env.step(actions).style.tolist() == [[0, free, 0]]  # type: ignore[union-attr]  # up against the walls


def test_style_is_a_reward_of_the_members_own() -> None:
    words = (*WORDS, "env.normalise_reward=false", "algo.style={each: [0, 0.5, -0.25]}")
    pod = experiments.build_pod(checks.validate(compose(words)))
    batch, genes = pod.collector.collect(), pod.algorithm.genes
    core, half = pod.algorithm.core, torch.full((3,), 0.5)  # type: ignore[attr-defined]
    shaped = core.experience(batch, half, half, genes["style"])
    by_hand = {**batch, "reward": batch["reward"] + genes["style"][:, None, None] * batch["style"]}
    plain = core.experience({k: v for k, v in by_hand.items() if k != "style"}, half, half)
    torch.testing.assert_close(shaped["return"], plain["return"], rtol=0, atol=0)
    bare = core.experience(batch, half, half)
    assert torch.equal(shaped["return"][0], bare["return"][0]) and (shaped["return"][1] != bare["return"][1]).any()


def test_members_become_what_they_like() -> None:
    words = (*WORDS, "algo.style={each: [0.5, -0.5, 0]}", "algo.lr=5e-3", "algo.entropy=0")
    pod = experiments.build_pod(checks.validate(compose(words)), measures=("stop", "moved"))
    pod.train(40)
    found = pod.evaluate([0, 1], 4).objectives.mean(1)
    assert found[0, 0] > 0.8 and found[1, 0] < 0.2 and found[1, 1] > found[0, 1] + 0.2  # stops; moves


def test_style_needs_an_env_that_tells(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"algo.style: \[-0.001, 0.001\].*an env that tells how a step is done"):
        podium.train("cartpole", "ppo", "algo.style=[-1e-3,1e-3]", out=tmp_path / "run")
    genes = experiments.genes_of(checks.validate(compose(("cartpole", "ppo"))), [0])
    assert "style" not in genes
