"""How long a pod may go on: stop.seconds and eval.seconds, by the clock of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

LAST, LEAST = 0.05, 1.0
"""Of stop.seconds, and seconds at least, that an evaluation may take where fewer are left, and after the end."""


@dataclass(frozen=True)
class Clock:
    """Seconds of an evaluation and of the whole run; None: no limit."""

    evaluation: float | None
    stop: float | None

    def over(self, now: float) -> bool:
        """Whether the run has had its time."""
        return self.stop is not None and now >= self.stop

    def left(self, now: float) -> tuple[float, bool]:
        """Seconds that an evaluation may take from now on, and whether it is the end of the run that says so."""
        evaluation = math.inf if self.evaluation is None else self.evaluation
        stop = math.inf if self.stop is None else max(self.stop - now, LEAST, LAST * self.stop)
        return min(evaluation, stop), stop < evaluation

    def note(self, ended: int, episodes: int, by_stop: bool, counts: bool) -> str:
        """What the log says of an evaluation that was cut when so many of its episodes had ended."""
        limit = f"stop.seconds={self.stop:g}" if by_stop else f"eval.seconds={self.evaluation:g}"
        rest = "the others count as they stand" if counts else "it does not count"
        return f"evaluation was cut by {limit}: {ended} of {episodes} episodes had ended; {rest}"


NO_LIMITS = Clock(None, None)
