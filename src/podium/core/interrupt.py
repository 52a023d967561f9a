"""Ctrl-C as a request: save and stop."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

SAME = 0.2
"""Seconds within which signals count as one: a launcher may pass on what the terminal has sent already."""


class Ended(KeyboardInterrupt):
    """A signal came while there was nothing to save; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")


class Interrupt:
    """Ctrl-C (or SIGTERM) once asks the run to save and stop; a second time, not at once after it, ends it.

    While it is `at_once` there is nothing to save, and the first signal raises Ended.
    """

    def __init__(self, at_once: bool = False) -> None:
        self.at_once, self._asked = at_once, False
        self._since = 0.0
        self._old: dict[signal.Signals, Any] = {}

    def happened(self) -> bool:
        return self._asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.at_once:
            raise Ended(number)
        if not self._asked:
            self._asked, self._since = True, time.monotonic()
        elif time.monotonic() - self._since > SAME:
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._old = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
