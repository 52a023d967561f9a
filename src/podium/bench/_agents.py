"""The same PPO agent for both sides: one plan, turned into a pod of ours and into a Stable-Baselines3 model.

What is the same: the env (CartPole-v1) and how many there are, the rollout, minibatches, epochs, networks (64x64 tanh,
one for the policy and one for the critic), Adam, every hyperparameter and its schedule. SB3 writes no log while it is
measured, and gains what there is to gain from our allocator setting (`machine.keep_memory`), as both share a process.
It also shares the way in which our threads wait, which may not suit it: `unshared` measures it without that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import gymnasium as gym

from podium import checks
from podium import experiment as experiments
from podium.bench._apart import apart
from podium.bench._side_by_side import Row, Side, Work, race
from podium.core import machine
from podium.core.errors import MissingExtra
from podium.settings import Experiment

ENV = "CartPole-v1"
HORIZON = 100_000
CLIP, CRITIC, MAX_NORM = 0.2, 0.5, 0.5


@dataclass(frozen=True)
class Plan:
    """Settings of a PPO agent, but for those that both plans share."""

    name: str
    envs: int
    steps: int
    batch: int
    epochs: int
    lr: float
    discount: float
    lam: float
    linear: bool  # lr and clip fall to 0 over the run

    @property
    def rollout(self) -> int:
        return self.envs * self.steps


RL_ZOO = Plan("RL-Zoo settings", 8, 32, 256, 20, 1e-3, 0.98, 0.8, True)
DEFAULTS = Plan("SB3 defaults", 1, 2048, 64, 10, 3e-4, 0.99, 0.95, False)


def smaller(plan: Plan) -> Plan:
    """A plan of rollouts that take a moment, to see that a benchmark works."""
    steps = min(plan.steps, 128)
    return replace(plan, name=f"{plan.name} but {steps} steps", steps=steps) if steps < plan.steps else plan


def need_sb3() -> None:
    """Import it now, so that no figure has the import in it."""
    try:
        import stable_baselines3  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("stable-baselines3", "sb3") from error


def gym_cartpole() -> gym.Env[Any, Any]:
    """As SB3's make_vec_env makes it, with all of Gymnasium's wrappers; but for SB3's own Monitor around it."""
    return gym.make(ENV)


SAME_ENVS = f"{__name__}:{gym_cartpole.__name__}"
"""`env.id` of `gym_cartpole`: the adapter then steps those objects."""


def experiment(
    plan: Plan, members: int = 1, threads: int = 1, *, env: str = ENV, horizon: int = HORIZON, seed: int = 0
) -> Experiment:
    algo = {"name": "ppo", "lr": plan.lr, "discount": plan.discount, "lam": plan.lam, "clip": CLIP, "entropy": 0.0}
    algo |= {"critic": CRITIC, "max_norm": MAX_NORM, "anneal": ["lr", "clip"] if plan.linear else []}
    algo |= {"steps": plan.steps, "batch": plan.batch, "epochs": plan.epochs, "normalise_advantage": True}
    return checks.validate(
        {
            "seed": seed,
            "env": {"id": env, "num": plan.envs},
            "algo": algo,
            "net": {"hidden": [64, 64], "activation": "tanh"},
            "train": {"members": members, "threads": threads},
            "stop": {"steps": horizon},
        }
    )


def podium_side(plan: Plan, members: int, threads: int, env: str = ENV) -> Side:
    """A pod that is trained update by update, as `podium train` does; evaluation and files are not part of it."""

    def build() -> Work:
        pod = experiments.build_pod(experiment(plan, members, threads, env=env))

        def work(updates: int) -> float:
            for _ in range(updates):
                pod.train(1)
            return float(updates * plan.rollout * members)

        return work

    return Side("podium", build, threads)


def sb3_model(plan: Plan, seed: int = 0) -> Any:
    """`PPO("MlpPolicy", make_vec_env(...))`: a DummyVecEnv of env objects made by gym.make."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    def linear(start: float) -> Any:
        return (lambda progress: start * progress) if plan.linear else start

    return PPO(
        "MlpPolicy",
        make_vec_env(ENV, n_envs=plan.envs, seed=seed),
        learning_rate=linear(plan.lr),
        n_steps=plan.steps,
        batch_size=plan.batch,
        n_epochs=plan.epochs,
        gamma=plan.discount,
        gae_lambda=plan.lam,
        clip_range=linear(CLIP),
        ent_coef=0.0,
        vf_coef=CRITIC,
        max_grad_norm=MAX_NORM,
        seed=seed,
        device="cpu",
    )


def sb3_learn(model: Any, steps: int) -> None:
    """Go on learning, without a log."""
    model.learn(steps, reset_num_timesteps=False, log_interval=10**9)


def sb3_side(plan: Plan, threads: int) -> Side:
    """One agent. Agents that run one after another have its rate, however many they are."""

    def build() -> Work:
        machine.keep_memory()
        model = sb3_model(plan)

        def work(updates: int) -> float:
            sb3_learn(model, updates * plan.rollout)
            return float(updates * plan.rollout)

        return work

    return Side(f"sb3, {threads} threads", build, threads)


def sb3_sides(plan: Plan, threads: int, quick: bool) -> list[Side]:
    """With as many threads as we use, then with the other number: SB3's better one is reported, too."""
    other = 1 if threads > 1 else min(2, machine.cores())
    counts = (threads,) if quick else dict.fromkeys((threads, other))
    return [sb3_side(plan, n) for n in counts]


def unshared(row: Row, plan: Plan, seconds: float, times: int = 3) -> Row:
    """The row with SB3 on all cores in a process of its own, where threads wait as torch has it. One never waits."""
    threads = machine.cores()
    if threads == 1:
        return row
    side = apart(f"sb3, {threads} threads", f"{__name__}:sb3_side(m.{plan!r}, {threads}).build", threads)
    rate = median(race([side], times, seconds)[0].rates)
    return row | {"peer_alone": rate, "peer_alone_threads": threads, "ratio_alone": row["ours"] / rate}
