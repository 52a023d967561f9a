"""DQN, TD3, DDPG and SAC against Stable-Baselines3 on the same weights, batches and noise: losses, targets, updates.

Every stack holds two members, each the twin of an SB3 model of its own: other weights, other genes, other data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DDPG as SB3DDPG
from stable_baselines3 import DQN as SB3DQN
from stable_baselines3 import SAC as SB3SAC
from stable_baselines3 import TD3 as SB3TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import Tensor, nn

from algos.sb3 import OBS, Still
from podium.core import hyper
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.lookup import ALGORITHMS
from podium.nets.critics import CriticSettings
from podium.nets.settings import NetSettings
from podium.nets.towers import Towers
from stacks import layers

B, HIDDEN, EPS, UPDATES = 32, (24, 16), 1e-3, 6
BOX, DISCRETE = spaces.Box(-2.0, 4.0, (3,)), spaces.Discrete(4)
CLASSES = {"dqn": SB3DQN, "td3": SB3TD3, "ddpg": SB3DDPG, "sac": SB3SAC}
CRITIC = {
    "dqn": CriticSettings(count=1),
    "td3": CriticSettings(policy="first"),
    "ddpg": CriticSettings(count=1),
    "sac": CriticSettings(),
}
EACH: dict[str, list[dict[str, Any]]] = {
    "dqn": [{"learning_rate": 1e-2, "gamma": 0.9}, {"learning_rate": 3e-3, "gamma": 0.99, "max_grad_norm": 0.3}],
    "td3": [
        {"learning_rate": 1e-2, "gamma": 0.9, "tau": 0.1, "target_policy_noise": 0.3, "target_noise_clip": 0.2},
        {"learning_rate": 3e-3, "gamma": 0.99, "tau": 0.01, "policy_delay": 3},
    ],
    "ddpg": [{"learning_rate": 1e-2, "gamma": 0.9, "tau": 0.1}, {"learning_rate": 3e-3, "gamma": 0.99, "tau": 0.01}],
    "sac": [{"learning_rate": 1e-2, "gamma": 0.9, "tau": 0.1}, {"learning_rate": 3e-3, "gamma": 0.99, "tau": 0.01}],
}
GENES: dict[str, dict[str, list[float]]] = {
    "dqn": {"lr": [1e-2, 3e-3], "discount": [0.9, 0.99], "max_norm": [10.0, 0.3]},
    "td3": {
        "lr": [1e-2, 3e-3],
        "discount": [0.9, 0.99],
        "tau": [0.1, 0.01],
        "target_noise": [0.3, 0.2],
        "target_clip": [0.2, 0.5],
        "delay": [2, 3],
    },
    "ddpg": {"lr": [1e-2, 3e-3], "discount": [0.9, 0.99], "tau": [0.1, 0.01]},
    "sac": {"lr": [1e-2, 3e-3], "discount": [0.9, 0.99], "tau": [0.1, 0.01]},
}


def models(name: str) -> list[Any]:
    out = []
    for seed, kwargs in enumerate(EACH[name]):
        policy = {"net_arch": list(HIDDEN), "activation_fn": nn.ReLU, "optimizer_kwargs": {"eps": EPS}}
        env = Still(DISCRETE if name == "dqn" else BOX)
        model = CLASSES[name]("MlpPolicy", env, seed=seed, device="cpu", buffer_size=10, policy_kwargs=policy, **kwargs)
        model.set_logger(Logger(None, []))
        if name == "sac":
            model.ent_coef_optimizer.param_groups[0]["eps"] = EPS
        out.append(model)
    return out


def stack(name: str) -> Any:
    plan = {"target_every": 1000} if name == "dqn" else {}  # SB3's targets move with the envs, not with the updates
    settings = ALGORITHMS[name].Settings(batch=B, **plan, **{gene: {"each": row} for gene, row in GENES[name].items()})
    spec = Spec(OBS, DISCRETE if name == "dqn" else BOX, 2, 1)
    net, genes = NetSettings(hidden=HIDDEN, activation="relu"), hyper.values(settings, 0, range(2))
    made = ALGORITHMS[name](spec, settings, net, genes, Streams(0, range(2)), CRITIC[name])
    made.critics.optimiser.eps = EPS
    if name != "dqn":
        made.policy_adam.eps = EPS
    if name == "sac":
        made.temperature._adam.eps = EPS
    return made


def networks(name: str, ours: Any, model: Any) -> list[tuple[Towers, int, list[list[nn.Linear]]]]:
    """Each of our networks, a tower of it, and the linear layers of SB3's: the last may be several."""

    def plain(body: Any) -> list[list[nn.Linear]]:
        return [[x] for x in body if isinstance(x, nn.Linear)]

    if name == "dqn":
        return [
            (ours.critics.online, 0, plain(model.q_net.q_net)),
            (ours.critics.target, 0, plain(model.q_net_target.q_net)),
        ]
    found = []
    for k in range(CRITIC[name].count):
        found.append((ours.critics.online, k, plain(model.critic.q_networks[k])))
        found.append((ours.critics.target, k, plain(model.critic_target.q_networks[k])))
    if name == "sac":
        return [*found, (ours.policy, 0, [*plain(model.actor.latent_pi), [model.actor.mu, model.actor.log_std]])]
    return [*found, (ours.policy, 0, plain(model.actor.mu)), (ours.policy_target, 0, plain(model.actor_target.mu))]


def pairs(name: str, ours: Any, twins: list[Any]) -> list[tuple[Tensor, Tensor]]:
    """Parts of our weights beside SB3's."""
    out = []
    for m, model in enumerate(twins):
        for towers, k, linears in networks(name, ours, model):
            for layer, beside in zip(layers(towers._net, towers.params[0], k), linears, strict=True):
                out.append((layer.weight[m], torch.cat([x.weight.detach() for x in beside])))
                out.append((layer.bias[m, 0], torch.cat([x.bias.detach() for x in beside])))
        if name == "sac":
            out.append((ours.temperature.log[m : m + 1], model.log_ent_coef.detach()))
    return out


def batches(name: str, seed: int) -> dict[str, Tensor]:
    """A made-up batch `[2, B, ...]`; actions within -1..1."""
    rng = np.random.default_rng(seed)
    action: Any = rng.integers(0, 4, (2, B)) if name == "dqn" else rng.uniform(-1, 1, (2, B, 3)).astype(np.float32)
    return {
        "obs": torch.tensor(rng.normal(size=(2, B, 5)), dtype=torch.float32),
        "next_obs": torch.tensor(rng.normal(size=(2, B, 5)), dtype=torch.float32),
        "action": torch.tensor(action),
        "reward": torch.tensor(rng.normal(size=(2, B)), dtype=torch.float32),
        "done": torch.tensor(rng.random((2, B)) < 0.2),
    }


def sb3_update(model: Any, batch: dict[str, Tensor], m: int, noise: list[Tensor]) -> dict[str, Any]:
    """One update of an SB3 model with these standard normal numbers, in the order in which it asks for them."""
    action = batch["action"][m]
    data = ReplayBufferSamples(
        batch["obs"][m],
        action if action.ndim == 2 else action[:, None],
        batch["next_obs"][m],
        batch["done"][m].float()[:, None],
        batch["reward"][m][:, None],
        None,
    )
    drawn = iter(noise)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.replay_buffer, "sample", lambda *_, **__: data)
        patch.setattr(torch.distributions.normal, "_standard_normal", lambda *_, **__: next(drawn))
        patch.setattr(torch.Tensor, "normal_", lambda self, mean, std: self.copy_(next(drawn) * std))
        model.train(gradient_steps=1, batch_size=B)
    return dict(model.logger.name_to_value)


def differences(name: str) -> Iterator[tuple[float, float]]:
    """After each of several updates: the largest relative difference of losses, and the largest of weights.

    Targets and temperature are among the weights.
    """
    twins, ours = models(name), stack(name)
    for mine, theirs in pairs(name, ours, twins):
        mine.copy_(theirs)
    start = [mine.clone() for mine, _ in pairs(name, ours, twins)]
    for step in range(UPDATES):
        batch = batches(name, step)
        # [use, M, B, A]; small, since SB3 adds 1e-6 to 1 - a², which shows where actions are close to their bounds
        z = 0.2 * torch.randn(2, 2, B, 3, generator=torch.Generator().manual_seed(step))
        if name == "sac":
            ours._pairs = Block(lambda z=z: z.transpose(0, 1)[:, None])
        if name == "td3":
            ours._smoothing = Block(lambda z=z: z[0][:, None])
        decay = ours.genes["discount"][:, None] * ~batch["done"]
        metrics = ours.learn(batch | {"decay": decay})
        losses = []
        for m, model in enumerate(twins):
            noise = [z[1, m], z[0, m]] if name == "sac" else [z[0, m]]  # SAC draws for the policy first
            if name == "ddpg":  # SB3's is a TD3 without noise
                noise = [torch.zeros(B, 3)]
            found = sb3_update(model, batch, m, noise)
            losses.append((metrics["critic"][m], found["train/loss" if name == "dqn" else "train/critic_loss"]))
            if name in ("ddpg", "sac") or (name == "td3" and (step + 1) % (2 + m) == 0):
                losses.append((metrics["policy"][m], found["train/actor_loss"]))
            if name == "sac":
                losses.append((metrics["temperature"][m], found["train/ent_coef"]))
        weights = max(float((mine - theirs).abs().max()) for mine, theirs in pairs(name, ours, twins))
        yield max(abs(float(a) - float(b)) / max(1.0, abs(float(b))) for a, b in losses), weights
    moved = [float((a - b).abs().max()) for a, (b, _) in zip(start, pairs(name, ours, twins), strict=True)]
    assert sum(m == 0 for m in moved) == (len(moved) // 2 if name == "dqn" else 0), "all has learnt but DQN's targets"


@pytest.mark.parametrize("name", CLASSES)
def test_updates_are_sb3s(name: str) -> None:
    found = list(differences(name))
    assert len(found) == UPDATES and max(max(pair) for pair in found) < 1e-5
