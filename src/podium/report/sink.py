"""Where a run's reports go: console, log, event file and the user's hook."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from podium.core.errors import Stop
from podium.core.text import warn
from podium.report import heading
from podium.report.console import Console
from podium.report.tensorboard import Events
from podium.store.run import Run

OnReport = Callable[[dict[str, Any]], bool | None]
"""The user's hook: it is called with every report, and ends the run by False or by raising `Stop`."""


class Sink:
    """Console, log, event file and hook, fed with the same reports. Writes nothing before `open`."""

    def __init__(self, console: Console, on_report: OnReport | None = None) -> None:
        self._console, self._on_report = console, on_report
        self._files: tuple[Run, Events] | None = None
        self.stopped = False  # whether the hook has asked for the end

    def or_stopped(self, interrupted: Callable[[], bool]) -> Callable[[], bool]:
        """Whether the run is to end now: by a signal, or by the user's hook."""
        return lambda: self.stopped or interrupted()

    def open(self, run: Run, offset: int) -> None:
        """Write to this run from now on; its event file goes on at `offset`."""
        self._files = run, Events(run.path, offset)
        self._console.rules = run.config.get("stop", {})

    def start(self, title: str) -> None:
        """Begin with a title and, below it, what the run's settings say of what is to come."""
        run = self._files[0] if self._files is not None else None
        rest = heading.lines(run.config, run.ledger.members()) if run is not None else []
        for line in (title, *rest):
            self._log(line)
        self._console.start("\n  ".join([title, *rest]))

    def report(self, report: dict[str, Any]) -> None:
        self._console.update(report)
        if self._files is not None:
            self._files[1].scalars(report["step"], _scalars(report))
        if self._on_report is not None:
            try:
                self.stopped |= self._on_report(report) is False
            except Stop:
                self.stopped = True

    def note(self, text: str) -> None:
        self._log(text)
        self._console.note(text)

    def warn(self, text: str) -> None:
        """Say it on stderr, however quiet the run is: what nobody reads in time costs work."""
        self._log(text)
        warn(text)

    def position(self) -> int:
        return self._files[1].offset() if self._files is not None else 0

    def stop(self) -> None:
        """Leave the last report in view."""
        self._console.stop()

    def _log(self, text: str) -> None:
        if self._files is not None:
            self._files[0].log(text)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self._console.stop()
        if self._files is not None:
            self._files[1].close()


def _scalars(report: dict[str, Any]) -> dict[str, float]:
    """Scalars for TensorBoard: the run's, the pods', and each metric of every member up to 16, else its median."""
    out = {f"run/{k}": v for k, v in report.items() if isinstance(v, int | float) and k not in ("step", "eta_seconds")}
    for i, pod in enumerate(report["pods"]):
        out |= {f"pods/{name}/{i}": value for name, value in pod.items()}
    for name, values in report["members"].items():
        if len(values) <= 16:
            out |= {f"{name}/{i}": v for i, v in enumerate(values)}
        else:
            out[f"{name}/median"] = sorted(values, key=lambda v: (math.isnan(v), v))[len(values) // 2]
    return out
