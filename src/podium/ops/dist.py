"""Distributions over actions, as pure functions of what a network puts out and of noise drawn beforehand.

Every class has: `size` (network outputs), `noise(generators, *lead)`, `sample(params, noise)`, `mode(params)`,
`log_prob(params, action)`, `entropy(params)`. Parameters are a tuple of tensors `[M, ..., size]`, actions `[M, ...]`
or `[M, ..., A]`, log-probabilities and entropies `[M, ...]`.

Policies also have `vjp(params, action)`, for `[M, B, ...]`: log-probabilities, mean entropy `[M]`, and a function that
pulls gradients of the two back to the parameters, once. Autograd would give the same at several times the cost: at
these sizes its bookkeeping is most of the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from podium.core import streams
from podium.core.errors import ConfigError
from podium.core.streams import Generators
from podium.ops.shape import per_member

Params = tuple[Tensor, ...]


Pull = Callable[[Tensor, Tensor], Params]
"""From the gradients of log-probabilities `[M, B]` and of the mean entropy `[M]` to those of the parameters."""


class Categorical:
    """One of n actions; sampled as the argmax of logits plus Gumbel noise."""

    def __init__(self, n: int) -> None:
        self.size = n
        self.extra: tuple[float, ...] = ()

    def noise(self, generators: Generators, *lead: int) -> Tensor:
        return streams.gumbel(generators, *lead, self.size)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        return (params[0] + noise).argmax(-1)

    def mode(self, params: Params) -> Tensor:
        return params[0].argmax(-1)

    def log_prob(self, params: Params, action: Tensor) -> Tensor:
        return params[0].log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, params: Params) -> Tensor:
        logp = params[0].log_softmax(-1)
        return -(logp.exp() * logp).sum(-1)

    def vjp(self, params: Params, action: Tensor) -> tuple[Tensor, Tensor, Pull]:
        """∂log π(a) = 1_a - p,  ∂H = -p (log p + H)

        Softmax runs over the last axis but one, which is how heads put their outputs out, and eight times faster.
        """
        logp, action = params[0].mT.log_softmax(-2), action.unsqueeze(-2)
        p = logp.exp()
        entropy = (p * logp).sum(-2, keepdim=True).neg_()

        def pull(g_logp: Tensor, g_entropy: Tensor) -> Params:
            g_logp, g_each = g_logp.unsqueeze(-2), per_member(g_entropy / entropy.shape[-1], entropy)
            g = (logp + entropy).mul_(g_each).add_(g_logp).mul_(p).neg_()
            return (g.scatter_add_(-2, action, g_logp).mT,)

        return logp.gather(-2, action).squeeze(-2), entropy.mean((1, 2)), pull


class MultiCategorical:
    """Several independent choices, of nvec[i] actions each; `action[..., i]` is the i-th."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        self.size, self.nvec = sum(nvec), nvec
        self.extra: tuple[float, ...] = ()

    def noise(self, generators: Generators, *lead: int) -> Tensor:
        return streams.gumbel(generators, *lead, self.size)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        return self.mode((params[0] + noise,))

    def mode(self, params: Params) -> Tensor:
        return torch.stack([logits.argmax(-1) for logits in params[0].split(self.nvec, -1)], -1)

    def _each(self, params: Params, action: Tensor) -> list[tuple[Categorical, Params, Tensor]]:
        logits = zip(self.nvec, params[0].split(self.nvec, -1), action.unbind(-1), strict=True)
        return [(Categorical(n), (part,), a) for n, part, a in logits]

    def log_prob(self, params: Params, action: Tensor) -> Tensor:
        return torch.stack([one.log_prob(part, a) for one, part, a in self._each(params, action)]).sum(0)

    def entropy(self, params: Params) -> Tensor:
        return torch.stack([one.entropy(part) for one, part, _ in self._each(params, self.mode(params))]).sum(0)

    def vjp(self, params: Params, action: Tensor) -> tuple[Tensor, Tensor, Pull]:
        logps, entropies, pulls = zip(*(one.vjp(part, a) for one, part, a in self._each(params, action)), strict=True)

        def pull(g_logp: Tensor, g_entropy: Tensor) -> Params:
            return (torch.cat([each(g_logp, g_entropy)[0] for each in pulls], -1),)

        return torch.stack(logps).sum(0), torch.stack(entropies).sum(0), pull


class Normal:
    """Independent normals; the mean comes from the network, log σ `[M, A]` is learnt and the same in every state."""

    def __init__(self, size: int, log_std: float = 0.0) -> None:
        self.size = size
        self.extra = (log_std,) * size

    def noise(self, generators: Generators, *lead: int) -> Tensor:
        return streams.normal(generators, *lead, self.size)

    @staticmethod
    def _log_std(params: Params) -> Tensor:
        mean, log_std = params
        return log_std.view(len(log_std), *(1,) * (mean.ndim - 2), -1)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        return params[0] + self._log_std(params).exp() * noise

    def mode(self, params: Params) -> Tensor:
        return params[0]

    def log_prob(self, params: Params, action: Tensor) -> Tensor:
        """Σ -½ ((a - μ) / σ)² - log σ - ½ log 2π"""
        log_std = self._log_std(params)
        z = (action - params[0]) * (-log_std).exp()
        return (-0.5 * z.square() - log_std).sum(-1) - 0.5 * self.size * math.log(2 * math.pi)

    def entropy(self, params: Params) -> Tensor:
        total = params[1].sum(-1) + 0.5 * self.size * (1 + math.log(2 * math.pi))
        return per_member(total, params[0][..., 0]).expand(params[0].shape[:-1])

    def vjp(self, params: Params, action: Tensor) -> tuple[Tensor, Tensor, Pull]:
        """With z = (a - μ) / σ:  ∂log π / ∂μ = z / σ,  ∂log π / ∂log σ = z² - 1,  ∂H / ∂log σ = 1"""
        log_std = self._log_std(params)
        inverse = (-log_std).exp()
        z = (action - params[0]) * inverse
        square = z.square()
        logp = (-0.5 * square - log_std).sum(-1) - 0.5 * self.size * math.log(2 * math.pi)
        entropy = params[1].sum(-1) + 0.5 * self.size * (1 + math.log(2 * math.pi))

        def pull(g_logp: Tensor, g_entropy: Tensor) -> Params:
            g_logp = g_logp.unsqueeze(-1)
            return z.mul_(inverse).mul_(g_logp), square.sub_(1).mul_(g_logp).sum(1) + g_entropy[:, None]

        return logp, entropy, pull


class TanhNormal:
    """A normal squashed into (-1, 1); network puts out mean and log σ. Actions are reparameterised samples."""

    LOG_STD = (-20.0, 2.0)

    def __init__(self, actions: int) -> None:
        self.actions, self.size = actions, 2 * actions
        self.extra: tuple[float, ...] = ()

    def noise(self, generators: Generators, *lead: int) -> Tensor:
        return streams.normal(generators, *lead, self.actions)

    def _split(self, params: Params) -> tuple[Tensor, Tensor]:
        mean, log_std = params[0].split(self.actions, -1)
        return mean, log_std.clamp(*self.LOG_STD)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        return self.sample_log_prob(params, noise)[0]

    def mode(self, params: Params) -> Tensor:
        return self._split(params)[0].tanh()

    def spread(self, params: Params) -> Tensor:
        """The standard deviation close to the mode, where tanh is a line: (1 - tanh² μ) σ, and never 0."""
        mean, log_std = self._split(params)
        return (1 - mean.tanh().square()).mul_(log_std.exp()).clamp_(min=1e-6)

    def sample_log_prob(self, params: Params, noise: Tensor) -> tuple[Tensor, Tensor]:
        """A sample and its log-probability, both differentiable (Haarnoja et al. 2018, eq. 21)."""
        mean, log_std = self._split(params)
        u = mean + log_std.exp() * noise
        return u.tanh(), self._log_prob(u, noise, log_std)

    def sample_vjp(self, params: Params, noise: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], Params]]:
        """`sample_log_prob`, and a function that pulls the gradients of both back to the parameters.

        With u = μ + σ ε, a = tanh u:  ∂a / ∂u = 1 - a²,  ∂log π / ∂u = 2a,  ∂u / ∂log σ = σ ε,  ∂log π / ∂log σ = -1
        """
        mean, raw = params[0].split(self.actions, -1)
        log_std = raw.clamp(*self.LOG_STD)
        spread = log_std.exp() * noise
        u = mean + spread
        action = u.tanh()

        def pull(g_action: Tensor, g_logp: Tensor) -> Params:
            g_logp = g_logp.unsqueeze(-1)
            g_u = (1 - action.square()).mul_(g_action).addcmul_(action, g_logp, value=2)
            g_log_std = (g_u * spread).sub_(g_logp)
            g_log_std.masked_fill_(log_std != raw, 0)
            return (torch.cat([g_u, g_log_std], -1),)

        return action, self._log_prob(u, noise, log_std), pull

    def log_prob(self, params: Params, action: Tensor) -> Tensor:
        mean, log_std = self._split(params)
        u = torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6))
        return self._log_prob(u, (u - mean) / log_std.exp(), log_std)

    def _log_prob(self, u: Tensor, z: Tensor, log_std: Tensor) -> Tensor:
        normal = -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)
        squash = 2 * (math.log(2) - u - F.softplus(-2 * u))  # log(1 - tanh² u), without cancellation
        return (normal - squash).sum(-1)


Distribution = Categorical | MultiCategorical | Normal


def of_space(space: spaces.Space, log_std: float = 0.0) -> Distribution:  # type: ignore[type-arg]
    """The distribution of a stochastic policy over an action space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiCategorical(tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return Normal(space.shape[0], log_std)
    raise ConfigError("env.id", space, "policies take Discrete, MultiDiscrete and one-dimensional Box actions")
