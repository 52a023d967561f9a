"""Exploration: values stay in range, entries move apart from each other, and each operator has its known shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from podium.core.hyper import Gene
from podium.evolve.explore import Searched, Space, cross_unit, draw, mutate_unit, perturb, polynomial, resample, sbx

GENES = {
    "log": (Gene(1e-6, 1), 1e-4, 1e-2),
    "log from 0": (Gene(0, 1), 0.0, 0.1),
    "linear": (Gene(-1, 1, "linear"), -0.3, 0.7),
    "one-minus-log": (Gene(0, 1, "one-minus-log"), 0.9, 0.999),
    "one-minus-log to 1": (Gene(0, 1, "one-minus-log"), 0.5, 1.0),
    "int": (Gene(1, 64, "int"), 2, 30),
    "few": (Gene(1, 64, "int"), 1, 3),
    "choice": (Gene(2, 16, "choice", choices=(2, 4, 8, 16)), 2, 8),
    "point": (Gene(1e-6, 1), 1e-3, 1e-3),
    "whole point": (Gene(1, 64, "int"), 7, 7),
}
SPACE = Space([Searched(name, *rest) for name, rest in GENES.items()])
Change = Callable[[Tensor, Space, torch.Generator], Tensor]
CHANGES: dict[str, Change] = {
    "perturb": perturb,
    "perturb far": partial(perturb, factors=(0.01, 1.0, 50.0)),
    "resample": partial(resample, probability=0.5),
    "polynomial": partial(polynomial, eta=1.0, probability=1.0),
    "sbx": lambda values, space, rng: sbx(values, values.flip(0), space, rng, eta=1.0),
}
seeds = st.integers(0, 2**32)


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def of(*names: str) -> Space:
    return Space([Searched(name, *GENES[name]) for name in names])


def column(value: float, n: int = 1000) -> Tensor:
    return torch.full((n, 1), value, dtype=torch.float64)


def inside(values: Tensor) -> None:
    assert values.dtype == torch.float64
    assert ((values >= SPACE.low) & (values <= SPACE.high)).all()
    short = values.float()  # as members keep them
    assert ((short >= SPACE.low.float()) & (short <= SPACE.high.float())).all()
    for i, (gene, _, _) in enumerate(GENES.values()):
        assert gene.scale != "int" or torch.equal(values[:, i], values[:, i].round())
        assert all(v in gene.choices for v in values[:, i].tolist()) or gene.scale != "choice"


@pytest.mark.parametrize("name", CHANGES)
@given(seed=seeds)
def test_values_stay_in_range_and_are_not_changed_in_place(name: str, seed: int) -> None:
    rng = dice(seed)
    values = draw(7, SPACE, rng)
    values[0], values[1] = SPACE.low, SPACE.high  # the corners
    before = values.clone()
    inside(values)
    for _ in range(3):
        again = CHANGES[name](values, SPACE, rng)
        assert again.shape == values.shape and torch.equal(values, before)
        inside(again)
        values, before = again, again.clone()


@pytest.mark.parametrize("name", CHANGES)
def test_the_same_dice_give_the_same_values(name: str) -> None:
    values = draw(7, SPACE, dice())
    first, second = (CHANGES[name](values, SPACE, dice(3)) for _ in range(2))
    assert torch.equal(first, second) and not torch.equal(first, CHANGES[name](values, SPACE, dice(4)))


def test_the_ends_of_the_unit_are_the_ends_of_the_range() -> None:
    corners = SPACE.from_unit(torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, len(SPACE)))
    inside(corners)
    assert torch.allclose(corners, torch.stack([SPACE.low, SPACE.high]), rtol=1e-12)


@pytest.mark.parametrize("name", CHANGES)
def test_no_gene_and_no_row(name: str) -> None:
    assert CHANGES[name](torch.zeros(3, 0, dtype=torch.float64), Space([]), dice()).shape == (3, 0)
    assert CHANGES[name](draw(0, SPACE, dice()), SPACE, dice()).shape == (0, len(SPACE))


def test_float32_values_may_come_back() -> None:
    values = draw(50, SPACE, dice()).float().double()
    values[0], values[1] = SPACE.low.float().double(), SPACE.high.float().double()
    for change in CHANGES.values():
        inside(change(values, SPACE, dice()))


def test_draw_is_uniform_on_the_scale_of_each_gene() -> None:
    names = ("log", "log from 0", "linear", "one-minus-log", "one-minus-log to 1")
    values = draw(4000, of(*names), dice())
    for name, x in zip(names, values.T, strict=True):
        gene, low, high = GENES[name]
        assert stats.kstest(gene.place(low, high, x).numpy(), "uniform").pvalue > 1e-3, name
    whole = draw(6000, of("few", "choice"), dice())
    for x, expected in zip(whole.T, ([1, 2, 3], [2, 4, 8]), strict=True):
        found, counts = x.unique(return_counts=True)
        assert found.tolist() == expected and counts.tolist() == pytest.approx([2000] * 3, rel=0.1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("log", 1e-3, {8e-4, 1.25e-3}),
        ("log", 9e-3, {7.2e-3, 1e-2}),
        ("one-minus-log", 0.99, {0.992, 0.9875}),
        ("one-minus-log", 0.9, {0.92, 0.9}),
        ("linear", 0.1, {-0.1, 0.35}),
        ("log from 0", 0.05, {0.03, 0.075}),
        ("one-minus-log to 1", 0.75, {0.65, 0.875}),
        ("int", 10, {4, 17}),  # a span of 28: 5.6 down, 7 up
        ("few", 2, {1, 3}),  # a span of 2 would be 0.4 down
        ("few", 3, {2, 3}),
        ("choice", 4, {2, 8}),
        ("choice", 8, {4, 8}),
        ("point", 1e-3, {1e-3}),
    ],
)
def test_perturb(name: str, value: float, expected: set[float]) -> None:
    found, counts = perturb(column(value), of(name), dice()).unique(return_counts=True)
    assert sorted(found.tolist()) == pytest.approx(sorted(expected))
    assert len(expected) == 1 or counts.tolist() == pytest.approx([500, 500], rel=0.15)


def test_a_factor_of_one_moves_nothing() -> None:
    values = draw(20, SPACE, dice())
    assert torch.equal(perturb(values, SPACE, dice(), factors=(1.0,)), values)


@pytest.mark.parametrize("name", CHANGES)
def test_every_entry_is_a_draw_of_its_own(name: str) -> None:
    """No two genes of a row, and no two rows of a gene, move together."""
    space, n = of(*["linear"] * 4), 6000
    values = torch.rand(n, 4, generator=dice(), dtype=torch.float64) * 0.2 + 0.1
    moved = (CHANGES[name](values, space, dice(1)) - values).sign()
    if name == "sbx":  # a child lies between its parents or beyond, so compare with where the other one is
        moved = moved * (values.flip(0) - values).sign()
    together = torch.corrcoef(moved.T) - torch.eye(4)
    assert together.abs().max() < 0.06
    neighbours = torch.corrcoef(torch.stack([moved[:-1, 0], moved[1:, 0]]))[0, 1]
    assert abs(neighbours) < 0.06


def test_resample_draws_a_share_anew() -> None:
    space = of("linear", "log")
    values = column(0.2, 4000) * torch.tensor([1.0, 0.01])
    changed = resample(values, space, dice(), 0.25) != values
    assert changed.double().mean(0).tolist() == pytest.approx([0.25, 0.25], abs=0.03)
    assert torch.equal(resample(values, space, dice(), 0.0), values)


# ---- the operators of NSGA-II on numbers in [0, 1]


def test_sbx_spreads_as_its_density_says() -> None:
    """Far from the bounds β = |child - middle| / half the distance has P(β <= 1) = 1/2 and P(β <= x) = x^(η+1) / 2."""
    a, b, eta = column(0.49, 40_000), column(0.51, 40_000), 4.0
    child = cross_unit(a, b, dice(), eta)[:, 0]
    crossed = child[child != 0.49]
    assert len(crossed) / len(child) == pytest.approx(0.5, abs=0.01)  # half of the entries
    assert (crossed > 0.5).double().mean() == pytest.approx(0.5, abs=0.015)  # near a or near b
    beta = (crossed - 0.5).abs() / 0.01
    for x in (0.7, 0.9, 1.0):
        assert (beta <= x).double().mean() == pytest.approx(0.5 * x ** (eta + 1), abs=0.015)
    for x in (1.2, 1.6):
        assert (beta > x).double().mean() == pytest.approx(0.5 / x ** (eta + 1), abs=0.015)


def test_sbx_near_a_bound_keeps_its_density_inside() -> None:
    for bound in (0.0, 1.0):
        child = cross_unit(column(0.4, 4000), column(bound, 4000), dice(), eta=2.0)[:, 0]
        crossed = child[child != 0.4]
        assert ((crossed >= 0) & (crossed <= 1)).all()
        assert ((crossed - bound).abs() < 1e-3).double().mean() < 0.02  # not heaped up on the bound
    assert cross_unit(column(0.3), column(0.3), dice()).unique().tolist() == [0.3]


def test_sbx_crosses_a_share_of_the_pairs_as_a_whole() -> None:
    a, b = torch.zeros(4000, 12, dtype=torch.float64) + 0.2, torch.zeros(4000, 12, dtype=torch.float64) + 0.6
    same = (cross_unit(a, b, dice(), probability=0.3) == a).all(1)
    assert same.double().mean() == pytest.approx(0.7, abs=0.03)


def test_polynomial_mutation_steps_as_its_density_says() -> None:
    """From the middle: P(|step| <= d) = 1 - ((1 - d)^(η+1) - c) / (1 - c), c = (1 - room)^(η+1)."""
    u, eta = column(0.5, 40_000), 5.0
    step = (mutate_unit(u, dice(), eta, probability=1.0) - u)[:, 0]
    assert (step > 0).double().mean() == pytest.approx(0.5, abs=0.01)
    c = 0.5 ** (eta + 1)
    for d in (0.05, 0.1, 0.2):
        share = 1 - ((1 - d) ** (eta + 1) - c) / (1 - c)
        assert (step.abs() <= d).double().mean() == pytest.approx(share, abs=0.015)
    for corner in (0.0, 1.0):
        moved = mutate_unit(column(corner), dice(), eta, 1.0)
        assert ((moved >= 0) & (moved <= 1)).all() and len(moved.unique()) > 400  # half of them find room


def test_polynomial_mutates_one_entry_of_a_row_on_average() -> None:
    u = torch.full((4000, 8), 0.5, dtype=torch.float64)
    assert (mutate_unit(u, dice()) != u).double().sum(1).mean() == pytest.approx(1.0, abs=0.06)


def test_both_act_on_the_scale_of_the_gene() -> None:
    """Around 1e-3 a step of the same odds is as far up as down, as a factor."""
    near = polynomial(column(1e-3, 8000), of("log"), dice(), probability=1.0)[:, 0]
    assert (near / 1e-3).log().mean() == pytest.approx(0, abs=0.02 * math.log(100))
    child = sbx(column(1e-4, 8000), column(1e-2, 8000), of("log"), dice(), eta=1.0)[:, 0]
    crossed = child[child > 1.0001e-4]
    assert crossed.log().mean().exp() == pytest.approx(1e-3, rel=0.1)
