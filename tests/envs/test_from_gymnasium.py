"""The adapter of Gymnasium's objects and the names that `make` takes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from podium.core.errors import ConfigError, EnvRaised, PodiumError, UnknownName
from podium.core.streams import Streams
from podium.envs.from_gymnasium import FromGymnasium
from podium.envs.make import describe
from podium.envs.native import CartPole
from probes import ObsReward
from worlds import make, settings


class Echo(gym.Env[Any, Any]):
    """Shows how many steps an episode has, in one reused array; ends after `length` and remembers its actions."""

    def __init__(self, obs: spaces.Space[Any] | None = None, action: spaces.Space[Any] | None = None, length: int = 3):
        self.observation_space = obs or spaces.Box(0, 255, (2, 2), np.uint8)
        self.action_space = action or spaces.Discrete(3)
        self.length, self.seeds, self.actions = length, [], []
        self.array = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)

    def show(self) -> Any:
        if isinstance(self.observation_space, spaces.Discrete):
            return self.observation_space.start + self.t
        self.array[...] = self.t
        return self.array

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        self.seeds.append(seed)
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.t += 1
        end = self.t == self.length
        return self.show(), float(self.t), end, end, {}


def adapt(members: int = 1, envs: int = 2, **kwargs: Any) -> tuple[FromGymnasium, list[Echo]]:
    objects: list[Echo] = []

    def build() -> Echo:
        objects.append(Echo(**kwargs))
        return objects[-1]

    return FromGymnasium(build, members, envs), objects


def test_images_stay_bytes_and_last_survives_a_reset_into_the_same_array() -> None:
    env, _ = adapt(2, 3)
    obs = env.reset(Streams(0, [0, 1]))
    assert obs.dtype == torch.uint8 and obs.shape == (2, 3, 2, 2) and env.obs_space.dtype == np.uint8
    steps = []
    for _ in range(4):
        step = env.step(torch.zeros(2, 3, dtype=torch.int64))
        steps.append([int(x.flatten()[0]) for x in (step.obs, step.last, step.terminated, step.truncated, step.reward)])
    assert steps == [[1, 1, 0, 0, 1], [2, 2, 0, 0, 2], [0, 3, 1, 0, 3], [1, 1, 0, 0, 1]]
    for _ in range(2):
        step = env.step(torch.zeros(2, 3, dtype=torch.int64))
    assert (step.episode.reward == 6).all() and (step.episode.length == 3).all()


def test_seeds_come_from_the_member_and_once() -> None:
    env, objects = adapt(2, 2)
    env.reset(Streams(0, [4, 5]))
    for _ in range(3):
        env.step(torch.zeros(2, 2, dtype=torch.int64))
    seeds = [o.seeds for o in objects]
    assert all(s[1:] == [None] for s in seeds) and len({s[0] for s in seeds}) == 4
    alone, single = adapt(1, 2)
    alone.reset(Streams(0, [5]))
    assert [o.seeds[0] for o in single] == [s[0] for s in seeds[2:]]


def test_discrete_observations_become_one_hot() -> None:
    env, _ = adapt(obs=spaces.Discrete(5, start=2))
    assert env.obs_space == spaces.Box(0.0, 1.0, (5,))
    assert env.reset(Streams(0, [0])).tolist() == [[[1, 0, 0, 0, 0]] * 2]
    assert env.step(torch.zeros(1, 2, dtype=torch.int64)).obs.tolist() == [[[0, 1, 0, 0, 0]] * 2]


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_other_numbers_become_float32(dtype: type) -> None:
    env, _ = adapt(obs=spaces.Box(0, 9, (3,), dtype))
    assert env.reset(Streams(0, [0])).dtype == torch.float32 and env.obs_space.dtype == np.float32


def test_scalar_observations() -> None:
    env, _ = adapt(obs=spaces.Box(0, 9, ()))
    env.reset(Streams(0, [0]))
    assert env.step(torch.zeros(1, 2, dtype=torch.int64)).obs.tolist() == [[1, 1]]


def test_discrete_actions_start_where_the_space_does() -> None:
    env, objects = adapt(action=spaces.Discrete(3, start=-1))
    env.reset(Streams(0, [0]))
    env.step(torch.tensor([[0, 2]]))
    assert [o.actions for o in objects] == [[-1], [1]]


def test_multi_discrete_actions() -> None:
    env, objects = adapt(action=spaces.MultiDiscrete([2, 5], start=[0, 3]))
    env.reset(Streams(0, [0]))
    env.step(torch.tensor([[[0, 4], [1, 0]]]))
    assert [o.actions[0].tolist() for o in objects] == [[0, 7], [1, 3]]


def test_box_actions_are_clipped_and_nan_is_zero() -> None:
    env, objects = adapt(envs=3, action=spaces.Box(np.array([-1.0, 0.5]), np.array([1.0, 2.0]), dtype=np.float64))
    env.reset(Streams(0, [0]))
    env.step(torch.tensor([[[-7.0, 1.0], [torch.nan, torch.nan], [0.25, torch.inf]]]))
    assert [o.actions[0].tolist() for o in objects] == [[-1, 1], [0, 0.5], [0.25, 2]]
    assert objects[0].actions[0].dtype == np.float64


def test_an_action_belongs_to_the_env_that_got_it() -> None:
    env, objects = adapt(action=spaces.Box(-1, 1, (1,)))
    env.reset(Streams(0, [0]))
    action = torch.tensor([[[0.5], [0.25]]])
    env.step(action)
    action.fill_(-1)
    env.step(action)
    assert [[float(a[0]) for a in o.actions] for o in objects] == [[0.5, -1], [0.25, -1]]


def test_it_has_no_state() -> None:
    env, _ = adapt()
    assert env.state() is None
    with pytest.raises(PodiumError):
        env.load({})


@pytest.mark.parametrize(
    "kwargs",
    [{"obs": spaces.Dict(x=spaces.Text(2))}, {"action": spaces.Dict(x=spaces.Discrete(3))}, {"obs": spaces.Text(3)}],
)
def test_other_spaces_are_refused_by_name(kwargs: dict[str, Any]) -> None:
    class Odd(gym.Env[Any, Any]):
        observation_space = kwargs.get("obs", spaces.Discrete(2))
        action_space = kwargs.get("action", spaces.Discrete(2))

    with pytest.raises(ConfigError, match=r"env.id: 'Odd'.*(Dict|Text).*Discrete"):
        FromGymnasium(Odd, 1, 1)


def test_an_error_in_an_env_is_raised() -> None:
    env, _ = adapt()
    env.reset(Streams(0, [0]))
    with pytest.raises(
        EnvRaised, match=r"(?s)Echo: .*in step\n +assert self.action_space.*\nAssertionError: 9"
    ) as found:
        env.step(torch.full((1, 2), 9))
    assert isinstance(found.value.__cause__, AssertionError) and "objects.py" not in str(found.value)


def test_an_error_of_a_file_is_told_from_the_runs_own() -> None:
    env, objects = adapt()
    env.reset(Streams(0, [0]))
    objects[1].show = lambda: (_ for _ in ()).throw(ConnectionResetError("it hung up"))  # type: ignore[method-assign]
    for call in (lambda: env.step(torch.zeros(1, 2, dtype=torch.int64)), lambda: env.reset(Streams(0, [0]))):
        with pytest.raises(EnvRaised, match=r"(?s)Echo: .*ConnectionResetError: it hung up"):
            call()


def test_an_observation_of_another_shape_is_refused_where_an_episode_ends() -> None:
    env, objects = adapt(length=2)
    env.reset(Streams(0, [0]))
    show = objects[1].show
    objects[1].show = lambda: show() if objects[1].t < 2 else np.zeros(1, np.uint8)  # type: ignore[method-assign]
    env.step(torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(EnvRaised, match=r"shape \(1,\), and its space has \(2, 2\)"):
        env.step(torch.zeros(1, 2, dtype=torch.int64))


def test_observations_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env.id: 'Echo'.*they need a number at least"):
        adapt(obs=spaces.Box(0, 1, (0,)))


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make("CartPole-v1", 2, 8)) is CartPole
    assert type(make("CartPole-v1", 2, 8, "gymnasium")) is FromGymnasium
    assert type(make("CartPole-v1", 1, 2, kwargs={"sutton_barto_reward": True})) is FromGymnasium
    assert type(make("Acrobot-v1", 1, 2)) is FromGymnasium  # few
    assert type(make("probes:ObsReward", 2, 3)) is ObsReward
    monkeypatch.setitem(sys.modules, "my_envs", SimpleNamespace(Echo=Echo))
    own = make("my_envs:Echo", 1, 2, kwargs={"length": 1})
    own.reset(Streams(0, [0]))
    assert own.step(torch.zeros(1, 2, dtype=torch.int64)).terminated.all()
    with pytest.raises(UnknownName, match=r"env.id: there is no 'CartPole-v9'; did you mean 'CartPole-v"):
        make("CartPole-v9", 1, 1)
    with pytest.raises(UnknownName, match="did you mean 'probes:ObsReward'"):
        make("probes:ObsRewards", 1, 1)
    with pytest.raises(ConfigError, match="no_such_module"):
        make("no_such_module:Env", 1, 1)
    with pytest.raises(ConfigError, match="Blackjack-v1 has no simulator; there are Acrobot-v1, CartPole-v1"):
        make("Blackjack-v1", 1, 1, "native")
    with pytest.raises(ConfigError, match=r"env.kwargs"):
        make("CartPole-v1", 1, 1, "native", kwargs={"sutton_barto_reward": True})


def test_describe_tells_the_spaces_that_make_gives() -> None:
    for id in ("CartPole-v1", "FrozenLake-v1", "probes:ContinuousTarget"):
        env = make(id, 1, 1)
        assert describe(settings(id)) == (env.obs_space, env.action_space)
