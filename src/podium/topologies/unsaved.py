"""A run that cannot be saved: says so at once, goes on in memory for a while, and does not go on for ever."""

from __future__ import annotations

import time
from collections.abc import Callable


class Unsaved:
    """How long a run has not been saved. `warn` tells the user, whatever else is quiet."""

    def __init__(self, minutes: float, warn: Callable[[str], None]) -> None:
        self._minutes, self._warn = minutes, warn
        self._since: float | None = None
        self._told: set[str] = set()

    def failed(self, why: str, reason: str | None = None) -> None:
        """Notes that a file could not be written; the same `reason` (by default `why` itself) is told once."""
        if self._since is None:
            self._since = time.monotonic()
        if (reason or why) not in self._told:
            limit = f"after {self._minutes:g} minutes without a save (train.max_unsaved) it stops"
            self._warn(f"{why}. The run goes on in memory and tries again; {limit}.")
        self._told.add(reason or why)

    def saved(self) -> None:
        """All is on disk."""
        if self._since is not None:
            self._warn("The run can be saved again.")
        self._since = None
        self._told.clear()

    @property
    def too_long(self) -> bool:
        return self._since is not None and time.monotonic() - self._since >= 60 * self._minutes
