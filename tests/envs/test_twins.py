"""Every native simulator beside its Gymnasium twin: observations and rewards to 1e-5, flags exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from podium.core.spec import Step
from podium.core.streams import Streams
from podium.envs.native import SIMULATORS, Simulator
from podium.envs.native.pong import Pong
from podium.envs.native.tabular import Tabular

ELSEWHERE = (Pong, Tabular)  # in test_pong.py and test_tabular.py
twins = pytest.mark.parametrize("id", [id for id, kind in SIMULATORS.items() if not issubclass(kind, ELSEWHERE)])
CLOSE = 1e-5


class Pair:
    """A simulator `[1, E]` and E twins, whose states are the simulator's after `sync` and after every reset."""

    def __init__(self, id: str, envs: int, seed: int = 0) -> None:
        self.native: Simulator = SIMULATORS[id](1, envs)
        self.obs = self.native.reset(Streams(seed, [0]))
        self.twins: list[gym.Env[Any, Any]] = [gym.make(id, disable_env_checker=True) for _ in range(envs)]
        for twin in self.twins:
            twin.reset(seed=0)
        self.sync(*range(envs))

    def sync(self, *envs: int) -> None:
        for e in envs:
            values = [float(v[0, e]) for v in self.native.s.values()]
            self.twins[e].unwrapped.state = np.array(values)  # type: ignore[attr-defined]

    def inject(self, states: list[tuple[float, ...]]) -> None:
        """Give both the same states, through `load`."""
        tree = self.native.state()
        for i, name in enumerate(self.native.names):
            tree["now"][name] = torch.tensor([[s[i] for s in states]], dtype=self.native.table.dtype)
        self.native.load(tree)
        self.sync(*range(len(states)))

    def step(self, action: Tensor) -> tuple[Step, list[str]]:
        """Step both, compare all they return; how episodes ended."""
        step, ends = self.native.step(action), []
        space = self.native.action_space
        for e, twin in enumerate(self.twins):
            a = action[0, e].numpy()
            a = int(a) if isinstance(space, Discrete) else np.clip(a, space.low, space.high)
            obs, reward, terminated, truncated, _ = twin.step(a)
            np.testing.assert_allclose(step.last[0, e].numpy(), obs, rtol=0, atol=CLOSE)
            np.testing.assert_allclose(float(step.reward[0, e]), float(reward), rtol=1e-6, atol=CLOSE)
            assert bool(step.terminated[0, e]) == terminated
            assert bool(step.truncated[0, e]) == (truncated and not terminated)
            if not (terminated or truncated):  # the state may hold what is not observed, such as the turns of an angle
                state = [float(v[0, e]) for v in self.native.s.values()]
                np.testing.assert_allclose(state, twin.unwrapped.state, rtol=0, atol=CLOSE)
            else:
                ends.append("terminated" if terminated else "truncated")
                twin.reset()
                self.sync(e)
                restart = twin.unwrapped._get_ob if hasattr(twin.unwrapped, "_get_ob") else None
                if restart:
                    np.testing.assert_allclose(step.obs[0, e].numpy(), restart(), rtol=0, atol=CLOSE)
        return step, ends


def random_actions(env: Simulator, steps: int, seed: int = 0) -> Tensor:
    """`[T, 1, E, ...]`; Box actions reach beyond their bounds."""
    g, space, shape = torch.Generator().manual_seed(seed), env.action_space, (steps, 1, env.envs)
    if isinstance(space, Discrete):
        return torch.randint(int(space.n), shape, generator=g)
    return (torch.rand(*shape, 1, generator=g) * 2 - 1) * 1.3 * float(space.high[0])


@twins
def test_500_random_steps(id: str) -> None:
    pair = Pair(id, 6)
    ends = []
    for t, a in enumerate(random_actions(pair.native, 500)):
        # Chaos: 1 sine of 1000 differs from numpy's in its last bit, and that grows to 1e-4 in 1 acrobot of 100.
        if id == "Acrobot-v1" and t == 250:
            pair.sync(*range(6))
        ends += pair.step(a)[1]
    kinds = {"CartPole-v1": {"terminated"}, "MountainCarContinuous-v0": set(), "Acrobot-v1": {"truncated"}}
    assert set(ends) >= kinds.get(id, {"truncated"})


def test_continuous_mountain_car_to_its_time_limit() -> None:
    pair = Pair("MountainCarContinuous-v0", 2)
    ends = [pair.step(a * 0.1)[1] for a in random_actions(pair.native, 999)]
    assert ends[-1] == ["truncated"] * 2 and not any(ends[:-1])


def test_a_balanced_pole_reaches_the_time_limit() -> None:
    pair = Pair("CartPole-v1", 3)
    obs = pair.obs
    for t in range(500):
        # Between syncs the twins run free; over 500 steps an upright pole amplifies any rounding error by e^40.
        if t % 25 == 0:
            pair.sync(0, 1, 2)
        push = obs @ torch.tensor([0.1, 0.3, 2.0, 1.0])
        step, ends = pair.step((push > 0).long())
        obs = step.obs
        assert len(ends) == (3 if t == 499 else 0)
    assert step.truncated.all() and (step.episode.reward == 500).all() and (step.episode.length == 500).all()


def test_a_fall_on_the_last_step_is_a_termination() -> None:
    env = SIMULATORS["CartPole-v1"](1, 2)
    env.reset(Streams(0, [0]))
    tree = env.state()
    tree["length"][:] = 499
    tree["now"]["angle"][0, 1] = 1.0
    env.load(tree)
    step = env.step(torch.zeros(1, 2, dtype=torch.int64))
    assert step.terminated.tolist() == [[False, True]] and step.truncated.tolist() == [[True, False]]


def grid(*axes: list[float]) -> list[tuple[float, ...]]:
    return [tuple(map(float, p)) for p in torch.cartesian_prod(*map(torch.tensor, axes)).tolist()]


BOUNDARIES = {
    "CartPole-v1": grid([-2.41, -2.39, 0.0, 2.39, 2.41], [-1.0, 1.0], [-0.22, -0.208, 0.0, 0.208, 1.5], [-2.0, 2.0]),
    "MountainCar-v0": grid([-1.2, -1.19, -1.1, 0.43, 0.49, 0.5, 0.59], [-0.07, -0.02, 0.0, 0.002, 0.05, 0.07]),
    "MountainCarContinuous-v0": grid([-1.2, -1.19, -1.1, 0.4, 0.449, 0.59], [-0.07, -0.02, 0.0, 0.002, 0.05, 0.07]),
    "Pendulum-v1": grid([-9.0, -3.1416, -1.0, 0.0, 3.1415, 3.2, 40.0], [-8.0, -7.9, 0.0, 7.9, 8.0]),
    "Acrobot-v1": grid([-3.1, 1.4, 3.1], [-3.0, 0.0, 0.5, 3.0], [-12.5, 0.0, 4.0, 12.5], [-28.0, 0.0, 9.0, 28.0]),
}


@twins
@pytest.mark.parametrize("push", [0, 1, 2])
def test_at_the_boundaries(id: str, push: int) -> None:
    states = BOUNDARIES[id]
    pair = Pair(id, len(states))
    pair.inject(states)
    space = pair.native.action_space
    if isinstance(space, Discrete):
        action = torch.full((1, len(states)), min(push, int(space.n) - 1))
    else:
        action = torch.full((1, len(states), 1), float(push - 1) * 5)  # beyond the bounds but for 0
    step, ends = pair.step(action)
    if id != "Pendulum-v1":
        assert 0 < ends.count("terminated") < len(states), "the grid lies on both sides of the goal"


STARTS = {
    "CartPole-v1": [(-0.05, 0.05)] * 4,
    "MountainCar-v0": [(-0.6, -0.4), (0, 0)],
    "MountainCarContinuous-v0": [(-0.6, -0.4), (0, 0)],
    "Pendulum-v1": [(-np.pi, np.pi), (-1, 1)],
    "Acrobot-v1": [(-0.1, 0.1)] * 4,
}


def spread(draw: Callable[[], np.ndarray[Any, Any]], n: int) -> np.ndarray[Any, Any]:
    return np.array([draw() for _ in range(n)])


@twins
def test_starts_are_uniform_where_the_twins_are(id: str) -> None:
    env = SIMULATORS[id](1, 4000)
    env.reset(Streams(0, [0]))
    twin = gym.make(id).unwrapped
    theirs = spread(lambda: (twin.reset(), np.array(twin.state))[1], 300)  # type: ignore[attr-defined]
    for i, (low, high) in enumerate(STARTS[id]):
        ours, width = env.table[i, 0].numpy(), high - low
        assert low - 1e-7 <= theirs[:, i].min() and theirs[:, i].max() <= high + 1e-7
        assert low - 1e-7 <= ours.min() <= low + 0.01 * width and high - 0.01 * width <= ours.max() <= high + 1e-7
        quarters = np.histogram(ours, 4, (low, high or 1))[0]
        assert width == 0 or (abs(quarters - 1000) < 150).all()
