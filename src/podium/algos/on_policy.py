"""What PPO and A2C have in common: act by a stochastic policy, and turn a rollout into advantages and returns."""

from __future__ import annotations

import torch
from torch import Tensor

from podium.algos.base import Batch
from podium.algos.inputs import Inputs
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.nets.policy_critic import PolicyCritic
from podium.nets.settings import NetSettings
from podium.ops.dist import Normal
from podium.ops.norm import Running
from podium.ops.returns import discounted, gae
from podium.ops.shape import per_member

Experience = dict[str, Tensor]
"""A rollout made ready to learn from, `[M, T * E, ...]`: obs, action, logp, value, advantage, return."""


class OnPolicy:
    """Networks, normalisers and action noise of a stack."""

    def __init__(self, spec: Spec, net: NetSettings, streams: Streams, steps: int, log_std: float) -> None:
        self.net = PolicyCritic(spec, net, streams.agent, log_std)
        self.inputs = Inputs(spec, images=True)
        self.return_stats = Running(spec.members, (), spec.device) if spec.normalise_reward else None
        self.carried = torch.zeros(spec.members, spec.envs, device=spec.device)
        self.noise = Block(lambda: self.net.dist.noise(streams.agent, steps, spec.envs).to(spec.device))

    @torch.no_grad()
    def act(self, obs: Tensor, carry: Tree, *, explore: bool) -> tuple[dict[str, Tensor], Tree]:
        """`[M, E, *O]` -> actions `[M, E, ...]`, sampled, or the most likely ones.

        What has seen an image also tells its value: convolutions are too dear to run over the rollout once more.
        """
        dist, seen = self.net.dist, self.inputs(obs)
        if not explore:
            return {"action": dist.mode(self.net.policy(seen))}, carry
        if not self.net.images:
            return {"action": dist.sample(self.net.policy(seen), self.noise.next())}, carry
        params, value = self.net(seen)
        action = dist.sample(params, self.noise.next())
        return {"action": action, "logp": dist.log_prob(params, action), "value": value}, carry

    @torch.no_grad()
    def propose(self, obs: Tensor) -> dict[str, Tensor]:
        """`[M, E, *O]` -> the most likely `action`, and `logits`, or `mean` and `std`."""
        params, dist = self.net.policy(self.inputs(obs)), self.net.dist
        action, first = dist.mode(params), params[0]
        if isinstance(dist, Normal):
            return {"action": action, "mean": first, "std": params[1].exp().unsqueeze(1).expand_as(first)}
        return {"action": action, "logits": first}

    @torch.no_grad()
    def experience(self, batch: Batch, discount: Tensor, lam: Tensor, style: Tensor | None = None) -> Experience:
        """Values, log-probabilities, advantages and returns of the whole rollout at once.

        `style[M]` is what a member counts for how a step was done, beside its reward.
        """
        obs, action = self.inputs(batch["obs"]), batch["action"].flatten(1, 2)
        if "value" in batch:
            value, logp = batch["value"].flatten(1), batch["logp"].flatten(1)
        else:
            params, value = self.net(obs)
            logp = self.net.dist.log_prob(params, action)
        reward, terminated, truncated = batch["reward"], batch["terminated"], batch["truncated"]
        done = terminated | truncated
        if style is not None and "style" in batch:
            reward = reward + per_member(style, reward) * batch["style"]
        if self.return_stats is not None:
            sums, carried = discounted(reward, done, discount, self.carried)
            self.carried.copy_(carried.nan_to_num(0.0, 0.0, 0.0))  # a row's next member must not inherit a NaN
            self.return_stats.update(sums.flatten(1))
            reward = self.return_stats.scale(reward)
        values = value.view_as(reward)
        advantage = gae(reward, values, self._next_value(values, batch), terminated, done, discount, lam).flatten(1)
        return {
            "obs": obs,
            "action": action,
            "logp": logp,
            "value": value,
            "advantage": advantage,
            "return": advantage + value,
        }

    def _next_value(self, value: Tensor, batch: Batch) -> Tensor:
        """V of what each action truly led to, `[M, T, E]`: the next step's value, but for the end of an episode."""
        last = batch["last"]
        end = self.net.value(self.inputs(last[:, -1:])).unflatten(1, (1, -1))
        following = torch.cat([value[:, 1:], end], 1)
        if not batch["truncated"].any():
            return following
        return torch.where(batch["truncated"], self.net.value(self.inputs(last)).view_as(value), following)

    def observe(self, batch: Batch) -> None:
        """Take the rollout's observations into the statistics: after learning, so that acting and learning agree."""
        self.inputs.observe(batch["obs"])

    def learnt(self) -> Tree:
        stats = {"obs": self.inputs.stats, "return": self.return_stats}
        return {"weights": self.net.state()} | {f"{k}_stats": s.state() for k, s in stats.items() if s is not None}

    def restart(self) -> None:
        self.noise.drop()
        self.carried.zero_()

    def slot(self) -> Tree:
        return {"carried": self.carried}
