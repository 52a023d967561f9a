"""Fronts and crowding against their definitions, written slowly."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from podium.evolve.pareto import crowding, dominates, fronts, parents, survive

INF, NAN = math.inf, math.nan
# Small whole numbers make ties and copies likely.
number = st.integers(-3, 3).map(float) | st.floats(-1e6, 1e6)
spoilt = number | st.sampled_from([NAN, INF, -INF])


def tables(entry: st.SearchStrategy[float]) -> st.SearchStrategy[Tensor]:
    def of(K: int) -> st.SearchStrategy[list[list[float]]]:
        return st.lists(st.lists(entry, min_size=K, max_size=K), min_size=1, max_size=14)

    return st.integers(1, 4).flatmap(of).map(lambda rows: torch.tensor(rows, dtype=torch.float64))


def beats(a: list[float], b: list[float]) -> bool:
    return all(x >= y for x, y in zip(a, b, strict=True)) and a != b


def slow_fronts(objectives: Tensor) -> list[int]:
    """Take away what nobody left beats, and begin again."""
    rows, rank, front = objectives.tolist(), [-1] * len(objectives), 0
    left = {i for i, row in enumerate(rows) if all(map(math.isfinite, row))}
    spoilt = set(range(len(rows))) - left
    while left:
        free = {i for i in left if not any(beats(rows[j], rows[i]) for j in left)}
        for i in free:
            rank[i] = front
        left, front = left - free, front + 1
    for i in spoilt:
        rank[i] = front
    return rank


def slow_crowding(objectives: Tensor, rank: list[int]) -> list[float]:
    """Front by front and objective by objective, as the paper has it; a copy of an earlier row does not count."""
    rows, out = objectives.tolist(), [0.0] * len(objectives)
    for front in set(rank):
        alive = [i for i in range(len(rows)) if rank[i] == front and all(map(math.isfinite, rows[i]))]
        alive = [i for i in alive if rows[i] not in rows[:i]]
        for k in range(objectives.shape[1]):
            order = sorted(alive, key=lambda i: (rows[i][k], i))
            for before, i, after in zip(order, order[1:], order[2:], strict=False):
                span = rows[order[-1]][k] - rows[order[0]][k]
                out[i] += (rows[after][k] - rows[before][k]) / span if span > 0 else 0
            for i in order[:1] + order[-1:]:
                out[i] = INF
    return out


@given(tables(number), st.integers(0, 100))
def test_dominates(objectives: Tensor, seed: int) -> None:
    other = objectives[torch.randperm(len(objectives), generator=torch.Generator().manual_seed(seed))]
    found = dominates(objectives, other)
    assert found.tolist() == [beats(a, b) for a, b in zip(objectives.tolist(), other.tolist(), strict=True)]


@given(tables(spoilt))
def test_fronts_equal_the_slow_ones(objectives: Tensor) -> None:
    assert fronts(objectives).tolist() == slow_fronts(objectives)


@given(tables(number))
def test_a_front_has_no_dominated_point_and_each_is_beaten_by_the_one_before(objectives: Tensor) -> None:
    rank = fronts(objectives)
    beaten = dominates(objectives.unsqueeze(1), objectives)  # [by, whom]
    for front in range(int(rank.max()) + 1):
        inside = rank == front
        assert inside.any() and not beaten[inside][:, inside].any()
        if front:
            assert beaten[rank == front - 1][:, inside].any(0).all()


@given(tables(spoilt))
def test_crowding_equals_the_slow_one(objectives: Tensor) -> None:
    rank = fronts(objectives)
    assert crowding(objectives, rank).tolist() == pytest.approx(slow_crowding(objectives, rank.tolist()))


def test_crowding_by_hand() -> None:
    line = torch.tensor([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0], [1.0, 3.0], [0.0, 0.0]])
    rank = fronts(line)
    assert rank.tolist() == [0, 0, 0, 0, 0, 1]
    assert crowding(line, rank).tolist() == [INF, 1.5, 1.5, INF, 0.0, INF]  # the fifth is a copy, the last alone
    flat = torch.tensor([[0.0, 2.0, 5.0], [1.0, 1.0, 5.0], [2.0, 0.0, 5.0]])
    assert crowding(flat, fronts(flat)).tolist() == [INF, 2.0, INF]  # an objective that is the same for all adds 0


def test_rows_that_are_not_finite_keep_their_order() -> None:
    spoilt = torch.full((3, 2), NAN)
    assert fronts(spoilt).tolist() == [0, 0, 0] and crowding(spoilt, fronts(spoilt)).tolist() == [0, 0, 0]
    assert survive(spoilt, 2).tolist() == [0, 1]
    assert survive(torch.tensor([[INF, 1.0], [0.0, 0.0], [NAN, 5.0]]), 3).tolist() == [1, 0, 2]


@given(tables(spoilt), st.integers(0, 14))
def test_survivors_are_whole_fronts_and_the_least_crowded_of_one(objectives: Tensor, n: int) -> None:
    n = min(n, len(objectives))
    kept, rank = survive(objectives, n).tolist(), slow_fronts(objectives)
    room = slow_crowding(objectives, rank)
    assert len(kept) == len(set(kept)) == n
    assert [rank[i] for i in kept] == sorted(rank)[:n]
    if n:
        last = rank[kept[-1]]
        assert {i for i, r in enumerate(rank) if r < last} <= set(kept)
        gone = [room[i] for i in range(len(rank)) if rank[i] == last and i not in kept]
        assert min(room[i] for i in kept if rank[i] == last) >= max(gone, default=0.0) - 1e-9


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_the_order_of_rows_does_not_matter(seed: int, K: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    objectives = torch.rand(30, K, generator=rng, dtype=torch.float64)  # without ties
    shuffle = torch.randperm(30, generator=rng)
    rank = fronts(objectives)
    assert torch.equal(fronts(objectives[shuffle]), rank[shuffle])
    assert torch.allclose(crowding(objectives[shuffle], rank[shuffle]), crowding(objectives, rank)[shuffle])
    inner = crowding(objectives, rank).isfinite()  # ends of a front tie, at infinity
    ours, theirs = survive(objectives, 30), shuffle[survive(objectives[shuffle], 30)]
    assert torch.equal(ours[inner[ours]], theirs[inner[theirs]])


@pytest.mark.parametrize("scale", [1e-3, 1e5])
def test_crowding_knows_no_units(scale: float) -> None:
    objectives = torch.rand(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rank = fronts(objectives)
    scaled = objectives * torch.tensor([1.0, scale, 1 / scale]) + 7
    assert torch.allclose(crowding(scaled, rank), crowding(objectives, rank))


def test_parents_win_duels_and_all_fight_equally_often() -> None:
    rng = torch.Generator().manual_seed(0)
    rank, room = torch.tensor([1, 0, 0, 2]), torch.tensor([INF, 0.5, INF, INF])
    won = parents(rank, room, 4000, rng).bincount(minlength=4) / 4000
    assert won.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2, 0], abs=0.03)  # best: 2, 1, 0, 3; pairs differ
    assert parents(torch.zeros(1), torch.zeros(1), 3, rng).tolist() == [0, 0, 0]
    for count in (0, 1, 5):
        assert parents(rank, room, count, rng).shape == (count,)
    even = parents(torch.arange(50), torch.zeros(50), 50, rng)
    assert (even.bincount(minlength=50)[:1] == 2).all()  # the best is in two duels of fifty, and wins both
