"""Stable-Baselines3 models and stacks of ours with the same weights, and rollouts that both learn from.

Every stack holds two members, each the twin of an SB3 model of its own: other weights, other genes, other data.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C as SB3A2C
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor, nn

from podium.core import hyper
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.nets.policy_critic import PolicyCritic
from podium.nets.settings import NetSettings
from stacks import ALGORITHMS, extra, layers

T, E, SIZE = 12, 3, 5
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "box": spaces.Box(-1.0, 1.0, (3,)),
    "multi": spaces.MultiDiscrete([3, 2, 4]),
}
OBS = spaces.Box(-10.0, 10.0, (SIZE,))


class Still(gym.Env):
    """Only its spaces count: the rollouts are made up."""

    observation_space = OBS

    def __init__(self, action: spaces.Space) -> None:
        self.action_space = action

    def reset(self, *, seed=None, options=None):
        return OBS.sample() * 0, {}


def models(algorithm: str, action: spaces.Space, each: list[dict[str, Any]]) -> list[Any]:
    """One SB3 model for each set of its keyword arguments."""
    cls = {"ppo": SB3PPO, "a2c": SB3A2C}[algorithm]
    out = []
    for seed, kwargs in enumerate(each):
        env = DummyVecEnv([lambda: Still(action)] * E)
        policy: dict[str, Any] = {"log_std_init": -0.3 * seed} if isinstance(action, spaces.Box) else {}
        if kwargs.get("use_rms_prop"):  # SB3's default is torch's RMSprop; this is the one that its guide advises
            policy |= {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}}
        model = cls("MlpPolicy", env, seed=seed, n_steps=T, device="cpu", policy_kwargs=policy, **kwargs)
        model.set_logger(Logger(None, []))
        with torch.no_grad():  # SB3 starts with biases of 0 and a nearly uniform policy
            for p in model.policy.parameters():
                p.add_(0.2 * torch.randn_like(p))
        out.append(model)
    return out


def stack(algorithm: str, action: spaces.Space, genes: dict[str, list[float]], **plan: Any) -> Any:
    """Our algorithm with one member for each value of the genes."""
    cls, members = ALGORITHMS[algorithm], len(next(iter(genes.values())))
    settings = cls.Settings(steps=T, **plan, **{name: {"each": row} for name, row in genes.items()})
    spec, streams = Spec(OBS, action, members, E), Streams(0, range(members))
    return cls(spec, settings, NetSettings(), hyper.values(settings, 0, range(members)), streams)


def linears(model: Any, tower: int) -> list[nn.Linear]:
    body = model.policy.mlp_extractor.policy_net if tower == 0 else model.policy.mlp_extractor.value_net
    head = model.policy.action_net if tower == 0 else model.policy.value_net
    return [*(x for x in body if isinstance(x, nn.Linear)), head]


@torch.no_grad()
def pairs(net: PolicyCritic, numbers: Tensor, twins: list[Any]) -> list[tuple[Tensor, nn.Parameter]]:
    """Parts of `numbers` (our weights or their gradient), each beside the SB3 parameter of the same place."""
    out, mlp = [], net._mlp
    for m, model in enumerate(twins):
        for tower in range(2):
            for ours, theirs in zip(layers(mlp, numbers, tower), linears(model, tower), strict=True):
                out.append((ours.weight[m, : theirs.out_features], theirs.weight))
                out.append((ours.bias[m, 0, : theirs.out_features], theirs.bias))
        if net.dist.extra:
            out.append((extra(mlp, numbers)[m], model.policy.log_std))
    return out


@torch.no_grad()
def copy_weights(twins: list[Any], net: PolicyCritic) -> None:
    for ours, theirs in pairs(net, net.params[0], twins):
        ours.copy_(theirs)


def worst(found: list[tuple[Tensor, Tensor]]) -> float:
    return max(float((a.detach() - b.detach()).abs().max()) for a, b in found)


def rollout(action: spaces.Space, members: int, *, truncate: bool = False, seed: int = 0) -> dict[str, Tensor]:
    """A made-up rollout `[M, T, E, ...]` as our collector hands it over."""
    rng, shape = np.random.default_rng(seed), (members, T, E)
    if isinstance(action, spaces.Box):
        acted = torch.tensor(rng.normal(size=(*shape, *action.shape)), dtype=torch.float32)
    elif isinstance(action, spaces.MultiDiscrete):
        acted = torch.tensor(rng.integers(0, action.nvec, (*shape, len(action.nvec))))
    else:
        acted = torch.tensor(rng.integers(0, action.n, shape))
    obs = torch.tensor(rng.normal(size=(members, T + 1, E, SIZE)), dtype=torch.float32)
    u = torch.tensor(rng.random(shape))
    terminated = u < 0.15
    truncated = (u > 0.8) & truncate
    done = (terminated | truncated)[..., None]
    other = torch.tensor(rng.normal(size=(members, T, E, SIZE)), dtype=torch.float32)
    return {
        "obs": obs[:, :-1],
        "action": acted,
        "reward": torch.tensor(rng.normal(size=shape), dtype=torch.float32),
        "terminated": terminated,
        "truncated": truncated,
        "last": torch.where(done, other, obs[:, 1:]),
    }


NAMES = {
    "lr": "learning_rate",
    "discount": "gamma",
    "lam": "gae_lambda",
    "entropy": "ent_coef",
    "critic": "vf_coef",
    "max_norm": "max_grad_norm",
    "clip": "clip_range",
}
"""Our genes as SB3 calls them."""


@torch.no_grad()
def fill(model: Any, batch: dict[str, Tensor], m: int) -> None:
    """Member m's rollout into an SB3 model's buffer, as `collect_rollouts` would leave it."""
    buffer, policy = model.rollout_buffer, model.policy
    buffer.reset()
    done = (batch["terminated"] | batch["truncated"])[m]
    T, E = done.shape
    for t in range(T):
        obs, action, reward = batch["obs"][m, t], batch["action"][m, t], batch["reward"][m, t].clone()
        value, logp, _ = policy.evaluate_actions(obs, action)
        cut = batch["truncated"][m, t]
        # on_policy_algorithm.py: "Handle timeout by bootstrapping with value function"
        if cut.any():
            reward[cut] += model.gamma * policy.predict_values(batch["last"][m, t][cut]).flatten()
        starts = done[t - 1] if t else torch.zeros(E, dtype=torch.bool)
        shaped = action.reshape(E, -1).numpy()
        buffer.add(obs.numpy(), shaped, reward.numpy(), starts.numpy(), value, logp)
    last_values = policy.predict_values(batch["last"][m, -1])
    buffer.compute_returns_and_advantage(last_values=last_values, dones=done[-1].numpy())
