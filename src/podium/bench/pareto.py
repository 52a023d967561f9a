"""NSGA-II of `podium.evolve` against pymoo's on two test functions: the hypervolume after equally many evaluations.

Both sides have the same population and the same operators, pymoo's defaults: binary tournaments, simulated binary
crossover (η 15, 0.9 of the pairs), polynomial mutation (η 20, 0.9 of the children). A round is a seed; the hypervolume
is pymoo's. On DTLZ2 other dice alone move it by a percent: one ratio says little, the median of many is what counts.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from podium.bench._side_by_side import Row, row
from podium.core.errors import MissingExtra
from podium.evolve.explore import cross_unit, mutate_unit
from podium.evolve.pareto import parents, survive

SEEDS, QUICK = 15, 60  # seeds of a full run, generations of a quick one
CORNER = 1.1  # of the volume that counts, in every objective: a little beyond the worst of the true front


def zdt1(x: Tensor) -> Tensor:
    """`[n, V]` in [0, 1] -> `[n, 2]`, to be minimised (Zitzler, Deb and Thiele 2000); best f2 = 1 - √f1."""
    first, g = x[:, 0], 1 + 9 * x[:, 1:].mean(1)
    return torch.stack([first, g * (1 - (first / g).sqrt())], 1)


def dtlz2(x: Tensor) -> Tensor:
    """`[n, V]` in [0, 1] -> `[n, 3]`, to be minimised (Deb et al. 2002); the best lie on the unit sphere."""
    angle, g = x[:, :2] * (math.pi / 2), (x[:, 2:] - 0.5).square().sum(1)
    (c0, c1), (s0, s1) = angle.cos().unbind(1), angle.sin().unbind(1)
    return torch.stack([c0 * c1, c0 * s1, s0], 1) * (1 + g).unsqueeze(1)


@dataclass(frozen=True)
class Problem:
    """A test function by its name in pymoo, and how much work it is given."""

    name: str
    function: Callable[[Tensor], Tensor]
    variables: int
    objectives: int
    generations: int
    population: int = 100


PROBLEMS = (Problem("zdt1", zdt1, 30, 2, 200), Problem("dtlz2", dtlz2, 12, 3, 200))


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    _pymoo("config").Config.warnings["not_compiled"] = False
    seeds = range(rounds if quick else max(SEEDS, rounds))
    rows = []
    for p in PROBLEMS:
        evaluations = p.population * (QUICK if quick else p.generations)
        volume = _pymoo("indicators.hv").HV(ref_point=[CORNER] * p.objectives)
        ours = [float(volume(nsga2(p, evaluations, seed).numpy())) for seed in seeds]
        theirs = [float(volume(peer(p, evaluations, seed))) for seed in seeds]
        name = f"{p.name.upper()}, {evaluations} evaluations; pymoo NSGA-II"
        sizes = {"rounds": len(seeds), "evaluations": evaluations, "population": p.population}
        rows.append(row(name, "hypervolume", ours, theirs) | {"key": f"pareto/{p.name}", **sizes})
    return rows


def nsga2(problem: Problem, evaluations: int, seed: int) -> Tensor:
    """The objectives of the last population, `[population, K]`, to be minimised."""
    n, rng = problem.population, torch.Generator().manual_seed(seed)
    x = torch.rand(n, problem.variables, generator=rng, dtype=torch.float64)
    score = -problem.function(x)
    place, alike = torch.arange(n), torch.zeros(n)
    for _ in range(evaluations // n - 1):
        kept = survive(score, n)  # best first: from here on a row's place is its rank
        x, score = x[kept], score[kept]
        a, b = x[parents(place, alike, 2 * n, rng)].chunk(2)
        children = cross_unit(a, b, rng, eta=15, probability=0.9)
        children = mutate_unit(children, rng, eta=20, probability=0.9 / problem.variables)
        x, score = torch.cat([x, children]), torch.cat([score, -problem.function(children)])
    return -score[survive(score, n)]


def peer(problem: Problem, evaluations: int, seed: int) -> Any:
    """The same of pymoo's NSGA-II."""
    sizes = {"n_var": problem.variables} | ({"n_obj": problem.objectives} if problem.name == "dtlz2" else {})
    function = _pymoo("problems").get_problem(problem.name, **sizes)
    algorithm = _pymoo("algorithms.moo.nsga2").NSGA2(pop_size=problem.population)
    found = _pymoo("optimize").minimize(function, algorithm, ("n_eval", evaluations), seed=seed)
    return found.pop.get("F")


def _pymoo(module: str) -> Any:
    try:
        return importlib.import_module(f"pymoo.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtra("pymoo", "pymoo") from error
