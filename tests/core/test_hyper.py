"""Genes: how they are written, checked and drawn."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import BaseModel, ValidationError

from podium.core import hyper
from podium.core.errors import ConfigError
from podium.core.hyper import Gene, GeneValue, gene


class Settings(BaseModel):
    lr: GeneValue = gene(1e-3, 1e-6, 1.0)
    discount: GeneValue = gene(0.99, 0.5, 0.9999, "one-minus-log", most=1)
    target: GeneValue = gene(None, 0.1, 1.0, optional=True)
    count: GeneValue = gene(3, 1, 8, "int", least=1)
    size: GeneValue = gene(2, 2, 8, "choice", choices=(2, 4, 8))
    plan: int = 5


def test_genes_are_the_declared_ones() -> None:
    assert list(hyper.genes(Settings)) == ["lr", "discount", "target", "count", "size"]
    assert hyper.genes(Settings())["lr"] == Gene(1e-6, 1.0)


def test_fixed_each_and_drawn() -> None:
    values = hyper.values(Settings(lr={"each": [0.1, 0, 0.3]}, discount=[0.9, 0.99]), seed=0, ids=[0, 1, 2])
    assert values["lr"].tolist() == pytest.approx([0.1, 0, 0.3])
    assert values["target"].tolist() == [math.inf] * 3 and values["count"].tolist() == [3] * 3
    drawn = values["discount"]
    assert len(set(drawn.tolist())) == 3 and 0.9 <= float(drawn.min()) <= float(drawn.max()) <= 0.99
    assert all(v.dtype == torch.float32 and v.shape == (3,) for v in values.values())


def test_an_id_has_the_same_genes_whoever_stands_beside_it() -> None:
    settings = Settings(lr={"each": [0.1, 0.2, 0.3]}, discount=[0.9, 0.99])
    many = hyper.values(settings, 0, range(10))
    for ids in ([4], [4, 5, 6], [9, 4, 0], [3, 4]):
        some = hyper.values(settings, 0, ids)
        assert all(torch.equal(values, many[name][ids]) for name, values in some.items()), ids
    assert many["lr"].tolist() == pytest.approx([0.1, 0.2, 0.3] * 3 + [0.1])


def test_a_members_draw_is_its_own() -> None:
    settings = Settings(lr=[1e-4, 1e-1], discount=[0.9, 0.99])
    alone = hyper.values(settings, 0, [2])
    many = hyper.values(settings, 0, [0, 1, 2, 3])
    assert alone["lr"][0] == many["lr"][2]
    assert hyper.values(settings, 1, [2])["lr"] != alone["lr"]
    same = Settings(lr=[0.5, 0.9], discount=[0.5, 0.9])
    values = hyper.values(same, 0, [0])
    assert not math.isclose(float(values["lr"]), float(values["discount"]))  # no die is thrown for two genes


@pytest.mark.parametrize(
    ("declared", "low", "high", "u", "value"),
    [
        (Gene(1e-6, 1), 1e-4, 1e-2, 0.5, 1e-3),
        (Gene(0, 1), 0, 1, 0.5, 0.5),  # a log gene whose low is 0 moves linearly
        (Gene(0, 1, "linear"), 0.2, 0.4, 0.5, 0.3),
        (Gene(0, 1, "one-minus-log"), 0.9, 0.999, 0.5, 0.99),
        (Gene(0, 1, "one-minus-log"), 0.5, 1.0, 0.5, 0.75),
        (Gene(1, 8, "int"), 2, 4, 0.0, 2),
        (Gene(1, 8, "int"), 2, 4, 0.999, 4),
        (Gene(2, 8, "choice", choices=(2, 4, 8)), 2, 8, 0.5, 4),
        (Gene(2, 8, "choice", choices=(2, 4, 8)), 4, 8, 0.0, 4),
        (Gene(2, 8, "choice", choices=(2, 4, 8)), 2, 8, 0.999, 8),
    ],
)
def test_between(declared: Gene, low: float, high: float, u: float, value: float) -> None:
    found = declared.between(low, high, torch.tensor([u], dtype=torch.float64))
    assert float(found) == pytest.approx(value)


RANGES = [
    (Gene(1e-6, 1), 1e-4, 1e-2),
    (Gene(0, 1), 0.0, 1.0),
    (Gene(0, 1, "linear"), 0.2, 0.4),
    (Gene(0, 1, "one-minus-log"), 0.9, 0.999),
    (Gene(0, 1, "one-minus-log"), 0.5, 1.0),
    (Gene(-9, 9, "int"), -3, 4),
    (Gene(2, 8, "choice", choices=(2, 4, 8)), 2, 8),
    (Gene(2, 8, "choice", choices=(8, 2, 4)), 2, 4),
]


@pytest.mark.parametrize(("declared", "low", "high"), RANGES)
def test_place_is_the_inverse_of_between(declared: Gene, low: float, high: float) -> None:
    u = torch.linspace(0, 0.999, 201, dtype=torch.float64)
    values = declared.between(low, high, u)
    place = declared.place(low, high, values)
    assert torch.allclose(declared.between(low, high, place), values, rtol=1e-12)
    if declared.scale in ("int", "choice"):  # the middle of each cell
        cells = len(values.unique())
        assert place.unique().tolist() == pytest.approx([(i + 0.5) / cells for i in range(cells)])
    else:
        assert torch.allclose(place, u, atol=1e-12)


@pytest.mark.parametrize(("declared", "low", "high"), RANGES)
def test_place_stays_within(declared: Gene, low: float, high: float) -> None:
    outside = torch.tensor([low - 1, low, high, high + 1, math.inf, -math.inf])  # float32, as members keep them
    place = declared.place(low, high, outside)
    assert place.dtype == torch.float32 and float(place.min()) >= 0 and float(place.max()) <= 1
    one = declared.place(low, low, torch.tensor([low], dtype=torch.float64))
    assert one.tolist() == [0.5] and declared.between(low, low, one).item() == pytest.approx(low)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0),
        ("lr", 5),  # bounds limit what is drawn, not a fixed value
        ("lr", "1e-3"),
        ("lr", [1e-6, 1.0]),
        ("lr", [0.1, 0.1]),
        ("lr", {"each": [0, 3]}),
        ("discount", 1),
        ("target", None),
        ("target", {"each": [None, 0.3]}),
        ("count", [1, 8]),
        ("size", 8),
        ("size", [2, 4]),
    ],
)
def test_accepts(name: str, value: Any) -> None:
    hyper.check(Settings(**{name: value}), members=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", -1e-9),
        ("lr", math.nan),
        ("lr", math.inf),
        ("lr", 1e39),  # infinite as a float32
        ("lr", None),
        ("lr", [0, 1]),
        ("lr", [1e-6, 2]),
        ("lr", [0.2, 0.1]),
        ("lr", [None, 0.1]),
        ("lr", [math.nan, 0.1]),
        ("lr", {"each": [1]}),
        ("lr", {"each": [1, 2, 3]}),
        ("lr", {"each": [1, -1]}),
        ("discount", 1.01),
        ("count", 2.5),
        ("count", math.inf),
        ("count", [1, 2.5]),
        ("size", 3),
        ("size", [2, 5]),
    ],
)
def test_refuses(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"algo.{name}: "):
        hyper.check(Settings(**{name: value}), members=2)


@pytest.mark.parametrize(
    "value", ["fast", True, [1], [1, 2, 3], [True, 2], {}, {"each": []}, {"each": 3}, {"all": [1]}]
)
def test_is_not_a_gene(value: Any) -> None:
    with pytest.raises(ValidationError):
        Settings(lr=value)


def test_says_what_is_allowed() -> None:
    declared = hyper.genes(Settings)
    assert declared["discount"].allowed().startswith("a number from 0 to 1, a range [low, high] within [0.5, 0.9999]")
    assert "null" in declared["target"].allowed() and "null" not in declared["lr"].allowed()
    assert declared["size"].allowed() == "one of 2, 4, 8"
    assert declared["count"].allowed().startswith("a whole number of at least 1")
