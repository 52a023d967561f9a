"""Pods that take turns, and what happens to one that breaks down."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from podium.core.errors import PodiumError
from podium.evolve.pool import TIMES, Inline
from podium.evolve.turn import Outcome, Refill, Task


class Worker:
    """Raises what it is told to, turn by turn; None is a good turn."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome:
        if self.errors and (error := self.errors.pop(0)):
            raise error
        return Outcome(task, 1, seconds(), (False,))

    def exchange(self, refills: Sequence[Refill]) -> None: ...

    def broken(self, task: Task, seconds: float, error: str) -> Outcome:
        return Outcome(task, 0, seconds, (True,), error=error)


def test_every_pod_has_its_turn_before_any_has_the_next() -> None:
    pool = Inline([Worker(), Worker()], lambda: 0.0)
    assert list(pool.free()) == [0, 1] and pool.between_rounds
    pool.start(0, Task(1))
    pool.start(1, Task(1))
    assert list(pool.free()) == [] and not pool.between_rounds
    assert [pool.next()[0], pool.next()[0], pool.next()] == [0, 1, None]
    assert list(pool.free()) == [0, 1]


def test_a_pod_that_breaks_down_failed_and_goes_on() -> None:
    log: list[str] = []
    pool = Inline([Worker(ValueError("boom"), None)], lambda: 7.0, log=log.append)
    first, second = pool.do(0, Task(1)), pool.do(0, Task(1))
    assert (first.error, first.failed, first.seconds) == ("ValueError: boom", (True,), 7.0)
    assert second.error is None and len(log) == 1 and "Traceback" in log[0] and "boom" in log[0]


def test_so_many_times_in_a_row_end_the_run_with_one_line() -> None:
    log: list[str] = []
    turns = [*[ValueError("boom")] * (TIMES - 1), None, *[ValueError("bang")] * TIMES]
    pool = Inline([Worker(*turns)], lambda: 0.0, log=log.append)
    for _ in turns[:-1]:
        pool.do(0, Task(1))
    with pytest.raises(PodiumError, match=r"pod 0 broke down 3 times in a row \(ValueError: bang\); log.txt"):
        pool.do(0, Task(1))
    assert len(log) == 2 * TIMES - 1


def test_where_nobody_replaces_members_the_error_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="boom"):
        Inline([Worker(ValueError("boom"))], lambda: 0.0).do(0, Task(1))


def test_what_a_user_can_put_right_is_no_breakdown() -> None:
    log: list[str] = []
    with pytest.raises(PodiumError, match="mine"):
        Inline([Worker(PodiumError("mine"))], lambda: 0.0, log=log.append).do(0, Task(1))
    assert not log
