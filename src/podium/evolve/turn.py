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
    """Episodes of R members; where time ran out before one began, its numbers are NaN, its length among them."""

    returns: Tensor  # [R, episodes]
    lengths: Tensor  # [R, episodes]
    objectives: Tensor  # [R, episodes, K]


def played(values: Tensor, lengths: Tensor) -> Tensor:
    """The mean over the episodes that were played, `[R, episodes, K] -> [R, K]`, of those with these `lengths`."""
    counts = ~lengths.isnan()
    return values.masked_fill(~counts.unsqueeze(-1), 0).sum(1) / counts.sum(1, keepdim=True)


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
    reasons: Sequence[str | None] = ()  # why members failed, by row
    late: bool = False  # whether stop.seconds came before the evaluation was done, which does not count then
    away: bool = False  # whether the pod is gone: nobody waits for it until it asks for a task again

    @property
    def cut_short(self) -> bool:
        """Whether there is an evaluation to make up for."""
        return bool(self.task.rows) and self.evaluation is None and self.error is None and not self.late


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
