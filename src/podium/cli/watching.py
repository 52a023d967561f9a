"""`podium top --watch`: the leaderboard of a run, shown anew until the run ends."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live

from podium.cli.base import ledger_of
from podium.report.tables import Fitted
from podium.store.ledger import Ledger
from podium.store.lock import held

EVERY = 2
"""Seconds between two looks."""


def watch(run: Path, view: Callable[[], Fitted]) -> None:
    """Show what `view` gives, until nobody trains or nobody writes to the run any more."""
    console, ledger = Console(highlight=False), ledger_of(run)
    with Live(_fitting(console, view()), console=console, auto_refresh=False) as live:
        try:
            while held(run / "lock") and ledger.training():
                time.sleep(EVERY)
                live.update(_fitting(console, view()), refresh=True)
            live.update(_fitting(console, view()), refresh=True)
        except KeyboardInterrupt:
            return
    say_stopped(run, ledger)


def say_stopped(run: Path, ledger: Ledger) -> None:
    """If members would still be training, but nobody writes to the run any more."""
    if not held(run / "lock") and ledger.training():
        print(f"The run has stopped before its end. Go on with:  podium resume {shlex.quote(str(run))}")


def _fitting(console: Console, shown: Fitted) -> Fitted:
    """As many of the first rows as the screen has room for."""
    while console.is_terminal and len(shown.rows) > 1:
        over = len(console.render_lines(shown)) - (console.height - 1)
        if over <= 0:
            break
        shown = shown.first(len(shown.rows) - max(1, over // 4))  # a row may be several lines
    return shown
