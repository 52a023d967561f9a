"""Pods on the nodes of a fleet: they run free, each as fast as it can. A pod that is lost is replaced, and goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podium.core.errors import PodiumError
from podium.core.tree import Tree
from podium.evolve.pool import TIMES, Log
from podium.evolve.turn import Evaluation, Outcome, Refill, Seat, Task
from podium.fleet.errors import FleetError, Late, NodeLost, RemoteError
from podium.fleet.group import Group
from podium.fleet.link import Call, results


class Afar:
    """Gives the pods of a group their tasks. `rows` is how many members each has."""

    def __init__(self, group: Group, rows: Sequence[int], timeout: float) -> None:
        self._group, self._rows, self._timeout = group, rows, timeout
        self._at_work: dict[int, tuple[Task, Call]] = {}
        self._asides: list[tuple[int, Call]] = []  # calls whose answer says nothing, unless they fail
        self._lost = [0] * len(rows)  # times in a row
        self._lives = [0] * len(rows)
        self._steps = [0] * len(rows)
        self._ids: list[Sequence[int]] = [[-1] * n for n in rows]
        self._busy, self._began = [0.0] * len(rows), [0.0] * len(rows)
        try:
            self._about = group.all("about", timeout=timeout)
        except BaseException:
            self.close()
            raise
        self.attach(lambda: 0.0, lambda: False, None)

    def attach(self, seconds: Callable[[], float], stop: Callable[[], bool], log: Log | None) -> None:
        self.seconds, self._log = seconds, log or (lambda text: None)

    @property
    def between_rounds(self) -> bool:
        return not self._at_work

    @property
    def exact(self) -> bool:
        return all(about["exact"] for about in self._about)

    def read(self, seats: Sequence[Seat]) -> list[Tree]:
        return results([self._group.one(pod, "read", [row], timeout=self._timeout) for pod, row in seats])

    def free(self) -> Iterable[int]:
        return [pod for pod in range(len(self._rows)) if pod not in self._at_work]

    def start(self, pod: int, task: Task) -> None:
        plain, self._began[pod] = replace(task, rows=list(task.rows)), time.perf_counter()
        self._at_work[pod] = task, self._group.one(pod, "turn", plain, self.seconds(), timeout=self._timeout)

    def next(self) -> tuple[int, Outcome] | None:
        if not self._at_work:
            return None
        calls = {pod: call for pod, (_, call) in self._at_work.items()}
        pod, call = min(self._group.ready(calls))
        task, _ = self._at_work.pop(pod)
        return pod, self._outcome(pod, task, call)

    def do(self, pod: int, task: Task) -> Outcome:
        self.start(pod, task)
        _, call = self._at_work.pop(pod)
        return self._outcome(pod, task, call)

    def _outcome(self, pod: int, task: Task, call: Call) -> Outcome:
        try:
            answer = call.result()
            self._busy[pod] += time.perf_counter() - self._began[pod]
            self._check_asides(pod)
        except (NodeLost, Late) as error:
            return self._replaced(pod, task, error)
        except RemoteError as error:
            self._log(error.trace)
            raise PodiumError(f"pod {pod}: {error.text if error.kind == 'PodiumError' else error}") from error
        self._lost[pod], self._steps[pod], self._ids[pod] = 0, answer["steps"], answer["ids"] or self._ids[pod]
        evaluation = answer.pop("evaluation")
        return Outcome(task, evaluation=None if evaluation is None else Evaluation(*evaluation), **answer)

    def _replaced(self, pod: int, task: Task, error: FleetError) -> Outcome:
        """A new node in the place of one that is lost or hangs: its members are lost with it, as if they had failed."""
        self._log(f"pod {pod} was lost: {error}")
        self._lost[pod] += 1
        if self._lost[pod] == TIMES:
            raise PodiumError(f"pod {pod} was lost {TIMES} times in a row ({error}); log.txt says more") from error
        self._asides = [(owner, call) for owner, call in self._asides if owner != pod]
        self._group.restart(pod)
        self._lives[pod] += 1
        self._aside(pod, "adopt", list(self._ids[pod]), self._steps[pod], self._lives[pod])
        failed = [True] * self._rows[pod]
        return Outcome(task, self._steps[pod], self.seconds(), failed, error=f"its pod was lost ({error})")

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        self._aside(pod, "exchange", list(refills))

    def _aside(self, pod: int, method: str, *args: Any) -> None:
        self._asides.append((pod, self._group.one(pod, method, *args, timeout=self._timeout)))

    def _check_asides(self, pod: int) -> None:
        """Answers come in order: what was asked before a turn is answered now."""
        mine = [call for owner, call in self._asides if owner == pod and call.done]
        self._asides = [(owner, call) for owner, call in self._asides if owner != pod or not call.done]
        results(mine)

    def busy(self) -> list[float]:
        now = time.perf_counter()
        return [s + (now - self._began[i] if i in self._at_work else 0.0) for i, s in enumerate(self._busy)]

    def begin(self, learnt: Tree) -> None:
        self._group.all("begin", learnt, timeout=self._timeout)

    def state(self) -> Tree:
        """NodeLost if a pod is gone: `next` says so, too."""
        calls = [self._group.one(pod, "state", timeout=self._timeout) for pod in range(len(self._rows))]
        try:
            return {str(pod): state for pod, state in enumerate(results(calls))}
        except NodeLost:
            self._at_work |= {pod: (Task(0), calls[pod]) for pod in self._group.lost()}
            raise

    def load(self, state: Tree) -> None:
        each = [self._group.one(pod, "load", state[str(pod)], timeout=self._timeout) for pod in range(len(self._rows))]
        results(each)
        for pod in range(len(self._rows)):
            slot: Mapping[str, Any] = state[str(pod)]["slot"]
            self._steps[pod], self._ids[pod] = int(slot["steps"][0]), slot["ids"].tolist()

    def restart(self) -> None:
        for pod in range(len(self._rows)):
            self._aside(pod, "restart")

    def close(self) -> None:
        self._group.close()
