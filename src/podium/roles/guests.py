"""A pod of guests: agents of other libraries, one a row, each trained by itself. To everybody else it is a pod."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from podium.core import tree
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.evolve.turn import Evaluation, Outcome, Refill, Task
from podium.guests.base import Guest
from podium.roles.clock import NO_LIMITS, Clock

Make = Callable[[int, Mapping[str, float]], Guest]
"""(member's id, genes) -> an untrained guest"""


class GuestPod:
    """Trains and evaluates guests. A guest that raises has failed; the others go on."""

    exact = False  # envs are the guests' own

    def __init__(
        self,
        make: Make,
        ids: Sequence[int],
        genes: Callable[[int], Mapping[str, float]],
        *,
        rollout: int,
        episodes: int,
        measures: Sequence[str] = (),
        clock: Clock = NO_LIMITS,
    ) -> None:
        self._make, self._rollout, self._episodes, self._measures = make, rollout, episodes, measures
        self._clock, self._scored = clock, False
        self.guests = [make(i, genes(i)) for i in ids]
        self.ids = torch.tensor(list(ids))
        self.steps = torch.zeros(len(self.ids), dtype=torch.int64)
        self.failed = torch.zeros(len(self.ids), dtype=torch.bool)
        self._notes: list[str] = []

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome:
        """Do a task. Guests evaluate by their own rules: the clock is looked at between them.

        Those that come too late are left out, or have one episode each where nobody has a score yet.
        """
        for row, guest in enumerate(self.guests):
            if task.updates and not self.failed[row]:
                self._attempt(row, lambda guest=guest: guest.train(task.updates * self._rollout))  # type: ignore[misc]
        self.steps += task.updates * self._rollout
        evaluation, members, late = None, None, False
        if task.rows:
            (limit, by_stop), start, found = self._clock.left(seconds()), time.perf_counter(), []
            for row in task.rows:
                over = time.perf_counter() - start > limit
                late |= over and by_stop and self._scored
                found.append(self._scores(row, 1 if over else self._episodes))
                if late:
                    break
            members, self._scored = self.read(task.rows), True
            if not late:
                evaluation = Evaluation(*(torch.stack(part) for part in zip(*found, strict=True)))
        notes, self._notes = self._notes, []
        failed, ids = self.failed.tolist(), self.ids.tolist()
        return Outcome(
            task,
            int(self.steps[0]),
            seconds(),
            failed,
            evaluation=evaluation,
            members=members,
            ids=ids,
            notes=notes,
            late=late,
        )

    def _attempt(self, row: int, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception:
            self._notes.append(f"member {int(self.ids[row])}: {traceback.format_exc()}")
            self.failed[row] = True

    def _scores(self, row: int, episodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns, lengths and objectives of some episodes; NaN where there are none."""
        guest = self.guests[row]
        found = None if self.failed[row] else self._attempt(row, lambda: guest.evaluate(episodes))
        known: dict[str, Any] = {"return": found} if isinstance(found, Sequence) else dict(found or {})
        nothing = [math.nan] * self._episodes

        def column(name: str, otherwise: Sequence[float] = nothing) -> Tensor:
            values = list(known.get(name, otherwise))
            return torch.tensor(values + nothing[len(values) :], dtype=torch.float32)

        measured = [column(name) for name in self._measures]
        objectives = torch.stack(measured, -1) if measured else torch.zeros(self._episodes, 0)
        return column("return"), column("length", [0.0] * episodes), objectives

    def broken(self, task: Task, seconds: float, error: str) -> Outcome:
        self.failed.fill_(True)
        return Outcome(task, int(self.steps[0]), seconds, self.failed.tolist(), error=error)

    def exchange(self, refills: Sequence[Refill]) -> None:
        """Fill rows with new members, all at once: a row that is copied and filled is copied as it was."""
        states = [self.guests[r.source].state() if isinstance(r.source, int) else r.source for r in refills]
        for refill, state in zip(refills, states, strict=True):
            if state is None or self.failed[refill.row]:  # a guest that raised may be in any state
                with suppress(Exception):  # nor must it stand in the way of the next
                    _close(self.guests[refill.row])
                self.guests[refill.row] = self._make(refill.member, refill.genes)
            guest = self.guests[refill.row]
            if state is not None:
                guest.load(state if isinstance(refill.source, int) else _single(state))
            guest.genes = refill.genes
            self.ids[refill.row], self.failed[refill.row] = refill.member, False

    def adopt(self, ids: Sequence[int], steps: int, streams: Streams) -> None:
        """Take the place of a pod that has come so far: members of these ids that all failed."""
        self.ids.copy_(torch.tensor(list(ids)))
        self.steps.fill_(steps)
        self._scored = steps > 0
        self.failed.fill_(True)

    def read(self, rows: Sequence[int]) -> Tree:
        """All that some rows have learnt."""
        return tree.stack([_row(self.guests[row].state()) for row in rows])

    def begin(self, learnt: Tree) -> None:
        """Let all guests begin with what one has learnt; they keep their genes."""
        for guest in self.guests:
            genes = dict(guest.genes)
            guest.load(_single(tree.clone(learnt)))
            guest.genes = genes

    def restart(self) -> None:
        """Guests keep their envs to themselves."""

    def state(self) -> Tree:
        every = range(len(self.guests))
        names = list(self.guests[0].genes)
        genes = {name: torch.tensor([float(g.genes[name]) for g in self.guests]) for name in names}
        slot = {"steps": self.steps, "ids": self.ids, "failed": self.failed}
        return {"learnt": self.read(list(every)) | {"genes": genes}, "slot": slot}

    def load(self, state: Tree) -> None:
        for name in ("steps", "ids", "failed"):
            getattr(self, name).copy_(state["slot"][name])
        self._scored = bool(self.steps.max())
        learnt = dict(state["learnt"])
        genes = learnt.pop("genes")
        for row, guest in enumerate(self.guests):
            guest.load(_single(tree.take(learnt, torch.tensor([row]))))
            guest.genes = {name: float(values[row]) for name, values in genes.items()}

    def close(self) -> None:
        for guest in self.guests:
            _close(guest)


def _close(guest: Guest) -> None:
    end = getattr(guest, "close", None)
    if callable(end):
        end()


def _row(state: Tree) -> Tree:
    return tree.map(lambda leaf: torch.as_tensor(leaf).detach().clone()[None], state)


def _single(row: Tree) -> Tree:
    return tree.map(lambda leaf: leaf[0], row)
