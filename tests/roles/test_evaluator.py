import pytest
import torch
from gymnasium.spaces import Box, Discrete

from podium.envs.native.base import Simulator
from podium.roles.evaluator import Evaluator


class Count(Simulator):
    """An episode lasts as many steps as its draw says (1 to 5); reward is the number of the step: 1, 2, 3 ..."""

    obs_space = Box(0.0, 9.0, (2,))
    action_space = Discrete(2)
    names = ("step", "length")
    numbers = 1
    longest = 5

    def start(self, u):
        return {"step": 0 * u[0], "length": torch.floor(u[0] * self.longest) + 1}

    def advance(self, s, action):
        s["step"] += 1
        return s["step"].clone(), s["step"] >= s["length"]


class Forever(Count):
    """Never ends; reward is the action."""

    def advance(self, s, action):
        s["step"] += 1
        return action.double(), s["step"] < 0


class Threes(Count):
    """Every episode lasts 3 steps."""

    def start(self, u):
        return {"step": 0 * u[0], "length": 0 * u[0] + 3}


def zero(obs):
    return torch.zeros(obs.shape[:2], dtype=torch.int64)


def run(env, names, episodes, envs=4, max_steps=100, act=zero):
    made = []

    def make(members: int, n: int) -> Simulator:
        made.append((members, n))
        return env(members, n)

    evaluator = Evaluator(make, 0, envs, max_steps)
    returns, objectives = evaluator.evaluate(act, names, episodes)
    assert returns.shape == (len(names), episodes) and objectives.shape == (len(names), episodes, 0)
    return returns, made, evaluator


@pytest.mark.parametrize(("episodes", "envs", "used"), [(8, 4, 4), (6, 4, 3), (7, 4, 1), (3, 8, 3), (1, 4, 1)])
def test_every_episode_is_whole_and_all_envs_run_as_many(episodes: int, envs: int, used: int) -> None:
    returns, made, _ = run(Count, ["a", "b"], episodes, envs)
    assert made == [(2, used)]
    assert set(returns.flatten().tolist()) <= {1.0, 3.0, 6.0, 10.0, 15.0}


def test_short_episodes_count_no_more_than_long_ones() -> None:
    returns, _, _ = run(Count, ["a"], 400, envs=400)
    many, _, _ = run(Count, ["a"], 400, envs=4)  # four envs, a hundred episodes each
    for found in (returns, many):
        frequency = [(found == r).float().mean().item() for r in (1, 3, 6, 10, 15)]
        assert frequency == pytest.approx([0.2] * 5, abs=0.08)


def test_a_name_decides_the_episodes_and_not_its_neighbours() -> None:
    together, _, evaluator = run(Count, ["a", "b", "c"], 8)
    alone, _, _ = run(Count, ["b"], 8)
    assert torch.equal(together[1:2], alone)
    assert torch.equal(evaluator.evaluate(zero, ["a", "b", "c"], 8)[0], together), "envs are used again, from the start"
    assert not torch.equal(together[0], together[1])


def test_an_episode_that_lasts_too_long_is_cut_and_counts_as_it_stands() -> None:
    for episodes, envs in ((4, 4), (4, 1), (6, 2)):
        returns, _, _ = run(Forever, ["a"], episodes, envs, max_steps=10, act=lambda obs: zero(obs) + 1)
        assert returns.tolist() == [[10.0] * episodes]


def test_no_episode_counts_twice() -> None:
    returns, _, _ = run(Threes, ["a"], 3, envs=1, max_steps=3)
    assert returns.tolist() == [[6, 6, 6]]
    returns, _, _ = run(Threes, ["a"], 4, envs=1, max_steps=2)  # 1 + 2, and the 3 that is left of it
    assert returns.tolist() == [[3, 3, 3, 3]]


def test_policies_are_told_apart() -> None:
    def act(obs):
        return zero(obs) + torch.tensor([[0], [1]])

    returns, _, _ = run(Forever, ["a", "a"], 4, max_steps=5, act=act)
    assert returns.tolist() == [[0.0] * 4, [5.0] * 4]
