"""The pool: pods that take tasks. An orchestrator is asked for each pod's next task and told what came of it.

    while ...:
        step(pool, orchestrator)

The same few lines drive pods that take turns in this process, pods of a fleet, and simulated pods on a virtual clock.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from podium.core.errors import PodiumError
from podium.core.tree import Tree
from podium.evolve.turn import Outcome, Refill, Refills, Task, Where

Log = Callable[[str], None]

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
    return finish(pool, orchestrator)


def finish(pool: Pool, orchestrator: Orchestrator) -> tuple[int, Outcome] | None:
    """Wait for a pod to be done, and act on it; None where no pod has a task."""
    done = pool.next()
    if done is not None:
        for pod, refills in orchestrator.tell(*done).items():
            pool.exchange(pod, refills)
    return done


class Pods(Pool, Protocol):
    """A pool of true pods: what a driver needs besides, to keep them in a checkpoint."""

    @property
    def between_rounds(self) -> bool:
        """Whether no pod is at work: the moment to save."""
        ...

    @property
    def exact(self) -> bool:
        """Whether `state` holds the envs, too."""
        ...

    def attach(self, seconds: Callable[[], float], stop: Callable[[], bool], log: Log | None) -> None:
        """Begin: the run's clock, whether to cut evaluations short, and where tracebacks go; None: they end the run."""
        ...

    def do(self, pod: int, task: Task) -> Outcome:
        """A task of a pod, now, while no other is at work."""
        ...

    def busy(self) -> list[float]:
        """Seconds that each pod has been at work."""
        ...

    def begin(self, learnt: Tree) -> None:
        """Let all members begin with what another has learnt, leaves `[1, ...]` without genes."""
        ...

    def away(self) -> Collection[int]:
        """Pods that are lost, and not back yet."""
        ...

    def grow(self, idle: Callable[[int], bool]) -> tuple[int, int] | None:
        """Where there is room for one more pod, split one that is `idle`: its number, and how many rows it keeps."""
        ...

    def state(self) -> Tree:
        """Of all pods that have not lost their members, by their numbers."""
        ...

    def load(self, state: Tree) -> None: ...

    def restart(self) -> None:
        """End all episodes of pods whose envs a checkpoint cannot hold."""
        ...

    def read(self, seats: Sequence[Where]) -> list[Tree]:
        """All that some rows have learnt, leaves `[1, ...]`."""
        ...

    def close(self) -> None: ...


class Worker(Protocol):
    """What a pool knows of a pod."""

    @property
    def exact(self) -> bool: ...

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome: ...

    def exchange(self, refills: Sequence[Refill]) -> None: ...

    def broken(self, task: Task, seconds: float, error: str) -> Outcome:
        """What comes of a task in which the pod broke down; it can be given tasks again."""
        ...

    def begin(self, learnt: Tree) -> None: ...

    def state(self) -> Tree: ...

    def load(self, state: Tree) -> None: ...

    def restart(self) -> None: ...

    def read(self, rows: Sequence[int]) -> Tree: ...

    def close(self) -> None: ...


class Careful:
    """Gives a pod tasks. Where it raises (its env, say), all its members failed; the third time in a row is too often.

    `log` is given the traceback; without one the error goes on its way.
    """

    def __init__(self, pod: Worker, name: str, log: Log | None) -> None:
        self._pod, self._name, self._log, self._broken = pod, name, log, 0

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome:
        try:
            outcome = self._pod.turn(task, seconds, stop)
            self._broken = 0
            return outcome
        except PodiumError:
            raise
        except Exception as error:
            if self._log is None:
                raise
            self._broken += 1
            self._log(traceback.format_exc())
            said = f"{type(error).__name__}: {error}"
            if self._broken == TIMES:
                text = f"{self._name} broke down {TIMES} times in a row ({said}); log.txt says where"
                raise PodiumError(text) from error
            return self._pod.broken(task, seconds(), said)


W = TypeVar("W", bound=Worker)


class Inline(Generic[W]):
    """Pods of this process take turns: each has had one before any has the next, so that a run can be repeated."""

    def __init__(
        self,
        pods: Sequence[W],
        seconds: Callable[[], float] = lambda: 0.0,
        stop: Callable[[], bool] = lambda: False,
        log: Log | None = None,
    ) -> None:
        self.pods = pods
        self._tasks: deque[tuple[int, Task]] = deque()
        self._busy = [0.0] * len(pods)
        self.attach(seconds, stop, log)

    def attach(self, seconds: Callable[[], float], stop: Callable[[], bool], log: Log | None) -> None:
        self.seconds, self._stop = seconds, stop
        self._careful = [Careful(pod, f"pod {i}", log) for i, pod in enumerate(self.pods)]

    @property
    def between_rounds(self) -> bool:
        """Whether every pod has had its turn: the moment to save."""
        return not self._tasks

    def free(self) -> Iterable[int]:
        return () if self._tasks else range(len(self.pods))

    def start(self, pod: int, task: Task) -> None:
        self._tasks.append((pod, task))

    def next(self) -> tuple[int, Outcome] | None:
        if not self._tasks:
            return None
        pod, task = self._tasks.popleft()
        return pod, self.do(pod, task)

    def do(self, pod: int, task: Task) -> Outcome:
        start = time.perf_counter()
        try:
            return self._careful[pod].turn(task, self.seconds, self._stop)
        finally:
            self._busy[pod] += time.perf_counter() - start

    def busy(self) -> list[float]:
        return list(self._busy)

    def away(self) -> Collection[int]:
        return ()

    def grow(self, idle: Callable[[int], bool]) -> tuple[int, int] | None:
        return None

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        self.pods[pod].exchange(refills)

    @property
    def exact(self) -> bool:
        return all(pod.exact for pod in self.pods)

    def begin(self, learnt: Tree) -> None:
        for pod in self.pods:
            pod.begin(learnt)

    def state(self) -> Tree:
        return {str(i): pod.state() for i, pod in enumerate(self.pods)}

    def load(self, state: Tree) -> None:
        for i, pod in enumerate(self.pods):
            pod.load(state[str(i)])

    def restart(self) -> None:
        for pod in self.pods:
            if not pod.exact:
                pod.restart()

    def read(self, seats: Sequence[Where]) -> list[Tree]:
        return [self.pods[pod].read([row]) for pod, row in seats]

    def close(self) -> None:
        for pod in self.pods:
            pod.close()
