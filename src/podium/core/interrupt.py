"""Ctrl-C, SIGTERM and SIGHUP as a request: save and stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

SAME = 0.2
"""Seconds within which signals count as one: a launcher may pass on what the terminal has sent already."""


class Interrupted(KeyboardInterrupt):
    """The second request: end at once. A type of its own, so that it is never taken for what user code raised."""


class Ended(KeyboardInterrupt):
    """A signal came while there was nothing to save; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"signal {number}")


class Interrupt:
    """Ctrl-C, SIGTERM or SIGHUP once asks the run to save and stop; a second time, not at once after it, ends it.

    While it is `at_once` there is nothing to save, and the first signal raises Ended. SIGHUP stays ignored where it is
    ignored already: `nohup` does that.
    """

    def __init__(self, at_once: bool = False) -> None:
        self.at_once, self._asked = at_once, False
        self._since = 0.0
        self._old: dict[signal.Signals, Any] = {}
        self._terminals: list[int] = []

    def happened(self) -> bool:
        return self._asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._leave_terminal()
        if self.at_once:
            raise Ended(number)
        if not self._asked:
            self._asked, self._since = True, time.monotonic()
        elif time.monotonic() - self._since > SAME:
            raise Interrupted

    def _leave_terminal(self) -> None:
        """Where the terminal is gone, lets prints go nowhere: one that fails must not keep a run from being saved."""
        for stream in self._terminals:
            if not os.isatty(stream):
                with open(os.devnull, "r+b", buffering=0) as nothing:
                    os.dup2(nothing.fileno(), stream)

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._terminals = [stream for stream in (0, 1, 2) if os.isatty(stream)]
            asked = [signal.SIGINT, signal.SIGTERM]
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                asked.append(signal.SIGHUP)
            self._old = {number: signal.signal(number, self._ask) for number in asked}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
