"""The pairs of timings that docs/design.md compares, on one thread of this machine: python docs/timings.py"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.algos.ppo import ppo_loss
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.nets.optim import Adam
from podium.nets.policy_critic import NetSettings, PolicyCritic
from podium.ops.grad import backward


def pair(name: str, ours: Callable[[], object], other: Callable[[], object], rounds: int = 15) -> None:
    """Medians of alternating rounds, in microseconds a call."""
    sides: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for fn, times in zip((ours, other), sides, strict=True):
            fn()
            start = time.perf_counter()
            for _ in range(20):
                fn()
            times.append((time.perf_counter() - start) / 20 * 1e6)
    a, b = map(statistics.median, sides)
    print(f"{name}: {a:.0f} against {b:.0f} us ({b / a:.1f} times)")


def main() -> None:
    torch.set_num_threads(1)
    x, head = torch.randn(32, 256, 64), torch.randn(32, 2, 64)
    g, turned = torch.randn(32, 256, 2), head.mT.contiguous()
    pair("head of 64 to 2, 32 networks, batch 256: W x^T, x W", lambda: head @ x.mT, lambda: x @ turned)
    pair("its gradient: g^T x as [2, 64], x^T g as [64, 2]", lambda: g.mT @ x, lambda: x.mT @ g)
    narrow, wide = torch.randn(64, 256, 4), torch.randn(64, 256, 64)
    pair(
        "gradient of 4 to 64, 64 networks, batch 256: (x^T g)^T, g^T x",
        lambda: narrow.mT @ wide,
        lambda: wide.mT @ narrow,
    )
    million, out = torch.randn(1_000_000), torch.empty(1_000_000)
    minus = torch.tensor(-1.0)

    def by_sigmoid() -> Tensor:
        torch.sigmoid(million, out=out)
        return torch.add(minus, out, alpha=2, out=out)

    pair("tanh of a million numbers: by the sigmoid, torch.tanh", by_sigmoid, lambda: torch.tanh(million, out=out))
    tall, flat = torch.randn(64, 2, 256), torch.randn(64, 256, 2)
    over = (lambda: tall.log_softmax(-2)), (lambda: flat.log_softmax(-1))
    pair("log_softmax of 2, 64 networks, batch 256: over the last axis but one, the last", *over)
    gradient()
    for size in (18_000, 210_000):
        adam(32, size)


def adam(members: int, size: int) -> None:
    """A step of Adam, every member with a learning rate of its own."""
    weights = torch.randn(members, size).requires_grad_()
    weights.grad = torch.randn(members, size)
    optimiser, rates = Adam([weights]), torch.linspace(1e-4, 1e-3, members)

    def plain() -> None:
        with torch.no_grad():
            optimiser._plain([0], rates, None)

    pair(f"Adam, {members} members of {size:,}: fused, plain", lambda: optimiser.step(rates), plain)


def gradient() -> None:
    """One gradient of PPO for one member: 4-64-64-2 and -1, batch 256."""
    genes = {"clip": torch.tensor([0.2]), "critic": torch.tensor([0.5]), "entropy": torch.tensor([0.01])}
    spec = Spec(Box(-1, 1, (4,)), Discrete(2), members=1, envs=8)
    net = PolicyCritic(spec, NetSettings(), Streams(0, [0]).agent)
    batch = {name: torch.randn(1, 256) for name in ("logp", "advantage", "return", "value")}
    batch |= {"obs": torch.randn(1, 256, 4), "action": torch.randint(2, (1, 256))}

    def by_hand() -> None:
        with torch.inference_mode():
            params, value, pull = net.vjp(batch["obs"])
            pull(*ppo_loss(net.dist, params, value, batch, genes)[2])

    def by_autograd() -> None:
        params, value = net(batch["obs"])
        ratio = (net.dist.log_prob(params, batch["action"]) - batch["logp"]).exp()
        gain = torch.minimum(ratio * batch["advantage"], ratio.clamp(0.8, 1.2) * batch["advantage"]).mean(1)
        critic, entropy = (value - batch["return"]).square().mean(1), net.dist.entropy(params).mean(1)
        backward(genes["critic"] * critic - gain - genes["entropy"] * entropy, net.params)

    pair("gradient of PPO, one member, batch 256: by hand, by autograd", by_hand, by_autograd)


if __name__ == "__main__":
    main()
