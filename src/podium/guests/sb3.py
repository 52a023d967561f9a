"""Agents of Stable-Baselines3 as members: weights, targets, optimisers, temperature and statistics all travel.

One adapter for all of them. An algorithm is a class of the library beside settings that declare its genes; a class of
your own is one more such pair, with `live` extended where it has genes that no other has.

Genes are live: a change counts from the next update on, also where the library keeps copies of them. The replay and
the envs stay with the row. An agent that has learnt but whose replay is empty, as after a resume, first fills it with
steps of its own policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch

from podium.core import tree
from podium.core.errors import MissingExtra
from podium.core.tree import Tree
from podium.guests import sb3_settings as settings

try:
    import stable_baselines3 as sb3
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
except ImportError as missing:
    raise MissingExtra("stable-baselines3", "sb3") from missing

Genes = Mapping[str, float]
MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.Adam: ("exp_avg", "exp_avg_sq"),
    torch.optim.RMSprop: ("square_avg",),
}
"""What an optimiser remembers of each weight, beside its count of steps."""


def _field(name: str, field: str, kind: Callable[[float], Any] = float) -> Callable[[Any, Genes], None]:
    """A gene that the model reads anew at each update."""
    return lambda model, genes: setattr(model, field, kind(genes[name]))


def _lr(model: Any, genes: Genes) -> None:
    """All optimisers of a model take it from its schedule, before each round of updates."""
    model.learning_rate = genes["lr"]
    model.lr_schedule = lambda _: genes["lr"]


def _discount(model: Any, genes: Genes) -> None:
    """The model's; copies are in its rollout, in a replay of several steps, and in what scales rewards."""
    holders = [model, getattr(model, "rollout_buffer", None), getattr(model, "replay_buffer", None)]
    for holder in [*holders, model.get_vec_normalize_env()]:
        if hasattr(holder, "gamma"):
            holder.gamma = genes["discount"]


def _lam(model: Any, genes: Genes) -> None:
    model.gae_lambda = model.rollout_buffer.gae_lambda = genes["lam"]


def _clip(model: Any, genes: Genes) -> None:
    model.clip_range = lambda _: genes["clip"]


def _explore(model: Any, genes: Genes) -> None:
    """By the steps behind the weights: the library's own schedule ends with each call of `learn`."""

    def epsilon(_: float) -> float:
        left = max(0.0, 1 - model.num_timesteps / genes["epsilon_steps"])
        return float(genes["epsilon_end"] + left * (genes["epsilon"] - genes["epsilon_end"]))

    model.exploration_schedule, model.exploration_rate = epsilon, epsilon(1.0)


def _noise(model: Any, genes: Genes) -> None:
    shape = model.action_space.shape
    model.action_noise = NormalActionNoise(np.zeros(shape), np.full(shape, genes["noise"]))


def _temperature(model: Any, genes: Genes) -> None:
    model.ent_coef_tensor.fill_(genes["temperature"])


def _target_entropy(model: Any, genes: Genes) -> None:
    """Infinite is null: minus the size of an action."""
    given = genes["target_entropy"]
    model.target_entropy = -float(np.prod(model.action_space.shape)) if np.isinf(given) else given


LIVE: dict[str, Callable[[Any, Genes], None]] = {
    "lr": _lr,
    "discount": _discount,
    "lam": _lam,
    "clip": _clip,
    "entropy": _field("entropy", "ent_coef"),
    "critic": _field("critic", "vf_coef"),
    "max_norm": _field("max_norm", "max_grad_norm"),
    "target_kl": _field("target_kl", "target_kl"),
    "damping": _field("damping", "cg_damping"),
    "tau": _field("tau", "tau"),
    **dict.fromkeys(("epsilon", "epsilon_end", "epsilon_steps"), _explore),
    "noise": _noise,
    "target_noise": _field("target_noise", "target_policy_noise"),
    "target_clip": _field("target_clip", "target_noise_clip"),
    "delay": _field("delay", "policy_delay", int),
    "temperature": _temperature,
    "target_entropy": _target_entropy,
    "drop": _field("drop", "top_quantiles_to_drop_per_net", int),
}
"""How each gene is set in a living model, whatever the algorithm."""


class SB3:
    """One agent of Stable-Baselines3."""

    Model: ClassVar[type[Any]]
    Settings: ClassVar[type[settings.SB3Settings]]
    live: ClassVar[Mapping[str, Callable[[Any, Genes], None]]] = LIVE
    env = ("id", "num", "kwargs", "normalise_obs", "normalise_reward")

    def __init__(self, env: Any, settings: settings.SB3Settings, genes: Genes, seed: int) -> None:
        self._env = env
        self._envs, self._trials = self._build(env.num), self._build(1)
        if isinstance(self._trials, VecNormalize):
            self._trials.training = self._trials.norm_reward = False
        self._trials.seed(seed)
        plan = {keyword: getattr(settings, name) for name, keyword in settings.keywords.items()}
        if not getattr(settings, "learn_temperature", True):
            plan["ent_coef"] = genes["temperature"]  # a number, so that none is learnt
        self.model = self.Model(settings.policy, self._envs, seed=seed, device="cpu", verbose=0, **plan)
        self.model.set_logger(Logger(None, []))
        self._warmup = getattr(settings, "warmup", 0)
        self.genes = genes

    def _build(self, number: int) -> VecEnv:
        env = self._env
        envs: VecEnv = DummyVecEnv([lambda: gym.make(env.id, **env.kwargs)] * number)
        if env.normalise_obs or env.normalise_reward:
            envs = VecNormalize(envs, norm_obs=env.normalise_obs, norm_reward=env.normalise_reward)
        return envs

    @property
    def genes(self) -> Genes:
        return self._genes

    @genes.setter
    def genes(self, genes: Genes) -> None:
        self._genes = dict(genes)
        for name in genes:
            self.live[name](self.model, self._genes)

    def train(self, steps: int) -> None:
        done = self._refill(steps)
        if steps > done:
            self.model.learn(steps - done, reset_num_timesteps=False)

    def _refill(self, steps: int) -> int:
        """Steps that were spent on filling an empty replay, by the policy as it is, without learning."""
        model, each = self.model, self._envs.num_envs
        held = model.replay_buffer.size() * each if getattr(model, "replay_buffer", None) else self._warmup
        if model.num_timesteps <= self._warmup or held >= self._warmup:  # new ones begin with random actions
            return 0
        rollout: int = model.train_freq.frequency * each
        filling = min(steps, -(-(self._warmup - held) // rollout) * rollout)
        updates, model.gradient_steps = model.gradient_steps, 0
        try:
            model.learn(filling, reset_num_timesteps=False)
        finally:
            model.gradient_steps = updates
        return filling

    def evaluate(self, episodes: int) -> dict[str, list[float]]:
        if isinstance(self._trials, VecNormalize) and isinstance(self._envs, VecNormalize):
            self._trials.obs_rms = self._envs.obs_rms
        returns, lengths = evaluate_policy(
            self.model, self._trials, episodes, deterministic=True, return_episode_rewards=True, warn=False
        )
        return {"return": list(returns), "length": list(lengths)}  # type: ignore[arg-type]

    def state(self) -> Tree:
        optimisers = {name: _moments(optimiser) for name, optimiser in self._optimisers().items()}
        variables = {name: value.detach().clone() for name, value in self._variables().items()}
        return {
            "weights": {name: value.clone() for name, value in self.model.policy.state_dict().items()},
            "optimisers": optimisers,
            "variables": variables,
            "normaliser": self._statistics(),
            "steps": torch.tensor(self.model.num_timesteps),
        }

    def load(self, state: Tree) -> None:
        self.model.policy.load_state_dict(tree.flatten(state["weights"]))
        for name, optimiser in self._optimisers().items():
            for i, weight in enumerate(_weights(optimiser)):
                optimiser.state[weight] = {k: v.clone() for k, v in state["optimisers"][name][str(i)].items()}
        for name, value in self._variables().items():
            value.data.copy_(state["variables"][name])
        for name, rms in self._running().items():
            found = state["normaliser"][name]
            rms.mean, rms.var = found["mean"].numpy().copy(), found["var"].numpy().copy()
            rms.count = float(found["count"])
        self.model.num_timesteps = int(state["steps"])

    def _optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """All that the library would save: of the policy or of its parts, and of the temperature."""
        every = {name: attrgetter(name)(self.model) for name in self.model._get_torch_save_params()[0]}
        found = {name: each for name, each in every.items() if isinstance(each, torch.optim.Optimizer)}
        return {name.replace(".", "_"): optimiser for name, optimiser in found.items()}  # a dot is a folder in files

    def _variables(self) -> dict[str, torch.Tensor]:
        """What is learnt outside of networks: the temperature."""
        return {name: getattr(self.model, name) for name in self.model._get_torch_save_params()[1]}

    def _running(self) -> dict[str, Any]:
        """What scales observations and rewards, by name."""
        if not isinstance(self._envs, VecNormalize):
            return {}
        obs: Any = self._envs.obs_rms if self._envs.norm_obs else {}
        parts = {f"obs_{key}": rms for key, rms in obs.items()} if isinstance(obs, dict) else {"obs": obs}
        return {**parts, "ret": self._envs.ret_rms}

    def _statistics(self) -> Tree:
        return {
            name: {k: torch.as_tensor(getattr(rms, k)).double().clone() for k in ("mean", "var", "count")}
            for name, rms in self._running().items()
        }

    def close(self) -> None:
        self._envs.close()
        self._trials.close()


def _weights(optimiser: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimiser.param_groups for p in group["params"]]


def _moments(optimiser: torch.optim.Optimizer) -> Tree:
    """With a zero for what it has not seen yet, so that shapes are always the same."""
    found: Tree = {}
    for i, weight in enumerate(_weights(optimiser)):
        seen = optimiser.state.get(weight, {})
        zero = {"step": torch.zeros(()), **dict.fromkeys(MOMENTS[type(optimiser)], weight)}
        found[str(i)] = {k: seen[k].clone() if k in seen else torch.zeros_like(v) for k, v in zero.items()}
    return found


class SB3PPO(SB3):
    Model, Settings = sb3.PPO, settings.SB3PPOSettings


class SB3A2C(SB3):
    Model, Settings = sb3.A2C, settings.SB3A2CSettings


class SB3DQN(SB3):
    Model, Settings = sb3.DQN, settings.SB3DQNSettings


class SB3DDPG(SB3):
    Model, Settings = sb3.DDPG, settings.SB3DDPGSettings


class SB3TD3(SB3):
    Model, Settings = sb3.TD3, settings.SB3TD3Settings


class SB3SAC(SB3):
    Model, Settings = sb3.SAC, settings.SB3SACSettings
