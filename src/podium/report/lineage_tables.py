"""Tables of a lineage: who came from whom, and which genes held when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from podium.report import tables, words

Entries = Sequence[Mapping[str, Any]]
"""A schedule: step, genes, event."""


def headline(lineage: Mapping[str, Any]) -> str:
    """A lineage in one line."""
    champion, count, begun = lineage["champion"], len(lineage["ancestors"]), start(lineage)
    line = ("the first of this run" if begun else "the first of its line") if count == 1 else f"{count} members in line"
    who = f"member {champion['id']}" + (f", {champion['kind']}" if champion.get("kind") else "")
    after = f" after {begun}" if begun else ""
    return f"{who}, fitness {words.score(champion['fitness'])}, {champion['steps']:,} steps{after}, {line}"


def start(lineage: Mapping[str, Any]) -> str | None:
    """The snapshot that a line began with, in words; None where it began with new weights."""
    found = lineage.get("start")
    return f"member {found['member']} of {found['run']} at its step {found['step']:,}" if found else None


def ancestry(lineage: Mapping[str, Any], title: str) -> Group:
    """The ancestors, the first one first: when each was born, and those of its genes that its parent did not have."""
    out = _table()
    for name in ("id", "from", "gen", "at step", "fitness"):
        out.add_column(name, justify="right", no_wrap=True)
    out.add_column("genes that changed", min_width=20)
    names = changing(lineage["schedule"])
    before: Mapping[str, Any] = {}
    for row in lineage["ancestors"]:
        source = row["origin"] if row["parent"] is None else str(row["parent"])
        moved = {n: row["genes"].get(n) for n in names if n not in before or before[n] != row["genes"].get(n)}
        cells = [str(row["id"]), source, str(row["generation"]), f"{row['born_step']:,}", words.score(row["fitness"])]
        cells.append(words.genes(moved) or words.NOTHING)
        out.add_row(*map(Text, cells), style="bold" if row["id"] == lineage["champion"]["id"] else "")
        before = row["genes"]
    return Group(Text(title, "bold"), out)


def changing(schedule: Entries) -> list[str]:
    """The genes that do not stay the same over a schedule."""
    same = tables.shared(schedule) if len(schedule) > 1 else schedule[0]["genes"]
    return [name for name in dict.fromkeys(n for entry in schedule for n in entry["genes"]) if name not in same]


def throughout(schedule: Entries) -> str:
    """The genes that stay the same over a schedule, in words."""
    moving = changing(schedule)
    return words.genes({name: value for name, value in schedule[0]["genes"].items() if name not in moving})


class Schedule:
    """A schedule: a column for every gene that changes, or where there is no room for that, one for all of them."""

    def __init__(self, schedule: Entries, title: str) -> None:
        self.schedule, self.title, self.names = schedule, title, changing(schedule)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = {name: [words.gene(entry["genes"].get(name), name) for entry in self.schedule] for name in self.names}
        steps, events = [f"{e['step']:,}" for e in self.schedule], [str(e["event"]) for e in self.schedule]
        widths = [max(map(cell_len, [name, *cells])) for name, cells in {**columns, "": steps, "event": events}.items()]
        out = _table()
        out.add_column("step", justify="right", no_wrap=True)
        out.add_column("event", no_wrap=True)
        if sum(widths) + 2 * (len(widths) - 1) <= options.max_width:
            for name in columns:
                out.add_column(name, justify="right", no_wrap=True)
        else:
            columns = {"genes": [words.genes({n: e["genes"].get(n) for n in self.names}) for e in self.schedule]}
            out.add_column("genes", min_width=20)
        for row in zip(steps, events, *columns.values(), strict=True):
            out.add_row(*map(Text, row))
        yield Text(self.title, "bold")
        yield out
        if same := throughout(self.schedule):
            yield Text(f"throughout: {same}")


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
