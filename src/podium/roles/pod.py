"""A pod: a stack of members with its envs, collector, learner and evaluator, placed somewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from podium.algos.base import Algorithm
from podium.core import tree
from podium.core.errors import PodiumError
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.envs.base import notes
from podium.evolve.turn import Evaluation, Outcome, Refill, Task
from podium.roles.clock import NO_LIMITS, Clock
from podium.roles.collector import Collector, finished
from podium.roles.evaluator import Evaluator, Interrupted
from podium.roles.learner import FromReplay, FromRollout
from podium.roles.origin import WITHIN, origin

Learner = FromRollout | FromReplay
Report = dict[str, Tensor]
"""Metrics by name, each `[M]`."""


class Pod:
    """Trains and evaluates M members.

    `build(m)` makes an algorithm of m members to evaluate some rows with; `fresh(ids)` is what untrained members start
    with. `schedule` lists steps and the genes that all rows have from there on.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        collector: Collector,
        evaluator: Evaluator,
        streams: Streams,
        ids: Sequence[int],
        *,
        learner: Learner | None = None,
        build: Callable[[int], Algorithm],
        fresh: Callable[[Sequence[int]], Tree] | None = None,
        horizon: int | None = None,
        episodes: int = 1,
        clock: Clock = NO_LIMITS,
        schedule: Sequence[tuple[int, Mapping[str, float]]] = (),
    ) -> None:
        self.algorithm, self.collector, self.evaluator, self.streams = algorithm, collector, evaluator, streams
        self.learner = learner or FromRollout(algorithm)
        self._build, self._fresh, self._horizon = build, fresh, horizon
        self._episodes, self._clock, self._schedule = episodes, clock, schedule
        self._scored, self._said_cut = False, False  # whether it was evaluated, and one that was cut is in the log
        self._some: dict[int, Algorithm] = {}
        self._why: dict[int, str] = {}  # by row, where a number that is not finite came from
        self.ids = torch.tensor(list(ids))
        self.steps = torch.zeros(len(self.ids), dtype=torch.int64)
        self.failed = torch.zeros(len(self.ids), dtype=torch.bool)
        # Whether `state` holds the envs, too; if not, episodes end at every checkpoint.
        self.exact = collector.env.state() is not None

    def train(self, updates: int, over: Callable[[], bool] = lambda: False) -> Report:
        """Collect and learn `updates` times, or until it is `over`, but once at least.

        The last metrics, with the episodes that ended and their returns.
        """
        ended, total = torch.zeros(len(self.ids), dtype=torch.int64), torch.zeros(len(self.ids))
        metrics: Report = {}
        for _ in range(updates):
            self._follow_schedule()
            batch = self.collector.collect()
            metrics |= self.learner.learn(batch, self._remaining())
            count, returns = finished(batch)
            ended += count.cpu()
            total += returns.cpu()
            self.steps += batch["reward"][0].numel()
            for row in self.learner.odd:  # now, as the next rollout is written over this one
                self._why.setdefault(row, origin(batch, row) or WITHIN)
            if over():
                break
        self.failed |= ~self.learner.finite()
        return metrics | {"episodes": ended, "return": total / ended}  # NaN where no episode ended

    def _remaining(self) -> Tensor | None:
        """What is left of the run, 1 to 0, `[M]`."""
        if self._horizon is None:
            return None
        return (1 - self.steps.double() / self._horizon).clamp_(min=0).float().to(self.collector.obs.device)

    def _follow_schedule(self) -> None:
        step, now = int(self.steps[0]) if self._schedule else 0, None
        for at, genes in self._schedule:
            now = genes if at <= step else now
        for name, value in (now or {}).items():
            self.algorithm.genes[name].fill_(value)

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome:
        """Do a task; an evaluation that `stop` cuts short is left out of what comes of it.

        So is one that stop.seconds cuts, unless it is the first: a run should have a score.
        """
        report = self.train(task.updates, lambda: self._clock.over(seconds())) if task.updates else {}
        evaluation, members, late, by_stop = None, None, False, False
        if task.rows:
            limit, by_stop = self._clock.left(seconds())
            with suppress(Interrupted):
                evaluation = self.evaluate(task.rows, self._episodes, stop, task.again, limit)
                late = by_stop and self.evaluator.cut is not None and self._scored
                self._scored = True
        if evaluation is not None:
            members = tree.map(lambda leaf: leaf.cpu(), self.read(task.rows))
            evaluation = None if late else Evaluation(*(x.cpu() for x in evaluation))
        return Outcome(
            task,
            int(self.steps[0]),
            seconds(),
            self.failed.tolist(),
            report,
            evaluation,
            members,
            self.ids.tolist(),
            [*notes(self.collector.env), *self.evaluator.notes(), *self._cut_short(by_stop, late)],
            reasons=[self._why.get(row, WITHIN) if bad else None for row, bad in enumerate(self.failed.tolist())],
            late=late,
        )

    def _cut_short(self, by_stop: bool, late: bool) -> list[str]:
        """That an evaluation was cut, the first time that one is."""
        if self.evaluator.cut is None or self._said_cut:
            return []
        self._said_cut = True
        return [self._clock.note(*self.evaluator.cut, by_stop, counts=not late)]

    def broken(self, task: Task, seconds: float, error: str) -> Outcome:
        """What comes of a task in which an env, or anything else, raised: all members failed, all episodes end.

        If new ones cannot begin, the run cannot go on.
        """
        try:
            self.restart()
        except Exception as again:
            whose, said = f"the pod of member {int(self.ids[0])}", f"{type(again).__name__}: {again}"
            raise PodiumError(f"{whose} broke down ({error}), and its envs do not start again ({said})") from again
        self.failed.fill_(True)
        return Outcome(task, int(self.steps[0]), seconds, self.failed.tolist(), error=error)

    def adopt(self, ids: Sequence[int], steps: int, streams: Streams) -> None:
        """Take the place of a pod that has come so far: members of these ids that all failed, and other dice."""
        self.ids.copy_(torch.tensor(list(ids)))
        self.steps.fill_(steps)
        self._scored = steps > 0
        self.failed.fill_(True)
        self.streams.load(streams.state())
        self.restart()

    def exchange(self, refills: Sequence[Refill]) -> None:
        """Fill rows with new members, all at once: a row that is copied and filled is copied as it was."""
        copies = [r for r in refills if isinstance(r.source, int)]
        sources = [r.source for r in copies if isinstance(r.source, int)]
        copied = self.read(sources) if copies else None
        snapshots = [(r.row, r.source) for r in refills if isinstance(r.source, dict)]
        if snapshots:
            self.write([row for row, _ in snapshots], tree.stack([source for _, source in snapshots]))
        fresh = [r for r in refills if r.source is None]
        if fresh and self._fresh is not None:
            self.write([r.row for r in fresh], self._fresh([r.member for r in fresh]))
        if copied is not None:
            self.write([r.row for r in copies], copied)
        rows = torch.tensor([r.row for r in refills], dtype=torch.int64)
        self.learner.clear([int(row) for row in rows if self.failed[row]])
        for name, values in self.algorithm.genes.items():
            new = torch.tensor([r.genes[name] for r in refills], dtype=values.dtype)
            values.index_copy_(0, rows.to(values.device), new.to(values.device))
        self.ids[rows] = torch.tensor([r.member for r in refills], dtype=torch.int64)
        self.failed[rows] = False
        for refill in refills:
            self._why.pop(refill.row, None)

    def evaluate(
        self,
        rows: Sequence[int],
        episodes: int,
        stop: Callable[[], bool] = lambda: False,
        again: int = 0,
        seconds: float = math.inf,
    ) -> Evaluation:
        """Whole episodes of some rows; Interrupted if `stop` comes first. `again` gives equal weights other seeds."""
        algorithm = self._rows(rows)
        names = [f"{self.ids[row]}/{self.steps[row]}" + (f"/{again}" if again else "") for row in rows]
        return self.evaluator.evaluate(
            lambda obs: algorithm.act(obs, {}, explore=False)[0]["action"], names, episodes, stop, seconds
        )

    def _rows(self, rows: Sequence[int]) -> Algorithm:
        if list(rows) == list(range(len(self.ids))):
            return self.algorithm
        if len(rows) not in self._some:
            self._some[len(rows)] = self._build(len(rows))
        some = self._some[len(rows)]
        tree.copy(some.learnt(), tree.take(self.algorithm.learnt(), torch.tensor(rows)))
        return some

    def read(self, rows: Sequence[int]) -> Tree:
        """All that some rows have learnt, copied."""
        return tree.take(self.algorithm.learnt(), torch.tensor(rows))

    def write(self, rows: Sequence[int], members: Tree) -> None:
        """Put what `read` returned (here or elsewhere) into some rows."""
        tree.put(self.algorithm.learnt(), torch.tensor(rows), members)

    def begin(self, learnt: Tree) -> None:
        """Let all rows begin with what a member has learnt, leaves `[1, ...]`; they keep their genes."""
        mine = {name: part for name, part in self.algorithm.learnt().items() if name != "genes"}
        tree.copy(mine, tree.take(learnt, torch.zeros(len(self.ids), dtype=torch.int64)))

    def restart(self) -> None:
        """End all episodes and begin new ones; what the rows had summed up over them ends, too."""
        self.collector.restart()
        self.learner.restart()

    def state(self) -> Tree:
        """Everything a resumed pod needs to go on as if nothing had happened."""
        slot: Tree = {
            "algorithm": self.algorithm.slot(),
            "learner": self.learner.state(),
            "carry": self.collector.carry,
            "streams": self.streams.state(),
            "steps": self.steps,
            "ids": self.ids,
            "failed": self.failed,
        }
        env = self.collector.env.state()
        if env is not None:
            slot |= {"env": env, "obs": self.collector.obs}
        return {"learnt": self.algorithm.learnt(), "slot": slot}

    def load(self, state: Tree) -> None:
        """Go on from `state`, whose shapes have been checked."""
        slot = state["slot"]
        tree.copy(self.algorithm.learnt(), state["learnt"])
        tree.copy(self.algorithm.slot(), slot["algorithm"])
        self.learner.load(slot["learner"])
        self.collector.carry = tree.map(lambda leaf: leaf.to(self.collector.obs.device), slot["carry"])
        self.streams.load(slot["streams"])
        for name in ("steps", "ids", "failed"):
            getattr(self, name).copy_(slot[name])
        self._scored = bool(self.steps.max())  # whoever has trained was evaluated, as far as a cut is concerned
        if "env" in slot:
            self.collector.env.load(slot["env"])
            self.collector.obs = slot["obs"].to(self.collector.obs.device)

    def close(self) -> None:
        self.collector.env.close()
        self.evaluator.close()
