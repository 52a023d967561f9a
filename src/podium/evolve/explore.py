"""Exploration: how genes change. Values are `[n, G]` float64, a column for each searched gene, and stay in its range.

Every entry is a draw of its own, and nothing is changed in place. What comes out lies in [low, high] as float64; stored
as float32 it lies in the range rounded to float32.

`sbx` and `polynomial` (Deb and Agrawal 1995, in the form with bounds of Deb's NSGA-II) work where each gene is a number
in [0, 1] on its own scale; `cross_unit` and `mutate_unit` are the two for numbers that already are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from podium.core.hyper import Gene

TINY = 1e-14  # parents closer than this in a gene have no gap to spread over


@dataclass(frozen=True)
class Searched:
    """A gene that evolution may move, and from where to where."""

    name: str
    gene: Gene
    low: float
    high: float


class Space:
    """The searched genes, a column each, and what `perturb` needs of them as rows `[G]`."""

    def __init__(self, searched: Sequence[Searched]) -> None:
        self.searched, kinds = tuple(searched), [_kind(s) for s in searched]
        bounds = torch.tensor([(s.low, s.high) for s in searched], dtype=torch.float64).reshape(-1, 2)
        self.low, self.high = bounds.unbind(1)
        self.span = self.high - self.low
        self.scaled = torch.tensor([kind in ("log", "one-minus-log") for kind in kinds], dtype=torch.bool)
        self.origin = torch.tensor([kind == "one-minus-log" for kind in kinds], dtype=torch.float64)
        self.whole = torch.tensor([kind == "int" for kind in kinds], dtype=torch.bool)
        self.choices = [i for i, kind in enumerate(kinds) if kind == "choice"]

    def __len__(self) -> int:
        return len(self.searched)

    def clamp(self, values: Tensor) -> Tensor:
        return values.clamp(self.low, self.high)

    def to_unit(self, values: Tensor) -> Tensor:
        """`[n, G]` -> where each value lies in [0, 1] on its gene's scale."""
        out = torch.empty_like(values)
        for i, s in enumerate(self.searched):
            out[:, i] = s.gene.place(s.low, s.high, values[:, i])
        return out

    def from_unit(self, u: Tensor) -> Tensor:
        """`[n, G]` in [0, 1] -> values."""
        u = u.clamp(0, 1 - 2**-53)  # at 1 a whole number would be one too high
        for i, s in enumerate(self.searched):
            u[:, i] = s.gene.between(s.low, s.high, u[:, i])
        return self.clamp(u)


def draw(n: int, space: Space, rng: torch.Generator) -> Tensor:
    """New values `[n, G]`, uniform on each gene's scale."""
    return space.from_unit(_dice((n, len(space)), rng))


def perturb(values: Tensor, space: Space, rng: torch.Generator, factors: Sequence[float] = (0.8, 1.25)) -> Tensor:
    """Move every entry by one of the factors f: log x f, one-minus-log 1 - (1 - x) f, linear x + (f - 1) (high - low).

    A log gene whose low is 0 and a one-minus-log gene whose high is 1 move linearly. So does a whole number, by one at
    least. A choice moves to its neighbour, up where f > 1. A factor of 1 moves nothing.
    """
    f = torch.tensor(factors, dtype=torch.float64)[torch.randint(len(factors), values.shape, generator=rng)] - 1
    step = torch.where(space.scaled, (values - space.origin) * f, space.span * f)
    step = torch.where(space.whole, f.sign() * step.abs().round().clamp(min=1), step)
    moved = space.clamp(values + step)
    for i in space.choices:
        moved[:, i] = _neighbour(space.searched[i], values[:, i], f[:, i].sign())
    return moved


def resample(values: Tensor, space: Space, rng: torch.Generator, probability: float) -> Tensor:
    """Draw each entry anew with a probability."""
    again = _dice(values.shape, rng) < probability
    return torch.where(again, draw(len(values), space, rng), space.clamp(values))


def sbx(
    a: Tensor, b: Tensor, space: Space, rng: torch.Generator, eta: float = 20.0, probability: float = 1.0
) -> Tensor:
    """Simulated binary crossover: a child for each pair of rows, `[n, G]`; the larger eta, the nearer to a parent."""
    return space.from_unit(cross_unit(space.to_unit(a), space.to_unit(b), rng, eta, probability))


def polynomial(
    values: Tensor, space: Space, rng: torch.Generator, eta: float = 20.0, probability: float | None = None
) -> Tensor:
    """Polynomial mutation of each entry with a probability, by default 1 / G; the larger eta, the smaller the steps."""
    return space.from_unit(mutate_unit(space.to_unit(values), rng, eta, probability))


def cross_unit(a: Tensor, b: Tensor, rng: torch.Generator, eta: float = 20.0, probability: float = 1.0) -> Tensor:
    """`sbx` of numbers in [0, 1]: where a pair crosses, half of its entries do, and the child is near a or near b.

    A pair at distance d has children at (a + b ± β d) / 2, with a β whose density keeps them from crossing the bound.
    """
    crossed, above, r = _dice((3, *a.shape), rng)
    pair = _dice((len(a), 1), rng) < probability
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    apart, above = high - low, above < 0.5
    room = 1 + 2 * torch.where(above, 1 - high, low) / apart.clamp(min=TINY)
    x = r * (2 - room ** -(eta + 1))
    beta = torch.where(x <= 1, x, 1 / (2 - x)) ** (1 / (eta + 1))
    child = (low + high + torch.where(above, beta, -beta) * apart) / 2
    return torch.where(pair & (crossed < 0.5) & (apart > TINY), child.clamp(0, 1), a)


def mutate_unit(u: Tensor, rng: torch.Generator, eta: float = 20.0, probability: float | None = None) -> Tensor:
    """`polynomial` of numbers in [0, 1]: down or up by 1 - (r + (1 - r) (1 - room)^(eta + 1))^(1 / (eta + 1))."""
    changed, up, r = _dice((3, *u.shape), rng)
    up, chance = up < 0.5, 1 / max(1, u.shape[1]) if probability is None else probability
    room = torch.where(up, 1 - u, u)
    size = 1 - (r + (1 - r) * (1 - room) ** (eta + 1)) ** (1 / (eta + 1))
    return torch.where(changed < chance, (u + torch.where(up, size, -size)).clamp(0, 1), u)


def _kind(searched: Searched) -> str:
    """The scale on which a gene truly moves in its range."""
    scale = searched.gene.scale
    endless = (scale == "log" and searched.low <= 0) or (scale == "one-minus-log" and searched.high >= 1)
    return "linear" if endless else scale


def _neighbour(searched: Searched, values: Tensor, step: Tensor) -> Tensor:
    """The choice before (-1) or after (+1) each value, in the order in which they were declared."""
    choices = torch.tensor([c for c in searched.gene.choices if searched.low <= c <= searched.high]).double()
    nearest = (values.unsqueeze(1) - choices).abs().argmin(1)
    return choices[(nearest + step.long()).clamp(0, len(choices) - 1)]


def _dice(shape: Sequence[int], rng: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=rng, dtype=torch.float64)
