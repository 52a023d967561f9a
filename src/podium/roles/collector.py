"""The collector: steps the envs with the policy and fills rollouts."""

from __future__ import annotations

import torch
from torch import Tensor

from podium.algos.base import Algorithm, Batch
from podium.core import tree
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.envs.base import VecEnv
from podium.replay.rollout import Rollout


class Collector:
    """Keeps the envs going from rollout to rollout."""

    def __init__(self, env: VecEnv, algorithm: Algorithm, streams: Streams, steps: int) -> None:
        self.env, self._algorithm, self._streams = env, algorithm, streams
        self._rollout = Rollout(steps)
        self.carry: Tree = {}  # leaves `[M, E, ...]`
        self.obs = env.reset(streams)

    @torch.no_grad()
    def collect(self) -> Batch:
        """T steps of every env, `[M, T, E, ...]`; valid until the next call."""
        obs, carry, env, rollout = self.obs, self.carry, self.env, self._rollout
        for t in range(rollout.steps):
            out, carry = self._algorithm.act(obs, carry, explore=True)
            step = env.step(out["action"])
            rollout.write(
                t,
                obs=obs,
                **out,
                reward=step.reward,
                terminated=step.terminated,
                truncated=step.truncated,
                last=step.last,
                episode_reward=step.episode.reward,
                episode_length=step.episode.length,
                **({} if step.style is None else {"style": step.style}),
            )
            obs = step.obs
            if carry:
                carry = fresh(carry, step.terminated | step.truncated)
        self.obs, self.carry = obs.clone(), carry
        return rollout.data

    def restart(self) -> None:
        """End all episodes and begin new ones from the members' streams."""
        self._algorithm.restart()
        self.obs, self.carry = self.env.reset(self._streams), {}


def fresh(carry: Tree, done: Tensor) -> Tree:
    """Zero where an episode has ended, `done[M, E]`."""
    return tree.map(lambda leaf: leaf.masked_fill(done.view(*done.shape, *(1,) * (leaf.ndim - 2)), 0), carry)


def finished(batch: Batch) -> tuple[Tensor, Tensor]:
    """How many episodes of each member ended in a rollout, and the sum of their returns; `[M]` both."""
    done = (batch["terminated"] | batch["truncated"]) & (batch["episode_length"] > 0)
    total = batch["episode_reward"].masked_fill(~done, 0).flatten(1).sum(1)
    return done.flatten(1).sum(1), total
