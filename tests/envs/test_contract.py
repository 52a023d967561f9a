"""What every VecEnv promises, held against every native simulator, every probe, MuJoCo and Gymnasium's objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.core import tree
from podium.core.errors import CheckpointError, PodiumError
from podium.core.spec import Step
from podium.core.streams import Streams
from podium.envs.base import VecEnv
from podium.envs.build import time_limit
from podium.envs.native import SIMULATORS, MountainCarContinuous
from podium.envs.native.base import State
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pong import Pong
from podium.envs.native.tabular import CliffWalking, Tabular
from podium.envs.objects import spaces_of
from probes import PROBES
from worlds import make

Make = Callable[[int, int], VecEnv]
# CliffWalking has no limit of its own, and chance comes to no end of it.
NATIVE: dict[str, Make] = {
    id: (lambda M, E, c=c: c(M, E, time_limit=100 if c is CliffWalking else None)) for id, c in SIMULATORS.items()
}
NATIVE |= {c.__name__: (lambda M, E, c=c: c(M, E)) for c in PROBES}
# Short episodes, for time; between them these four read all that a task may read of MuJoCo.
NATIVE |= {
    f"mujoco {id}": (lambda M, E, id=id: make(f"{id}-v5", M, E, "mujoco", kwargs={"max_episode_steps": 50}))
    for id in ("Hopper", "Ant", "Reacher", "InvertedDoublePendulum")
}
ADAPTED: dict[str, Make] = {
    f"gymnasium {id}": (lambda M, E, id=id: make(id, M, E, "gymnasium")) for id in ("CartPole-v1", "Pendulum-v1")
}
ADAPTED["workers CartPole-v1"] = lambda M, E: make("CartPole-v1", M, E, "workers", workers=2)
# What stands between an env and its members has to keep the same promises.
SETTINGS = {"sticky": 0.2, "frame_stack": 3, "time_aware": True, "time_limit": 40}
WRAPPED: dict[str, Make] = {"wrapped CartPole-v1": lambda M, E: make("CartPole-v1", M, E, **SETTINGS)}
ALL = NATIVE | WRAPPED | ADAPTED
every = pytest.mark.parametrize("build", [pytest.param(f, id=name) for name, f in ALL.items()])
bare = pytest.mark.parametrize("build", [pytest.param(f, id=name) for name, f in NATIVE.items()])
native = pytest.mark.parametrize("build", [pytest.param(f, id=name) for name, f in (NATIVE | WRAPPED).items()])


def actions(env: VecEnv, steps: int, seed: int = 0) -> Tensor:
    """Random actions, `[T, M, E, ...]`."""
    g, space, shape = torch.Generator().manual_seed(seed), env.action_space, (steps, env.members, env.envs)
    if isinstance(space, Discrete):
        return torch.randint(int(space.n), shape, generator=g)
    return torch.rand(*shape, *space.shape, generator=g) * 4 - 2


def leaves(step: Step) -> list[Tensor]:
    """Clones of all that is meaningful in a step: episode totals only where one ended."""
    *tensors, episode, style = step
    done = step.terminated | step.truncated
    told = () if style is None else (style,)
    return [x.clone() for x in (*tensors, *told, episode.reward * done, episode.length * done)]


def run(env: VecEnv, acts: Tensor) -> list[Tensor]:
    """Everything the steps returned, each `[T, M, E, ...]`."""
    return [torch.stack(x) for x in zip(*(leaves(env.step(a)) for a in acts), strict=True)]


def same(a: list[Tensor], b: list[Tensor]) -> None:
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)


@every
def test_shapes_and_types(build: Make) -> None:
    env = build(2, 3)
    assert isinstance(env, VecEnv)
    obs = env.reset(Streams(0, [0, 1]))
    step = env.step(actions(env, 1)[0])
    for x in (obs, step.obs, step.last):
        assert x.shape == (2, 3, *env.obs_space.shape) and x.dtype == torch.float32 and x.device == env.device
    for x in (step.reward, step.episode.reward, step.episode.length):
        assert x.shape == (2, 3) and x.dtype == torch.float32
    for x in (step.terminated, step.truncated):
        assert x.shape == (2, 3) and x.dtype == torch.bool
    assert step.episode.objectives.shape == (2, 3, len(env.objectives))
    assert all(env.obs_space.contains(o.numpy()) for o in obs.flatten(0, 1))
    env.close()


@every
def test_episodes_end_restart_and_are_counted(build: Make) -> None:
    env = build(2, 3)
    env.reset(Streams(0, [0, 1]))
    total, length, ends = torch.zeros(2, 3), torch.zeros(2, 3), 0
    long = {MountainCarContinuous: 1000, Pong: 1500}
    for a in actions(env, long.get(type(env), 510)):  # longer than the time limit
        step = env.step(a)
        total, length = total + step.reward, length + 1
        done = step.terminated | step.truncated
        assert not (step.terminated & step.truncated).any()
        assert torch.equal(step.obs[~done], step.last[~done])
        torch.testing.assert_close(step.episode.reward[done], total[done])
        assert torch.equal(step.episode.length[done], length[done])
        total, length, ends = total * ~done, length * ~done, ends + int(done.sum())
    assert ends >= 6


# The starts of a table are places, not a region: test_tabular.py.
@pytest.mark.parametrize("name", [*(id for id, c in SIMULATORS.items() if not issubclass(c, Tabular)), *ADAPTED])
def test_a_reset_shows_the_start_and_keeps_the_end(name: str) -> None:
    env = ALL[name](1, 4)
    start = env.reset(Streams(0, [0]))
    low, high = start.clone(), start.clone()
    for seed in range(1, 9):
        start = env.reset(Streams(seed, [0]))
        low, high = torch.minimum(low, start), torch.maximum(high, start)
    middle, reach = (low.amin(1) + high.amax(1)) / 2, (high.amax(1) - low.amin(1)) / 2 * 1.3 + 1e-6
    done = torch.zeros(1, 4, dtype=torch.bool)
    for a in actions(env, 1000):
        step = env.step(a)
        done = step.terminated | step.truncated
        if done.any():
            break
    assert (step.obs != step.last).any(2)[done].all()
    assert ((step.obs - middle[:, None]).abs() <= reach[:, None])[done].all()


@native
@pytest.mark.parametrize("steps", [3, 127])  # in a block of reset states, and at the end of one
def test_state_and_load_go_on_bitwise(build: Make, steps: int) -> None:
    one, other, streams, others = build(2, 4), build(2, 4), Streams(0, [3, 4]), Streams(9, [5, 6])
    one.reset(streams)
    acts = actions(one, steps + 300)
    obs = one.step(acts[0]).obs
    for a in acts[1:steps]:
        obs = one.step(a).obs
    saved, numbers = one.state(), streams.state()
    assert saved is not None
    obs, kept = obs.clone(), tree.clone(saved)
    expected = run(one, acts[steps:])
    tree.map(lambda x, y: torch.testing.assert_close(x, y, rtol=0, atol=0), saved, kept)  # it shares no memory
    assert all(len(leaf) == 2 for leaf in tree.flatten(saved).values())
    other.reset(others)
    run(other, acts[:5])
    others.load(numbers)
    assert torch.equal(other.load(saved), obs)
    same(run(other, acts[steps:]), expected)


def test_a_state_of_another_shape_is_refused() -> None:
    small, large = SIMULATORS["CartPole-v1"](1, 1), SIMULATORS["CartPole-v1"](1, 4)
    small.reset(Streams(0, [0]))
    before = large.reset(Streams(0, [0])).clone()
    with pytest.raises(CheckpointError):
        large.load(small.state())
    assert torch.equal(large.observe(large.s).float(), before)


@every
def test_a_population_is_its_members_apart(build: Make) -> None:
    many = build(3, 5)
    obs = many.reset(Streams(7, [2, 0, 11])).clone()
    acts = actions(many, 300)
    together = run(many, acts)
    for row, id in enumerate([2, 0, 11]):
        one = build(1, 5)
        assert torch.equal(one.reset(Streams(7, [id]))[0], obs[row])
        same(run(one, acts[:, row : row + 1]), [x[:, row : row + 1] for x in together])
        if (state := many.state()) is not None:
            alone, mine = tree.flatten(one.state()), tree.flatten(tree.take(state, torch.tensor([row])))
            same(list(alone.values()), list(mine.values()))


# On the cliff nothing is left to chance.
@pytest.mark.parametrize("name", [*(id for id in SIMULATORS if id != "CliffWalking-v1"), *ADAPTED, "ObsReward"])
def test_streams_decide_the_starts(name: str) -> None:
    env = ALL[name](1, 64)

    def start(seed: int, member: int) -> Tensor:
        env.reset(Streams(seed, [member]))
        return run(env, actions(env, 1))[0]  # of Pong's start nothing is seen but what follows from it

    first = start(0, 0)
    assert torch.equal(start(0, 0), first)
    assert not torch.equal(start(1, 0), first)
    assert not torch.equal(start(0, 1), first)


@bare
def test_nan_stays_in_its_env(build: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into a file
    sick, well = build(2, 4), build(2, 4)
    for env in (sick, well):
        env.reset(Streams(0, [0, 1]))
    state = sick.state()
    for leaf in (*state["now"].values(), state["reward"]):
        leaf[1, 2] = torch.nan
    if sick.time_limit > 10:
        state["length"][1, 2] = sick.time_limit - 10
    sick.load(state)
    acts = actions(sick, 20)
    bad = acts.clone()
    if bad.is_floating_point():
        bad[:3, 1, 2] = torch.nan
    others = torch.ones(2, 4, dtype=torch.bool)
    others[1, 2] = False
    a, b = run(sick, bad), run(well, acts)
    same([x[:, others] for x in a], [x[:, others] for x in b])
    assert all(x[-1].isfinite().all() for x in a), "the time limit ends the sick episode, and the next one is sound"


@pytest.mark.parametrize("build", ADAPTED.values(), ids=ADAPTED)
def test_nan_actions_do_not_reach_gymnasium(build: Make) -> None:
    env = build(1, 2)
    env.reset(Streams(0, [0]))
    acts = actions(env, 1)[0]
    if acts.is_floating_point():
        acts[0, 0] = torch.nan
    assert env.step(acts).obs.isfinite().all()


@every
def test_a_step_stays_until_the_second_next(build: Make) -> None:
    env = build(2, 3)
    obs = env.reset(Streams(0, [0, 1]))
    held, first = obs.clone(), actions(env, 40)
    assert torch.equal(env.step(first[0]) and obs, held)
    for a, b in zip(first[1::2], first[2::2], strict=False):
        step = env.step(a)
        before = leaves(step)
        env.step(b)
        same(leaves(step), before)


@every
def test_no_graph_grows_and_inference_mode_does_not_matter(build: Make) -> None:
    with torch.inference_mode():
        env = build(1, 2)
        env.reset(Streams(0, [0]))
        env.step(actions(env, 1)[0])
    act = actions(env, 1)[0]
    step = env.step(act.requires_grad_() if act.is_floating_point() else act)
    assert not any(x.requires_grad for x in (step.obs, step.reward, step.last, step.episode.reward))


@native
def test_step_before_reset_is_refused(build: Make) -> None:
    env = build(1, 2)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(actions(env, 1)[0])


def test_gymnasium_registers_every_twin_with_these_spaces() -> None:
    for id, simulator in SIMULATORS.items():
        twin = gym.make(id)
        assert (simulator.obs_space, simulator.action_space) == spaces_of(twin)
        assert simulator.time_limit == time_limit(twin)


class Wide(CartPole):
    obs_space = Box(-1.0, 1.0, (3,))


class Flat(CartPole):
    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        reward, terminated = super().advance(s, action)
        return reward[0], terminated


class Half(CartPole):
    def start(self, u: Sequence[Tensor]) -> State:
        return {"x": u[0], "x_speed": u[0]}


class Lone(CartPole):
    def start(self, u: Sequence[Tensor]) -> State:
        return super().start(u) | {"x": u[0][0]}


class Misnamed(CartPole):
    def start(self, u: Sequence[Tensor]) -> State:
        return {"speed": u[0]}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Wide, r"Wide.observe: shape \[2, 3, 4\], and it has to be \[2, 3, 3\]"),
        (Flat, r"Flat.advance, its reward: shape \[3\], and it has to be \[2, 3\]"),
        (Half, r"Half.start: gives no angle, angle_speed, but names="),
        (Lone, r"Lone.start, its x: shape \[2, 3\], and it has to be \[\d+, 2, 3\]"),
        (Misnamed, r"Misnamed.start: gives \['speed'\], but names="),
    ],
)
def test_a_simulator_whose_shapes_are_not_its_own_is_refused(kind: type[CartPole], message: str) -> None:
    env = kind(2, 3)
    with pytest.raises(PodiumError, match=message):
        env.reset(Streams(0, [0, 1]))
        env.step(torch.zeros(2, 3, dtype=torch.int64))
