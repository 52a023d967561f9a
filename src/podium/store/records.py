"""The rows of the ledger that others make: members, their scores, their places on the leaderboard."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FIRST = ("start", "rebuilt")
"""Origins of the first member of a row: of the run itself, or of a ledger that was rebuilt."""


@dataclass(frozen=True)
class Member:
    """One agent of a run: who it is, where it trains and what it descends from.

    `inherited` are the steps of training behind what it copied from its parent; `origin` says how it came to be.
    """

    id: int
    algo: str
    kind: str = ""
    parent: int | None = None
    pod: int = 0
    row: int = 0
    generation: int = 0
    born_step: int = 0
    inherited: int = 0
    origin: str = "start"
    genes: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Score:
    """One evaluation of a member. `seconds` is the time of the run so far.

    `objectives` are means over the episodes by name, `cost` the steps that the episodes took.
    """

    member: int
    step: int
    seconds: float
    returns: Sequence[float]
    objectives: Mapping[str, float] | None = None
    cost: int = 0

    @property
    def fitness(self) -> float | None:
        """Mean return; None where there is no finite one, which ranks below any number."""
        return finite(statistics.fmean(self.returns)) if self.returns else None

    @property
    def std(self) -> float | None:
        """Standard deviation of the returns (of the population, so 0 for one episode)."""
        return finite(spread(self.returns)) if self.returns else None


@dataclass(frozen=True)
class Ranked:
    """A member on the leaderboard: `step` and `seconds` are those of its snapshot, `front` 0 is the best."""

    member: int
    fitness: float
    step: int
    seconds: float
    std: float | None = None
    episodes: int = 0
    front: int = 0
    objectives: Mapping[str, float] | None = None


def spread(values: Sequence[float]) -> float:
    """Standard deviation of a whole population; the statistics module's exact one is thirty times slower."""
    mean = statistics.fmean(values)
    return math.sqrt(statistics.fmean((x - mean) * (x - mean) for x in values))


def finite(value: float | None) -> float | None:
    """`value`, or None where it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def to_json(value: Any, digits: int = 17) -> str:
    """Strict JSON: NaN and infinity become null; floats keep so many significant digits (17 is all)."""
    return json.dumps(_plain(value, digits), separators=(",", ":"), allow_nan=False)


def _plain(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item, digits) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item, digits) for item in value]
    return value
