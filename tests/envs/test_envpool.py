"""EnvPool's envs: the contract of every VecEnv, ends as Gymnasium's twins have them, seeds, spaces and refusals."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

import podium
from envs import test_contract as contract
from podium import checks
from podium.agent import Player
from podium.compose import compose
from podium.core.errors import ConfigError, MissingExtra, PodiumError, UnknownName
from podium.core.parts import Row, parts_of
from podium.core.streams import Streams
from podium.envs import from_envpool
from podium.envs.base import VecEnv
from podium.envs.from_envpool import FromEnvPool


def pool(id: str, members: int = 1, envs: int = 1, time_limit: int | None = None, **kwargs: Any) -> FromEnvPool:
    return FromEnvPool(id, members, envs, "cpu", kwargs, time_limit)


IDS = ("CartPole-v1", "Pendulum-v1", "Ant-v4", "FrozenLake-v1", "CartpoleSwingup-v1")
BUILDS = [pytest.param(lambda M, E, id=id: pool(id, M, E, 100), id=id) for id in IDS]
PROMISES: dict[str, Callable[[contract.Make], None]] = {
    name: getattr(contract, f"test_{name}")
    for name in (
        "shapes_and_types",
        "episodes_end_restart_and_are_counted",
        "a_population_is_its_members_apart",
        "nan_actions_do_not_reach_gymnasium",
        "a_step_stays_until_the_second_next",
        "no_graph_grows_and_inference_mode_does_not_matter",
        "step_before_reset_is_refused",
    )
}


@pytest.mark.parametrize("promise", PROMISES.values(), ids=PROMISES)
@pytest.mark.parametrize("build", BUILDS)
def test_the_contract(build: contract.Make, promise: Callable[[contract.Make], None]) -> None:
    promise(build)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_a_reset_shows_the_start_and_streams_decide_it(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(contract.ALL, "envpool", lambda M, E: pool(id, M, E))
    contract.test_a_reset_shows_the_start_and_keeps_the_end("envpool")
    contract.test_streams_decide_the_starts("envpool")


def twin_ends(id: str, start: np.ndarray, action: Any, limit: int) -> tuple[list[np.ndarray], bool, bool]:
    """Gymnasium's own env from a state, with one action over and over: what is seen, and how it ended."""
    env = gym.make(id, max_episode_steps=limit)
    env.reset(seed=0)
    env.unwrapped.state = start.astype(np.float64)
    seen = []
    while True:
        obs, _, terminated, truncated, _ = env.step(action)
        seen.append(obs)
        if terminated or truncated:
            return seen, terminated, truncated


@pytest.mark.parametrize("own", [False, True], ids=["", "its own limit"])
@pytest.mark.parametrize("limit", [7, 8, 9, 500])
def test_ends_are_those_of_gymnasiums_cartpole(limit: int, own: bool) -> None:
    """Pushed to one side a pole falls in 8 to 11 steps: some just when time runs out, which Gymnasium calls both."""
    env = pool("CartPole-v1", 2, 16, max_episode_steps=limit) if own else pool("CartPole-v1", 2, 16, limit)
    start = env.reset(Streams(0, [0, 1])).flatten(0, 1).numpy().copy()
    twins = [twin_ends("CartPole-v1", s, 1, limit) for s in start]
    assert limit != 9 or {(t, u) for _, t, u in twins} == {(True, False), (True, True), (False, True)}
    running = np.ones(32, bool)
    for t in range(min(limit, 12)):
        step = env.step(torch.ones(2, 16, dtype=torch.int64))
        last, terminated, truncated, obs, length = (
            x.flatten(0, 1).numpy() for x in (step.last, step.terminated, step.truncated, step.obs, step.episode.length)
        )
        for i in np.flatnonzero(running):
            seen, falls, late = twins[i]
            np.testing.assert_allclose(last[i], seen[t], rtol=1e-4, atol=1e-5)
            over = t == len(seen) - 1
            assert (terminated[i], truncated[i]) == (over and falls, over and late and not falls)
            assert (np.abs(obs[i]).max() <= 0.05) == over, "only what begins anew is near the middle"
            assert not over or length[i] == len(seen)
            running[i] = not over
    assert not running.any()


def test_the_limit_of_its_own_is_gymnasiums() -> None:
    """Nothing is said of time: an env ends at Gymnasium's limit, never before."""
    env = pool("Pendulum-v1", 1, 2)
    env.reset(Streams(0, [0]))
    lengths = []
    for t in range(400):
        step = env.step(torch.zeros(1, 2, 1))
        assert not step.terminated.any()
        if step.truncated.any():
            assert step.truncated.all()
            lengths.append(t + 1)
    assert lengths == [200, 400]


def test_a_time_limit_may_be_longer_than_its_own() -> None:
    env = pool("Pendulum-v1", 1, 1, 250)
    env.reset(Streams(0, [0]))
    ends = [t + 1 for t in range(250) if bool(env.step(torch.zeros(1, 1, 1)).truncated.any())]
    assert ends == [250]


def lives(*, scored: bool, time_limit: int | None = None, steps: int = 200) -> list[tuple[int, bool]]:
    """Of a game of Breakout with an episode a life: when one ended, and whether time had run out."""
    env = FromEnvPool("Breakout-v5", 1, 1, "cpu", {"episodic_life": True}, time_limit, scored)
    obs = env.reset(Streams(0, [0]))
    assert obs.shape == (1, 1, 4, 84, 84) and obs.dtype == torch.uint8 and env.obs_space.dtype == np.uint8
    ends, g = [], torch.Generator().manual_seed(0)
    for t in range(steps):
        step = env.step(torch.randint(4, (1, 1), generator=g))
        assert torch.equal(step.obs, step.last) != bool((step.terminated | step.truncated).any())
        if bool((step.terminated | step.truncated).any()):
            ends.append((t + 1, bool(step.truncated.any())))
    env.close()
    return ends


def test_a_life_may_be_an_episode_but_what_is_scored_is_a_game() -> None:
    one_life, game = lives(scored=False), lives(scored=True)
    assert len(one_life) > len(game) > 0 and not any(late for _, late in [*one_life, *game])
    assert lives(scored=True, time_limit=20, steps=60) == [(20, True), (40, True), (60, True)]


def test_the_same_streams_give_the_same_and_each_env_has_a_seed_of_its_own() -> None:
    env = pool("CartPole-v1", 2, 3)
    acts = contract.actions(env, 60)

    def played(seed: int, ids: list[int]) -> list[Tensor]:
        first = env.reset(Streams(seed, ids)).clone()
        return [first, *contract.run(env, acts)]

    one = played(0, [0, 1])
    contract.same(one, played(0, [0, 1]))  # all that begins anew in these steps, too
    assert not torch.equal(one[0], played(1, [0, 1])[0])
    swapped = played(0, [1, 0])
    assert torch.equal(swapped[0], one[0].flip(0))
    assert len(one[0].flatten(0, 1).unique(dim=0)) == 6


def test_nothing_is_left_after_close() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    env, before = pool("CartPole-v1", 1, 4), threads()
    env.reset(Streams(0, [0]))
    assert threads() > before
    env.reset(Streams(1, [0]))
    env.close()
    env.close()
    assert threads() == before


def test_parts_of_an_observation_become_a_row() -> None:
    env = pool("MiniGrid-Empty-5x5-v0", 1, 2)
    assert isinstance(env.obs_space, Row)
    places = {part.name: part for part in env.obs_space.parts}
    assert set(places) == {"direction", "image", "mission"}
    obs = env.reset(Streams(0, [0]))
    first = places["direction"].first
    assert obs[0, :, first : first + 4].tolist() == [[1, 0, 0, 0]] * 2  # they look to the right
    step = env.step(torch.tensor([[0, 1]]))  # one turns left, the other right
    assert step.obs[0, :, first : first + 4].tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]


def test_one_of_n_becomes_a_row() -> None:
    env = pool("FrozenLake-v1", 1, 3)
    assert env.obs_space.shape == (16,) and env.reset(Streams(0, [0])).argmax(2).tolist() == [[0, 0, 0]]


def test_bounds_that_hold() -> None:
    """EnvPool says that LunarLander sees nothing below 1e-38."""
    env = pool("LunarLander-v3", 1, 4)
    obs = env.reset(Streams(0, [0]))
    assert (obs < 0).any() and all(env.obs_space.contains(o.numpy()) for o in obs[0])


def test_numbers_of_64_bits_are_seen_as_32_and_actions_are_clipped() -> None:
    wide, edge = (pool("Ant-v4", 1, 2) for _ in range(2))
    assert wide.obs_space.dtype == np.float32 and isinstance(wide.action_space, Box)
    assert torch.equal(wide.reset(Streams(0, [0])), edge.reset(Streams(0, [0])))
    a, b = wide.step(torch.full((1, 2, 8), 7.0)), edge.step(torch.ones(1, 2, 8))
    assert torch.equal(a.obs, b.obs) and torch.equal(a.reward, b.reward)


def test_whole_numbers_between_bounds_are_choices() -> None:
    env = pool("Minesweeper-v0", 1, 2)
    assert env.action_space == MultiDiscrete([10, 10])
    first = env.reset(Streams(0, [0])).clone()
    board = next(part for part in parts_of(env.obs_space) if part.name == "board")
    where = torch.tensor([[[2, 5], [9, 9]]])
    shown = env.step(where).last[..., board.first : board.first + board.size].view(2, 10, 10)
    hidden = first[..., board.first : board.first + board.size].view(2, 10, 10)
    opened = shown != hidden  # with what lies around it, where that is free of mines
    assert opened[0, 2, 5] and opened[1, 9, 9] and not opened.flatten(1).all(1).any()


def test_it_can_be_trained_in() -> None:
    env: VecEnv = pool("CartPole-v1")
    assert isinstance(env, VecEnv) and isinstance(env.action_space, Discrete) and env.state() is None


def test_settings_reach_envpool() -> None:
    env = pool("Pong-v5", 1, 1, img_height=42, img_width=40, stack_num=2)
    assert env.obs_space.shape == (2, 42, 40) and env.reset(Streams(0, [0])).shape == (1, 1, 2, 42, 40)
    seen = pool("HalfCheetah-v4", 1, 1, from_pixels=True, render_width=16, render_height=12)
    assert seen.obs_space.dtype == np.uint8 and sorted(seen.obs_space.shape)[-2:] == [12, 16]


def test_refusals_name_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match=r"env.id: there is no 'CartPole-v9'; did you mean 'CartPole-v\d'"):
        pool("CartPole-v9")
    with pytest.raises(ConfigError, match=r"env.kwargs.frameskip: 3.*frame_skip"):
        pool("Pong-v5", frameskip=3)
    with pytest.raises(ConfigError, match=r"env.kwargs.num_threads: 3"):
        pool("Pong-v5", num_threads=3)
    with pytest.raises(ConfigError, match=r"env.kwargs: {'frame_skip': 'x'}"):
        pool("Pong-v5", frame_skip="x")
    with pytest.raises(ConfigError, match=r"env.kwargs.*from_pixels=True is only supported for MuJoCo"):
        pool("Pong-v5", from_pixels=True)
    with pytest.raises(ConfigError, match=r"env.id: 'Go9x9-v1'.*2 players"):
        pool("Go9x9-v1")

    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(from_envpool.importlib, "import_module", absent)
    with pytest.raises(MissingExtra, match=r"envpool is not installed.*podium-rl\[envpool\]"):
        pool("CartPole-v1")


def test_spaces_that_are_not_numbers_are_left_alone() -> None:
    assert from_envpool._bounded(MultiBinary(3)) == MultiBinary(3) and from_envpool._bounded(Discrete(3)) == Discrete(3)


def test_a_run_with_it(tmp_path: Path) -> None:
    words = ("CartPole-v1", "ppo", "env.source=envpool", "stop.steps=2048", "eval.every=1024", "eval.episodes=4")
    podium.train(*words, "env.frame_stack=2", out=tmp_path / "run")
    agent = podium.load(tmp_path / "run")
    assert agent.obs_space.shape == (8,) and len(agent.evaluate(4)) == 4
    with pytest.raises(ConfigError, match=r"env.measures.*env.source=gymnasium"):
        podium.train(*words, "env.measures=[x]", out=tmp_path / "other")


def test_what_only_envpool_has_cannot_be_drawn() -> None:
    player = Player(checks.validate(compose(("env=Catch-v0", "ppo", "env.source=envpool"))), "nobody")
    with pytest.raises(PodiumError, match=r"Catch-v0: EnvPool's envs cannot be drawn, and Gymnasium has none"):
        next(player.play())
