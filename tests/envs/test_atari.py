"""Atari by ale-py's vector env: names, images, episodes that end and go on, and what an evaluation overrides."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import podium
from podium import checks
from podium.agent import Player
from podium.compose import compose
from podium.core.errors import ConfigError
from podium.core.parts import parts_of
from podium.core.streams import Streams
from podium.envs.from_atari import FromAtari, game_of
from podium.envs.make import describe, source_of
from worlds import make, settings


def test_a_game_has_two_names() -> None:
    assert game_of("ALE/SpaceInvaders-v5") == "space_invaders" and game_of("ALE/Pong-v5") == "pong"
    assert game_of("Pong-v4") is None and game_of("CartPole-v1") is None


def test_what_is_seen_and_done() -> None:
    obs, action = describe(settings("ALE/Breakout-v5"))
    assert obs == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8) and action == gym.spaces.Discrete(4)
    env = make("ALE/Breakout-v5", 2, 2)
    assert isinstance(env, FromAtari)
    seen = env.reset(Streams(0, [0, 1]))
    assert seen.shape == (2, 2, 4, 84, 84) and seen.dtype == torch.uint8
    env.close()


def play(*, steps: int, streams: Streams, scored: bool = False, **kwargs: object) -> tuple[list[torch.Tensor], int]:
    """Rewards of random play in two envs, and how many episodes ended."""
    env = FromAtari("ALE/Breakout-v5", 1, 2, "cpu", kwargs, scored)
    env.reset(streams)
    g, rewards, ends = torch.Generator().manual_seed(0), [], 0
    total, length = torch.zeros(1, 2), torch.zeros(1, 2)
    for _ in range(steps):
        step = env.step(torch.randint(4, (1, 2), generator=g))
        done = step.terminated | step.truncated
        total, length = total + step.reward, length + 1
        assert torch.equal(step.obs[~done], step.last[~done])
        if done.any():
            assert (step.obs != step.last).flatten(2).any(2)[done].all(), "the end is kept, the start is shown"
            assert torch.equal(step.episode.reward[done], total[done])
            assert torch.equal(step.episode.length[done], length[done])
        total, length, ends = total * ~done, length * ~done, ends + int(done.sum())
        rewards.append(step.reward.clone())
    env.close()
    return rewards, ends


def test_episodes_end_go_on_and_are_counted_and_lives_may_be_episodes() -> None:
    whole, one_life = (play(steps=250, streams=Streams(0, [0]), episodic_life=flag)[1] for flag in (False, True))
    assert 0 < whole < one_life
    assert play(steps=250, streams=Streams(0, [0]), episodic_life=True, scored=True)[1] == whole


def test_streams_decide() -> None:
    one, same, other = (play(steps=120, streams=Streams(seed, [0]))[0] for seed in (0, 0, 1))
    assert all(map(torch.equal, one, same)) and not all(map(torch.equal, one, other))


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"env.kwargs.frame_skip: 3.*frameskip"):
        make("ALE/Pong-v5", 1, 1, kwargs={"frame_skip": 3})
    for name, value, allowed in (
        ("repeat_action_probability", 3, "a probability, from 0 to 1"),
        ("repeat_action_probability", True, "a probability, from 0 to 1"),
        ("img_height", 0, "a whole number of 1 or more"),
        ("noop_max", -1, "a whole number of 0 or more"),
        ("stack_num", "two", "a whole number of 1 or more"),
        ("grayscale", 1, "true or false"),
    ):
        with pytest.raises(ConfigError, match=rf"env.kwargs.{name}: {value!r} is not allowed; {allowed}"):
            make("ALE/Pong-v5", 1, 1, kwargs={name: value})
    for kwargs in ({"repeat_action_probability": 1}, {"noop_max": 0}):
        make("ALE/Pong-v5", 1, 1, kwargs=kwargs).close()
    with pytest.raises(ConfigError, match=r"env.id: 'CartPole-v1'.*ALE/"):
        make("CartPole-v1", 1, 1, source="atari")


def test_images_are_not_normalised_by_statistics(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"env.normalise_obs: True is not allowed; false: ALE/Pong-v5 shows images"):
        podium.train("atari-pong", "ppo", "env.normalise_obs=true", out=tmp_path / "run")


def test_colours_are_channels() -> None:
    env = make("ALE/Pong-v5", 1, 4, kwargs={"grayscale": False, "max_num_frames_per_episode": 80})
    assert env.obs_space.shape == (12, 84, 84) and parts_of(env.obs_space)[0].image
    obs, ended = env.reset(Streams(0, [0])), 0
    for _ in range(25):
        before = obs[0, :, 3:].clone()
        step = env.step(torch.zeros(1, 4, dtype=torch.int64))
        assert torch.equal(step.last[0, :, :9], before), "three of four frames were seen before"
        ended += int(step.truncated.sum())
        obs = step.obs
    assert ended == 4
    with pytest.raises(ConfigError, match=r"env.kwargs.stack_num: 90 is not allowed; fewer channels"):
        make("ALE/Pong-v5", 1, 1, kwargs={"stack_num": 90})
    with pytest.raises(ConfigError, match=r"env.measures: .*env.source=gymnasium"):
        make("ALE/Pong-v5", 1, 1, measures=["lives"])


def test_another_game_is_shown_as_the_own_one_was() -> None:
    words = ("ALE/Pong-v5", "ppo", "env.kwargs.img_height=40", "env.kwargs.img_width=40")
    player = Player(checks.validate(compose(words)), "nobody")
    world = player._world("ALE/SpaceInvaders-v5").env
    assert source_of(world, 1) == "atari" and describe(world)[0].shape == (4, 40, 40)
    with pytest.raises(ConfigError, match=r"env='ALE/Breakout-v5'.*Discrete\(6\); this one has .*Discrete\(4\)"):
        player._world("ALE/Breakout-v5")
    with pytest.raises(ConfigError, match=r"env='CartPole-v1'"):
        player._world("CartPole-v1")
