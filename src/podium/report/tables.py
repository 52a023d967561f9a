"""Tables of members: the leaderboard, and the summary at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from podium.report import words
from podium.report.alike import Alike, kind

Row = Mapping[str, Any]
"""A member as `Ledger.top` gives it."""

LEADERBOARD = (
    "rank",
    "front",
    "id",
    "parent",
    "algo",
    "fitness",
    "objectives",
    "steps",
    "time",
    "gen",
    "status",
    "genes",
)
FRONT = ("id", "parent", "algo", "objectives", "fitness", "steps", "time", "gen", "status", "genes")
SUMMARY = ("rank", "id", "fitness", "steps", "genes", "status")
SPARE = ("status", "time", "parent", "gen", "front")
"""Columns that a narrow table goes without, in this order."""
LAST = ("algo", "genes", "objectives", "steps", "rank")
"""What a very narrow one goes without, too: a column that is not there is better than a number that is cut."""
HEAD, TAIL, MOST = 10, 3, 20

_LEFT = {"algo", "objectives", "genes", "status"}
_WORDS = {"genes": 20, "objectives": 20}
"""Columns whose words are wrapped, and their least width."""
_SOURCE = {"time": "seconds", "gen": "generation"}
_OBJECTIVE = "objectives."


def table(
    rows: Sequence[Row | None], columns: Sequence[str], title: str | None = None, alike: Alike | None = None
) -> Table:
    """Those columns of each row; None in `rows` stands for rows left out. Genes that are `alike` are said once."""
    if alike is None:
        alike = Alike([row for row in rows if row is not None])
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    out.title = Text(title) if title else None
    out.caption = Text("\n".join(alike.lines())) if "genes" in columns and alike.lines() else None
    out.title_justify = out.caption_justify = "left"
    out.title_style, out.caption_style = "bold", ""
    for name in columns:
        if name in _WORDS:
            out.add_column(name, min_width=_least(name, columns))
        else:
            side = "left" if name in _LEFT else "right"
            out.add_column(name.removeprefix(_OBJECTIVE), justify=side, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        if row is None:
            out.add_row(*("..." if name == "rank" else "" for name in columns))
        else:
            out.add_row(*(Text(cell(row, name, alike.of(row))) for name in columns), style=_style(row))
    return out


class Fitted:
    """Those columns of each row that fit where it is shown; objectives in columns of their own, else in one."""

    def __init__(
        self, rows: Sequence[Row], columns: Sequence[str], title: str | None = None, alike: Alike | None = None
    ) -> None:
        self.rows, self.columns, self.title = rows, columns, title
        self._alike = alike or Alike(rows)

    def first(self, n: int | None) -> Fitted:
        """The first rows only; what all have alike is still said of all."""
        return Fitted(self.rows[:n], self.columns, self.title, self._alike)

    def choices(self) -> list[list[str]]:
        """Sets of columns, the widest first."""
        names = objectives(self.rows)
        wide: list[str] = []
        for column in self.columns:
            if column == "objectives":
                wide += [_OBJECTIVE + name for name in names]
            elif column != "front" or names:
                wide.append(column)
        out = [[c for c in wide if c not in SPARE[:n]] for n in range(len(SPARE) + 1)]
        narrow = [c for c in self.columns if c not in SPARE and (c != "objectives" or names)]
        return [*out, *([c for c in narrow if c not in LAST[:n]] for n in range(len(LAST) + 1))]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fits = (columns for columns in self.choices() if self._width(columns) <= options.max_width)
        if self.title:  # above the table, which may be narrower than it
            yield Text(self.title, style="bold")
        yield table(self.rows, next(fits, self.choices()[-1]), alike=self._alike)

    def _width(self, columns: Sequence[str]) -> int:
        gaps = 2 * (len(columns) - 1)
        return gaps + sum(
            _least(name, columns)
            if name in _WORDS
            else max(
                cell_len(text) for text in [name.removeprefix(_OBJECTIVE), *(cell(r, name, {}) for r in self.rows)]
            )
            for name in columns
        )


def objectives(rows: Sequence[Row]) -> list[str]:
    """The names of the objectives of several rows, in the order they come."""
    return list(dict.fromkeys(name for row in rows for name in row.get("objectives") or ()))


def shared(rows: Sequence[Row]) -> dict[str, Any]:
    """The genes that are equal in all of several rows."""
    every = [row.get("genes") or {} for row in rows]
    return {k: v for k, v in every[0].items() if all(k in g and g[k] == v for g in every)} if len(every) > 1 else {}


def leaderboard(rows: Sequence[Row], title: str | None = None) -> Fitted:
    """What `podium top` shows. Where there is no room for a status, a failed member's fitness says so."""
    return Fitted(rows, LEADERBOARD, title)


def front(rows: Sequence[Row], title: str | None = None) -> Fitted:
    """Members with their objectives, as `podium front` shows them."""
    return Fitted(rows, FRONT, title)


def summary(rows: Sequence[Row], title: str | None = None) -> Table:
    """Every member at the end of a run; of more than 20 the first 10 and the last 3."""
    shown: list[Row | None] = list(rows)
    if len(rows) > MOST:
        shown = [*rows[:HEAD], None, *rows[-TAIL:]]
        title = f"{title or 'members'} ({len(rows)}, {len(rows) - HEAD - TAIL} not shown)"
    return table(shown, SUMMARY, title, Alike(rows))


def show(*parts: RenderableType) -> None:
    """Print to stdout; not cut to 80 columns where that is a file or a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(*parts, sep="\n")


def cell(row: Row, column: str, same: Mapping[str, Any]) -> str:
    """One field of a row as text, without the genes that are the `same` as others'."""
    value = row.get(_SOURCE.get(column, column))
    if column == "fitness":
        return _fitness(row)
    if column == "algo":
        return kind(row)
    if column == "time":
        return words.duration(value)
    if column == "objectives":
        return "  ".join(f"{name} {words.score(number)}" for name, number in (value or {}).items())
    if column.startswith(_OBJECTIVE):
        return words.score((row.get("objectives") or {}).get(column.removeprefix(_OBJECTIVE)))
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


def _least(column: str, columns: Sequence[str]) -> int:
    """The least width of a column of words: less of it where objectives take room."""
    crowded = any(name.startswith("objectives") for name in columns)
    return 12 if column == "genes" and crowded else _WORDS[column]


def _style(row: Row) -> str:
    if row.get("status") == "failed":
        return "red"
    return "bold" if row.get("rank") == 1 else ""
