"""MuJoCo's tasks as one batch, beside Gymnasium's objects: all they return, their starts, their keywords."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from podium.core import machine, tree
from podium.core.errors import CheckpointError, ConfigError, MissingExtra
from podium.core.spec import Step
from podium.core.streams import Streams
from podium.envs import from_mujoco
from podium.envs.from_gymnasium import FromGymnasium
from podium.envs.from_mujoco import SPEC, FromMujoco
from podium.envs.make import outside
from worlds import make, settings

NAMES = "HalfCheetah Hopper Walker2d Ant Humanoid Swimmer Reacher InvertedPendulum InvertedDoublePendulum"
IDS = [f"{name}-v5" for name in NAMES.split()]
# Both run the same MuJoCo from the same numbers: what differs is the order of sums, and float32.
CLOSE = 1e-6
tasks = pytest.mark.parametrize("id", IDS)


def batch(id: str, members: int, envs: int, **kwargs: Any) -> FromMujoco:
    env = make(id, members, envs, "mujoco", kwargs=kwargs)
    assert isinstance(env, FromMujoco)
    return env


def random_actions(env: FromMujoco, steps: int, seed: int = 0) -> Tensor:
    """`[T, M, E, A]`, which reach beyond their bounds."""
    g, high = torch.Generator().manual_seed(seed), torch.as_tensor(env.action_space.high)
    return (torch.rand(steps, env.members, env.envs, len(high), generator=g) * 2 - 1) * 1.3 * high


class Pair:
    """A batch `[1, E]` and E objects of Gymnasium's, which are given the batch's starts and then run free."""

    def __init__(self, id: str, envs: int, **kwargs: Any) -> None:
        self.env = batch(id, 1, envs, **kwargs)
        self.twins = [gym.make(id, disable_env_checker=True, **kwargs) for _ in range(envs)]
        obs = self.env.reset(Streams(0, [0]))
        for e in range(envs):
            self.restart(e, obs)

    def restart(self, e: int, obs: Tensor) -> None:
        """As a reset of the twin, but for the random numbers."""
        self.twins[e].reset(seed=0)
        twin: Any = self.twins[e].unwrapped
        mujoco.mj_resetData(twin.model, twin.data)
        twin.set_state(self.env.qpos[e], self.env.qvel[e])
        np.testing.assert_allclose(obs[0, e].numpy(), twin._get_obs(), rtol=CLOSE, atol=CLOSE)

    def inject(self, e: int, row: np.ndarray[Any, Any]) -> None:
        """The same physics into both."""
        twin: Any = self.twins[e].unwrapped
        mujoco.mj_setState(twin.model, twin.data, row, SPEC)
        saved = self.env.state()
        saved["now"]["physics"][0, e] = torch.as_tensor(row)
        self.env.load(saved)

    def step(self, action: Tensor) -> tuple[Step, list[str]]:
        """Step both, compare all they return; how episodes ended."""
        step, ends, space = self.env.step(action), [], self.env.action_space
        for e, twin in enumerate(self.twins):
            obs, reward, terminated, truncated, _ = twin.step(np.clip(action[0, e].numpy(), space.low, space.high))
            np.testing.assert_allclose(step.last[0, e].numpy(), obs, rtol=CLOSE, atol=CLOSE)
            np.testing.assert_allclose(float(step.reward[0, e]), float(reward), rtol=CLOSE, atol=CLOSE)
            assert bool(step.terminated[0, e]) == terminated
            assert bool(step.truncated[0, e]) == (truncated and not terminated)
            if terminated or truncated:
                ends.append("terminated" if terminated else "truncated")
                self.restart(e, step.obs)
        return step, ends


@tasks
def test_200_random_steps(id: str) -> None:
    """No state is injected but at resets: contacts are chaotic, yet the twins do not part."""
    pair = Pair(id, 3, max_episode_steps=80)
    ends = [end for a in random_actions(pair.env, 200) for end in pair.step(a)[1]]
    ending = {"HalfCheetah-v5": "truncated", "Swimmer-v5": "truncated", "Reacher-v5": "truncated"}
    assert ending.get(id, "terminated") in ends


@tasks
def test_time_limit_and_spaces_are_gymnasiums(id: str) -> None:
    env, twin = batch(id, 1, 1), gym.make(id)
    assert env.time_limit == twin.spec.max_episode_steps
    assert batch(id, 1, 1, max_episode_steps=-1).time_limit == np.inf
    assert env.obs_space.shape == twin.observation_space.shape and env.obs_space.dtype == np.float32
    assert env.action_space == twin.action_space


OTHERWISE = {
    "HalfCheetah-v5": {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3, "frame_skip": 2},
    "Hopper-v5": {"healthy_z_range": (1.2, 1.3), "healthy_reward": 3.0, "healthy_state_range": (-2.0, 2.0)},
    "Walker2d-v5": {"terminate_when_unhealthy": False, "healthy_angle_range": (-0.01, 0.01)},
    "Ant-v5": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1, "main_body": "front_left_leg"},
    "Humanoid-v5": {"include_cvel_in_observation": False, "contact_cost_range": (0.0, 1e-3), "reset_noise_scale": 0.1},
    "Swimmer-v5": {"exclude_current_positions_from_observation": False, "reset_noise_scale": 0.5},
    "Reacher-v5": {"reward_dist_weight": 3.0, "reward_control_weight": 0.1},
    "InvertedPendulum-v5": {"reset_noise_scale": 0.1},
    "InvertedDoublePendulum-v5": {"healthy_reward": 3.0, "frame_skip": 3},
}


@tasks
def test_keywords_count(id: str) -> None:
    kwargs = OTHERWISE[id]
    pair, plain = Pair(id, 2, **kwargs), batch(id, 1, 2)
    plain.reset(Streams(0, [0]))
    differs = False
    for a in random_actions(pair.env, 40):
        step, there = pair.step(a)[0], plain.step(a)
        differs |= step.obs.shape != there.obs.shape or not torch.equal(step.reward, there.reward)
        differs |= step.obs.shape != there.obs.shape or not torch.equal(step.obs, there.obs)
    assert differs, "the keywords make a difference"


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    assets = Path(gym.__file__).parent / "envs" / "mujoco" / "assets"
    text = (assets / "half_cheetah.xml").read_text()
    assert text.count('gravity="0 0 -9.81"') == 1
    (tmp_path / "moon.xml").write_text(text.replace("-9.81", "-1.62"))
    pair, plain = Pair("HalfCheetah-v5", 2, xml_file=str(tmp_path / "moon.xml")), batch("HalfCheetah-v5", 1, 2)
    plain.reset(Streams(0, [0]))
    for a in random_actions(pair.env, 30):
        step, there = pair.step(a)[0], plain.step(a)
    assert not torch.equal(step.obs, there.obs)


@tasks
def test_starts_are_drawn_as_gymnasium_draws_them(id: str) -> None:
    env, twin = batch(id, 1, 3000), gym.make(id).unwrapped
    env.reset(Streams(0, [0]))
    ours, theirs = np.concatenate((env.qpos, env.qvel), 1), []
    twin.reset(seed=0)
    for _ in range(1000):
        twin.reset_model()  # type: ignore[attr-defined]
        theirs.append(twin.state_vector())  # type: ignore[attr-defined]
    expected = np.array(theirs)
    scale = expected.std(0)
    assert (abs(ours.mean(0) - expected.mean(0)) <= 0.2 * scale + 1e-9).all()
    np.testing.assert_allclose(ours.std(0), scale, rtol=0.1, atol=1e-9)
    for q in (0.0, 0.1, 0.9, 1.0):  # the ends, too, where the spread is uniform
        gaussian = q in (0.0, 1.0) and env.task.gaussian
        near = (abs(np.quantile(ours, q, 0) - np.quantile(expected, q, 0)) <= 0.25 * scale + 1e-9).all()
        assert near or gaussian
    if id == "Reacher-v5":
        assert np.hypot(*ours[:, 2:4].T).max() < 0.2


def full(env: FromMujoco, acts: Tensor) -> list[Tensor]:
    """All that steps return, and where they end."""
    seen = []
    for a in acts:
        step = env.step(a)
        seen.append(torch.cat((step.obs, step.last, step.reward[..., None], step.terminated[..., None].float()), -1))
    return [torch.stack(seen), *tree.flatten(env.state()).values()]


@tasks
def test_many_threads_are_one(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_mujoco, "WORTH", 1)
    monkeypatch.setattr(machine, "cores", lambda: 1)
    one = batch(id, 2, 6)
    monkeypatch.setattr(machine, "cores", lambda: 3)
    three = batch(id, 2, 6)
    assert (len(one._hands), len(three._hands)) == (1, 3)
    acts = random_actions(one, 40)
    for env in (one, three):
        env.reset(Streams(0, [0, 1]))
    for a, b in zip(full(one, acts), full(three, acts), strict=True):
        assert torch.equal(a, b)
    three.close()


def test_an_error_in_a_thread_is_raised_and_an_env_takes_its_threads_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_mujoco, "WORTH", 1)
    monkeypatch.setattr(machine, "cores", lambda: 3)
    before = set(threading.enumerate())
    env = batch("Swimmer-v5", 1, 6)
    crew = set(threading.enumerate()) - before
    env.reset(Streams(0, [0]))
    acts = random_actions(env, 2)
    env.step(acts[0])
    assert len(crew) == 2
    env._hands[2].frames = "many"  # type: ignore[assignment]
    with pytest.raises(TypeError):
        while True:  # until that hand is quick enough to get a turn
            env.step(acts[1])
    del env
    gc.collect()
    for thread in crew:
        thread.join(5)
        assert not thread.is_alive()


@tasks
def test_resumes_bitwise(id: str) -> None:
    """The four of the contract go on for longer; here: in the middle of an episode, into an env that has lived."""
    one, other, streams, others = batch(id, 2, 2), batch(id, 2, 2), Streams(0, [0, 1]), Streams(5, [2, 3])
    acts = random_actions(one, 40)
    one.reset(streams)
    other.reset(others)
    full(one, acts[:15])
    full(other, acts[7:20])
    saved, numbers = tree.clone(one.state()), streams.state()
    expected = full(one, acts[15:])
    others.load(numbers)
    other.load(saved)
    for a, b in zip(full(other, acts[15:]), expected, strict=True):
        assert torch.equal(a, b)


def test_the_state_of_another_task_is_refused() -> None:
    hopper, walker = batch("Hopper-v5", 1, 2), batch("Walker2d-v5", 1, 2)
    hopper.reset(Streams(0, [0]))
    before = walker.reset(Streams(0, [0])).clone()
    with pytest.raises(CheckpointError, match="1 x 2"):
        walker.load(hopper.state())
    assert torch.equal(torch.as_tensor(walker.task.observe(walker.s)).float(), before[0])


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5"])
def test_a_diverged_simulation_is_gymnasiums_and_harms_no_other(
    id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into a file
    pair, well = Pair(id, 3), batch(id, 1, 3)
    well.reset(Streams(0, [0]))
    wild = pair.env.table[1].copy()
    wild[1 + pair.env.model.nq : 1 + pair.env.model.nq + pair.env.model.nv] = 1e9  # more than MuJoCo can bear
    pair.inject(1, wild)
    acts = random_actions(pair.env, 30)
    for a in acts:
        step, expected = pair.step(a)[0], well.step(a)
        assert torch.equal(step.obs[0, [0, 2]], expected.obs[0, [0, 2]]) and step.obs.isfinite().all()


def test_nan_actions_are_none() -> None:
    sick, well = batch("HalfCheetah-v5", 2, 2), batch("HalfCheetah-v5", 2, 2)
    acts = random_actions(sick, 10)
    bad, none = acts.clone(), acts.clone()
    bad[:, 1, 0], none[:, 1, 0] = torch.nan, 0
    for env in (sick, well):
        env.reset(Streams(0, [0, 1]))
    for a, b in zip(full(sick, bad), full(well, none), strict=True):
        assert torch.equal(a, b)


def test_auto_takes_the_batch_where_it_can() -> None:
    assert isinstance(make("Hopper-v5", 1, 1), FromMujoco)
    assert isinstance(make("Hopper-v5", 1, 1, "gymnasium"), FromGymnasium)
    assert isinstance(make("Hopper-v4", 1, 1), FromGymnasium)
    assert isinstance(make("Hopper-v5", 1, 1, kwargs={"render_mode": "rgb_array"}), FromGymnasium)
    assert isinstance(make("Hopper-v5", 1, 1, measures=["x_velocity"]), FromGymnasium)
    assert not outside(settings("Hopper-v5"), 8) and outside(settings("Hopper-v5", "gymnasium"), 8)
    for id, more in (("Hopper-v4", {}), ("CartPole-v1", {}), ("Hopper-v5", {"measures": ["x_velocity"]})):
        with pytest.raises(ConfigError, match=r"env\.source"):
            make(id, 1, 1, "mujoco", **more)  # type: ignore[arg-type]


def test_another_name_for_the_same_class_is_the_same_task() -> None:
    gym.register("Slow-v0", "gymnasium.envs.mujoco.hopper_v5:HopperEnv", max_episode_steps=7, kwargs={"frame_skip": 8})
    try:
        env = batch("Slow-v0", 1, 1)
        assert (env.time_limit, env.frames) == (7, 8)
    finally:
        del gym.registry["Slow-v0"]


def test_without_mujoco_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("mujoco", "gymnasium.envs.mujoco"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtra, match=r"podium-rl\[mujoco\]"):
        make("Hopper-v5", 1, 1, "mujoco")
