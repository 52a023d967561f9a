"""What the commands share: the app, options by name, and how results are printed."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podium import __version__
from podium.core.errors import EnvFailed, EnvRaised, PodiumError

if TYPE_CHECKING:
    from podium.store.ledger import Ledger

app = typer.Typer(
    name="podium",
    help="Populations of deep reinforcement learning agents, trained as one tensor program.",
    epilog="Start with: podium train cartpole ppo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Words = Annotated[
    list[str],
    typer.Argument(metavar="WORDS...", help="Presets, YAML files, a Gymnasium id, key=value.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="The run's folder; else runs/NAME-N.", show_default=False),
]
Fresh = Annotated[bool, typer.Option("-D", "--fresh", help="Delete the run in DIR and start it afresh.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)]
MemberId = Annotated[
    int | None, typer.Option("--member", metavar="ID", help="A member, not the champion.", show_default=False)
]
BestOf = Annotated[
    str | None,
    typer.Option("--ensemble", metavar="top:K", help="The best K members together.", show_default=False),
]
EnvId = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="ID", help="A Gymnasium env with the same spaces, not the run's.", show_default=False
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the episodes.")]
Trust = Annotated[bool, typer.Option("--trust", help="Allow this run to import the code that it names.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it: FILE.png, FILE.svg or FILE.pdf.", show_default=False),
]
EVERY = 0.5
"""Seconds between two looks at what takes long."""
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def main() -> None:
    """Run the command line; an error that a user can cause is one line, exit code 2, any other one, exit code 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr is: a path may hold bytes that are no text
    try:
        _check_folder()
        app()
    except PodiumError as error:
        lines = isinstance(error, EnvFailed | EnvRaised)  # of a traceback
        text = error.typed if lines else " ".join(error.typed.split())
        print(f"podium: error: {text}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        from podium.cli import unforeseen

        unforeseen.tell(error)
        sys.exit(1)


def _check_folder() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise PodiumError(f"the current folder cannot be used ({error.strerror}); change to another one") from error


@contextmanager
def ended_by(signals: type[KeyboardInterrupt], what: str) -> Iterator[None]:
    """Turn Ctrl-C, which would be "Aborted!", into one line that says so, and the exit code that shells expect."""
    try:
        yield
    except signals as error:
        print(f"podium: {what}", file=sys.stderr)
        raise typer.Exit(128 + getattr(error, "number", signal.SIGINT)) from error


@contextmanager
def counter() -> Iterator[Callable[[int, int], None]]:
    """Shows on a terminal how many episodes have ended, where they take longer than a moment."""
    shown = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown
        if sys.stderr.isatty() and time.monotonic() - shown > EVERY:
            shown = time.monotonic()
            print(f"\r{done} of {total} episodes", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"podium {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def ledger_of(run: Path) -> Ledger:
    """The ledger of a run, for reading."""
    from podium.report import documents

    return documents.ledger_of(run)


def print_table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from podium.report import tables

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        number = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(column, justify="right" if number else "left", no_wrap=column != "about")
    for row in rows:
        table.add_row(*(f"{row[c]:,.4g}" if isinstance(row[c], float) else escape(str(row[c])) for c in columns))
    tables.show(table)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))
