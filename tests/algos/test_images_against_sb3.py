"""PPO and DQN on images against Stable-Baselines3's CnnPolicy: same weights and data, same losses and gradients.

Every stack holds two members, each the twin of an SB3 model of its own: other weights, other genes, other data. Both
sides have Nature's network and linear layers behind it. `pytest -s` prints the largest differences; measured (torch
2.13, SB3 2.9): losses 2e-7, gradients 6e-7, weights after an update 2e-7.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN as SB3DQN
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor, nn

from algos.sb3 import NAMES, fill
from podium.algos.ppo import ppo_loss
from podium.core import hyper
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.lookup import ALGORITHMS
from podium.nets.critics import CriticSettings
from podium.nets.settings import NetSettings
from podium.ops.returns import standardise
from stacks import channels_last, layers

T, E, B, FEATURES = 6, 3, 18, 48
IMAGE, ACTION = spaces.Box(0, 255, (4, 40, 44), np.uint8), spaces.Discrete(4)
NET = NetSettings(hidden=(), activation="relu", features=FEATURES)


class Still(gym.Env):
    """Only its spaces count."""

    observation_space, action_space = IMAGE, ACTION

    def reset(self, *, seed=None, options=None):
        return np.zeros(IMAGE.shape, np.uint8), {}


def twin(cls: Any, seed: int, env: Any, policy: dict[str, Any], **kwargs: Any) -> Any:
    policy = policy | {"features_extractor_kwargs": {"features_dim": FEATURES}}
    model = cls("CnnPolicy", env, seed=seed, device="cpu", policy_kwargs=policy, **kwargs)
    model.set_logger(Logger(None, []))
    with torch.no_grad():  # no bias of 0, no nearly uniform policy
        for p in model.policy.parameters():
            p.add_(0.02 * torch.randn_like(p))
    return model


def convolutions(extractor: Any) -> list[nn.Parameter]:
    """SB3's in the order of ours: weight and bias of each layer, then those of the linear one."""
    return [*extractor.cnn.parameters(), *extractor.linear.parameters()]


def images(seed: int, extractors: list[Any], count: int) -> Tensor:
    """`[2, count, 4, 40, 44]`, such that no ReLU is so close to its kink that rounding decides on which side."""
    g = torch.Generator().manual_seed(seed)
    while True:
        found = torch.randint(256, (2, count, *IMAGE.shape), dtype=torch.uint8, generator=g)
        if all(margin(extractor, x) > 1e-6 for extractor, x in zip(extractors, found, strict=True)):
            return found


@torch.no_grad()
def margin(extractor: Any, image: Tensor) -> float:
    """How far from 0 everything stays that goes through a ReLU."""
    x, least = image.double() / 255, torch.inf
    for layer in copy.deepcopy(nn.Sequential(extractor.cnn, extractor.linear)).double().modules():
        if not list(layer.children()):
            x = layer(x)
            least = min(least, float(x.abs().min())) if isinstance(layer, nn.Conv2d | nn.Linear) else least
    return least


def gap(pairs: Iterator[tuple[Tensor, Tensor]]) -> float:
    """The largest difference, in units of the largest number where that is above 1."""
    return max(float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1)) for a, b in pairs)


# ---- PPO

GENES = {
    "lr": [3e-4, 1e-3],
    "discount": [0.99, 0.9],
    "lam": [0.95, 0.7],
    "entropy": [0.01, 0.03],
    "critic": [0.5, 1.3],
    "clip": [0.2, 0.1],
    "max_norm": [0.5, 0.05],
}


def ppo(genes: dict[str, list[float]]) -> tuple[list[Any], Any]:
    made = []
    for m in range(2):
        theirs = {NAMES[name]: row[m] for name, row in genes.items()}
        env = DummyVecEnv([Still] * E)
        made.append(twin(SB3PPO, m, env, {}, n_steps=T, batch_size=B, n_epochs=1, **theirs))
    cls = ALGORITHMS["ppo"]
    settings = cls.Settings(steps=T, batch=B, epochs=1, **{name: {"each": row} for name, row in genes.items()})
    ours = cls(Spec(IMAGE, ACTION, 2, E), settings, NET, hyper.values(settings, 0, range(2)), Streams(0, range(2)))
    with torch.no_grad():
        for mine, theirs in ppo_pairs(ours, made):
            mine.copy_(theirs)
    return made, ours


def ppo_pairs(ours: Any, twins: list[Any], grad: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Our weights, or their gradients, beside SB3's."""

    def of(x: Any) -> Any:
        return x.grad if grad else x.detach()

    net = ours.core.net
    for m, model in enumerate(twins):
        for tower, head in enumerate((model.policy.action_net, model.policy.value_net)):
            (layer,) = layers(net._mlp, of(net._mlp.params[0]), tower)
            yield layer.weight[m, : head.out_features], of(head.weight)
            yield layer.bias[m, 0, : head.out_features], of(head.bias)
        for mine, theirs in zip(net._encoder.params, convolutions(model.policy.features_extractor), strict=True):
            yield of(mine)[m], channels_last(of(theirs))


def rollout(twins: list[Any]) -> dict[str, Tensor]:
    g, extractors = torch.Generator().manual_seed(5), [model.policy.features_extractor for model in twins]
    obs, other = images(0, extractors, (T + 1) * E), images(1, extractors, T * E).unflatten(1, (T, E))
    obs = obs.unflatten(1, (T + 1, E))
    u = torch.rand(2, T, E, generator=g)
    terminated, truncated = u < 0.15, u > 0.85
    done = (terminated | truncated)[..., None, None, None]
    return {
        "obs": obs[:, :-1],
        "action": torch.randint(4, (2, T, E), generator=g),
        "reward": torch.randn(2, T, E, generator=g),
        "terminated": terminated,
        "truncated": truncated,
        "last": torch.where(done, other, obs[:, 1:]),
    }


def logged(twins: list[Any], name: str) -> Tensor:
    return torch.tensor([float(model.logger.name_to_value[f"train/{name}"]) for model in twins])


def test_ppo_loss_and_gradient() -> None:
    """Old log-probabilities are shifted, so that ratios are clipped; SB3's own train() with a rate of 0."""
    made, ours = ppo(GENES | {"lr": [0.0, 0.0], "max_norm": [1e9, 1e9]})
    batch = rollout(made)
    data = ours.core.experience(batch, ours.genes["discount"], ours.genes["lam"])
    data["logp"] = data["logp"] + 0.2 * torch.randn(2, B, generator=torch.Generator().manual_seed(1))
    for m, model in enumerate(made):
        fill(model, batch, m)
        for name, found in (("values", "value"), ("advantages", "advantage"), ("returns", "return")):
            expected = torch.tensor(getattr(model.rollout_buffer, name)).flatten()
            assert (data[found][m] - expected).abs().max() < 1e-5, name
        model.rollout_buffer.log_probs[:] = data["logp"][m].view(T, E)
        model.train()
    data["advantage"] = standardise(data["advantage"])
    net = ours.core.net
    params, value, pull = net.vjp(data["obs"])
    loss, terms, gradient = ppo_loss(net.dist, params, value, data, ours.genes)
    pull(*gradient)
    found = {
        "loss": gap(iter([(loss, logged(made, "loss"))])),
        "policy": gap(iter([(terms["policy"], logged(made, "policy_gradient_loss"))])),
        "critic": gap(iter([(terms["critic"], logged(made, "value_loss"))])),
        "entropy": gap(iter([(-terms["entropy"], logged(made, "entropy_loss"))])),
        "gradient": gap(ppo_pairs(ours, made, grad=True)),
    }
    print("PPO on images", found)
    assert max(found.values()) < 1e-5
    assert all(float(theirs.abs().max()) > 1e-4 for _, theirs in ppo_pairs(ours, made, grad=True)), "all is learnt"
    clipped = ((terms["log_ratio"].exp() - 1).abs() > ours.genes["clip"][:, None]).float().mean()
    assert 0.1 < clipped < 0.9, "the test must exercise the clip"


def test_a_whole_ppo_update() -> None:
    made, ours = ppo(GENES)
    before = [mine.clone() for mine, _ in ppo_pairs(ours, made)]
    batch = rollout(made)
    for m, model in enumerate(made):
        fill(model, batch, m)
        model.train()
    ours.learn(batch)
    found = gap(ppo_pairs(ours, made))
    print("PPO update on images", found)
    assert found < 1e-5
    moved = [float((mine - old).abs().max()) for old, (mine, _) in zip(before, ppo_pairs(ours, made), strict=True)]
    assert min(moved) > 1e-4


# ---- DQN


def dqn() -> tuple[list[Any], Any]:
    made = []
    for m, kwargs in enumerate([{"gamma": 0.9}, {"gamma": 0.99, "max_grad_norm": 0.3}]):
        adam = {"net_arch": [], "optimizer_kwargs": {"eps": 1e-3}}
        made.append(twin(SB3DQN, m, Still(), adam, buffer_size=10, learning_rate=(1e-3, 3e-3)[m], **kwargs))
    cls = ALGORITHMS["dqn"]
    genes = {"lr": [1e-3, 3e-3], "discount": [0.9, 0.99], "max_norm": [10.0, 0.3]}
    settings = cls.Settings(batch=B, target_every=1000, **{name: {"each": row} for name, row in genes.items()})
    spec, found = Spec(IMAGE, ACTION, 2, 1), hyper.values(settings, 0, range(2))
    ours = cls(spec, settings, NET, found, Streams(0, range(2)), CriticSettings(count=1))
    ours.critics.optimiser.eps = 1e-3
    with torch.no_grad():
        for mine, theirs in dqn_pairs(ours, made):
            mine.copy_(theirs)
    return made, ours


def dqn_pairs(ours: Any, twins: list[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Our weights beside SB3's: those that learn first, then the target's."""
    for towers, name in ((ours.critics.online, "q_net"), (ours.critics.target, "q_net_target")):
        for m, model in enumerate(twins):
            theirs = getattr(model, name)
            (layer,) = layers(towers._net, towers._net.params[0], 0)
            (head,) = (x for x in theirs.q_net if isinstance(x, nn.Linear))
            yield layer.weight[m], head.weight.detach()
            yield layer.bias[m, 0], head.bias.detach()
            for mine, other in zip(towers._encoder.params, convolutions(theirs.features_extractor), strict=True):
                yield mine.detach()[m], channels_last(other.detach())


def test_dqn_updates() -> None:
    made, ours = dqn()
    before = [mine.clone() for mine, _ in dqn_pairs(ours, made)]
    for step in range(3):
        g, extractors = torch.Generator().manual_seed(step), [model.q_net.features_extractor for model in made]
        batch = {
            "obs": images(2 * step, extractors, B),
            "next_obs": images(2 * step + 1, extractors, B),
            "action": torch.randint(4, (2, B), generator=g),
            "reward": torch.randn(2, B, generator=g),
            "done": torch.rand(2, B, generator=g) < 0.2,
        }
        decay = ours.genes["discount"][:, None] * ~batch["done"]
        loss = ours.learn(batch | {"decay": decay})["critic"]
        for m, model in enumerate(made):
            obs, action, after, done, reward = (
                batch[name][m] for name in ("obs", "action", "next_obs", "done", "reward")
            )
            data = ReplayBufferSamples(obs, action[:, None], after, done.float()[:, None], reward[:, None], None)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(model.replay_buffer, "sample", lambda *_, data=data, **__: data)
                model.train(gradient_steps=1, batch_size=B)
        weights, losses = gap(dqn_pairs(ours, made)), gap(iter([(loss, logged(made, "loss"))]))
        print("DQN on images", losses, weights)
        assert max(weights, losses) < 1e-5
    moved = [float((mine - old).abs().max()) for old, (mine, _) in zip(before, dqn_pairs(ours, made), strict=True)]
    half = len(moved) // 2
    assert min(moved[:half]) > 5e-4 and not any(moved[half:]), "all has learnt but the targets"
