"""The rows of the ledger that others make: members and their scores."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Member:
    """One agent of a run: who it is, where it trains and what it descends from."""

    id: int
    algo: str
    kind: str = ""
    parent: int | None = None
    row: int = 0
    generation: int = 0
    born_step: int = 0
    genes: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Score:
    """One evaluation of a member. `seconds` is the training time so far; `snapshot` says that its weights were kept."""

    member: int
    step: int
    seconds: float
    returns: Sequence[float]
    snapshot: bool = False

    @property
    def fitness(self) -> float | None:
        """Mean return; None where there is no finite one, which ranks below any number."""
        return finite(statistics.fmean(self.returns)) if self.returns else None

    @property
    def std(self) -> float | None:
        """Standard deviation of the returns (of the population, so 0 for one episode)."""
        mean = self.fitness
        return (
            None if mean is None else finite(math.sqrt(statistics.fmean((x - mean) * (x - mean) for x in self.returns)))
        )


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
