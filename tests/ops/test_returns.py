"""Returns and advantages against slow twins, written as the papers write them: one member, env and step at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from podium.ops.returns import discounted, gae, n_step, standardise

M, T, E = 3, 9, 4


def rollout(seed: int = 0, ends: float = 0.3) -> tuple[Tensor, ...]:
    """Random reward, value, next_value, terminated, done, discount, lam."""
    g = torch.Generator().manual_seed(seed)
    reward, value, next_value = torch.randn(3, M, T, E, generator=g)
    u = torch.rand(M, T, E, generator=g)
    terminated = u < ends / 2
    discount, lam = 0.5 + 0.5 * torch.rand(2, M, generator=g)
    return reward, value, next_value, terminated, u < ends, discount, lam


def slow_gae(reward, value, next_value, terminated, done, discount, lam) -> Tensor:
    """A_t = sum_l (gamma lambda)^l delta_{t+l}, up to the episode's end (eq. 16 of Schulman et al. 2016)."""
    out = torch.zeros(M, T, E, dtype=torch.float64)
    for m in range(M):
        gamma, lm = float(discount[m]), float(lam[m])
        for e in range(E):
            for t in range(T):
                total, factor = 0.0, 1.0
                for k in range(t, T):
                    bootstrap = 0.0 if terminated[m, k, e] else float(next_value[m, k, e])
                    total += factor * (float(reward[m, k, e]) + gamma * bootstrap - float(value[m, k, e]))
                    factor *= gamma * lm
                    if done[m, k, e]:
                        break
                out[m, t, e] = total
    return out


def slow_n_step(reward, next_value, terminated, done, discount, n) -> Tensor:
    out = torch.zeros(M, T, E, dtype=torch.float64)
    for m in range(M):
        gamma = float(discount[m])
        for e in range(E):
            for t in range(T):
                k, total = t, float(reward[m, t, e])
                while k + 1 < min(t + n, T) and not done[m, k, e]:
                    k += 1
                    total += gamma ** (k - t) * float(reward[m, k, e])
                if not terminated[m, k, e]:
                    total += gamma ** (k - t + 1) * float(next_value[m, k, e])
                out[m, t, e] = total
    return out


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.9]))
def test_gae_equals_its_slow_twin(seed: int, ends: float) -> None:
    args = rollout(seed, ends)
    before = [x.clone() for x in args]
    assert torch.allclose(gae(*args).double(), slow_gae(*args), atol=1e-5)
    assert all(torch.equal(x, y) for x, y in zip(args, before, strict=True)), "an argument was written to"


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3, 5, 9, 50]))
def test_n_step_equals_its_slow_twin(seed: int, n: int) -> None:
    reward, _, next_value, terminated, done, discount, _ = rollout(seed)
    expected = slow_n_step(reward, next_value, terminated, done, discount, n)
    assert torch.allclose(n_step(reward, next_value, terminated, done, discount, n).double(), expected, atol=1e-5)


def test_lambda_0_is_the_td_error() -> None:
    reward, value, next_value, terminated, done, discount, _ = rollout(1)
    td = reward + discount[:, None, None] * next_value * ~terminated - value
    assert torch.allclose(gae(reward, value, next_value, terminated, done, discount, torch.zeros(M)), td, atol=1e-6)


def test_lambda_1_is_monte_carlo_minus_the_value() -> None:
    """With next values that are the values of the next step, all of them but the last cancel."""
    reward, value, _, terminated, done, discount, _ = rollout(2)
    next_value = torch.cat([value[:, 1:], torch.randn(M, 1, E)], 1)
    terminated = done  # no truncation: a bootstrap inside the rollout would stay
    advantage = gae(reward, value, next_value, terminated, done, discount, torch.ones(M))
    returns = n_step(reward, next_value, terminated, done, discount, T)
    assert torch.allclose(advantage, returns - value, atol=1e-5)


def test_gae_is_a_mixture_of_n_step_returns() -> None:
    """(1 - lambda) sum_n lambda^(n-1) G^(n), the definition of the lambda-return, of an episode without an end."""
    reward, value, _, _, _, discount, lam = rollout(3)
    never = torch.zeros(M, T, E, dtype=torch.bool)
    next_value = torch.cat([value[:, 1:], torch.randn(M, 1, E)], 1)
    g = [n_step(reward, next_value, never, never, discount, n)[:, 0] for n in range(1, T + 1)]
    lm = lam[:, None]
    mixture = sum((1 - lm) * lm**i * g[i] for i in range(T - 1)) + lm ** (T - 1) * g[-1]
    advantage = gae(reward, value, next_value, never, never, discount, lam)
    assert torch.allclose(advantage[:, 0], mixture - value[:, 0], atol=1e-5)


@pytest.mark.parametrize("t", [0, 4, T - 1])
def test_termination_does_not_bootstrap_and_truncation_does(t: int) -> None:
    reward, value, next_value, _, _, discount, lam = rollout(4)
    no, end = torch.zeros(M, T, E, dtype=torch.bool), torch.zeros(M, T, E, dtype=torch.bool)
    end[:, t] = True
    terminated = gae(reward, value, next_value, end, end, discount, lam)[:, t]
    truncated = gae(reward, value, next_value, no, end, discount, lam)[:, t]
    assert torch.allclose(terminated, reward[:, t] - value[:, t], atol=1e-6)
    expected = reward[:, t] + discount[:, None] * next_value[:, t] - value[:, t]
    assert torch.allclose(truncated, expected, atol=1e-6)


def test_what_lies_behind_a_termination_is_never_read() -> None:
    reward, value, next_value, terminated, done, discount, lam = rollout(5)
    hidden = next_value.masked_fill(terminated, torch.nan)
    assert gae(reward, value, hidden, terminated, done, discount, lam).isfinite().all()
    assert n_step(reward, hidden, terminated, done, discount, 3).isfinite().all()


def test_discounted_equals_its_slow_twin_across_rollouts() -> None:
    reward, _, _, _, done, discount, _ = rollout(6)
    carried = torch.randn(M, E)
    expected, last = torch.zeros(M, T, E), carried.clone()
    for m in range(M):
        for e in range(E):
            total = float(carried[m, e])
            for t in range(T):
                total = float(discount[m]) * total + float(reward[m, t, e])
                expected[m, t, e] = total
                total = 0.0 if done[m, t, e] else total
            last[m, e] = total
    sums, carry = discounted(reward, done, discount, carried)
    assert torch.allclose(sums, expected, atol=1e-5)
    assert torch.allclose(carry, last, atol=1e-5)
    first, middle = discounted(reward[:, :4], done[:, :4], discount, carried)
    second, end = discounted(reward[:, 4:], done[:, 4:], discount, middle)
    assert torch.equal(torch.cat([first, second], 1), sums)
    assert torch.equal(end, carry)


def test_members_do_not_meet() -> None:
    args = rollout(7)
    poisoned = [x.clone() for x in args]
    for x in (poisoned[0], poisoned[1], poisoned[2], poisoned[5], poisoned[6]):
        x[1] = torch.nan
    others = torch.tensor([0, 2])
    assert torch.equal(gae(*poisoned)[others], gae(*args)[others])
    x = torch.randn(M, 20)
    y = x.clone()
    y[1] = torch.nan
    assert torch.equal(standardise(y)[others], standardise(x)[others])


def test_standardise() -> None:
    x = torch.randn(M, 50) * torch.tensor([[0.1], [3.0], [100.0]]) + torch.tensor([[5.0], [-1.0], [0.0]])
    y = standardise(x)
    assert torch.allclose(y.mean(1), torch.zeros(M), atol=1e-5)
    assert torch.allclose(y.std(1), torch.ones(M), atol=1e-5)
    for m in range(M):
        assert torch.allclose(y[m], (x[m] - x[m].mean()) / (x[m].std() + 1e-8), atol=1e-5)
    assert torch.equal(standardise(x[:, :1]), x[:, :1]), "one number has no standard deviation"
    assert not standardise(torch.full((M, 6), 2.5)).any()
