"""Ctrl-C as a request: save and stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Ctrl-C (or SIGTERM) once asks the run to save and stop; a second time ends it at once."""

    def __init__(self) -> None:
        self._asked = False
        self._old: dict[signal.Signals, Any] = {}

    def happened(self) -> bool:
        return self._asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._old = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
