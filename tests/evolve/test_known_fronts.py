"""NSGA-II of fronts, crowding, crossover and mutation on functions whose best front is known."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from podium.bench import pareto
from podium.core.errors import MissingExtra
from podium.evolve.pareto import fronts

ZDT1, DTLZ2 = pareto.PROBLEMS


@pytest.mark.parametrize("problem", pareto.PROBLEMS, ids=lambda p: p.name)
def test_the_functions_are_pymoos(problem: pareto.Problem) -> None:
    from pymoo.problems import get_problem

    x = torch.rand(50, problem.variables, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theirs = get_problem(problem.name, n_var=problem.variables).evaluate(x.numpy())
    found = problem.function(x)
    assert found.shape == (50, problem.objectives)
    assert torch.allclose(found, torch.from_numpy(theirs))


def test_the_front_of_zdt1_is_found_and_covered() -> None:
    found = pareto.nsga2(ZDT1, 15_000, seed=0)
    first, second = found[fronts(-found) == 0].T
    above = second - (1 - first.sqrt())
    assert above.min() > -1e-12 and above.median() < 0.01 and above.max() < 0.03
    gaps = first.sort().values.diff()
    assert len(first) > 90 and first.min() < 0.01 and first.max() > 0.99 and gaps.max() < 0.045


def test_the_front_of_dtlz2_is_found_and_covered() -> None:
    found = pareto.nsga2(DTLZ2, 10_000, seed=0)
    radius = found.norm(dim=1)
    assert radius.min() > 1 - 1e-12 and radius.median() < 1.02 and radius.max() < 1.12
    assert (fronts(-found) == 0).all() and (found.amin(0) < 0.02).all() and (found.amax(0) > 0.98).all()
    octant = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).abs().double()
    nearest = torch.cdist(octant / octant.norm(dim=1, keepdim=True), found).amin(1)
    assert nearest.max() < 0.28  # no hole


def test_the_same_seed_gives_the_same_front() -> None:
    once, again, other = (pareto.nsga2(DTLZ2, 500, seed) for seed in (1, 1, 2))
    assert torch.equal(once, again) and not torch.equal(once, other)


def test_the_benchmark_gives_its_rows() -> None:
    rows = pareto.main(rounds=2, quick=True)
    assert [r["key"] for r in rows] == ["pareto/zdt1", "pareto/dtlz2"]
    for r in rows:
        assert r.keys() >= {"name", "ours", "peer", "ratio", "low", "high", "unit", "rounds"}
        assert r["low"] <= r["ratio"] <= r["high"] and 0.85 < r["ratio"] < 1.15
    json.dumps(rows, allow_nan=False)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "pymoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymoo", None)
    with pytest.raises(MissingExtra, match=r"podium-rl\[pymoo\]"):
        pareto.main(1, True)


@pytest.mark.slow
def test_as_good_as_pymoo() -> None:
    for r in pareto.main():
        assert r["ratio"] >= 0.98, r
