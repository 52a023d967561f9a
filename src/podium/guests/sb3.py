"""Stable-Baselines3's PPO as a member: weights, optimiser, statistics of VecNormalize and genes all travel.

Genes are live: the discount and lambda are set in the rollout buffer, too, which keeps copies of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch
from pydantic import Field

from podium.algos.base import AlgoSettings
from podium.core.errors import ConfigError, MissingExtra
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec
from podium.core.tree import Tree

try:
    import stable_baselines3 as sb3
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
except ImportError as missing:
    raise MissingExtra("algo.name=sb3-ppo", "sb3") from missing


class SB3PPOSettings(AlgoSettings):
    """`algo.*` for Stable-Baselines3's PPO; the defaults are its own."""

    name: Importable = "sb3-ppo"
    lr: GeneValue = gene(3e-4, 1e-6, 1.0, search=(1e-5, 1e-2))
    discount: GeneValue = gene(0.99, 0.5, 0.9999, "one-minus-log", most=1, search=(0.9, 0.999))
    lam: GeneValue = gene(0.95, 0.0, 1.0, "one-minus-log", most=1, search=(0.7, 0.99))
    clip: GeneValue = gene(0.2, 0.01, 1.0, search=(0.05, 0.5))
    entropy: GeneValue = gene(0.0, 0.0, 1.0, search=(0.0, 0.03))
    critic: GeneValue = gene(0.5, 0.01, 10.0)
    max_norm: GeneValue = gene(0.5, 0.01, 100.0)

    steps: int = Field(2048, ge=1, description="steps of each env in a rollout")
    epochs: int = Field(10, ge=1)
    batch: int = Field(64, ge=2, description="minibatch; must divide steps * env.num")
    policy: str = "MlpPolicy"

    def check(self, spec: Spec) -> None:
        if self.steps * spec.envs % self.batch:
            raise ConfigError("algo.batch", self.batch, f"a divisor of the rollout, {self.steps * spec.envs}")


class SB3PPO:
    """One PPO agent of Stable-Baselines3."""

    Settings = SB3PPOSettings
    env = ("id", "num", "kwargs", "normalise_obs", "normalise_reward")

    def __init__(self, env: Any, settings: SB3PPOSettings, genes: Mapping[str, float], seed: int) -> None:
        self._env, self._seed = env, seed
        self._envs, self._trials = self._build(env.num), self._build(1)
        if isinstance(self._trials, VecNormalize):
            self._trials.training = self._trials.norm_reward = False
        plan = {"n_steps": settings.steps, "n_epochs": settings.epochs, "batch_size": settings.batch}
        self.model = sb3.PPO(settings.policy, self._envs, seed=seed, device="cpu", verbose=0, **plan)  # type: ignore[arg-type]
        self.model.set_logger(Logger(None, []))
        self.genes = genes

    def _build(self, number: int) -> VecEnv:
        env = self._env
        envs: VecEnv = DummyVecEnv([lambda: gym.make(env.id, **env.kwargs)] * number)
        if env.normalise_obs or env.normalise_reward:
            envs = VecNormalize(envs, norm_obs=env.normalise_obs, norm_reward=env.normalise_reward)
        return envs

    @property
    def genes(self) -> Mapping[str, float]:
        return self._genes

    @genes.setter
    def genes(self, genes: Mapping[str, float]) -> None:
        self._genes, model = dict(genes), self.model
        model.learning_rate = genes["lr"]
        model.lr_schedule = lambda _: genes["lr"]
        model.clip_range = lambda _: genes["clip"]
        model.gamma = model.rollout_buffer.gamma = genes["discount"]
        model.gae_lambda = model.rollout_buffer.gae_lambda = genes["lam"]
        model.ent_coef, model.vf_coef, model.max_grad_norm = genes["entropy"], genes["critic"], genes["max_norm"]
        if isinstance(self._envs, VecNormalize):
            self._envs.gamma = genes["discount"]

    def train(self, steps: int) -> None:
        self.model.learn(steps, reset_num_timesteps=False)

    def evaluate(self, episodes: int) -> dict[str, list[float]]:
        if isinstance(self._trials, VecNormalize) and isinstance(self._envs, VecNormalize):
            self._trials.obs_rms = self._envs.obs_rms
        returns, lengths = evaluate_policy(
            self.model, self._trials, episodes, deterministic=True, return_episode_rewards=True, warn=False
        )
        return {"return": list(returns), "length": list(lengths)}  # type: ignore[arg-type]

    def state(self) -> Tree:
        """With a zero for what the optimiser has not seen yet, so that shapes are always the same."""
        optimiser = self.model.policy.optimizer
        moments: Tree = {}
        for i, weight in enumerate(self._weights()):
            seen = optimiser.state.get(weight, {})
            zero = {"step": torch.zeros(()), "exp_avg": weight, "exp_avg_sq": weight}
            moments[str(i)] = {k: seen[k].clone() if k in seen else torch.zeros_like(v) for k, v in zero.items()}
        weights = {name: value.clone() for name, value in self.model.policy.state_dict().items()}
        return {"weights": weights, "optimiser": moments, "normaliser": self._statistics()}

    def load(self, state: Tree) -> None:
        self.model.policy.load_state_dict(state["weights"])
        optimiser = self.model.policy.optimizer
        for i, weight in enumerate(self._weights()):
            optimiser.state[weight] = {k: v.clone() for k, v in state["optimiser"][str(i)].items()}
        if isinstance(self._envs, VecNormalize):
            for name, found in state["normaliser"].items():
                rms = getattr(self._envs, f"{name}_rms")
                rms.mean, rms.var = found["mean"].numpy().copy(), found["var"].numpy().copy()
                rms.count = float(found["count"])

    def _weights(self) -> list[torch.nn.Parameter]:
        return [p for group in self.model.policy.optimizer.param_groups for p in group["params"]]

    def _statistics(self) -> Tree:
        if not isinstance(self._envs, VecNormalize):
            return {}
        every: dict[str, Any] = {"obs": self._envs.obs_rms} if self._envs.norm_obs else {}
        every["ret"] = self._envs.ret_rms
        return {
            name: {k: torch.as_tensor(getattr(rms, k)).double().clone() for k in ("mean", "var", "count")}
            for name, rms in every.items()
        }

    def close(self) -> None:
        self._envs.close()
        self._trials.close()
