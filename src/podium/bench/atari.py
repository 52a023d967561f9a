"""One PPO agent that learns Pong from pixels against one of Stable-Baselines3: steps a second, envs and updates.

What is the same: the game, 8 envs, frames (4 skipped, 84 x 84 in grey, 4 stacked, an episode a life, rewards clipped),
Nature's network with one linear layer for the policy and one for the critic, the rollout, minibatches, epochs, Adam and
every hyperparameter: RL-Zoo's. In one row SB3 has its own wrappers, as `make_atari_env` puts them around each env (they
need OpenCV), in the other ale-py's vector env, which is ours, too. What both learn from a batch is the same
(tests/algos/test_images_against_sb3.py).

SB3 runs in a process of its own, as its users run it. It would gain from our allocator setting (`machine.keep_memory`),
for its images are large temporaries: `helped` races both in our process, where it has that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np

from podium import checks
from podium import experiment as experiments
from podium.bench._agents import CRITIC, MAX_NORM, Plan, need_sb3, sb3_learn
from podium.bench._apart import apart
from podium.bench._side_by_side import Row, Side, Work, compare, effort, race, row
from podium.core import machine
from podium.core.errors import PodiumError
from podium.envs.build import atari
from podium.settings import Experiment

PLAN = Plan("RL-Zoo settings", 8, 128, 256, 4, 2.5e-4, 0.99, 0.95, True)
CLIP, ENTROPY, HORIZON = 0.1, 0.01, 10_000_000
LIVES = {"episodic_life": True, "reward_clipping": True}  # beside what are defaults of ours
FEATURES = 512


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    need_sb3()
    if find_spec("cv2") is None:
        raise PodiumError("SB3's wrappers need OpenCV, which is not installed: pip install opencv-python-headless")
    return [
        measure("atari/fastest", "Pong from pixels; SB3: make_atari_env", wrapped, rounds, quick),
        measure("atari/same-envs", "Pong from pixels, same vector env of ale-py's", vector, rounds, quick),
    ]


def measure(key: str, name: str, envs: Callable[[Plan], Any], rounds: int, quick: bool) -> Row:
    rounds, seconds = effort(rounds, quick)
    plan = replace(PLAN, name="small", steps=16, batch=64, epochs=1) if quick else PLAN
    threads = min(2, machine.cores())
    peers = [sb3_apart(plan, n, envs) for n in ((threads,) if quick else dict.fromkeys((threads, 1)))]
    ours = podium_side(plan, threads)
    found = compare(name, "steps/s", ours, peers, rounds, seconds, key=key, note=plan.name)
    return found | helped(ours, sb3_side(plan, threads, envs), rounds, seconds)


def helped(ours: Side, peer: Side, rounds: int, seconds: float) -> Row:
    """Both in this process, where the peer has our allocator setting and our threads' way to wait."""
    mine, theirs = race([ours, peer], rounds, seconds)
    found = row("", "", mine.rates, theirs.rates)
    return {f"{name}_helped": found[name] for name in ("ours", "peer", "ratio", "low", "high")}


def experiment(plan: Plan, threads: int) -> Experiment:
    algo = {"name": "ppo", "lr": plan.lr, "discount": plan.discount, "lam": plan.lam, "clip": CLIP, "entropy": ENTROPY}
    algo |= {"critic": CRITIC, "max_norm": MAX_NORM, "anneal": ["lr", "clip"]}
    algo |= {"steps": plan.steps, "batch": plan.batch, "epochs": plan.epochs, "normalise_advantage": True}
    return checks.validate(
        {
            "env": {"id": "ALE/Pong-v5", "num": plan.envs, "kwargs": LIVES},
            "algo": algo,
            "net": {"hidden": [], "activation": "relu", "features": FEATURES},
            "train": {"members": 1, "threads": threads},
            "stop": {"steps": HORIZON},
        }
    )


def podium_side(plan: Plan, threads: int) -> Side:
    def build() -> Work:
        machine.keep_memory()  # as every pod of `podium train` does
        pod = experiments.build_pod(experiment(plan, threads))

        def work(updates: int) -> float:
            for _ in range(updates):
                pod.train(1)
            return float(updates * plan.rollout)

        return work

    return Side("podium", build, threads)


def sb3_side(plan: Plan, threads: int, envs: Callable[[Plan], Any]) -> Side:
    def build() -> Work:
        model = sb3_model(plan, envs(plan))

        def work(updates: int) -> float:
            sb3_learn(model, updates * plan.rollout)
            return float(updates * plan.rollout)

        return work

    return Side(f"sb3, {threads} threads", build, threads)


def sb3_apart(plan: Plan, threads: int, envs: Callable[[Plan], Any]) -> Side:
    build = f"{__name__}:sb3_side(m.{plan!r}, {threads}, m.{envs.__name__}).build"
    return apart(f"sb3, {threads} threads", build, threads)


def sb3_model(plan: Plan, envs: Any) -> Any:
    from stable_baselines3 import PPO

    return PPO(
        "CnnPolicy",
        envs,
        learning_rate=lambda progress: plan.lr * progress,
        n_steps=plan.steps,
        batch_size=plan.batch,
        n_epochs=plan.epochs,
        gamma=plan.discount,
        gae_lambda=plan.lam,
        clip_range=lambda progress: CLIP * progress,
        ent_coef=ENTROPY,
        vf_coef=CRITIC,
        max_grad_norm=MAX_NORM,
        seed=0,
        device="cpu",
    )


def wrapped(plan: Plan) -> Any:
    """SB3's own: a DummyVecEnv of env objects, each in its wrappers, and a stack of frames around them all."""
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gym.register_envs(atari())
    return VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=plan.envs, seed=0), n_stack=4)


def vector(plan: Plan) -> Any:
    """ale-py's vector env with our settings, as SB3 takes it."""
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv

    from podium.envs.from_atari import FromAtari

    class Vector(VecEnv):
        def __init__(self) -> None:
            self._env = FromAtari("ALE/Pong-v5", 1, plan.envs, "cpu", LIVES)
            super().__init__(plan.envs, self._env.obs_space, self._env.action_space)

        def reset(self) -> Any:
            return self._env.start(list(range(plan.envs)))

        def step_async(self, actions: Any) -> None:
            self._actions = actions

        def step_wait(self) -> Any:
            obs, reward, terminated, truncated, last = self._env.advance(self._actions)
            over = terminated | truncated
            said: list[dict[str, Any]] = [{} for _ in over]
            for i in np.flatnonzero(over):
                said[i] = {"terminal_observation": last[i], "TimeLimit.truncated": truncated[i] and not terminated[i]}
            return obs, reward, over, said

        def close(self) -> None:
            self._env.close()

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * plan.envs

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [None] * plan.envs  # SB3 asks for `render_mode`

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            raise NotImplementedError

    return Vector()
