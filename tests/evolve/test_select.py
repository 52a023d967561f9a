"""Selection: what holds for every rule, what each rule does, and Welch's test against SciPy's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from podium.evolve import select

NAN, INF = math.nan, math.inf


def by_t_test(fitness: Tensor, rng: torch.Generator, n: int = 4) -> Tensor:
    """Returns that all equal the fitness: any difference is significant."""
    return select.t_test(fitness.unsqueeze(1).expand(-1, n), rng)


RULES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "winner takes all": select.winner_takes_all,
    "truncation": select.truncation,
    "truncation by half": partial(select.truncation, fraction=0.5),
    "tournament": select.tournament,
    "tournament of five": partial(select.tournament, size=5),
    "t-test": by_t_test,
    "t-test of one return": partial(by_t_test, n=1),
    "softmax": select.softmax,
    "softmax alone": partial(select.softmax, worst_copies_best=False, strictly_better=False),
}
fitnesses = st.lists(st.floats(width=32) | st.sampled_from([0.0, 1.0, 2.0, NAN, INF, -INF]), min_size=1, max_size=12)
seeds = st.integers(0, 2**32)


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def best_of(fitness: list[float]) -> int | None:
    """The first of the largest finite numbers, the slow way."""
    known = [i for i, f in enumerate(fitness) if math.isfinite(f)]
    return min(known, key=lambda i: (-fitness[i], i)) if known else None


@given(fitnesses)
def test_ranking(fitness: list[float]) -> None:
    order = select.ranking(torch.tensor(fitness)).tolist()
    known = [i for i, f in enumerate(fitness) if math.isfinite(f)]
    failed = [i for i, f in enumerate(fitness) if not math.isfinite(f)]
    assert order == sorted(known, key=lambda i: (-fitness[i], i)) + failed


@pytest.mark.parametrize("rule", RULES)
@given(fitness=fitnesses, seed=seeds)
def test_every_rule(rule: str, fitness: list[float], seed: int) -> None:
    given_in = torch.tensor(fitness)
    before = given_in.clone()
    found = RULES[rule](given_in, dice(seed))
    assert found.shape == (len(fitness),) and found.dtype == torch.int64
    assert torch.equal(given_in, before) or given_in.isnan().any()
    assert torch.equal(found, RULES[rule](given_in, dice(seed)))  # the same dice, the same parents
    parents, best = found.tolist(), best_of(fitness)
    if best is None:
        assert parents == list(range(len(fitness)))
        return
    assert parents[best] == best
    for row, parent in enumerate(parents):
        assert math.isfinite(fitness[parent])  # so a row that failed is replaced
        if math.isfinite(fitness[row]) and rule not in ("softmax alone",):
            assert fitness[parent] >= fitness[row]


def test_winner_takes_all() -> None:
    assert select.winner_takes_all(torch.tensor([1.0, 3.0, NAN, 3.0]), dice()).tolist() == [1, 1, 1, 1]


@given(st.lists(st.integers(0, 5).map(float) | st.just(NAN), min_size=2, max_size=20), st.floats(0.05, 1), seeds)
def test_truncation(fitness: list[float], fraction: float, seed: int) -> None:
    M = len(fitness)
    k = max(1, math.floor(fraction * M + 1e-9))
    order = select.ranking(torch.tensor(fitness)).tolist()
    healthy = [i for i in order if math.isfinite(fitness[i])]
    parents = select.truncation(torch.tensor(fitness), dice(seed), fraction).tolist()
    if not healthy:
        return
    replaced = (set(order[M - k :]) | {i for i in order if i not in healthy}) - set(healthy[:k])
    for row, parent in enumerate(parents):
        assert parent in healthy[:k] if row in replaced else parent == row


def test_truncation_of_a_tie_and_of_a_share_that_is_hard_to_write() -> None:
    assert select.truncation(torch.tensor([0.5, 0.5]), dice(), fraction=0.5).tolist() == [0, 0]
    fitness = torch.arange(100.0)
    assert int((select.truncation(fitness, dice(), 0.29) != torch.arange(100)).sum()) == 29


def test_truncation_takes_each_of_the_best_equally_often() -> None:
    rng, fitness = dice(), torch.arange(16.0)
    drawn = Counter(p for _ in range(500) for p in select.truncation(fitness, rng)[:4].tolist())
    assert drawn.keys() == {12, 13, 14, 15} and all(abs(n / 2000 - 0.25) < 0.04 for n in drawn.values())


def test_tournament_copies_the_best_it_meets() -> None:
    fitness, rng = torch.arange(8.0), dice()
    everyone = select.tournament(fitness, rng, size=8)
    assert everyone.tolist() == [7] * 8  # all meet all
    assert select.tournament(fitness, rng, size=99).tolist() == [7] * 8
    met = Counter(select.tournament(fitness, rng)[0].item() for _ in range(2000))
    assert met.keys() == set(range(1, 8))  # the worst copies whomever it meets, and never meets itself
    assert all(abs(n / 2000 - 1 / 7) < 0.03 for n in met.values())
    assert select.tournament(torch.ones(6), rng).tolist() == list(range(6))  # equal is not better
    tied = torch.tensor([0.0, 5.0, 5.0, 5.0])
    assert select.tournament(tied, rng, size=4).tolist() == [1, 1, 2, 3]


def test_t_test_copies_only_what_is_surely_better() -> None:
    rng = dice()
    noise = torch.randn(2, 30, generator=rng)
    assert select.t_test(noise + torch.tensor([[0.0], [0.01]]), rng).tolist() == [0, 1]
    assert select.t_test(noise + torch.tensor([[0.0], [3.0]]), rng).tolist() == [1, 1]
    assert select.t_test(noise[:, :1] + torch.tensor([[0.0], [3.0]]), rng).tolist() == [0, 1]
    failed = noise.clone()
    failed[1, 7] = NAN  # one bad episode is enough
    assert select.t_test(failed, rng).tolist() == [0, 0]
    assert select.t_test(failed[:, 7:8], rng).tolist() == [0, 0]
    p = select.welch(noise[0], noise[1] + 0.3).item()
    shifted = noise + torch.tensor([[0.0], [0.3]])
    for alpha in (p * 0.99, p * 1.01):
        assert select.t_test(shifted, rng, alpha).tolist() == ([1, 1] if alpha > p else [0, 1])


@given(seeds, st.integers(2, 40), st.integers(2, 40), st.floats(0.01, 100), st.floats(0, 8))
def test_welch_equals_scipy(seed: int, n: int, m: int, scale: float, apart: float) -> None:
    rng = dice(seed)
    a = torch.randn(5, n, generator=rng, dtype=torch.float64)
    b = torch.randn(5, m, generator=rng, dtype=torch.float64) * scale + apart
    expected = stats.ttest_ind(a.numpy(), b.numpy(), axis=1, equal_var=False).pvalue
    assert select.welch(a, b).tolist() == pytest.approx(expected.tolist(), abs=1e-11)


@pytest.mark.parametrize("df", [1, 1.5, 2, 7, 59, 61, 1e3, 1e5])
def test_tails_equal_scipy(df: float) -> None:
    t = torch.cat([torch.zeros(1), torch.logspace(-4, 6, 300)]).double()
    expected = 2 * stats.t.sf(t.numpy(), df)
    assert select.tails(t, torch.full_like(t, df)).tolist() == pytest.approx(expected.tolist(), abs=1e-9)


def test_welch_without_variance_and_without_evidence() -> None:
    flat = torch.tensor([[1.0] * 5, [2.0] * 5])
    assert select.welch(flat, flat.flip(0)).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert select.welch(flat, flat).tolist() == [1, 1]
    assert select.welch(flat[:, :1], flat.flip(0)).tolist() == [1, 1]
    varies = torch.tensor([1.0, 2.0, 4.0])  # against a constant it is the test of one sample
    alone = stats.ttest_1samp(varies.numpy(), 1.0).pvalue
    assert select.welch(torch.ones(3), varies).item() == pytest.approx(alone)


def test_chances() -> None:
    fitness = torch.tensor([1.0, NAN, 4.0, 2.0, -INF])
    known = torch.tensor([1.0, 4.0, 2.0], dtype=torch.float64)
    p = ((known - known.mean()) / (known.std(correction=0) + 1e-6)).exp() + 1e-6
    found = select.chances(fitness)
    assert torch.allclose(found[[0, 2, 3]], p / p.sum()) and found[[1, 4]].tolist() == [0, 0]
    assert select.chances(torch.full((3,), NAN)).tolist() == [0, 0, 0]
    assert select.chances(torch.tensor([7.0])).tolist() == [1]
    assert torch.allclose(select.chances(torch.full((4,), 3.0)), torch.full((4,), 0.25).double())
    spike = select.chances(torch.zeros(20_000).index_fill_(0, torch.tensor([5]), 1.0))
    assert spike.isfinite().all() and spike[5] > 0.99


def test_softmax_draws_by_its_chances() -> None:
    fitness, rng = torch.tensor([1.0, 4.0, 2.0, NAN]), dice()
    alone = partial(select.softmax, worst_copies_best=False, strictly_better=False)
    drawn = torch.stack([alone(fitness, rng) for _ in range(4000)])
    for row in (0, 2, 3):
        share = drawn[:, row].bincount(minlength=4) / 4000
        assert torch.allclose(share.double(), select.chances(fitness), atol=0.03)
    assert (drawn[:, 1] == 1).all()


def test_softmax_lets_the_worst_copy_the_best_and_others_only_the_better() -> None:
    fitness, rng = torch.tensor([1.0, 4.0, 2.0, 2.0]), dice()
    for _ in range(50):
        parents = select.softmax(fitness, rng).tolist()
        assert parents[:2] == [1, 1] and parents[2] in (1, 2) and parents[3] in (1, 3)
    assert select.softmax(torch.ones(5), rng).tolist() == [0, 1, 2, 3, 0]
    assert {select.softmax(fitness, rng, worst_copies_best=False)[0].item() for _ in range(200)} == {0, 1, 2, 3}
