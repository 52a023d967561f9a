"""Tables of members: the leaderboard, and the summary at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from podium.report import words

Row = Mapping[str, Any]
"""A member as `Ledger.top` gives it."""

LEADERBOARD = ("rank", "id", "parent", "algo", "fitness", "steps", "time", "gen", "genes")
SUMMARY = ("rank", "id", "fitness", "steps", "genes", "status")
HEAD, TAIL, MOST = 10, 3, 20

_LEFT = {"algo", "genes", "status"}
_SOURCE = {"time": "seconds", "gen": "generation"}


def table(
    rows: Sequence[Row | None], columns: Sequence[str], title: str | None = None, same: Mapping[str, Any] | None = None
) -> Table:
    """Those columns of each row; None in `rows` stands for rows left out. Genes that are the `same` are said once."""
    if same is None:
        same = shared([row for row in rows if row is not None])
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    out.title = Text(title) if title else None
    out.caption = Text(f"genes of all: {words.genes(same)}") if same and "genes" in columns else None
    out.title_justify = out.caption_justify = "left"
    out.title_style, out.caption_style = "bold", ""
    for name in columns:
        if name == "genes":
            out.add_column(name, min_width=20)
        else:
            out.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    for row in rows:
        if row is None:
            out.add_row(*("..." if name == "rank" else "" for name in columns))
        else:
            out.add_row(*(Text(cell(row, name, same)) for name in columns), style=_style(row))
    return out


def shared(rows: Sequence[Row]) -> dict[str, Any]:
    """The genes that are equal in all of several rows."""
    every = [row.get("genes") or {} for row in rows]
    return {k: v for k, v in every[0].items() if all(k in g and g[k] == v for g in every)} if len(every) > 1 else {}


def leaderboard(rows: Sequence[Row], title: str | None = None) -> Table:
    """What `podium top` shows. It has no room for a status: a failed member's fitness says so."""
    return table(rows, LEADERBOARD, title)


def summary(rows: Sequence[Row], title: str | None = None) -> Table:
    """Every member at the end of a run; of more than 20 the first 10 and the last 3."""
    shown: list[Row | None] = list(rows)
    if len(rows) > MOST:
        shown = [*rows[:HEAD], None, *rows[-TAIL:]]
        title = f"{title or 'members'} ({len(rows)}, {len(rows) - HEAD - TAIL} not shown)"
    return table(shown, SUMMARY, title, shared(rows))


def show(*parts: RenderableType) -> None:
    """Print to stdout; not cut to 80 columns where that is a file or a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(*parts, sep="\n")


def cell(row: Row, column: str, same: Mapping[str, Any]) -> str:
    """One field of a row as text, without the genes that are the same in all rows."""
    value = row.get(_SOURCE.get(column, column))
    if column == "fitness":
        return _fitness(row)
    if column == "time":
        return words.duration(value)
    if column == "genes":
        return words.genes({k: v for k, v in (value or {}).items() if k not in same})
    if value is None:
        return words.NOTHING
    return f"{value:,}" if column == "steps" else str(value)


def _fitness(row: Row) -> str:
    value, std = row.get("fitness"), row.get("std")
    if row.get("status") == "failed":
        return "failed" if value is None else f"{words.score(value)} failed"
    return words.score(value) if value is None or std is None else f"{words.score(value)} ± {words.score(std)}"


def _style(row: Row) -> str:
    if row.get("status") == "failed":
        return "red"
    return "bold" if row.get("rank") == 1 else ""
