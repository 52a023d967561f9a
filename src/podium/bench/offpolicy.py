"""SAC and TD3 against Stable-Baselines3's: updates a second, of one agent and of a stack.

An update draws a batch from a full replay and learns from it: both sides hold the same made-up steps of HalfCheetah's
sizes (17 numbers seen, 6 done), the same networks (ReLU), batch, Adam and defaults; no env is stepped. Losses, targets
and weights after each update agree to 1e-5 (tests/algos/test_off_policy_against_sb3.py). SB3's agents run one after
another, so the rate of one is the rate of all of them, and a stack's is that of its members together.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from podium import checks
from podium import experiment as experiments
from podium.bench._agents import need_sb3
from podium.bench._side_by_side import Row, Side, Work, compare, effort
from podium.bench._still import Still
from podium.compose import compose
from podium.core import machine
from podium.roles.learner import FromReplay

MEMBERS, STORED = 32, 20_000
SIZES = {"large": (256, 256), "small": (64, 64)}
"""Width of the two hidden layers, and batch."""


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    need_sb3()
    turns, seconds = effort(rounds, quick)
    rows = []
    for algo in ("sac", "td3"):
        for key, members, size, threads in (
            ("one", 1, "large", (1, machine.cores())),
            ("stack-small", MEMBERS, "small", (machine.cores(), 1)),
            ("stack-large", MEMBERS, "large", (machine.cores(), 1)),
        ):
            width, batch = SIZES[size]
            members = min(members, 4) if quick else members
            name = (
                f"{members} {algo.upper()} {'agent' if members == 1 else 'agents'}, {width}x{width}, batch {batch}; SB3"
            )
            ours = Side("podium", partial(podium, algo, members, width, batch), threads[0])
            peers = [Side(f"SB3, {n} threads", partial(sb3, algo, width, batch), n) for n in dict.fromkeys(threads)]
            key = f"offpolicy/{algo}-{key}"
            rows.append(compare(name, "updates/s", ours, peers, turns, seconds, key=key, members=members))
    return rows


def podium(algo: str, members: int, width: int, batch: int) -> Work:
    words = [f"{Still.__module__}:{Still.__name__}", f"algo={algo}", f"algo.batch={batch}", "env.num=1"]
    words += [f"net.hidden=[{width},{width}]", f"replay.capacity={STORED}", f"train.members={members}"]
    pod = experiments.build_pod(checks.validate(compose(words)))
    learner = pod.learner
    assert isinstance(learner, FromReplay)
    learner.replay.insert({name: x.expand(members, *x.shape[1:]) for name, x in steps().items()})

    def work(updates: int) -> float:
        for _ in range(updates):
            learner.update()
        return float(updates * members)

    return work


def sb3(algo: str, width: int, batch: int) -> Work:
    import stable_baselines3
    from stable_baselines3.common.logger import Logger

    cls = getattr(stable_baselines3, algo.upper())
    policy = {"net_arch": [width, width]}
    model: Any = cls("MlpPolicy", Still(), buffer_size=STORED, batch_size=batch, policy_kwargs=policy, device="cpu")
    model.set_logger(Logger(None, []))
    stored, buffer = {name: x[0].numpy() for name, x in steps().items()}, model.replay_buffer
    buffer.observations[:], buffer.next_observations[:] = stored["obs"], stored["last"]
    buffer.actions[:], buffer.rewards[:], buffer.full = stored["action"], stored["reward"], True

    def work(updates: int) -> float:
        model.train(updates, batch)
        return float(updates)

    return work


def steps() -> dict[str, torch.Tensor]:
    """Made-up steps of one member and one env, `[1, T, 1, ...]`, none of which ends an episode."""
    g, lead = torch.Generator().manual_seed(0), (1, STORED, 1)
    never = torch.zeros(lead, dtype=torch.bool)
    return {
        "obs": torch.randn(*lead, 17, generator=g),
        "action": torch.rand(*lead, 6, generator=g) * 2 - 1,
        "reward": torch.randn(lead, generator=g),
        "terminated": never,
        "truncated": never,
        "last": torch.randn(*lead, 17, generator=g),
    }
