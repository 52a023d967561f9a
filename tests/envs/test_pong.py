"""Vector Pong: the simulator beside a game written a number at a time, and the rules themselves."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torch import Tensor

import podium
from podium.core.streams import Streams
from podium.envs.native.pong import BALL, BAT, FACE, PATIENCE, REACH, ROUNDS, SPEED, SPIN, Pong
from podium.envs.native.pong_env import PongEnv

STOP = torch.ones(1, 1, dtype=torch.int64)


def game(**state: float) -> Pong:
    """One env, where the variables are as given."""
    env = Pong(1, 1)
    env.reset(Streams(0, [0]))
    for name, value in state.items():
        env.s[name].fill_(value)
    return env


def put(twin: PongEnv, env: Pong, e: int) -> None:
    twin.state = np.array([float(v[0, e]) for v in env.s.values()])


@pytest.mark.parametrize("skill", [0.0, 0.5, 1.0])
def test_the_simulator_plays_as_the_plain_game_does(skill: float) -> None:
    """With random actions, and with some or all that follow the ball; serves are drawn, so they are told the twin."""
    envs, g = 8, torch.Generator().manual_seed(1)
    env = Pong(1, envs)
    obs, twins = env.reset(Streams(3, [0])), [PongEnv() for _ in range(envs)]
    for e, twin in enumerate(twins):
        twin.reset(seed=e)
        put(twin, env, e)
    rounds, ends = 0, 0
    for _ in range(1500):
        ahead = obs[..., -1] - obs[..., 0]
        follow = (ahead.sign() * (ahead.abs() > SPEED)).long() + 1
        action = torch.where(torch.rand(1, envs, generator=g) < skill, follow, torch.randint(3, (1, envs), generator=g))
        step = env.step(action)
        obs = step.obs
        for e, twin in enumerate(twins):
            seen, reward, terminated, truncated, _ = twin.step(int(action[0, e]))
            np.testing.assert_allclose(step.last[0, e].numpy(), seen, rtol=0, atol=1e-5)
            assert float(step.reward[0, e]) == pytest.approx(float(reward), abs=1e-6)
            assert (bool(step.terminated[0, e]), bool(step.truncated[0, e])) == (bool(terminated), truncated)
            rounds, ends = rounds + (reward > 0), ends + terminated
            if env.s["clock"][0, e] == 0:
                put(twin, env, e)
            mine = [float(v[0, e]) for v in env.s.values()]
            np.testing.assert_allclose(mine, twin.state, rtol=0, atol=2e-4)
            put(twin, env, e)  # so that rounding never adds up to a ball that is hit by one of them only
    assert rounds > 5 and ends > 0


def test_a_bat_turns_the_ball_round_and_gives_it_some_of_its_speed() -> None:
    near = FACE + REACH[0] + SPEED / 2
    env = game(x3=near, y3=0.5, vx=-SPEED, vy=0.0, bat=0.5)
    env.step(2 * STOP)  # down
    assert float(env.s["vx"]) == pytest.approx(SPEED) and float(env.s["vy"]) == pytest.approx(SPIN * SPEED)
    env = game(x3=near, y3=0.5, vx=-SPEED, vy=0.0, bat=1 - BAT[1] / 2)
    env.step(2 * STOP)
    assert float(env.s["vx"]) == pytest.approx(-SPEED), "it is elsewhere"
    env = game(x3=FACE, y3=0.5, vx=SPEED, vy=0.0, bat=0.5)
    env.step(STOP)
    assert float(env.s["vx"]) == pytest.approx(SPEED), "a ball that leaves is not held back"


def test_walls_turn_the_ball_round() -> None:
    env = game(x3=0.5, y3=BALL / 2 + 0.001, vx=SPEED, vy=-0.01)
    env.step(STOP)
    assert float(env.s["y3"]) == pytest.approx(BALL / 2 + 0.009, abs=1e-6) and float(env.s["vy"]) == pytest.approx(0.01)


@pytest.mark.parametrize(("x", "speed", "reward"), [(1.0, SPEED, 1 / 20), (0.0, -SPEED, 0.0), (0.5, SPEED, 1 / 40)])
def test_a_round_is_won_lost_or_a_tie(x: float, speed: float, reward: float) -> None:
    env = game(x3=x, y3=0.1, vx=speed, vy=0.0, bat=0.9, clock=PATIENCE - 1 if x == 0.5 else 5)
    step = env.step(STOP)
    assert float(step.reward) == pytest.approx(reward) and float(env.s["round"]) == 1
    assert not step.terminated.any()
    assert step.obs[0, 0, 2:].tolist() == [0.5] * 8 and float(env.s["vx"].abs()) == pytest.approx(SPEED)


def play(actions: Tensor, steps: int = 2500, envs: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """Return, length and objectives of all whole episodes in which always the same is done."""
    env = Pong(1, envs)
    env.reset(Streams(0, [0]))
    out: list[tuple[Tensor, ...]] = []
    for _ in range(steps):
        step = env.step(actions.expand(1, envs))
        done = step.terminated
        out += [tuple(x[done].clone() for x in step.episode)] if done.any() else []
    returns, lengths, objectives = (torch.cat(x) for x in zip(*out, strict=True))
    return returns, lengths, objectives


def test_an_episode_is_twenty_rounds_and_its_return_is_the_fitness() -> None:
    returns, lengths, objectives = play(STOP)
    assert len(returns) > 50 and ((returns * 2 * ROUNDS).round() - returns * 2 * ROUNDS).abs().max() < 1e-3
    assert returns.min() >= 0 and returns.max() <= 1 and (lengths >= ROUNDS * 15).all()
    stop, moved, lazy, busy = objectives.unbind(-1)
    assert (stop == 1).all() and (moved == 0).all()
    torch.testing.assert_close(lazy, returns + 1)
    torch.testing.assert_close(busy, returns)


def test_a_bat_at_the_wall_does_not_move() -> None:
    _, lengths, objectives = play(torch.zeros(1, 1, dtype=torch.int64))
    assert (objectives[:, 0] == 0).all() and (objectives[:, 1] * lengths <= 20).all()


def test_serves_go_everywhere_and_differ_between_rounds() -> None:
    env = Pong(2, 512)
    env.reset(Streams(0, [0, 1]))
    vx, vy = env.s["vx"].flatten(), env.s["vy"].flatten()
    assert 0.4 < (vx > 0).float().mean() < 0.6 and 0.4 < (vy > 0).float().mean() < 0.6
    assert vx.abs().allclose(torch.tensor(SPEED))
    assert (vy.abs() * 160).min() >= 1.2 - 1e-4 and (vy.abs() * 160).max() <= 4 + 1e-4 and vy.std() > 0
    serves = []
    for _ in range(300):
        env.step(torch.ones(2, 512, dtype=torch.int64))
        new = env.s["clock"] == 0
        serves.append(env.s["vy"][new].clone())
    assert len(torch.cat(serves).unique()) > 500


def test_the_gymnasium_env_is_one_and_draws() -> None:
    check_env(gym.make("VectorPong-v0", render_mode="rgb_array").unwrapped, skip_render_check=False)
    env = gym.make("VectorPong-v0", render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert isinstance(frame, np.ndarray) and frame.shape == (320, 320, 3) and len(np.unique(frame)) > 3


@pytest.mark.slow
def test_members_can_be_bred_for_how_they_play(tmp_path: Path) -> None:
    small = ("evolve.members=4", "env.num=2", "algo.steps=32", "algo.batch=64", "evolve.interval=64", "train.threads=1")
    short = ("eval.episodes=1", "eval.max_steps=40", "stop.generations=2", "evolve.burn_in=0")
    podium.evolve("pong", "ppo", "pong-behaviour", *small, *short, out=tmp_path / "run")
    for row in podium.front(tmp_path / "run"):
        lazy, busy = (row["objectives"][name] - row["fitness"] for name in ("lazy", "busy"))
        assert 0 <= lazy <= 1 and 0 <= busy <= 1 and lazy + busy <= 1 + 1e-6
