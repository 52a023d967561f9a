"""An agent learns in a world of every kind of space: what is shown says what is to be done, and 1 is the best reward.

A world shows a sign, 0 or 1, in its own way; the action that means the same in its own way is worth 1, any other 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import podium
from podium import checks
from podium import experiment as experiments
from podium.agent import Player
from podium.compose import compose
from podium.core.errors import ConfigError, PodiumError

Box, Dict, Discrete = spaces.Box, spaces.Dict, spaces.Discrete
IMAGE = Box(0, 255, (12, 12, 3), np.uint8)
CAMERA = Dict({"camera": IMAGE, "noise": Box(-1, 1, (2,))})
NESTED = Dict({"a": spaces.Tuple((Discrete(3, start=4), Box(-1, 1, (2,)))), "b": Dict({"c": spaces.MultiBinary(2)})})


def picture(sign: int) -> Any:
    out = np.zeros((12, 12, 3), np.uint8)
    out[:, (6 if sign else 0) : (12 if sign else 6)] = 200
    return out


SHOWN: dict[str, tuple[spaces.Space[Any], Callable[[int, Any], Any]]] = {
    "box": (Box(-1, 1, (1,)), lambda s, g: np.float32([2 * s - 1])),
    "float64": (Box(-np.inf, np.inf, (2, 2), np.float64), lambda s, g: np.full((2, 2), 2.0 * s - 1)),
    "int": (Box(0, 10, (2,), np.int64), lambda s, g: np.array([s, 1 - s])),
    "scalar": (Box(-1, 1, ()), lambda s, g: np.float32(2 * s - 1)),
    "bytes": (Box(0, 255, (3,), np.uint8), lambda s, g: np.full(3, 255 * s, np.uint8)),
    "discrete": (Discrete(2, start=-3), lambda s, g: s - 3),
    "multi-discrete": (spaces.MultiDiscrete([3, 2]), lambda s, g: np.array([g.integers(3), s])),
    "multi-binary": (spaces.MultiBinary(3), lambda s, g: np.array([g.integers(2), s, 1], np.int8)),
    "image": (IMAGE, lambda s, g: picture(s)),
    "flags": (Box(0, 1, (2,), np.uint8), lambda s, g: np.array([s, 1 - s], np.uint8)),
    "dict-of-one-image": (Dict({"camera": IMAGE}), lambda s, g: {"camera": picture(s)}),
    "dict-with-image": (CAMERA, lambda s, g: {"camera": picture(s), "noise": g.uniform(-1, 1, 2).astype(np.float32)}),
    "nested": (
        NESTED,
        lambda s, g: {"a": (int(g.integers(4, 7)), np.float32([0, 0])), "b": {"c": np.array([s, 1], np.int8)}},
    ),
}
DONE: dict[str, tuple[spaces.Space[Any], Callable[[Any], float]]] = {
    "discrete": (Discrete(3, start=5), lambda a: float(a == 6)),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), lambda a: float(a[0] == 1)),
    "multi-discrete-2d": (spaces.MultiDiscrete([[2], [2]]), lambda a: float(a[0, 0] == 1)),
    "multi-binary": (spaces.MultiBinary(2), lambda a: float(a[1] == 1)),
    "box": (Box(-2, 2, (1,)), lambda a: float(a[0] > 0.5)),
    "box-2d": (Box(-1, 1, (2, 1)), lambda a: float(a[1, 0] > 0.3)),
}


class World(gym.Env[Any, Any]):
    """One step an episode. Right is what means 1 where the sign is 1, and what does not where it is 0."""

    def __init__(self, shown: str = "box", done: str = "discrete") -> None:
        self.observation_space, self._show = SHOWN[shown]
        self.action_space, self._means_one = DONE[done]
        self.sign = 0

    def _obs(self) -> Any:
        self.sign = int(self.np_random.integers(2))
        return self._show(self.sign, self.np_random)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        reward = float(self._means_one(action) == self.sign)
        return self._obs(), reward, True, False, {}


class Misled(World):
    """A mask that does not go with the actions, or several, or nothing beside it."""

    def __init__(self, size: int = 4, actions: str = "discrete", twice: bool = False, alone: bool = False) -> None:
        super().__init__()
        mask = {"action_mask": Box(0, 1, (size,), np.int8)}
        inner = {"inner": Dict({**mask, "sign": Box(-1, 1, (1,))})} if twice else {"sign": Box(-1, 1, (1,))}
        self.observation_space = Dict(mask if alone else {**mask, **inner})
        kinds = {"discrete": Discrete(4), "multi": spaces.MultiDiscrete([2, 2]), "box": Box(-1, 1, (4,))}
        self.action_space = kinds[actions]

    def _obs(self) -> Any:
        return self.observation_space.sample()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._obs(), 0.0, True, False, {}


class Masked(World):
    """Of four actions one is right, one wrong, and two are forbidden: taking one of those is an error."""

    def __init__(self) -> None:
        super().__init__()
        mask = Box(0, 1, (4,), np.int8)
        self.observation_space = Dict({"action_mask": mask, "sign": Box(-1, 1, (1,))})
        self.action_space = Discrete(4)

    def _obs(self) -> Any:
        self.sign = int(self.np_random.integers(2))
        self.first = int(self.np_random.integers(2)) * 2
        mask = np.zeros(4, np.int8)
        mask[self.first : self.first + 2] = 1
        return {"action_mask": mask, "sign": np.float32([2 * self.sign - 1])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action // 2 * 2 == self.first, "a forbidden action"
        reward = float(action % 2 == self.sign)
        return self._obs(), reward, True, False, {}


PPO = ("ppo", "algo.lr=5e-3", "algo.steps=16", "env.num=16", "algo.batch=128", "algo.epochs=4", "algo.discount=0.9",
       "train.members=2", "train.threads=1", "net.hidden=[16]", "net.features=16", "seed=1")  # fmt: skip


REPLAY = ("algo.lr=5e-3", "env.num=16", "algo.updates=0.2", "algo.batch=64", "algo.discount=0.9", "algo.warmup=64",
          "algo.tau=0.1", "replay.capacity=2000", *PPO[7:])  # fmt: skip


def learnt(*words: str, plan: tuple[str, ...] = PPO, rounds: int = 40) -> list[float]:
    """Mean rewards of 64 episodes each of two members."""
    pod = experiments.build_pod(checks.validate(compose((*plan, *words))))
    pod.train(rounds)
    assert not pod.failed.any()
    returns = pod.evaluate([0, 1], 64).returns
    return [float(x) for x in returns.mean(1)]


@pytest.mark.parametrize("shown", SHOWN)
def test_what_is_seen(shown: str) -> None:
    assert min(learnt("env=algos.test_spaces:World", f"env.kwargs.shown={shown}")) > 0.95


@pytest.mark.parametrize("done", DONE)
def test_what_is_done(done: str) -> None:
    assert min(learnt("env=algos.test_spaces:World", f"env.kwargs.done={done}")) > 0.95


@pytest.mark.parametrize("algo", ["ppo", "a2c", "dqn", "sac-discrete"])
def test_forbidden_actions_are_never_taken(algo: str) -> None:
    plan, rounds = (PPO, 40) if algo in ("ppo", "a2c") else ((algo, *REPLAY), 80)
    if algo == "a2c":
        plan, rounds = ("a2c", *(word for word in PPO[1:] if "batch" not in word and "epochs" not in word)), 120
    assert min(learnt("env=algos.test_spaces:Masked", plan=plan, rounds=rounds)) > 0.95


SAC = ("sac", *REPLAY[:-5], "env.num=4")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ((*PPO, "env.kwargs.actions=box"), "env.id: .* an action_mask is for Discrete actions, and these are Box"),
        ((*PPO, "env.kwargs.actions=multi"), "env.id: .* for Discrete actions, and these are MultiDiscrete"),
        ((*SAC, "env.kwargs.actions=box"), "env.id: .* for Discrete actions"),
        ((*PPO, "env.kwargs.size=5"), "env.id: .* an action_mask of a number for each action, 4, not 5"),
        ((*PPO, "env.kwargs.twice=true"), "env.id: .* one action_mask in its observations, not action_mask, inner"),
        ((*PPO, "env.kwargs.alone=true"), "env.id: .* observations that hold something beside their action_mask"),
        (SAC, "algo.name: 'sac' is not allowed; ppo, a2c, dqn, sac-discrete: only these obey"),
        ((*PPO, "env.sticky=0.25"), "env.sticky: 0.25 is not allowed; 0 where observations hold an action_mask"),
        ((*PPO, "algo=podium.algos.ppo:PPO", "env.kwargs.size=3"), "env.id: .* a number for each action, 4, not 3"),
    ],
)
def test_a_mask_that_would_not_be_obeyed_is_refused(plan: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checks.validate(compose((*plan, "env=algos.test_spaces:Misled")))


def test_an_algorithm_of_a_users_sees_to_masks_itself() -> None:
    checks.validate(compose((*PPO, "algo=podium.algos.ppo:PPO", "env=algos.test_spaces:Misled")))


@pytest.mark.parametrize("shown", ["image", "dict-of-one-image", "dict-with-image", "nested"])
@pytest.mark.parametrize("algo", ["dqn", "sac-discrete"])
def test_what_learners_with_a_replay_see(algo: str, shown: str) -> None:
    words = ("env=algos.test_spaces:World", f"env.kwargs.shown={shown}")
    assert min(learnt(*words, plan=(algo, *REPLAY), rounds=80)) > 0.95


def test_an_agent_takes_the_envs_own_observations_and_gives_its_own_actions(tmp_path: Any) -> None:
    kwargs, short = "env.kwargs={shown: nested, done: multi-binary}", ("stop.steps=512", "eval.every=512")
    words = (*PPO[:-1], "env=algos.test_spaces:World", kwargs, *short, "eval.episodes=4")
    podium.train(*words, out=tmp_path / "run")
    agent = podium.load(tmp_path / "run")
    world = World("nested", "multi-binary")
    obs, _ = world.reset(seed=0)
    assert world.action_space.contains(agent.act(obs))
    assert agent.act([obs, obs]).shape == (2, 2)
    exact = {"a": (obs["a"][0], np.float64([0, 0])), "b": obs["b"]}
    np.testing.assert_array_equal(agent.act(exact), agent.act(obs))
    assert agent.act([exact, obs]).shape == (2, 2)
    for wrong in ({"a": 3}, {"a": (4, np.zeros(3)), "b": obs["b"]}, (np.zeros(2), np.zeros(3))):
        with pytest.raises(PodiumError, match="is not in Dict"):
            agent.act(wrong)


class Pair(World):
    """Parts of a Tuple, or in another order, or of a Dict: rows of one length."""

    def __init__(self, order: str = "ab") -> None:
        super().__init__()
        parts = {"a": Box(-1, 1, (1,)), "b": Box(-1, 1, (2,))}
        self.observation_space = Dict(parts) if order == "dict" else spaces.Tuple([parts[name] for name in order])

    def _obs(self) -> Any:
        return self.observation_space.sample()


class Swapped(Pair):
    def __init__(self) -> None:
        super().__init__("ba")


class Named(Pair):
    def __init__(self) -> None:
        super().__init__("dict")


def test_parts_of_a_tuple_may_have_any_precision_and_an_order_that_counts(tmp_path: Any) -> None:
    short = ("stop.steps=512", "eval.every=512", "eval.episodes=2")
    podium.train(*PPO[:-1], "env=algos.test_spaces:Pair", *short, out=tmp_path / "run")
    agent = podium.load(tmp_path / "run")
    one, exact = (np.float32([0.5]), np.float32([-1, 0.25])), (np.array([0.5]), np.array([-1, 0.25]))
    assert agent.act(exact) == agent.act(one) == agent.act(([0.5], [-1.0, 0.25]))
    np.testing.assert_array_equal(agent.act([exact, exact]), agent.act([one, one]))
    with pytest.raises(PodiumError, match=r"obs: .* is not in Tuple"):
        agent.act((np.zeros(2), np.zeros(3)))
    assert len(agent.evaluate(2, env="algos.test_spaces:Pair")) == 2
    for other in ("Swapped", "Named"):
        with pytest.raises(ConfigError, match=r"env=.*an env with observations .* Tuple.*; this one has"):
            agent.evaluate(2, env=f"algos.test_spaces:{other}")


def test_ragged_numbers_are_named() -> None:
    player = Player(checks.validate(compose((*PPO, "CartPole-v1"))), "nobody")
    with pytest.raises(PodiumError, match=r"obs: .* is not in Box"):
        player.act([[0.0, 1.0], [2.0]])


def test_images_stay_bytes_until_the_network(tmp_path: Any) -> None:
    pod = experiments.build_pod(
        checks.validate(compose((*PPO, "env=algos.test_spaces:World", "env.kwargs.shown=image")))
    )
    assert pod.collector.collect()["obs"].dtype == torch.uint8


def test_what_has_seen_an_image_tells_its_value_at_once() -> None:
    words = (*PPO, "env=algos.test_spaces:World", "env.kwargs.shown=image")
    pod = experiments.build_pod(checks.validate(compose(words)))
    batch, core, half = pod.collector.collect(), pod.algorithm.core, torch.full((2,), 0.5)  # type: ignore[attr-defined]
    kept = core.experience(batch, half, half)
    again = core.experience({k: v for k, v in batch.items() if k not in ("value", "logp")}, half, half)
    for name in ("value", "logp", "advantage", "return"):
        torch.testing.assert_close(kept[name], again[name], rtol=1e-5, atol=1e-6)
    assert kept["value"].std() > 0 and kept["logp"].std() > 0
