"""One PPO agent against one of Stable-Baselines3, steps a second, and what both have learnt by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from podium import experiment as experiments
from podium.bench._agents import (
    ENV,
    RL_ZOO,
    SAME_ENVS,
    experiment,
    need_sb3,
    podium_side,
    sb3_learn,
    sb3_model,
    sb3_sides,
    unshared,
)
from podium.bench._side_by_side import Row, compare, effort
from podium.roles.evaluator import Act

THREADS = 1  # what one agent is given by `podium train`
STEPS, SEEDS, EPISODES = 80 * RL_ZOO.rollout, range(3), 100


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    need_sb3()
    rounds, seconds = effort(rounds, quick)
    rows = []
    for key, name, env in (
        ("ppo/fastest", "one PPO agent, native envs; SB3: gym.make", ENV),
        ("ppo/same-envs", "one PPO agent, same gym.make env objects", SAME_ENVS),
    ):
        note = f"{RL_ZOO.name}, {RL_ZOO.envs} envs; SB3 has a Monitor around each env, as make_vec_env makes it"
        ours = podium_side(RL_ZOO, 1, THREADS, env)
        peers = sb3_sides(RL_ZOO, THREADS, quick)
        rows.append(compare(name, "steps/s", ours, peers, rounds, seconds, key=key, note=note, env=env))
    if not quick:
        rows = [unshared(row, RL_ZOO, seconds) for row in rows]
        peer = [score(_sb3(seed)) for seed in SEEDS]
        for row in rows:
            ours_scores = [score(_podium(row["env"], seed)) for seed in SEEDS]
            row |= {"learn_steps": STEPS, "ours_scores": ours_scores, "peer_scores": peer}
    return rows


def _podium(env: str, seed: int, steps: int = STEPS) -> Act:
    """An agent trained from scratch for so many steps, its schedules running out with them."""
    pod = experiments.build_pod(experiment(RL_ZOO, threads=THREADS, env=env, horizon=steps, seed=seed))
    pod.train(steps // RL_ZOO.rollout)
    act: Callable[..., Any] = pod.algorithm.act
    return lambda obs: act(obs, {}, explore=False)[0]["action"]


def _sb3(seed: int, steps: int = STEPS) -> Act:
    torch.set_num_threads(THREADS)
    model = sb3_model(RL_ZOO, seed)
    sb3_learn(model, steps)
    return lambda obs: torch.as_tensor(model.predict(obs[0].numpy(), deterministic=True)[0])[None]


def score(act: Act, episodes: int = EPISODES) -> float:
    """Mean return of the most likely actions in Gymnasium's CartPole; every agent meets the same starts."""
    real = experiment(RL_ZOO)
    real = real.model_copy(update={"env": real.env.model_copy(update={"source": "gymnasium"})})
    evaluator = experiments.build_evaluator(real, 1, episodes)
    try:
        return float(evaluator.evaluate(act, ["bench"], episodes)[0].mean())
    finally:
        evaluator.close()
