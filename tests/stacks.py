"""Stacks for the tests: an algorithm, its envs and its collector, built as `podium.experiment` builds a pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium.spaces import Box, MultiDiscrete
from torch import Tensor

from podium.algos.a2c import A2C
from podium.algos.ppo import PPO
from podium.core import hyper, tree
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.envs.native.base import Simulator, State
from podium.lookup import ALGORITHMS as ALL
from podium.nets.conv import NATURE
from podium.nets.critics import CriticSettings
from podium.nets.mlp import Layer, Mlp
from podium.nets.settings import NetSettings
from podium.replay.replay import Replay
from podium.replay.settings import ReplaySettings
from podium.roles.collector import Collector
from podium.roles.learner import FromReplay

ALGORITHMS: dict[str, Any] = {"ppo": PPO, "a2c": A2C}
SMALL = NetSettings(hidden=(16, 16))


@dataclass
class Stack:
    env: Any
    algorithm: Any
    collector: Collector
    streams: Streams

    def update(self, updates: int = 1) -> dict[str, Tensor]:
        for _ in range(updates):
            metrics = self.algorithm.learn(self.collector.collect())
        return metrics

    def learnt(self) -> Tree:
        """A copy of all that was learnt."""
        return tree.clone(self.algorithm.learnt())


@dataclass
class Replaying(Stack):
    """A stack that learns from a replay."""

    learner: FromReplay

    def update(self, updates: int = 1) -> dict[str, Tensor]:
        """So many rounds; the metrics of the last update."""
        metrics: dict[str, Tensor] = {}
        for _ in range(updates):
            metrics = self.learner.learn(self.collector.collect(), None) or metrics
        return metrics


def build(
    name: str,
    env: type[Simulator],
    ids: Sequence[int] = (0,),
    *,
    envs: int = 4,
    seed: int = 0,
    net: NetSettings = SMALL,
    normalise: bool = False,
    genes: dict[str, Sequence[float]] | None = None,
    **plan: Any,
) -> Stack:
    """`genes` gives one value a member; `plan` is everything else in the algorithm's settings."""
    settings, spec, streams, own = _ready(ALGORITHMS[name], env, ids, envs, seed, normalise, genes or {}, plan)
    algorithm = ALGORITHMS[name](spec, settings, net, own, streams)
    world = env(len(ids), envs)
    return Stack(world, algorithm, Collector(world, algorithm, streams, settings.steps), streams)


def build_replaying(
    name: str,
    env: type[Simulator],
    ids: Sequence[int] = (0,),
    *,
    envs: int = 4,
    seed: int = 0,
    net: NetSettings = SMALL,
    normalise: bool = False,
    genes: dict[str, Sequence[float]] | None = None,
    critic: dict[str, Any] | None = None,
    replay: dict[str, Any] | None = None,
    **plan: Any,
) -> Replaying:
    """The same of an algorithm with a replay."""
    settings, spec, streams, own = _ready(ALL[name], env, ids, envs, seed, normalise, genes or {}, plan)
    algorithm = ALL[name](spec, settings, net, own, streams, CriticSettings(**critic or {}))
    stored = ReplaySettings(**{"capacity": 4096} | (replay or {}))
    memory = Replay(spec, stored, settings.batch, settings.n_step, streams.agent)
    world = env(len(ids), envs)
    collector = Collector(world, algorithm, streams, settings.steps)
    return Replaying(world, algorithm, collector, streams, FromReplay(algorithm, settings, stored, memory))


def _ready(
    cls: Any,
    env: type[Simulator],
    ids: Sequence[int],
    envs: int,
    seed: int,
    normalise: bool,
    genes: dict[str, Sequence[float]],
    plan: dict[str, Any],
) -> tuple[Any, Spec, Streams, dict[str, Tensor]]:
    """Settings, spec, streams and genes of a stack."""
    each = {gene: {"each": list(row)} for gene, row in genes.items()}
    by_row = hyper.values(cls.Settings(**each), seed, range(len(ids)))
    settings = cls.Settings(**plan)
    spec = Spec(env.obs_space, env.action_space, len(ids), envs, normalise, normalise)
    settings.check(spec)
    own = hyper.values(settings, seed, ids) | {gene: by_row[gene] for gene in each}
    return settings, spec, Streams(seed, ids), own


def rows(members: Tree, *which: int) -> Tree:
    return tree.take(members, torch.tensor(which))


def same(a: Tree, b: Tree) -> bool:
    """Whether two trees are equal bit for bit; a NaN equals itself."""
    a_flat, b_flat = tree.flatten(a), tree.flatten(b)
    return a_flat.keys() == b_flat.keys() and all(
        torch.equal(torch.nan_to_num(a_flat[k], nan=1.2345), torch.nan_to_num(b_flat[k], nan=1.2345)) for k in a_flat
    )


def gap(a: Tree, b: Tree) -> float:
    """The largest difference between two trees of the same shape."""
    a_flat, b_flat = tree.flatten(a), tree.flatten(b)
    assert a_flat.keys() == b_flat.keys()
    pairs = [(a_flat[k].double(), b_flat[k].double()) for k in a_flat if a_flat[k].numel()]
    # equal infinities (a target KL that is off) have no difference; a NaN on one side has an infinite one
    return max(float((x - y).masked_fill(x == y, 0).nan_to_num(nan=float("inf")).abs().max()) for x, y in pairs)


def layers(mlp: Mlp, numbers: Tensor, tower: int) -> list[Layer]:
    """The layers of a tower, as views into `numbers`: the weights `[M, N, Q]`, or a gradient of that shape."""
    return mlp._layers(numbers.detach()[:, tower])


def extra(mlp: Mlp, numbers: Tensor) -> Tensor:
    """The free numbers `[M, X]` in `numbers` `[M, N, Q]`."""
    return numbers.detach()[:, 0, numbers.shape[2] - mlp.extra.shape[1] :]


def channels_last(theirs: Tensor) -> Tensor:
    """A weight, a bias, or their gradient, of torch's Nature network in the order in which `Conv` has it."""
    if theirs.ndim == 4:
        return theirs.movedim(1, -1)
    return theirs.unflatten(1, (NATURE[-1][0], -1)).transpose(1, 2).flatten(1) if theirs.ndim == 2 else theirs


class TwoDials(Simulator):
    """Turn a dial of 3 positions to the sign of one number and one of 2 to that of another; at most 7 steps."""

    obs_space = Box(-4.0, 4.0, (2,))
    action_space = MultiDiscrete([3, 2])
    names = ("x", "y")
    numbers = 2
    time_limit = 7

    def prepare(self) -> None:
        self.never = torch.zeros_like(self.s["x"], dtype=torch.bool)

    def start(self, u: Sequence[Tensor]) -> State:
        return {"x": 2 * u[0] - 1, "y": 2 * u[1] - 1}

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        x, y = s["x"], s["y"]
        reward = (action[..., 0] == x.sign() + 1) + 0.5 * (action[..., 1] == (y > 0))
        x.add_(0.3 * (action[..., 1] - 0.5))
        y.add_(0.1 * (action[..., 0] - 1))
        return reward, x.abs() > 1.1
