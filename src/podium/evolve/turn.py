"""What an orchestrator and a pod say to each other: a task, its outcome, and whom the rows are filled with next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from podium.core.tree import Tree

Where = tuple[int, int]
"""Pod and row."""


@dataclass(frozen=True)
class Task:
    """Train all rows for some updates, then evaluate `rows`; `again` counts evaluations of the same weights."""

    updates: int
    rows: Sequence[int] = ()
    again: int = 0


class Evaluation(NamedTuple):
    """Whole episodes of R members."""

    returns: Tensor  # [R, episodes]
    lengths: Tensor  # [R, episodes]
    objectives: Tensor  # [R, episodes, K]


@dataclass(frozen=True)
class Outcome:
    """What came of a task. `evaluation` is None where there was nothing to evaluate, or where it was cut short."""

    task: Task
    steps: int  # of each row of the pod, all in all
    seconds: float  # of the run, when it was done
    failed: Sequence[bool] = ()  # by row
    report: Mapping[str, Tensor] = field(default_factory=dict)  # metrics [M] of the last update
    evaluation: Evaluation | None = None
    members: Tree | None = None  # all that the evaluated rows have learnt, leaves [R, ...]; None: it is to be fetched
    ids: Sequence[int] = ()  # of the members, by row
    notes: Sequence[str] = ()  # for the log
    error: str | None = None  # why the pod broke down, where it did: all its members failed
    away: bool = False  # whether the pod is gone: nobody waits for it until it asks for a task again

    @property
    def cut_short(self) -> bool:
        """Whether there is an evaluation to make up for."""
        return bool(self.task.rows) and self.evaluation is None and self.error is None


@dataclass(frozen=True)
class Refill:
    """A new member for a row: a copy of another row of its pod, of a snapshot (leaves `[1, ...]`), or new weights."""

    row: int
    member: int
    source: int | Tree | None
    genes: Mapping[str, float]
    where: Where | None = None  # of the parent, if it is in training: for pods that pass members on by themselves


Refills = dict[int, list[Refill]]
"""By pod."""
