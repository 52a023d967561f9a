"""Wrappers by settings, against Gymnasium's own where it has one, and against what they promise."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import wrappers as theirs
from gymnasium.spaces import Box, Dict, Discrete

import podium
from podium.core.errors import ConfigError
from podium.core.parts import Row, parts_of
from podium.core.streams import Streams
from podium.envs.film import Film
from podium.envs.from_gymnasium import FromGymnasium, seeds
from podium.envs.make import describe, source_of
from podium.envs.wrappers import stacked
from worlds import make, settings

SOURCES = ("native", "gymnasium", "workers")


class Pixels(gym.Env[Any, Any]):
    """An image of bytes with three channels behind, that counts; and a scalar beside it, should one be asked for."""

    action_space = Discrete(2)

    def __init__(self, shape: tuple[int, ...] = (16, 12, 3), **_: Any) -> None:
        self.observation_space = Box(0, 255, shape, np.uint8)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.n = 1
        return np.full(self.observation_space.shape, self.n, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.n += 1
        return np.full(self.observation_space.shape, self.n, np.uint8), 1.0, self.n == 4, False, {}

    def render(self) -> Any:
        return np.full((4, 4, 3), self.n, np.uint8)


class Echo(gym.Env[Any, Any]):
    """Shows the action that it got; five steps."""

    observation_space, action_space = Box(-1, 9, (1,)), Discrete(9)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.n = 0
        return np.float32([-1]), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.n += 1
        return np.float32([action]), float(action), self.n == 5, False, {}


class Gated(gym.Env[Any, Any]):
    """Allows one action at a time, as its info says, and rewards it; any other would raise."""

    observation_space, action_space = Box(0, 1, (2,)), Discrete(3)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(3) == self.allowed}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.allowed, self.n = int(self.np_random.integers(3)), 0
        return np.zeros(2, np.float32), self._info()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action == self.allowed
        self.allowed, self.n = int(self.np_random.integers(3)), self.n + 1
        return np.zeros(2, np.float32), 1.0, self.n == 4, False, self._info()


class Silent(Gated):
    """Says nothing of what is allowed once an episode is over; one that is `cut` is truncated."""

    def __init__(self, cut: bool = False) -> None:
        self.cut = cut

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over and not self.cut, over and self.cut, {} if over else info


def test_frames_and_time_are_gymnasiums() -> None:
    plan = {"frame_stack": 3, "time_aware": True, "time_limit": 15}
    ours = make("CartPole-v1", 1, 1, "gymnasium", **plan)
    twin = theirs.TimeLimit(gym.make("CartPole-v1").unwrapped, 15)
    twin = theirs.FlattenObservation(theirs.FrameStackObservation(twin, 3, padding_type="reset"))
    obs = ours.reset(Streams(0, [7]))
    want, _ = twin.reset(seed=int(seeds(Streams(0, [7]), 1)[0]))
    time, ends, generator = 0, set(), torch.Generator().manual_seed(0)
    for _ in range(120):
        np.testing.assert_array_equal(obs[0, 0].numpy(), np.append(want, np.float32(time / 15)))
        action = torch.randint(2, (1, 1), generator=generator)
        step = ours.step(action)
        want, _, over, cut, _ = twin.step(int(action))
        time += 1
        np.testing.assert_array_equal(step.last[0, 0].numpy(), np.append(want, np.float32(time / 15)))
        assert (bool(step.terminated), bool(step.truncated)) == (over, cut and not over)
        if over or cut:
            ends.add((over, cut))
            want, time = twin.reset()[0], 0
        obs = step.obs
    assert {(True, False), (False, True)} <= ends


@pytest.mark.parametrize("source", SOURCES)
def test_a_limit_of_time_cuts_in_every_source(source: str) -> None:
    env = make("Pendulum-v1", 2, 2, source, time_limit=7)
    env.reset(Streams(0, [0, 1]))
    for n in range(1, 15):
        step = env.step(torch.zeros(2, 2, 1))
        assert (step.truncated == (n % 7 == 0)).all() and not step.terminated.any()
    assert (step.episode.length == 7).all()
    env.close()


def test_a_limit_of_time_for_mujoco_atari_and_classes() -> None:
    for id, more in (("Hopper-v5", {}), ("ALE/Pong-v5", {}), ("envs.test_wrappers:Echo", {"source": "gymnasium"})):
        env = make(id, 1, 2, **more, time_limit=3)
        env.reset(Streams(0, [0]))
        action = torch.zeros(1, 2, 3) if id == "Hopper-v5" else torch.zeros(1, 2, dtype=torch.int64)
        assert [bool(env.step(action).truncated.all()) for _ in range(6)] == [False, False, True] * 2, id
        env.close()


def short_pendulum() -> gym.Env[Any, Any]:
    return gym.make("Pendulum-v1")  # with a limit of 200 steps inside


def test_a_limit_of_time_stands_for_the_one_inside() -> None:
    env = make("envs.test_wrappers:short_pendulum", 1, 1, time_limit=210, time_aware=True)
    env.reset(Streams(0, [0]))
    for n in range(1, 211):
        step = env.step(torch.zeros(1, 1, 1))
        assert bool(step.truncated) == (n == 210)
    assert float(step.last[0, 0, -1]) == 1


def test_images_are_stacked_along_their_channels() -> None:
    env = make("envs.test_wrappers:Pixels", 1, 1, frame_stack=3)
    assert env.obs_space.shape == (16, 12, 9) and parts_of(env.obs_space)[0].image
    obs, action = env.reset(Streams(0, [0])), torch.zeros(1, 1, dtype=torch.int64)
    shown = [obs[0, 0, 0, 0].tolist()]
    for _ in range(4):
        step = env.step(action)
        shown.append(step.obs[0, 0, 0, 0].tolist())
    assert shown == [[a] * 3 + [b] * 3 + [c] * 3 for a, b, c in ((1, 1, 1), (1, 1, 2), (1, 2, 3), (1, 1, 1), (1, 1, 2))]
    grey = make("envs.test_wrappers:Pixels", 1, 1, frame_stack=4, kwargs={"shape": (16, 12)})
    assert grey.obs_space.shape == (4, 16, 12) and grey.reset(Streams(0, [0])).shape == (1, 1, 4, 16, 12)
    first = make("envs.test_wrappers:Pixels", 1, 1, frame_stack=2, kwargs={"shape": (3, 16, 12)})
    assert first.obs_space.shape == (6, 16, 12)
    assert describe(settings("envs.test_wrappers:Pixels", frame_stack=3))[0] == env.obs_space


def test_the_last_frame_of_an_episode_is_stacked_on_its_own() -> None:
    env = make("envs.test_wrappers:Pixels", 1, 1, frame_stack=2, kwargs={"shape": (16, 12)})
    env.reset(Streams(0, [0]))
    for _ in range(3):
        step = env.step(torch.zeros(1, 1, dtype=torch.int64))
    assert step.terminated.all() and step.last[0, 0, :, 0, 0].tolist() == [3, 4]
    assert step.obs[0, 0, :, 0, 0].tolist() == [1, 1]


def test_sticky_actions_repeat_what_was_done() -> None:
    env = make("envs.test_wrappers:Echo", 2, 200, sticky=0.25)
    env.reset(Streams(0, [0, 1]))
    done, again, n = torch.full((2, 200), -1.0), 0.0, 0
    for t in range(50):
        chosen = torch.full((2, 200), 1 + t % 8)
        got = env.step(chosen).last[..., 0]
        fresh = t % 5 == 0
        assert ((got == chosen) | (got == done)).all() and (not fresh or (got == chosen).all())
        if not fresh:
            again, n = again + float((got == done).sum()), n + got.numel()
        done = got.clone()
    assert abs(again / n - 0.25) < 0.015


def test_rewards_are_scaled_and_clipped_to_learn_but_not_to_score() -> None:
    env = make("envs.test_wrappers:Echo", 1, 1, reward_scale=0.5, reward_clip=2.0)
    env.reset(Streams(0, [0]))
    steps = [env.step(torch.full((1, 1), a)) for a in (1, 2, 8, 0, 3)]
    assert [float(s.reward) for s in steps] == [0.5, 1.0, 2.0, 0.0, 1.5] and float(steps[-1].episode.reward) == 14
    from podium.envs.make import make as real

    scored = real(settings("envs.test_wrappers:Echo", reward_scale=0.5, reward_clip=2.0), 1, 1, scored=True)
    scored.reset(Streams(0, [0]))
    assert float(scored.step(torch.full((1, 1), 8)).reward) == 8


@pytest.mark.parametrize("source", ["gymnasium", "workers"])
def test_a_mask_in_info_is_obeyed(source: str) -> None:
    asked = settings("envs.test_wrappers:Gated", source, action_mask="info", workers=1)
    obs, _ = describe(asked)
    assert isinstance(obs, Row) and [part.mask for part in obs.parts] in ([True, False], [False, True])
    env = make("envs.test_wrappers:Gated", 1, 4, source, action_mask="info", workers=1)
    seen = env.reset(Streams(0, [0]))
    place = next(part for part in obs.parts if part.mask)
    for _ in range(12):  # the env raises at any other action
        seen = env.step(seen[..., place.first : place.first + place.size].argmax(-1)).obs
    env.close()


@pytest.mark.parametrize("cut", [True, False])
def test_all_is_allowed_once_an_episode_is_over(cut: bool) -> None:
    env = make("envs.test_wrappers:Silent", 1, 1, action_mask="info", kwargs={"cut": cut})
    place = next(part for part in parts_of(env.obs_space) if part.mask)
    mask = slice(place.first, place.first + place.size)
    seen = env.reset(Streams(0, [0]))
    for _ in range(4):
        step = env.step(seen[..., mask].argmax(-1))
        seen = step.obs
    assert bool(step.truncated if cut else step.terminated)
    assert step.last[0, 0, mask].tolist() == [1, 1, 1] and step.obs[0, 0, mask].sum() == 1


def test_taxi_learns_with_its_mask(tmp_path: Any) -> None:
    words = ("env.id=Taxi-v4", "ppo", "env.num=4", "algo.steps=32", "stop.steps=512", "eval.episodes=2")
    podium.train(*words, "env.action_mask=info", "env.time_limit=20", out=tmp_path / "run")
    agent = podium.load(tmp_path / "run")
    taxi = gym.make("Taxi-v4")
    obs, info = taxi.reset(seed=0)
    for _ in range(20):
        action = agent.act({"obs": obs, "action_mask": info["action_mask"]})
        assert info["action_mask"][action] == 1
        obs, _, _, _, info = taxi.step(action)


def test_wrapped_agents_are_watched_as_they_were_trained(tmp_path: Any) -> None:
    words = ("cartpole", "ppo", "stop.steps=2048", "stop.fitness=null", "eval.episodes=2", "env.frame_stack=2")
    podium.train(*words, "env.time_aware=true", "env.time_limit=12", "env.sticky=0.1", out=tmp_path / "run")
    agent = podium.load(tmp_path / "run")
    frames = list(agent.play())
    assert agent.obs_space.shape == (9,) and 2 <= len(frames) <= 13
    assert frames[-1][1] == len(frames) - 1 and frames[0][0].ndim == 3
    assert len(agent.evaluate(4)) == 4 and agent.evaluate(4, env="CartPole-v1").max() <= 12


def test_a_film_ends_with_the_end() -> None:
    film = Film(settings("envs.test_wrappers:Pixels"))
    assert isinstance(film.world, FromGymnasium)
    shown = [film.picture(film.world.reset(Streams(0, [0])))[0, 0, 0]]
    for _ in range(3):
        step = film.world.step(torch.zeros(1, 1, dtype=torch.int64))
        shown.append(film.picture(step.last)[0, 0, 0])
    assert step.terminated.all() and shown == [1, 2, 3, 4]


def test_atari_is_filmed_as_it_is_seen() -> None:
    film = Film(settings("ALE/Pong-v5"))
    assert film.picture(film.world.reset(Streams(0, [0]))).shape == (336, 336, 3)
    film.world.close()


def test_what_cannot_be_wrapped_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"env.time_aware.*needs an end: set env.time_limit"):
        describe(settings("envs.test_wrappers:Echo", time_aware=True))
    with pytest.raises(ConfigError, match=r"env.time_aware.*a row of numbers"):
        describe(settings("envs.test_wrappers:Pixels", time_aware=True, time_limit=5))
    with pytest.raises(ConfigError, match=r"env.frame_stack: 2.*action mask"):
        stacked(Row(Dict({"obs": Box(0, 1, (2,)), "action_mask": Box(0, 1, (3,), np.int8)})), 2)
    with pytest.raises(ConfigError, match=r"env.frame_stack: 2.*one part of several"):
        stacked(Row(Dict({"seen": Box(0, 255, (16, 12, 3), np.uint8), "speed": Box(0, 1, (3,))})), 2)
    with pytest.raises(ConfigError, match=r"env.frame_stack: 8 is not allowed; fewer channels"):
        stacked(Box(0, 255, (16, 12, 3), np.uint8), 8)
    with pytest.raises(ConfigError, match=r"env.action_mask: 'info'.*Discrete"):
        describe(settings("Pendulum-v1", action_mask="info"))
    with pytest.raises(ConfigError, match=r"env.action_mask: 'info'.*action_mask is not in info"):
        make("CartPole-v1", 1, 1, action_mask="info").reset(Streams(0, [0]))
    with pytest.raises(ConfigError, match=r"env.action_mask.*env.source=gymnasium"):
        source_of(settings("ALE/Pong-v5", "atari", action_mask="info"), 1)
