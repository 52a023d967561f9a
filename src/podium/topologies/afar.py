"""Pods on the nodes of a fleet: they run free, each as fast as it can.

A pod whose node is lost has lost its members. It is away until it has another node, which may take as long as a cluster
has no room for one; the other pods go on meanwhile. Before its first turn it has nothing to lose: another node is made
of the same, and told the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from podium.core.errors import PodiumError
from podium.core.tree import Tree
from podium.evolve.pool import TIMES, Log
from podium.evolve.rows import Seat
from podium.evolve.turn import Evaluation, Outcome, Refill, Task, Where
from podium.fleet.errors import FleetError, Late, NodeLost, RemoteError
from podium.fleet.group import Group
from podium.fleet.link import LOOK, Call, results

EVERY = 2.0
"""Seconds between two looks at whether there is room for one more pod."""


class Afar:
    """Gives the pods of a group their tasks. `seats` are what they hold, `room` says whether one more could join.

    What a node is made of is its number, its seat, and `more`.
    """

    def __init__(
        self,
        group: Group,
        seats: Sequence[Seat],
        timeout: float,
        room: Callable[[], bool] = lambda: False,
        more: Sequence[Any] = (),
    ) -> None:
        self._group, self._seats, self._timeout, self._room, self._more = group, list(seats), timeout, room, more
        self._looked = time.monotonic()
        self._splits: int | None = None  # the pod that a node that is on its way will be half of
        rows = [seat.rows for seat in seats]
        self._at_work: dict[int, tuple[Task, Call]] = {}
        self._asides: list[tuple[int, Call]] = []  # calls whose answer says nothing, unless they fail
        # Pods that are away, and what they are to be told; from the start those for which there is no room.
        self._kept: dict[int, list[tuple[Any, ...]]] = {pod: [] for pod in group.coming()}
        self._absent: list[int] = []  # those of them that nobody has been told of
        # Pods that have had no turn, and what another node has to be told to be the same.
        self._untrained: dict[int, list[tuple[Any, ...]]] = {pod: [] for pod in range(len(seats))}
        self._lost = [0] * len(rows)  # times in a row
        self._lives = [0] * len(rows)
        self._steps = [0] * len(rows)
        self._ids: list[Sequence[int]] = [range(seat.first, seat.first + seat.rows) for seat in seats]
        self._busy, self._began = [0.0] * len(rows), [0.0] * len(rows)
        self.attach(lambda: 0.0, lambda: False, None)
        try:
            self._about = self._ask_about()
        except BaseException:
            self.close()
            raise

    def _ask_about(self) -> list[Any]:
        """What each pod is like; one that is away is like any of its kind."""
        here = self._here()
        answers = self._ask("about", [(pod,) for pod in here])
        kinds = {self._seats[pod].kind: answer for pod, answer in zip(here, answers, strict=True)}
        if missing := [pod for pod in self._kept if self._seats[pod].kind not in kinds]:
            raise PodiumError(f"pod {missing[0]}: there is no room for it, nor for any other of its kind")
        return [kinds[seat.kind] for seat in self._seats]

    def _here(self) -> list[int]:
        return [pod for pod in range(len(self._seats)) if pod not in self._kept]

    def _ask(self, method: str, each: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers to calls of (pod, arguments), in order. A pod lost before its first turn is asked once more."""
        answers: dict[int, Any] = {}
        while left := [i for i in range(len(each)) if i not in answers]:
            calls = {i: self._group.one(each[i][0], method, *each[i][1:], timeout=self._timeout) for i in left}
            lost: dict[int, FleetError] = {}
            errors: list[FleetError] = []
            for i, call in calls.items():
                try:
                    answers[i] = call.result()
                except (NodeLost, Late) as error:
                    lost[each[i][0]] = error
                except FleetError as error:
                    errors.append(error)
            errors += [lost[pod] for pod in lost if pod not in self._untrained]
            if errors:
                raise errors[0]
            for pod in lost:
                self._make_anew(pod, lost[pod])
        return [answers[i] for i in range(len(each))]

    def _make_anew(self, pod: int, error: FleetError) -> None:
        """Another node for a pod that has had no turn, told all that it had been told."""
        self._log(f"pod {pod} was lost before its first turn: {error}")
        self._count(pod, str(error))
        self._forget_asides(pod)
        self._group.restart(pod)
        self._group.settle(nodes=[pod])
        for method, *args in self._untrained[pod]:
            self._asides.append((pod, self._group.one(pod, method, *args, timeout=self._timeout)))

    def attach(self, seconds: Callable[[], float], stop: Callable[[], bool], log: Log | None) -> None:
        self.seconds, self._stop, self._log = seconds, stop, log or (lambda text: None)
        self._hint = "; log.txt says more" if log else ""

    @property
    def between_rounds(self) -> bool:
        return not self._at_work and not self._absent

    @property
    def exact(self) -> bool:
        return all(about["exact"] for about in self._about)

    def read(self, seats: Sequence[Where]) -> list[Tree]:
        return self._ask("read", [(pod, [row]) for pod, row in seats])

    def free(self) -> Iterable[int]:
        """Where all pods are away, it waits for the first to come back."""
        ends = time.monotonic() + self._timeout
        self._welcome()
        while len(self._kept) == len(self._seats) and not self._stop():
            if time.monotonic() > ends:
                text = f"all pods are lost, and none has come back for {self._timeout:g} s"
                raise PodiumError(f"{text}; podium resume goes on from the last checkpoint")
            self._group.pump(LOOK)
            self._welcome()
        return [pod for pod in range(len(self._seats)) if pod not in self._at_work and pod not in self._kept]

    def away(self) -> set[int]:
        return set(self._kept)

    def grow(self, idle: Callable[[int], bool]) -> tuple[int, int] | None:
        """First a node has to be up, then the pod to be split at rest."""
        pod, new = self._splits, len(self._seats)
        if pod is None:
            self._look_for_room()
            return None
        if new in self._group.lost():
            self._group.restart(new)
        if new in self._group.coming() or pod in self._at_work or pod in self._kept or not idle(pod):
            return None
        self._untrained.pop(pod, None)
        mine, other = self._seats[pod].split()
        call = self._group.one(pod, "split", mine.rows, timeout=self._timeout)
        try:
            state = call.result()
        except (NodeLost, Late):
            self._found_lost(pod, call)
            return None
        self._group.change(pod, pod, mine, *self._more)
        self._seats[pod], self._splits = mine, None
        self._enter(other, pod)
        self._aside(new, "load", state)
        if not self._about[new]["exact"]:
            self._aside(new, "restart")
        return pod, mine.rows

    def _look_for_room(self) -> None:
        rows = [seat.rows for seat in self._seats]
        if self._kept or max(rows) == 1 or time.monotonic() - self._looked < EVERY:
            return
        self._looked = time.monotonic()
        if self._room():
            self._splits = rows.index(max(rows))
            self._group.add(len(rows), self._seats[self._splits].split()[1], *self._more)

    def _enter(self, seat: Seat, half_of: int) -> None:
        """One more pod, which has come as far as the one that it was a part of."""
        self._seats.append(seat)
        self._ids[half_of], ids = self._ids[half_of][: -seat.rows], self._ids[half_of][-seat.rows :]
        self._ids.append(ids)
        self._lost.append(0)
        self._lives.append(self._lives[half_of])
        self._steps.append(self._steps[half_of])
        self._about.append(self._about[half_of])
        self._busy.append(0.0)
        self._began.append(0.0)

    def _welcome(self) -> None:
        """Tell pods that have a node again all that was kept for them."""
        coming, lost = self._group.coming() if self._kept else set(), self._group.lost() if self._kept else {}
        for pod in [pod for pod in self._kept if pod not in coming and pod not in self._absent]:
            if pod in lost:
                self._log(f"pod {pod} has not come back: {lost[pod]}")
                self._count(pod, lost[pod])
                self._group.restart(pod)
                continue
            self._log(f"pod {pod} is back")
            for method, *args in self._kept.pop(pod):
                self._aside(pod, method, *args)

    def start(self, pod: int, task: Task) -> None:
        self._untrained.pop(pod, None)
        plain, self._began[pod] = replace(task, rows=list(task.rows)), time.perf_counter()
        self._at_work[pod] = task, self._group.one(pod, "turn", plain, self.seconds(), timeout=self._timeout)

    def next(self) -> tuple[int, Outcome] | None:
        if self._absent:
            pod = self._absent.pop()
            return pod, Outcome(Task(0), self._steps[pod], self.seconds(), [False] * self._seats[pod].rows, away=True)
        if not self._at_work:
            return None
        calls = {pod: call for pod, (_, call) in self._at_work.items()}
        pod, call = min(self._group.ready(calls), key=lambda done: self._began[done[0]])  # nobody is left waiting
        task, _ = self._at_work.pop(pod)
        return pod, self._outcome(pod, task, call)

    def do(self, pod: int, task: Task) -> Outcome:
        self.start(pod, task)
        _, call = self._at_work.pop(pod)
        return self._outcome(pod, task, call)

    def _outcome(self, pod: int, task: Task, call: Call) -> Outcome:
        try:
            answer = call.result()
            self._check_asides(pod)
        except (NodeLost, Late) as error:
            return self._gone(pod, task, error)
        except RemoteError as error:
            self._log(error.trace)
            raise PodiumError(f"pod {pod}: {error.text if error.kind == 'PodiumError' else error}") from error
        finally:
            self._busy[pod] += time.perf_counter() - self._began[pod]
        self._lost[pod], self._steps[pod], self._ids[pod] = 0, answer["steps"], answer["ids"] or self._ids[pod]
        evaluation = answer.pop("evaluation")
        return Outcome(task, evaluation=None if evaluation is None else Evaluation(*evaluation), **answer)

    def _gone(self, pod: int, task: Task, error: FleetError) -> Outcome:
        """A new node in the place of one that is lost or hangs: its members are lost with it, as if they had failed."""
        self._log(f"pod {pod} was lost: {error}")
        self._count(pod, str(error))
        self._forget_asides(pod)
        self._untrained.pop(pod, None)
        self._group.restart(pod)
        self._lives[pod] += 1
        self._kept[pod] = [("adopt", list(self._ids[pod]), self._steps[pod], self._lives[pod])]
        failed, said = [True] * self._seats[pod].rows, f"its pod was lost ({error})"
        return Outcome(task, self._steps[pod], self.seconds(), failed, error=said, away=True)

    def _count(self, pod: int, error: str) -> None:
        """To wait for a node is no failure, to lose one is."""
        self._lost[pod] += 1
        if self._lost[pod] == TIMES:
            raise PodiumError(f"pod {pod} was lost {TIMES} times in a row ({error}){self._hint}")

    def _found_lost(self, pod: int, call: Call) -> None:
        """By another call than a turn: `next` says so, too."""
        self._at_work[pod], self._began[pod] = (Task(0), call), time.perf_counter()

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        self._aside(pod, "exchange", list(refills))

    def _aside(self, pod: int, method: str, *args: Any) -> None:
        self._untrained.pop(pod, None)
        if pod in self._kept:
            self._kept[pod].append((method, *args))
            return
        self._asides.append((pod, self._group.one(pod, method, *args, timeout=self._timeout)))

    def _forget_asides(self, pod: int) -> None:
        self._asides = [(owner, call) for owner, call in self._asides if owner != pod]

    def _check_asides(self, pod: int) -> None:
        """Answers come in order: what was asked before a turn is answered now."""
        mine = [call for owner, call in self._asides if owner == pod and call.done]
        self._asides = [(owner, call) for owner, call in self._asides if owner != pod or not call.done]
        results(mine)

    def busy(self) -> list[float]:
        now = time.perf_counter()
        return [s + (now - self._began[i] if i in self._at_work else 0.0) for i, s in enumerate(self._busy)]

    def begin(self, learnt: Tree) -> None:
        self._ask("begin", [(pod, learnt) for pod in range(len(self._seats))])
        for told in self._untrained.values():
            told.append(("begin", learnt))

    def state(self) -> Tree:
        """Of the pods that are there. NodeLost if one is gone: `next` says so, too."""
        here = self._here()
        try:
            found = dict(zip(map(str, here), self._ask("state", [(pod,) for pod in here]), strict=True))
            return found | {str(pod): told[0][1] for pod, told in self._kept.items() if _untouched(told)}
        except NodeLost:
            for pod in self._group.lost().keys() & here:
                self._found_lost(pod, self._group.one(pod, "state", timeout=self._timeout))
            raise

    def load(self, state: Tree) -> None:
        here = self._here()
        self._ask("load", [(pod, state[str(pod)]) for pod in here])
        self._untrained |= {pod: [("load", state[str(pod)])] for pod in here}
        self._absent = list(self._kept)
        for pod in self._absent:
            self._kept[pod] = [("load", state[str(pod)])]
        for pod in range(len(self._seats)):
            slot: Mapping[str, Any] = state[str(pod)]["slot"]
            self._steps[pod], self._ids[pod] = int(slot["steps"][0]), slot["ids"].tolist()

    def restart(self) -> None:
        for pod, about in enumerate(self._about):
            if not about["exact"] and len(self._kept.get(pod, ())) < 2:
                self._aside(pod, "restart")

    def close(self) -> None:
        self._group.close()


def _untouched(told: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a pod that is away will be as it was loaded: nobody has taken the place of its members since."""
    return bool(told) and told[0][0] == "load" and all(method != "exchange" for method, *_ in told)
