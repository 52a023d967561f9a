"""The pool: pods that take tasks. An orchestrator is asked for each pod's next task and told what came of it.

    while ...:
        step(pool, orchestrator)

The same few lines drive pods that take turns in this process, pods of a fleet, and simulated pods on a virtual clock.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from podium.core.errors import PodiumError
from podium.evolve.turn import Outcome, Refill, Refills, Task

TIMES = 3
"""Times in a row that a pod may break down."""


class Orchestrator(Protocol):
    """Decides what the pods do. Pods are numbered from 0."""

    def ask(self, pod: int, seconds: float) -> Task | None:
        """The next task of a free pod; None where it has to wait for another."""
        ...

    def tell(self, pod: int, outcome: Outcome) -> Refills:
        """Take in what came of a task; the rows that get new members, before any pod's next task."""
        ...


class Pool(Protocol):
    """Pods at work, wherever they are."""

    def seconds(self) -> float:
        """The run's clock."""
        ...

    def free(self) -> Iterable[int]:
        """Pods that may be given a task now."""
        ...

    def start(self, pod: int, task: Task) -> None: ...

    def next(self) -> tuple[int, Outcome] | None:
        """The pod that is done first; None where no pod has a task."""
        ...

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None: ...


def step(pool: Pool, orchestrator: Orchestrator) -> tuple[int, Outcome] | None:
    """Keep free pods busy, wait for one to be done, and act on it; None where no pod has anything to do."""
    for pod in pool.free():
        task = orchestrator.ask(pod, pool.seconds())
        if task is not None:
            pool.start(pod, task)
    done = pool.next()
    if done is not None:
        for pod, refills in orchestrator.tell(*done).items():
            pool.exchange(pod, refills)
    return done


class Worker(Protocol):
    """What a pool knows of a pod."""

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome: ...

    def exchange(self, refills: Sequence[Refill]) -> None: ...

    def broken(self, task: Task, seconds: float, error: str) -> Outcome:
        """What comes of a task in which the pod broke down; it can be given tasks again."""
        ...


class Inline:
    """Pods of this process take turns: each has had one before any has the next, so that a run can be repeated.

    Where a pod raises (its env, say), `log` is given the traceback and its members failed; the third time in a row ends
    the run.
    """

    def __init__(
        self,
        pods: Sequence[Worker],
        seconds: Callable[[], float],
        stop: Callable[[], bool] = lambda: False,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._pods, self.seconds, self._stop, self._log = pods, seconds, stop, log
        self._tasks: deque[tuple[int, Task]] = deque()
        self._broken = [0] * len(pods)  # times in a row

    @property
    def between_rounds(self) -> bool:
        """Whether every pod has had its turn: the moment to save."""
        return not self._tasks

    def free(self) -> Iterable[int]:
        return () if self._tasks else range(len(self._pods))

    def start(self, pod: int, task: Task) -> None:
        self._tasks.append((pod, task))

    def next(self) -> tuple[int, Outcome] | None:
        if not self._tasks:
            return None
        pod, task = self._tasks.popleft()
        return pod, self.do(pod, task)

    def do(self, pod: int, task: Task) -> Outcome:
        """A task of a pod, now."""
        try:
            outcome = self._pods[pod].turn(task, self.seconds, self._stop)
            self._broken[pod] = 0
        except PodiumError:
            raise
        except Exception as error:
            if self._log is None:
                raise
            self._broken[pod] += 1
            self._log(traceback.format_exc())
            if self._broken[pod] == TIMES:
                said = f"{type(error).__name__}: {error}"
                raise PodiumError(
                    f"pod {pod} broke down {TIMES} times in a row ({said}); log.txt says where"
                ) from error
            outcome = self._pods[pod].broken(task, self.seconds(), f"{type(error).__name__}: {error}")
        return outcome

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        self._pods[pod].exchange(refills)
