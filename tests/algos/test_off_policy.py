"""How learners with a replay explore, and what an update does: against formulas, slow twins and autograd."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from podium.algos.ddpg import OU_PULL, OU_TIME
from podium.algos.off_policy import current, policy_rate
from podium.algos.temperature import Temperature
from podium.core import hyper, tree
from podium.core.spec import Spec
from podium.core.streams import Block, Streams
from podium.lookup import ALGORITHMS
from podium.nets.critics import CriticSettings
from podium.nets.settings import NetSettings
from podium.nets.towers import Towers
from probes import TruncatedForever, boxed
from stacks import build_replaying, gap, layers, rows

M, B, ACTIONS = 2, 12, 3
OBS = Box(-5.0, 5.0, (4,))
BOX = Box(torch.tensor([-1.0, 0.0, -4.0]).numpy(), torch.tensor([3.0, 1.0, -2.0]).numpy())
CONTINUOUS = ("ddpg", "td3", "sac", "redq")
EVERY = (*CONTINUOUS, "sac-discrete", "dqn")
OFF = float("inf")


def make(
    name: str,
    members: int = M,
    envs: int = 4,
    critic: dict[str, Any] | None = None,
    net: NetSettings | None = None,
    **settings: Any,
) -> Any:
    cls = ALGORITHMS[name]
    made = cls.Settings(**{"batch": B, "warmup": 0} | settings)
    spec = Spec(OBS, BOX if name in CONTINUOUS else Discrete(ACTIONS), members, envs)
    streams = Streams(3, range(members))
    genes = hyper.values(made, 0, range(members))
    return cls(spec, made, net or NetSettings(hidden=(8, 6)), genes, streams, CriticSettings(**critic or {}))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def batch_of(name: str, seed: int = 0, weighted: bool = False) -> dict[str, Tensor]:
    """A made-up batch, rewards large enough for Huber's loss to matter."""
    action = draw(M, B, ACTIONS, seed=seed + 1).tanh()
    out = {
        "obs": draw(M, B, 4, seed=seed + 2),
        "next_obs": draw(M, B, 4, seed=seed + 3),
        "action": action if name in CONTINUOUS else action.argmax(-1),
        "reward": 2 * draw(M, B, seed=seed + 4),
        "decay": torch.tensor([0.9, 0.5])[:, None] * (draw(M, B, seed=seed + 5) < 0.8),
    }
    return out | ({"weight": draw(M, B, seed=seed + 6).sigmoid()} if weighted else {})


# ---- exploring


def test_the_noise_that_lingers_has_the_spread_and_memory_of_its_process() -> None:
    """x' = a x + σ √dt ε has the variance σ² dt / (1 - a²) in the long run, and the correlation a^k after k steps."""
    ddpg = make("ddpg", envs=2000, process="ou", noise={"each": [0.05, 0.1]})
    ddpg.policy.params[0].detach().zero_()  # the noise alone
    obs, carry, seen = torch.zeros(M, 2000, 4), {}, {}
    for step in range(2801):
        out, carry = ddpg.act(obs, carry, explore=True)
        if step in (0, 2500, 2800):
            seen[step] = out["unit"].flatten(1)
    a = 1 - OU_PULL * OU_TIME
    sigma = torch.tensor([0.05, 0.1])
    assert torch.allclose(seen[0].std(1), sigma * math.sqrt(OU_TIME), rtol=0.03)
    assert torch.allclose(seen[2800].std(1), sigma * math.sqrt(OU_TIME / (1 - a * a)), rtol=0.03)
    both = (seen[2500] * seen[2800]).mean(1) / (seen[2500].std(1) * seen[2800].std(1))
    assert torch.allclose(both, torch.tensor(a**300), atol=0.03)
    assert not torch.allclose(seen[2800][0] * 2, seen[2800][1]), "dice of their own"


def test_the_noise_that_lingers_ends_with_the_episode() -> None:
    stack = build_replaying("ddpg", boxed(TruncatedForever), range(2), process="ou", steps=1, warmup=0, batch=8)
    for step in range(1, 13):
        stack.collector.collect()
        assert (stack.collector.carry["noise"] == 0).all().item() == (step % 5 == 0)


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_the_noise_of_each_member(name: str) -> None:
    agent = make(name, envs=20_000, noise={"each": [0.1, 0.3]})
    agent.policy.params[0].detach().zero_()
    unit = agent.act(torch.zeros(M, 20_000, 4), {}, explore=True)[0]["unit"].flatten(1)
    assert unit.std(1)[0].item() == pytest.approx(0.1, rel=0.02)
    assert (unit[1] > 0.3).float().mean().item() == pytest.approx(0.1587, abs=0.005)
    assert unit.abs().max() == 1, "within bounds"


@pytest.mark.parametrize("name", CONTINUOUS)
def test_actions_are_scaled_to_bounds_that_differ(name: str) -> None:
    agent, low, high = make(name, envs=500), torch.tensor(BOX.low), torch.tensor(BOX.high)
    with torch.no_grad():
        agent.policy.params[0].mul_(20)
    obs = draw(M, 500, 4)
    out = agent.act(obs, {}, explore=True)[0]
    assert torch.allclose(out["action"], low + (out["unit"] + 1) / 2 * (high - low), atol=1e-6)
    for action in (out["action"], agent.act(obs, {}, explore=False)[0]["action"]):
        assert (action >= low - 1e-6).all() and (action <= high + 1e-6).all()
        assert torch.allclose(action.amin((0, 1)), low, atol=0.05) and torch.allclose(
            action.amax((0, 1)), high, atol=0.05
        )


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_replay_holds_actions_in_units_of_their_bounds(name: str) -> None:
    probe = type("Wide", (boxed(TruncatedForever),), {"action_space": Box(-1.0, 7.0, (1,))})
    stack = build_replaying(name, probe, range(2), steps=8, warmup=0, batch=8)
    rollout = stack.collector.collect()
    stack.learner.replay.insert(rollout)
    held = stack.learner.replay.sample(stack.algorithm.genes["discount"])["action"]
    assert rollout["action"].max() > 1.5 and held.abs().max() <= 1
    assert torch.isin(held, rollout["unit"]).all()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_while_it_warms_up_all_numbers_within_bounds_are_alike_likely(name: str) -> None:
    """For one member of two: the other has done with it."""
    agent, low, high = make(name, envs=20_000, warmup=100), torch.tensor(BOX.low), torch.tensor(BOX.high)
    agent.acted.copy_(torch.tensor([99, 100]))
    first, second = agent.act(torch.ones(M, 20_000, 4), {}, explore=True)[0]["action"]
    share = ((first - low) / (high - low)).sort(0).values
    even = (torch.arange(20_000) + 0.5) / 20_000
    assert (share - even[:, None]).abs().max() < 0.015, "Kolmogorov and Smirnov's distance"
    other = ((second - low) / (high - low)).sort(0).values
    assert (other - even[:, None]).abs().amax(0).min() > 0.03


@pytest.mark.parametrize("name", ["dqn", "sac-discrete"])
def test_while_it_warms_up_all_actions_are_alike_likely(name: str) -> None:
    greedy = {"epsilon": 0.0, "epsilon_end": 0.0} if name == "dqn" else {}
    agent = make(name, envs=20_000, warmup=100, **greedy)
    agent.acted.copy_(torch.tensor([99, 100]))
    if name == "sac-discrete":
        with torch.no_grad():
            agent.policy.params[0].mul_(20)
    action = agent.act(torch.ones(M, 20_000, 4), {}, explore=True)[0]["action"]
    counts = torch.stack([row.bincount(minlength=ACTIONS) for row in action]) / 20_000
    assert (counts[0] - 1 / ACTIONS).abs().max() < 0.015
    assert counts[1].max() > 0.6


def test_epsilon_falls_along_each_members_own_line() -> None:
    genes = {"epsilon": [1.0, 0.6], "epsilon_end": [0.1, 0.2], "epsilon_steps": [1000, 400]}
    dqn = make("dqn", envs=50_000, warmup=50, **{name: {"each": row} for name, row in genes.items()})
    obs = torch.ones(M, 50_000, 4)
    greedy = dqn.act(obs, {}, explore=False)[0]["action"]
    for acted, wanted in ((0, (1, 1)), (49, (1, 1)), (200, (0.82, 0.4)), (700, (0.37, 0.2)), (5000, (0.1, 0.2))):
        dqn.acted.fill_(acted)
        action = dqn.act(obs, {}, explore=True)[0]["action"]
        other = (action != greedy).float().mean(1) * ACTIONS / (ACTIONS - 1)  # random ones may be the greedy one
        assert other.tolist() == pytest.approx(wanted, abs=0.012), acted
        assert dqn._epsilon().tolist() == pytest.approx(wanted, abs=1e-6)


# ---- who is updated when


def changed(before: Tensor, after: Tensor) -> list[bool]:
    return [not torch.equal(b, a) for b, a in zip(before, after, strict=True)]


@pytest.mark.parametrize("name", ["td3", "sac", "sac-discrete", "redq"])
def test_each_policy_waits_for_its_own_delay(name: str) -> None:
    agent = make(name, delay={"each": [2, 3]}, tau=0.5)
    for step in range(1, 7):
        before = tree.clone(agent.learnt())
        agent.learn(batch_of(name, step))
        now, due = agent.learnt(), [step % 2 == 0, step % 3 == 0]
        assert changed(before["policy"]["0"], now["policy"]["0"]) == due
        assert changed(before["policy_adam"]["age"], now["policy_adam"]["age"]) == due
        assert changed(before["critic"]["0"], now["critic"]["0"]) == [True, True]
        if name == "td3":  # its targets wait, too
            for part in ("target", "policy_target"):
                assert changed(before[part]["0"], now[part]["0"]) == due
        else:
            assert changed(before["target"]["0"], now["target"]["0"]) == [True, True]
            assert changed(before["log_temperature"], now["log_temperature"]) == due


@pytest.mark.parametrize("name", EVERY)
def test_who_is_not_active_stays_as_it_is(name: str) -> None:
    """And who is learns what it would learn among active ones."""
    one, other = make(name, tau=0.5), make(name, tau=0.5)
    apart(one), apart(other)
    before = tree.clone(one.learnt())
    for step in range(2):
        one.learn(batch_of(name, step) | {"active": torch.tensor([False, True])})
        other.learn(batch_of(name, step))
    assert gap(rows(before, 0), rows(one.learnt(), 0)) == 0
    assert gap(rows(one.learnt(), 1), rows(other.learnt(), 1)) < 1e-6
    assert gap(rows(one.learnt(), 1), rows(before, 1)) > 1e-4


def test_targets_of_dqn_follow_once_in_so_many_updates() -> None:
    dqn = make("dqn", target_every=3, tau={"each": [1.0, 0.25]})
    for step in range(1, 8):
        before = dqn.critics.target.params[0].clone()
        dqn.learn(batch_of("dqn", step))
        online, now = dqn.critics.online.params[0], dqn.critics.target.params[0]
        if step % 3:
            assert torch.equal(now, before)
        else:
            assert torch.equal(now[0], online[0]) and torch.allclose(now[1], 0.75 * before[1] + 0.25 * online[1])


@pytest.mark.parametrize("name", EVERY)
def test_annealing(name: str) -> None:
    """lr falls to 0 with what is left of the run; at the end nothing is learnt any more."""
    one, other = make(name, anneal=["lr"], lr=0.01), make(name, lr={"each": [0.01 * 0.25, 0.01]})
    remaining = torch.tensor([0.25, 1.0])
    for step in range(2):
        one.learn(batch_of(name, step), remaining)
        other.learn(batch_of(name, step))
    parts = [part for part in ("critic", "policy", "log_temperature") if part in one.learnt()]
    for part in parts:
        assert gap({part: one.learnt()[part]}, {part: other.learnt()[part]}) < 1e-6
    before = tree.clone({part: one.learnt()[part] for part in parts})
    one.learn(batch_of(name), torch.zeros(M))
    assert gap(before, {part: one.learnt()[part] for part in parts}) == 0


def test_beta_rises_to_one() -> None:
    genes = {"lr": torch.tensor([0.1, 0.2]), "beta": torch.tensor([0.4, 0.0])}
    for remaining, lr, beta in ((1.0, [0.1, 0.2], [0.4, 0.0]), (0.5, [0.05, 0.1], [0.7, 0.5]), (0.0, [0, 0], [1, 1])):
        now = current(genes, ("lr", "beta"), torch.full((M,), remaining))
        assert now["lr"].tolist() == pytest.approx(lr) and now["beta"].tolist() == pytest.approx(beta)
        assert current(genes, ("beta",), torch.full((M,), remaining))["lr"] is genes["lr"]
    assert current(genes, ("lr", "beta"), None) is genes


def test_the_replay_is_drawn_from_with_the_beta_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"replay": {"prioritised": True}, "beta": 0.4, "anneal": ["beta"], "batch": 8, "warmup": 0, "steps": 4}
    plan["updates"] = 1 / 16  # one a round
    stack = build_replaying("dqn", TruncatedForever, range(2), **plan)
    seen, sample = [], stack.learner.replay.sample

    def spy(discount: Tensor, beta: Tensor) -> dict[str, Tensor]:
        seen.append(beta.tolist())
        return sample(discount, beta)

    monkeypatch.setattr(stack.learner.replay, "sample", spy)
    for remaining in (1.0, 0.5, 0.0):
        stack.learner.learn(stack.collector.collect(), torch.full((M,), remaining))
    assert [pytest.approx([b, b]) for b in (0.4, 0.7, 1.0)] == seen


# ---- what an update does


def test_the_temperature_is_that_of_autograd() -> None:
    start, wanted, lr = [0.5, 2.0], torch.tensor([-1.0, OFF]), [0.01, 0.1]
    genes = {"temperature": torch.tensor(start), "target_entropy": wanted, "lr": torch.tensor(lr)}
    ours = Temperature(genes, learn=True)
    logs = [torch.tensor(s).log().requires_grad_() for s in start]
    adams = [torch.optim.Adam([log], lr=rate) for log, rate in zip(logs, lr, strict=True)]
    for step in range(5):
        entropy = draw(M, seed=step)
        for m, (log, adam) in enumerate(zip(logs, adams, strict=True)):
            adam.zero_grad()
            (log * (entropy[m] - (-1.0, -7.0)[m])).backward()
            adam.step()
        ours.step(entropy, -7.0, genes, None)
        assert torch.allclose(ours.now(genes), torch.stack([log.detach().exp() for log in logs]), atol=1e-6)
    fixed = Temperature(genes, learn=False)
    fixed.step(entropy, -7.0, genes, None)
    assert fixed.now(genes) is genes["temperature"]


def q_of(towers: Towers, x: Tensor) -> Tensor:
    """The networks under autograd, `[M, K, B, A]`."""
    return torch.stack(towers._net(x), 1)


def reduced(q: Tensor, how: str) -> Tensor:
    """One of K, `[K, ...]`."""
    return {"min": q.min(0).values, "mean": q.mean(0), "first": q[0]}[how]


CRITICS: dict[str, dict[str, Any]] = {
    "one": {"count": 1},
    "min": {"count": 3},
    "mean": {"count": 3, "target": "mean", "policy": "mean"},
    "subset": {"count": 4, "target": "subset", "subset": 2, "policy": "first"},
}
ENSEMBLES = pytest.mark.parametrize("kind", CRITICS)
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])


def choose(agent: Any) -> list[list[int]]:
    """Which critics each member bootstraps from in the next update, made known."""
    count = agent.critics.settings.count
    u = draw(M, 1, count, seed=11)
    agent.critics.drawn = Block(lambda: u)
    if agent.critics.settings.target != "subset":
        return [list(range(count))] * M
    return [sorted(range(count), key=lambda k: -float(u[m, 0, k]))[:2] for m in range(M)]


def apart(agent: Any) -> None:
    """Targets that differ from what they follow."""
    with torch.no_grad():
        for target in [agent.critics.target, *([agent.policy_target] if hasattr(agent, "policy_target") else [])]:
            target.params[0].add_(0.3 * draw(*target.params[0].shape, seed=21))


@WEIGHTED
@ENSEMBLES
def test_discrete_sac_against_autograd(kind: str, weighted: bool) -> None:
    agent = make("sac-discrete", critic=CRITICS[kind], temperature={"each": [0.3, 1.0]}, target_entropy=-0.5)
    apart(agent)
    which, batch, settings = choose(agent), batch_of("sac-discrete", weighted=weighted), agent.critics.settings
    online, policy = q_of(agent.critics.online, batch["obs"]), q_of(agent.policy, batch["obs"])[:, 0]
    after, next_policy = agent.critics.target(batch["next_obs"]), agent.policy(batch["next_obs"])[:, 0]
    critic_loss, policy_loss = [], []
    for m, alpha in enumerate((0.3, 1.0)):
        logp = next_policy[m].log_softmax(-1)
        q = reduced(after[m, which[m]], "mean" if settings.target == "mean" else "min")
        y = batch["reward"][m] + batch["decay"][m] * (logp.exp() * (q - alpha * logp)).sum(-1)
        w = batch["weight"][m] if weighted else torch.ones(B)
        taken = torch.stack([online[m, :, b, int(batch["action"][m, b])] for b in range(B)], 1)
        critic_loss.append((0.5 * w * (taken - y.detach()) ** 2).sum(0).mean())
        now = policy[m].log_softmax(-1)
        q = reduced(online[m].detach(), settings.policy)
        policy_loss.append((now.exp() * (alpha * now - q)).sum(-1).mean())
    (critic_grad,) = torch.autograd.grad(sum(critic_loss), agent.critics.online.params)
    (policy_grad,) = torch.autograd.grad(sum(policy_loss), agent.policy.params)
    metrics = agent.learn(batch)
    assert torch.allclose(agent.critics.online.params[0].grad, critic_grad, atol=1e-5)
    assert torch.allclose(agent.policy.params[0].grad, policy_grad, atol=1e-6)
    assert torch.allclose(metrics["critic"], torch.stack(critic_loss), rtol=1e-5)
    assert torch.allclose(metrics["policy"], torch.stack(policy_loss), rtol=1e-4, atol=1e-6)
    entropy = -(policy.softmax(-1) * policy.log_softmax(-1)).sum(-1).mean(1)
    assert torch.allclose(agent.temperature.log.grad, entropy + 0.5, atol=1e-6)


@WEIGHTED
@ENSEMBLES
@pytest.mark.parametrize("name", ["ddpg", "td3", "sac"])
def test_continuous_learners_against_autograd(name: str, kind: str, weighted: bool) -> None:
    """With ensembles and weights, which Stable-Baselines3 does not have. A rate of 0 keeps the critics as they are."""
    plan = (
        {"temperature": {"each": [0.3, 1.0]}}
        if name == "sac"
        else {"delay": 1, "target_noise": 0.5}
        if name == "td3"
        else {}
    )
    agent = make(name, critic=CRITICS[kind], lr=0.0, policy_lr=0.01, **plan)
    apart(agent)
    which, batch, settings = choose(agent), batch_of(name, weighted=weighted), agent.critics.settings
    obs, after, z = batch["obs"], batch["next_obs"], draw(M, 2, B, ACTIONS, seed=31)
    cost = mine_cost = torch.zeros(M, B)
    if name == "sac":
        agent._pairs = Block(lambda: z[:, None])
        action, logp = agent._dist.sample_log_prob((agent.policy(after)[:, 0],), z[:, 0])
        mine, mine_logp = agent._dist.sample_log_prob((q_of(agent.policy, obs)[:, 0],), z[:, 1])
        cost, mine_cost = (torch.tensor([[0.3], [1.0]]) * x for x in (logp, mine_logp))
    else:
        action, mine = agent.policy_target(after)[:, 0].tanh(), q_of(agent.policy, obs)[:, 0].tanh()
    if name == "td3":
        agent._smoothing = Block(lambda: z[:, :1])
        action = (action + (0.5 * z[:, 0]).clamp(-0.5, 0.5)).clamp(-1, 1)
    q_next = agent.critics.target(torch.cat([after, action], -1))[..., 0]
    q = q_of(agent.critics.online, torch.cat([obs, batch["action"]], -1))[..., 0]
    judged = q_of(agent.critics.online, torch.cat([obs, mine], -1))[..., 0]
    critic_loss, policy_loss, error = [], [], []
    for m in range(M):
        bootstrap = reduced(q_next[m, which[m]], "mean" if settings.target == "mean" else "min")
        y = batch["reward"][m] + batch["decay"][m] * (bootstrap - cost[m])
        w = batch["weight"][m] if weighted else torch.ones(B)
        critic_loss.append((0.5 if name == "sac" else 1.0) * (w * (q[m] - y.detach()) ** 2).sum(0).mean())
        policy_loss.append((mine_cost[m] - reduced(judged[m], settings.policy)).mean())
        error.append((q[m] - y).abs().mean(0))
    (critic_grad,) = torch.autograd.grad(sum(critic_loss), agent.critics.online.params)
    (policy_grad,) = torch.autograd.grad(sum(policy_loss), agent.policy.params)
    metrics = agent.learn(batch)
    assert torch.allclose(agent.critics.online.params[0].grad, critic_grad, atol=1e-5, rtol=1e-4)
    assert torch.allclose(agent.policy.params[0].grad, policy_grad, atol=1e-6, rtol=1e-4)
    assert torch.allclose(metrics["critic"], torch.stack(critic_loss), rtol=1e-4)
    assert torch.allclose(metrics["policy"], torch.stack(policy_loss), atol=1e-5)
    assert torch.allclose(metrics["error"], torch.stack(error), atol=1e-4)


def slow_target(agent: Any, batch: dict[str, Tensor], which: list[list[int]], m: int, b: int) -> float:
    """y of one sample of a DQN member, action by action."""
    settings, critic = agent.settings, agent.critics.settings

    def values(towers: Towers, k: int) -> list[float]:
        out = towers(batch["next_obs"])[m, k, b].tolist()
        if not settings.dueling:
            return out
        value, advantages = out[0], out[1:]
        return [value + a - sum(advantages) / len(advantages) for a in advantages]

    def one_of(numbers: list[float], how: str) -> float:
        return {"min": min(numbers), "mean": sum(numbers) / len(numbers), "first": numbers[0]}[how]

    target = [values(agent.critics.target, k) for k in which[m]]
    online = [values(agent.critics.online, k) for k in range(critic.count)]
    how = "mean" if critic.target == "mean" else "min"
    told, by = (online, critic.policy) if settings.double else (target, how)
    best = max(range(ACTIONS), key=lambda a: one_of([q[a] for q in told], by))
    return float(batch["reward"][m, b] + batch["decay"][m, b] * one_of([q[best] for q in target], how))


@WEIGHTED
@pytest.mark.parametrize("dueling", [False, True], ids=["", "dueling"])
@pytest.mark.parametrize("double", [False, True], ids=["", "double"])
@ENSEMBLES
def test_dqn_against_a_slow_twin(kind: str, double: bool, dueling: bool, weighted: bool) -> None:
    agent = make("dqn", critic=CRITICS[kind], double=double, dueling=dueling, max_norm=None)
    apart(agent)
    which, batch = choose(agent), batch_of("dqn", weighted=weighted)
    y = torch.tensor([[slow_target(agent, batch, which, m, b) for b in range(B)] for m in range(M)])
    out = q_of(agent.critics.online, batch["obs"])
    q = out[..., :1] + out[..., 1:] - out[..., 1:].mean(-1, keepdim=True) if dueling else out
    loss = []
    for m in range(M):
        w = batch["weight"][m] if weighted else torch.ones(B)
        taken = torch.stack([q[m, :, b, int(batch["action"][m, b])] for b in range(B)], 1)
        loss.append((w * F.huber_loss(taken, y[m].expand_as(taken), reduction="none")).sum(0).mean())
    (grad,) = torch.autograd.grad(sum(loss), agent.critics.online.params)
    metrics = agent.learn(batch)
    assert torch.allclose(agent.critics.online.params[0].grad, grad, atol=1e-6, rtol=1e-4)
    assert torch.allclose(metrics["critic"], torch.stack(loss), rtol=1e-4)


@WEIGHTED
@pytest.mark.parametrize("dueling", [False, True], ids=["", "dueling"])
@pytest.mark.parametrize("distribution", ["c51", "qr"])
@pytest.mark.parametrize("kind", ["one", "mean", "subset"])
def test_the_gradient_of_distributions_is_autograds(
    kind: str, distribution: str, dueling: bool, weighted: bool
) -> None:
    plan = {"distribution": distribution, "atoms": 7, "low": -3.0, "high": 3.0, "dueling": dueling, "double": True}
    agent, batch = make("dqn", critic=CRITICS[kind], max_norm=None, **plan), batch_of("dqn", weighted=weighted)
    apart(agent)
    choose(agent)
    target = agent._target(batch)
    returns = agent._returns(q_of(agent.critics.online, batch["obs"]))
    taken = torch.take_along_dim(returns, batch["action"][:, None, :, None, None], -2)[..., 0, :]
    loss, _ = agent._head.loss(taken, target)
    total = (loss * batch["weight"][:, None] if weighted else loss).sum(1).mean(1)
    (grad,) = torch.autograd.grad(total.sum(), agent.critics.online.params)
    metrics = agent.learn(batch)
    assert torch.allclose(agent.critics.online.params[0].grad, grad, atol=1e-6, rtol=1e-4)
    assert torch.allclose(metrics["critic"], total, rtol=1e-4)
    assert torch.allclose(metrics["error"], loss.mean(1), rtol=1e-4, atol=1e-6)


# ---- a user's own module


def own(n_in: int, n_out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_in, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, n_out))


def lend(mine: Towers, theirs: Towers) -> None:
    """Give a user's modules the weights of our networks."""
    for tower in range(mine.params[0].shape[1]):
        for i, layer in enumerate(layers(mine._net, mine.params[0], tower)):
            with torch.no_grad():
                theirs._net.named[f"{2 * i}.weight"][:, tower] = layer.weight
                theirs._net.named[f"{2 * i}.bias"][:, tower] = layer.bias[:, 0]


def networks(agent: Any) -> list[Towers]:
    names = ("policy", "policy_target")
    return [agent.critics.online, agent.critics.target, *(getattr(agent, n) for n in names if hasattr(agent, n))]


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_a_users_module_learns_what_our_network_of_the_same_weights_learns(name: str, members: int) -> None:
    plan = {"critic": CRITICS["subset"], "max_norm": 0.5, "tau": 0.3, "lr": 0.01}
    plan |= {"dqn": {"dueling": True, "distribution": "c51", "atoms": 5}, "redq": {"delay": 1}}.get(name, {})
    ours = make(name, members, **plan)
    users = make(name, members, net=NetSettings(module="algos.test_off_policy:own"), **plan)
    for mine, theirs in zip(networks(ours), networks(users), strict=True):
        lend(mine, theirs)
    for blocks in (ours.blocks, users.blocks):
        for key, block in blocks.items():  # the same dice, which making the networks had moved
            shape = block.next().shape[1:]
            numbers = draw(members, 4, *shape, seed=41)
            block.refill(numbers if key != "subset" else numbers.sigmoid())
    first = [net.params[0].detach().clone() for net in networks(users)]
    for step in range(3):
        batch = {key: x[:members] for key, x in batch_of(name, step).items()}
        found, expected = users.learn(batch), ours.learn(batch)
        for key in expected:
            assert torch.allclose(found[key], expected[key], atol=1e-5, rtol=1e-4), key
    for mine, theirs, before in zip(networks(ours), networks(users), first, strict=True):
        x = draw(members, 5, inputs(theirs), seed=51)
        assert torch.allclose(mine(x), theirs(x), atol=1e-5)
        assert gap({"0": before}, {"0": theirs.params[0]}) > 1e-4
    obs = draw(members, 4, 4)
    acts = [agent.act(obs, {}, explore=False)[0]["action"] for agent in (ours, users)]
    assert torch.allclose(acts[0].float(), acts[1].float(), atol=1e-5)


def inputs(towers: Towers) -> int:
    return int(towers._net.named["0.weight"].shape[-1])


def test_an_annealed_rate_takes_the_policys_own_along() -> None:
    genes = {"lr": torch.tensor([1e-3, 1e-3]), "policy_lr": torch.tensor([1e-2, float("inf")])}
    now = current(genes, ("lr",), torch.tensor([0.5, 0.0]))
    assert now["lr"].tolist() == pytest.approx([5e-4, 0]) and policy_rate(now).tolist() == pytest.approx([5e-3, 0])
