"""Progress of a run: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rich.console
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from podium.core.text import encodable
from podium.report import alike, tables, words

Report = Mapping[str, Any]
"""step, steps_per_second, seconds, best_return, median_return, best_fitness, exchanges, leaders, failed, eta_seconds;
None if unknown."""

LEADERS = ("rank", "id", "algo", "fitness", "steps", "genes")
LAUNCHED = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}
"""Variables of a process that mpiexec or srun started: its terminal may be none."""
EVERY = 2.0
"""Seconds between two plain lines."""


class Console:
    """Shows reports as they come. `total_steps` is None where steps do not end the run."""

    def __init__(
        self, total_steps: int | None, members: int, quiet: bool = False, out: rich.console.Console | None = None
    ) -> None:
        self.total_steps, self.members, self.quiet = total_steps, members, quiet
        self.rules: Mapping[str, Any] = {}
        """`stop.*` of the run: all that may end it."""
        self._out = out or rich.console.Console(highlight=False)
        self._live: Live | None = None
        self._last: Report | None = None
        self._printed: tuple[float, Report | None] = (float("-inf"), None)

    def start(self, title: str) -> None:
        """Begin, with a heading."""
        self.note(title)
        if self._out.is_terminal and not self.quiet and not LAUNCHED.intersection(os.environ):
            self._live = Live(console=self._out, refresh_per_second=4, transient=False)
            with _perhaps_gone():
                self._live.start()

    def update(self, report: Report) -> None:
        """Show where the run stands; as a plain line at most every two seconds."""
        self._last = report
        if self._live is not None:
            self._live.update(self.panel(report))
        elif time.monotonic() - self._printed[0] >= EVERY:
            self._plain(report)

    def note(self, text: str) -> None:
        """Say something once, such as the result of an evaluation."""
        self._print(text)

    def stop(self) -> None:
        """End, leaving the last report in view; a second call does nothing."""
        if self._live is not None:
            with _perhaps_gone():
                self._live.stop()
            self._live = None
        elif self._last is not None and self._last is not self._printed[1]:
            self._plain(self._last)
        self._last = None

    def panel(self, report: Report) -> Group:
        """The live view of one report: a bar, then the numbers."""
        lines: list[RenderableType] = [
            Text("   ".join(part), no_wrap=True, overflow="ellipsis") for part in self._parts(report)
        ]
        if report.get("leaders"):
            several = len({alike.kind(row) for row in report["leaders"]}) > 1
            columns = [name for name in LEADERS if name != "algo" or several]
            lines.append(tables.Fitted(report["leaders"], columns))
        if self.total_steps is None:
            return Group(Text(self._where(report)), *lines)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(self.total_steps, report["step"], width=30), self._where(report))
        return Group(bar, *lines)

    def line(self, report: Report) -> str:
        """The plain view of one report."""
        return "  ".join([self._where(report), *(word for part in self._parts(report) for word in part)])

    def _parts(self, report: Report) -> list[list[str]]:
        """The numbers as two rows of words: how fast, then how good."""
        rate, each = (words.rate(report["steps_per_second"] / n) for n in (1, self.members))
        share = f" ({each} each)" if self.members > 1 and each != "0" else ""
        pace = [f"{rate} steps/s{share}"] if rate != "0" else []  # nothing is known of it at the first report
        pace.append(f"time {words.duration(report['seconds'])}")
        if left := self._left(report):
            pace.append(left)
        if report.get("steps_evaluation"):
            pace.append(f"eval {words.rate(report['steps_evaluation'])} steps")
        if len(pods := report.get("pods") or ()) > 1:
            pace.append(f"{len(pods)} pods busy {sum(pod['busy'] for pod in pods) / len(pods):.0%}")
        best, median = report.get("best_return"), report.get("median_return")
        good = [f"return best {words.score(best)}" + (f" median {words.score(median)}" if self.members > 1 else "")]
        good.append(f"evaluated best {words.score(report.get('best_fitness'))}")
        if report.get("exchanges"):
            good.append(f"exchanges {report['exchanges']:,}")
        if report.get("failed"):
            good.append(f"failed {report['failed']} of {self.members}")
        return [pace, good]

    def _left(self, report: Report) -> str | None:
        """How long it will take; a goal or a number of generations may end it before that."""
        ends = [report.get("eta_seconds"), self.rules.get("seconds") and self.rules["seconds"] - report["seconds"]]
        known = [max(0.0, seconds) for seconds in ends if seconds is not None]
        if not known:
            return None
        sooner = any(self.rules.get(name) is not None for name in ("fitness", "generations"))
        return f"at most {words.duration(min(known))} left" if sooner else f"left {words.duration(min(known))}"

    def _where(self, report: Report) -> str:
        step: int = report["step"]
        if not self.total_steps:
            return f"step {step:,}"
        return f"step {step:,} of {self.total_steps:,} ({min(100, 100 * step // self.total_steps)}%)"

    def _plain(self, report: Report) -> None:
        self._printed = (time.monotonic(), report)
        self._print(self.line(report))

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        with _perhaps_gone():
            self._out.print(Text(encodable(text)), soft_wrap=True)


@contextmanager
def _perhaps_gone() -> Iterator[None]:
    """What is printed to a terminal that has just closed is lost; SIGHUP then asks the run to save and stop."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
