"""Pictures: schedules of genes, fronts, curves. matplotlib is imported here and nowhere else, and only to draw."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.core.errors import ConfigError, PodiumError
from podium.report import axes, lineage_tables, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
VECTORS = 2000
"""Points that are drawn as such behind a line; more become a picture within the picture."""

# Of Okabe and Ito (2008): apart for every kind of colour vision.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, "#000000")
GREY, FAINT = "#6b6b6b", "#d9d9d9"
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": "#333333",
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "#333333",
    "ytick.labelcolor": "#333333",
    "grid.color": "#ececec",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.solid_capstyle": "butt",
    "svg.hashsalt": "podium",  # the same picture is the same file
    "svg.fonttype": "none",
}


def check(path: Path, field: str = "--plot") -> None:
    """Refuse a file that no picture can be written to, before anything is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(field, str(path), f"a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(field, str(path), "there is no such folder")


def schedule(
    lineage: Mapping[str, Any],
    path: Path,
    scales: Mapping[str, str] | None = None,
    population: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Fitness along a lineage and, below it, every gene that changed, over the steps of training behind the weights.

    A gene is drawn on its own scale, if `scales` names it. The `population` (id, genes, start, end, scores of each
    member) is drawn faintly behind the line.
    """
    champion, entries = lineage["champion"], lineage["schedule"]
    end = max(champion["steps"], entries[-1]["step"], 1)
    others = [member for member in population if member["start"] <= end]
    replayed = any(entry["event"] == "schedule" for entry in entries)  # by all: the ledger has what they began with
    names = _searched(entries, () if replayed else others)
    with _figure(path, 7.2, 2.7 + 1.1 * len(names)) as figure:
        panels = _panels(figure, ["fitness", *names], entries, end)
        _fitness(panels[0], lineage, end, others)
        for panel, name in zip(panels[1:], names, strict=True):
            lives = [(m["start"], m["end"], m["genes"].get(name)) for m in others if not replayed]
            _gene(
                panel, name, [(e["step"], e["genes"].get(name)) for e in entries], end, (scales or {}).get(name), lives
            )
        figure.align_ylabels(panels)
        begun = lineage_tables.start(lineage)
        panels[-1].set_xlabel(f"steps after {begun}" if begun else "steps of training behind the weights")
        panels[-1].xaxis.set_major_formatter(_count)
        title = f"Lineage of member {champion['id']}, fitness {words.score(champion['fitness'])}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        if same := words.genes({n: value for n, value in entries[0]["genes"].items() if n not in names}):
            note = textwrap.fill(f"throughout: {same}", 110)
            figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color=GREY)


def _panels(figure: Figure, names: Sequence[str], entries: Sequence[Mapping[str, Any]], end: int) -> list[Axes]:
    """One panel below the other, the first one higher, with lines where another member of the line begins."""
    heights = [1.8, *[1.0] * (len(names) - 1)]
    panels = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
    for panel, name in zip(panels, names, strict=True):
        panel.set_xlim(0, end * 1.01)
        panel.set_ylabel(name)
        panel.grid(axis="y")
        panel.tick_params(axis="x", bottom=panel is panels[-1])
        for entry in entries[1:]:
            panel.axvline(entry["step"], color=FAINT, linewidth=0.8, alpha=min(1, 50 / len(entries)), zorder=0)
    return panels


def _searched(entries: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """The genes that changed along a line, or that others have with other values than it began with."""
    changed, first = lineage_tables.changing(entries), entries[0]["genes"]
    varied = {n for m in others for n, v in m["genes"].items() if n in first and v != first[n]}
    return [name for name in first if name in varied or name in changed] + [n for n in changed if n not in first]


def _fitness(panel: Axes, lineage: Mapping[str, Any], end: int, others: Sequence[Mapping[str, Any]]) -> None:
    """The scores along the line, and on top the ids of its members where each begins, those that there is room for."""
    champion, scores = lineage["champion"], lineage["scores"]
    steps, values = [s["step"] for s in scores], [s["fitness"] for s in scores]
    _behind(panel, [member["scores"] for member in others], end)
    panel.plot(steps, values, "o-" if len(scores) < 150 else "-", color=BLUE, linewidth=1.4, markersize=2.5)
    if champion["fitness"] is not None:
        panel.plot(champion["steps"], champion["fitness"], "o", color=RED, markersize=6, clip_on=False, zorder=5)
    panel.yaxis.set_major_formatter(axes.number)
    axes.spread(panel, "y", [*values, *(value for m in others for step, value in m["scores"] if step <= end)])
    panel.set_title("members in line, by id", loc="left", fontsize=8, color=GREY, pad=13)
    if len(others) > len(lineage["ancestors"]):
        panel.set_title(f"grey: {len(others):,} members of the run", loc="right", fontsize=8, color=GREY, pad=13)
    free = end * 1.04
    for row in reversed(lineage["ancestors"]):
        where = min(row["inherited"], end * 0.985)
        right = where + end * 0.0115 * len(str(row["id"]))
        if right <= free:
            place: Any = ("data", "axes fraction")
            panel.annotate(str(row["id"]), (where, 1.0), (0, 2), place, "offset points", fontsize=7, color=GREY)
            free = where - end * 0.01


def _behind(panel: Axes, lines: Sequence[Sequence[tuple[float, float]]], end: int) -> None:
    """Many lines as one faint artist; of many points a picture, so that the file does not grow with them."""
    from matplotlib.collections import LineCollection

    shown = [point for line in lines for point in line if point[0] <= end]
    if not shown:
        return
    alpha = max(0.08, min(0.5, 3 / math.sqrt(len(lines))))
    # A line of one point is a dot: its cap is round.
    segments = [line if len(line) > 1 else [*line, *line] for line in lines if line]
    drawn = LineCollection(segments, colors=GREY, linewidths=1.0, alpha=alpha, capstyle="round", zorder=1)
    drawn.set_rasterized(len(shown) > VECTORS)
    panel.add_collection(drawn, autolim=False)
    panel.update_datalim(shown)


def _gene(
    panel: Axes,
    name: str,
    points: Sequence[tuple[int, float | None]],
    end: int,
    scale: str | None,
    lives: Sequence[tuple[int, int, float | None]] = (),
) -> None:
    """One gene as steps; grey where it is off. Behind it, that of others as lines: from, to, value."""
    known = [(begin, last, value) for begin, last, value in lives if value is not None]
    axes.scale(panel, [value for _, value in points if value is not None] + [value for *_, value in known], scale)
    _behind(panel, [[(begin, value), (max(last, begin), value)] for begin, last, value in known], end)
    edges = [*(step for step, _ in points), end]
    panel.stairs([math.nan if v is None else v for _, v in points], edges, baseline=None, color=BLUE, linewidth=1.8)
    for off, run in itertools.groupby(zip(points, itertools.pairwise(edges), strict=True), lambda p: p[0][1] is None):
        spans = [span for _, span in run]
        left, right = spans[0][0], spans[-1][1]
        if off:
            panel.axvspan(left, right, color="#f3f3f3", linewidth=0, zorder=0)
        if off and right - left > 0.04 * end:
            place: Any = ("data", "axes fraction")
            panel.annotate(
                words.gene(None, name), ((left + right) / 2, 0.5), None, place, ha="center", va="center", color=GREY
            )


def front(rows: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path, title: str = "Front") -> None:
    """The leaderboard by its objectives, each against each: the first front in colour, with the ids of its members.

    Of an objective `-name` the least is best.
    """
    if len(names) < 2:
        raise PodiumError(f"a front needs two objectives or more, and here are {len(names)}")
    pairs = list(itertools.combinations(names, 2))
    across = min(len(pairs), 3)
    down = math.ceil(len(pairs) / across)
    with _figure(path, 6.0 if across == 1 else 3.6 * across, (4.6 if across == 1 else 3.4) * down + 0.3) as figure:
        panels = figure.subplots(down, across, squeeze=False).flatten()
        drawn = [_pair(panel, rows, *pair, stairs=len(names) == 2) for panel, pair in zip(panels, pairs, strict=False)]
        for panel in panels[len(pairs) :]:
            panel.set_visible(False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
        figure.draw_without_rendering()  # where things stand is known only then
        for panel, points in zip(panels, drawn, strict=False):
            axes.label(panel, *points)


_Points = tuple[list[axes.Point], list[tuple[float, float]]]


def _pair(panel: Axes, rows: Sequence[Mapping[str, Any]], x: str, y: str, stairs: bool) -> _Points:
    """One objective against another; the points of the first front with their ids, and those of the others."""
    across, up = x.removeprefix("-"), y.removeprefix("-")
    points = sorted(
        (objectives[across], objectives[up], row["id"], row.get("front", 0))
        for row in rows
        if None not in ((objectives := row.get("objectives") or {}).get(across), objectives.get(up))
    )
    first, others = [p for p in points if p[3] == 0], [p for p in points if p[3] != 0]
    panel.grid()
    panel.set(xlabel=_better(x), ylabel=_better(y))
    panel.margins(0.1)
    panel.locator_params(nbins=6 if stairs else 4)
    axes.spread(panel, "x", [p[0] for p in points])
    axes.spread(panel, "y", [p[1] for p in points])
    if stairs:  # what a point attains holds for all that is worse across: to its left where more is better
        rule = "steps-post" if x.startswith("-") else "steps-pre"
        panel.plot([p[0] for p in first], [p[1] for p in first], color=BLUE, linewidth=1.2, drawstyle=rule)
    for points, colour, size, name in ((others, "#c4c4c4", 5, "dominated"), (first, BLUE, 6.5, "on the front, by id")):
        (drawn,) = panel.plot([p[0] for p in points], [p[1] for p in points], "o", color=colour)
        drawn.set(markersize=size, markeredgecolor="white", markeredgewidth=0.5, zorder=4)  # above the halos of ids
        drawn.set_label(f"{name} ({len(points)})" if points else "_")
    return [(p[0], p[1], str(p[2])) for p in first], [(p[0], p[1]) for p in others]


def _better(objective: str) -> str:
    """The label of an axis."""
    return f"{objective.removeprefix('-')} ({'lower' if objective.startswith('-') else 'higher'} is better)"


def curves(series: Sequence[Mapping[str, Any]], path: Path, xlabel: str, ylabel: str, title: str) -> None:
    """Lines with bands: each of `series` has name, x, median, low, high."""
    with _figure(path, 6.4, 4.0) as figure:
        panel = figure.subplots()
        panel.grid(axis="y")
        panel.set(xlabel=xlabel, ylabel=ylabel)
        panel.margins(x=0)
        panel.set_title(title, loc="left", fontsize=12, fontweight="bold")
        for i, line in enumerate(series):
            colour, dash = COLOURS[i % len(COLOURS)], ("-", "--", ":")[i // len(COLOURS) % 3]
            panel.plot(line["x"], line["median"], dash, color=colour, linewidth=1.8, label=line["name"])
            panel.fill_between(line["x"], line["low"], line["high"], color=colour, alpha=0.15, linewidth=0)
        panel.xaxis.set_major_formatter(_count)
        panel.legend()


def _count(value: float, _: object) -> str:
    """A tick: 500, 2.5k, 1.25M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


@contextmanager
def _figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure, written to `path` at the end."""
    check(path)
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        metadata = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix.lower()]
        try:
            figure.savefig(path, dpi=160, metadata=metadata)
        except OSError as error:
            raise PodiumError(f"{path}: cannot be written ({error.strerror})") from error
