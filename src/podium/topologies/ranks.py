"""Pods on the ranks of MPI, in step: all train, all wait for the last, then members go straight from rank to rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from podium.core.tree import Tree
from podium.evolve.pool import Log
from podium.evolve.turn import Evaluation, Outcome, Refill, Task, Where


class Crew(Protocol):
    """What calls all ranks at once: `podium.fleet.crew`."""

    def __len__(self) -> int: ...

    def call(self, method: str, *args: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]: ...

    def close(self) -> None: ...


class Ranks:
    """Gives the pods of a crew their tasks, a round at a time. What members have learnt stays where they are."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._tasks: dict[int, Task] = {}
        self._done: deque[tuple[int, Outcome]] = deque()
        self._refills: dict[int, Sequence[Refill]] = {}  # of this exchange, until the next round
        self._busy = [0.0] * len(crew)
        self._exact = [about["exact"] for about in crew.call("about")]
        self.attach(lambda: 0.0, lambda: False, None)

    def attach(self, seconds: Callable[[], float], stop: Callable[[], bool], log: Log | None) -> None:
        self.seconds = seconds

    @property
    def between_rounds(self) -> bool:
        return not self._tasks and not self._done

    @property
    def exact(self) -> bool:
        return all(self._exact)

    def free(self) -> Iterable[int]:
        return range(len(self._crew)) if self.between_rounds else ()

    def start(self, pod: int, task: Task) -> None:
        self._tasks[pod] = task

    def next(self) -> tuple[int, Outcome] | None:
        if self._tasks:
            tasks, self._tasks = self._tasks, {}
            self._done.extend(self._round(tasks))
        return self._done.popleft() if self._done else None

    def do(self, pod: int, task: Task) -> Outcome:
        ((_, outcome),) = self._round({pod: task})
        return outcome

    def _round(self, tasks: Mapping[int, Task]) -> list[tuple[int, Outcome]]:
        plain = {pod: replace(task, rows=list(task.rows)) for pod, task in tasks.items()}
        now = self.seconds()
        each = [[vars(plain[pod]) if pod in plain else None, now] for pod in range(len(self._crew))]
        answers = self._call("turn", each=each)
        return [(pod, self._outcome(pod, task, answers[pod])) for pod, task in sorted(tasks.items())]

    def _outcome(self, pod: int, task: Task, answer: dict[str, Any]) -> Outcome:
        self._busy[pod] += answer.pop("took")
        evaluation = answer.pop("evaluation")
        return Outcome(task, evaluation=None if evaluation is None else Evaluation(*evaluation), **answer)

    def away(self) -> Collection[int]:
        """Nobody, ever: a rank that is lost takes the job with it."""
        return ()

    def grow(self, idle: Callable[[int], bool]) -> tuple[int, int] | None:
        return None

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        self._refills[pod] = refills

    def _call(self, method: str, *args: Any, each: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        """After the exchange that is due: one for all pods."""
        if self._refills:
            self._swap()
        return self._crew.call(method, *args, each=each)

    def _swap(self) -> None:
        """Broadcast who becomes whose child. Only what is not there yet goes to a pod, and only once."""
        moves: dict[tuple[int, int, int], int] = {}
        given: list[Tree] = []
        known: dict[int, int] = {}  # a snapshot's place among them, by its identity
        plan: list[list[dict[str, Any]]] = [[] for _ in range(len(self._crew))]
        for pod, refills in self._refills.items():
            for refill in refills:
                said = {"row": refill.row, "member": refill.member, "genes": dict(refill.genes), "source": None}
                if isinstance(refill.source, int):
                    said["source"] = refill.source
                elif refill.where is not None:
                    said["move"] = moves.setdefault((*refill.where, pod), len(moves))
                elif refill.source is not None:
                    if id(refill.source) not in known:
                        known[id(refill.source)] = len(given)
                        given.append(refill.source)
                    said["move"] = moves.setdefault((0, -1 - known[id(refill.source)], pod), len(moves))
                plan[pod].append(said)
        self._refills = {}
        nothing: list[Any] = [[] for _ in range(len(self._crew) - 1)]
        self._crew.call("swapped", plan, [list(move) for move in moves], each=[[given], *([n] for n in nothing)])

    def busy(self) -> list[float]:
        return list(self._busy)

    def read(self, seats: Sequence[Where]) -> list[Tree]:
        each = [[[row for other, row in seats if other == pod]] for pod in range(len(self._crew))]
        found = [iter(trees) for trees in self._call("some", each=each)]
        return [next(found[pod]) for pod, _ in seats]

    def begin(self, learnt: Tree) -> None:
        self._call("begin", learnt)

    def state(self) -> Tree:
        return {str(pod): state for pod, state in enumerate(self._call("state"))}

    def load(self, state: Tree) -> None:
        self._call("load", each=[[state[str(pod)]] for pod in range(len(self._crew))])

    def restart(self) -> None:
        if not self.exact:
            self._call("restart")

    def close(self) -> None:
        self._crew.close()
