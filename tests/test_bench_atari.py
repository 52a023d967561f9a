"""The benchmark on Atari: both sides are the same agent in the same game."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from podium import experiment as experiments
from podium.bench import atari
from podium.core.errors import PodiumError
from podium.core.streams import Streams
from podium.envs.from_atari import FromAtari
from stacks import channels_last


@pytest.fixture
def envs() -> Any:
    made = atari.vector(atari.PLAN)
    yield made
    made.close()


def test_both_sides_are_the_same_agent(envs: Any) -> None:
    model, settings = atari.sb3_model(atari.PLAN, envs), atari.experiment(atari.PLAN, 1)
    algo: Any = settings.algo
    assert (model.n_envs, model.n_steps, model.batch_size, model.n_epochs) == (
        settings.env.num, algo.steps, algo.batch, algo.epochs)  # fmt: skip
    theirs = [model.gamma, model.gae_lambda, model.ent_coef, model.vf_coef, model.max_grad_norm]
    assert theirs == [algo.discount, algo.lam, algo.entropy, algo.critic, algo.max_norm]
    assert set(algo.anneal) == {"lr", "clip"}
    for progress in (1.0, 0.25):
        assert model.lr_schedule(progress) == pytest.approx(algo.lr * progress)
        assert model.clip_range(progress) == pytest.approx(algo.clip * progress)
    ours: Any = experiments.build_pod(settings).algorithm
    net = ours.core.net
    shapes = [tuple(p.shape[1:]) for p in net._encoder.params]
    assert shapes == [tuple(channels_last(p).shape) for p in model.policy.features_extractor.parameters()]
    assert shapes[-2] == (atari.FEATURES, 3136)
    heads = [tuple(x.weight.shape) for x in (model.policy.action_net, model.policy.value_net)]
    assert heads == [(6, atari.FEATURES), (1, atari.FEATURES)] and settings.net.hidden == ()
    assert not [x for x in model.policy.mlp_extractor.modules() if isinstance(x, nn.Linear)]
    assert ours.optimiser.eps == model.policy.optimizer.param_groups[0]["eps"]


def test_sb3_sees_the_same_vector_env() -> None:
    """Frame by frame, and at the end of a game the frame that ended it."""
    theirs = atari.vector(replace(atari.PLAN, envs=1))
    ours = FromAtari("ALE/Pong-v5", 1, 1, "cpu", atari.LIVES)
    assert np.array_equal(theirs.reset(), ours.start([0]))
    for _ in range(1000):  # whoever does nothing has lost after 760
        step = ours.step(torch.zeros(1, 1, dtype=torch.int64))
        obs, reward, done, said = theirs.step(np.zeros(1, np.int64))
        assert np.array_equal(obs, step.obs[0]) and np.array_equal(reward, step.reward[0])
        assert np.array_equal(done, (step.terminated | step.truncated)[0])
        if done[0]:
            break
        assert said == [{}]
    assert np.array_equal(said[0]["terminal_observation"], step.last[0, 0])
    assert not np.array_equal(obs[0], step.last[0, 0]) and not said[0]["TimeLimit.truncated"]
    theirs.close()
    ours.close()


def test_sb3s_own_wrappers_show_as_much() -> None:
    pytest.importorskip("cv2")
    theirs, ours = atari.wrapped(atari.PLAN), FromAtari("ALE/Pong-v5", 1, 8, "cpu", atari.LIVES)
    obs, seen = theirs.reset(), ours.reset(Streams(0, [0]))[0]
    assert obs.shape == (8, 84, 84, 4) and obs.dtype == np.uint8 and theirs.action_space.n == ours.action_space.n
    assert abs(float(obs[..., -1].mean()) - float(seen[:, -1].float().mean())) < 10  # the same field, lit alike
    theirs.close()
    ours.close()


def test_without_opencv_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "find_spec", lambda name: None)
    with pytest.raises(PodiumError, match="pip install opencv-python-headless"):
        atari.main(1, quick=True)


@pytest.mark.slow
def test_it_gives_a_row() -> None:
    found = atari.measure("k", "n", atari.vector, 1, quick=True)
    assert min(found["ours"], found["peer"], found["ratio"]) > 0 and found["key"] == "k" and found["note"] == "small"
