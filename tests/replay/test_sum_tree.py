"""The sum tree against a plain list."""

from __future__ import annotations

import bisect
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from podium.replay.sum_tree import BLOCK, SumTree, strata

CPU = torch.device("cpu")
ALMOST_1 = 1 - 2.0**-53


def tree_of(rows: list[list[float]]) -> SumTree:
    tree = SumTree(len(rows), len(rows[0]), CPU)
    tree.load(torch.tensor(rows))
    return tree


def drawn(row: list[float], u: list[float]) -> list[int]:
    """Which item each number points at, the i-th of B within the i-th part of the whole."""
    upto = list(itertools.accumulate(row))
    return [bisect.bisect_right(upto, (i + x) / len(u) * upto[-1]) for i, x in enumerate(u)]


def draws(tree: SumTree, u: Tensor) -> Tensor:
    """Items drawn with numbers in [0, 1); what else `sample` says of them is held to the leaves."""
    item, value, row = tree.sample(strata(u))
    assert torch.equal(value, tree.leaves.gather(1, item)) or value.isnan().any() or not value.all(1).all()
    blocks = tree.sums.shape[1]
    assert torch.equal((row % blocks)[value.view(-1) > 0], (item // BLOCK).view(-1)[value.view(-1) > 0])
    return item


SIZES = st.sampled_from([1, 2, 63, 64, 65, 200])


@given(st.data(), SIZES)
def test_draws_equal_those_of_a_list(data: st.DataObject, size: int) -> None:
    """Priorities and numbers are short binary fractions, so that both sides are exact."""
    priority = st.integers(0, 5).map(float)
    rows = data.draw(st.lists(st.lists(priority, min_size=size, max_size=size).filter(any), min_size=1, max_size=3))
    u = data.draw(st.lists(st.integers(0, 63).map(lambda k: k / 64), min_size=8, max_size=8))
    found = draws(tree_of(rows), torch.tensor([u] * len(rows), dtype=torch.float64))
    # The tree leaves out the last 1e-12 of the whole, which only numbers that are next to 1 could tell.
    assert found.tolist() == [drawn(row, u) for row in rows]


@given(st.data(), SIZES)
def test_nothing_of_priority_0_is_drawn_whatever_the_rounding(data: st.DataObject, size: int) -> None:
    priority = st.one_of(st.just(0.0), st.floats(2.0**-40, 2.0**40, width=32), st.just(0.1))
    row = data.draw(st.lists(priority, min_size=size, max_size=size).filter(any))
    u = data.draw(st.lists(st.one_of(st.sampled_from([0.0, ALMOST_1]), st.floats(0, ALMOST_1)), min_size=1, max_size=9))
    found = draws(tree_of([row]), torch.tensor([u], dtype=torch.float64))
    assert all(row[i] > 0 for i in found[0].tolist())


@pytest.mark.parametrize("members", [1, 40])
def test_nothing_of_priority_0_is_drawn_at_the_seam_of_two_blocks(members: int) -> None:
    """Numbers that point at the very end of each block, next to a leaf of 0 on either side, and at its neighbours."""
    p = torch.rand(members, 30, BLOCK, generator=torch.Generator().manual_seed(0)) ** 4
    p[..., 0] = p[..., -1] = 0
    tree = SumTree(members, 30 * BLOCK, CPU)
    tree.load(p.flatten(1))
    upto = tree.sums.cumsum(1)
    for k in range(30):
        seam = upto[:, k : k + 1] / upto[:, -1:]
        for u in (seam, seam * (1 - 2.0**-52), seam * (1 + 2.0**-52)):
            found = draws(tree, u.clamp(max=ALMOST_1))
            assert (tree.leaves.gather(1, found) > 0).all()


def test_nothing_of_priority_0_is_drawn_where_sums_are_added_up_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the cumulative sum of each block lies a little above what it holds, and its last leaf is 0."""
    tree = tree_of([[1.0] * (BLOCK - 1) + [0.0], [1.0] * (BLOCK - 1) + [0.0]])
    tree._in_order = False
    cumsum = torch.cumsum

    def rounded(x: Tensor, dim: int, out: Tensor) -> Tensor:
        return cumsum(x, dim, out=out).mul_(1 + 2.0**-30)

    monkeypatch.setattr(torch, "cumsum", rounded)
    item, value, _ = tree.sample(torch.full((2, 1), 1 - 2.0**-40, dtype=torch.float64))
    assert item.tolist() == [[BLOCK - 2]] * 2 and (value == 1).all()


@given(st.data(), SIZES)
def test_updates_keep_the_sums_exact(data: st.DataObject, size: int) -> None:
    tree, plain = SumTree(2, size, CPU), [[0.0] * size for _ in range(2)]
    value = st.floats(0, 1e6, width=32)
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            first = data.draw(st.integers(0, size - 1))
            count = data.draw(st.integers(1, size - first))
            values = data.draw(st.lists(value, min_size=2, max_size=2))
            tree.fill(first, count, torch.tensor(values)[:, None])
            for m in range(2):
                plain[m][first : first + count] = [values[m]] * count
        else:
            items = [data.draw(st.lists(st.integers(0, size - 1), min_size=5, max_size=5)) for _ in range(2)]
            values2 = [data.draw(st.lists(value, min_size=5, max_size=5)) for _ in range(2)]
            tree.update(torch.tensor(items), torch.tensor(values2))
            for m in range(2):
                for item, v in zip(items[m], values2[m], strict=True):  # of an item that comes twice the last value
                    plain[m][item] = v
        assert tree.leaves[:, :size].tolist() == plain
        sums = [[sum(row[k : k + BLOCK]) for k in range(0, size, BLOCK)] for row in plain]
        assert torch.allclose(tree.sums[:, :-1], torch.tensor(sums, dtype=torch.float64), rtol=1e-12, atol=0)
        again = SumTree(2, size, CPU)
        again.load(tree.leaves[:, :size])
        assert torch.equal(again.sums, tree.sums), "sums do not remember how they came about"


def test_draws_are_in_proportion() -> None:
    """χ² of a million draws over items in many blocks; 3 of its standard deviations."""
    p = torch.rand(2, 1000, generator=torch.Generator().manual_seed(0)) ** 3
    p[:, ::7] = 0
    tree = SumTree(2, 1000, CPU)
    tree.load(p)
    u = torch.rand(100, 2, 5000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for m in range(2):
        counts = torch.zeros(1000, dtype=torch.int64)
        for x in u:
            counts += draws(tree, x)[m].bincount(minlength=1000)
        expected = p[m].double() / p[m].double().sum() * 500_000
        assert not counts[expected == 0].any()
        some = expected > 0
        chi = ((counts - expected)[some] ** 2 / expected[some]).sum()
        n = float(some.sum() - 1)
        assert chi < n + 3 * (2 * n) ** 0.5  # strata make it smaller than n, never larger


def test_one_draw_from_each_part_of_the_whole() -> None:
    tree = tree_of([[1.0] * 640])
    found = draws(tree, torch.rand(1, 64, dtype=torch.float64))
    assert (found[0] // 10).tolist() == list(range(64))


def test_members_do_not_meet() -> None:
    rows = torch.rand(3, 100)
    ill = rows.clone()
    ill[1] = torch.nan
    u = torch.rand(3, 16, dtype=torch.float64)
    a, b = tree_of(rows.tolist()), SumTree(3, 100, CPU)
    b.load(ill)
    x, y = draws(a, u), draws(b, u)
    assert torch.equal(x[[0, 2]], y[[0, 2]])
    assert ((y >= 0) & (y < 100)).all(), "even then an index is an index"
    empty = draws(SumTree(1, 100, CPU), u[:1])
    assert ((empty >= 0) & (empty < 100)).all()


@pytest.mark.parametrize("items", [1, 64, 1000])
def test_memory_is_known_beforehand(items: int) -> None:
    assert SumTree(3, items, CPU).nbytes == SumTree.needed(3, items)
