"""Axes of pictures: the scale of a gene, its ticks, and labels that do not cover each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from podium.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float, str]
"""x, y and a label."""
Box = tuple[float, float, float, float]
"""left, bottom, right, top, in pixels."""
MOST = 5
"""Ticks of a gene."""
GAPS = (5, 8, 11, 14, 17, 20, 24, 28, 32)
TURNS = (90, 45, 135, 270, 315, 225, 0, 180, 68, 112, 22, 158, 292, 248, 338, 202)
"""Where a name may stand: points between it and its point, and degrees, best first."""
REACH = 40
"""Points within which another point may be nearer to a name."""
SQUEEZED = 0.15
"""An axis is squeezed where its values use less than this share of it."""
NAMES = 80
"""Points at most that a name is sought for: of more, every so many-th."""


def scale(panel: Axes, values: Sequence[float], name: str | None) -> None:
    """Draw a gene's values on its scale; where it is not known, on a logarithmic one if they differ by much."""
    low, high = min(values), max(values)
    wide = low > 0 and high / low > 10
    if name == "one-minus-log" and high < 1 and 1 - low > 1.05 * (1 - high):
        panel.set_yscale("function", functions=(_to_one, _from_one))
        _fixed(panel, 1 - high, 1 - low, lambda value: 1 - value)
    elif low > 0 and high > 1.05 * low if name == "log" else wide and name is None:
        panel.set_yscale("log")
        _fixed(panel, low, high, lambda value: value)
    else:
        near = high - low < 0.02 * abs(high)
        panel.locator_params(axis="y", nbins=4)
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:.8g}" if near else words.gene(float(value)))
        panel.margins(y=0.12)
        if name in (None, "log"):
            spread(panel, "y", values)


def spread(panel: Axes, which: Literal["x", "y"], values: Iterable[float]) -> None:
    """Make an axis logarithmic, to both sides of 0, where a linear one would squeeze half of the values together.

    Where a logarithmic one would not tell them apart either, it stays linear.
    """
    found = sorted(value for value in values if math.isfinite(value))
    sizes = sorted(abs(value) for value in found if value)
    if len(found) < 4 or not sizes:
        return
    bend = 10.0 ** math.floor(math.log10(sizes[len(sizes) // 10]))  # linear below it

    def place(value: float) -> float:
        size = abs(value) / bend
        return math.copysign(size if size < 1 else 1 + math.log10(size), value)

    linear, bent = _balance(found), _balance([place(value) for value in found])
    if linear >= SQUEEZED or bent < linear + 0.1:
        return
    getattr(panel, f"set_{which}scale")("symlog", linthresh=bend)
    axis, marks = getattr(panel, f"{which}axis"), ticks(max(bend, sizes[0]), sizes[-1])
    low, high = found[0] - 0.1 * abs(found[0]), found[-1] + 0.1 * abs(found[-1])
    axis.set_ticks([m for m in (*(-m for m in reversed(marks)), 0.0, *marks) if low <= m <= high])
    axis.set_ticks([], minor=True)
    axis.set_major_formatter(number)


def _balance(ordered: Sequence[float]) -> float:
    """How well some numbers use their range: near 0 where half of them, or their median, are pressed together."""
    low, high = ordered[0], ordered[-1]
    if high == low:
        return 1.0
    first, middle, third = (ordered[len(ordered) * k // 4] for k in (1, 2, 3))
    return min(third - first, 2 * (middle - low), 2 * (high - middle)) / (high - low)


def number(value: float, _: object = None) -> str:
    """A tick: -1,200, 0.25, 1e6."""
    return f"{value:,g}".replace("e+0", "e").replace("e-0", "e-")


def ticks(low: float, high: float) -> list[float]:
    """Round numbers about `low` to `high` on a logarithmic scale, at most five, at least two within or beside them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), range(1, 10), [n / 10 for n in range(10, 100)]):
        found = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
        inside = [value for value in found if low / 1.01 <= value <= high * 1.01]
        if len(inside) > 1:
            return inside[:: math.ceil(len(inside) / MOST)]
    return [low, high]


def label(panel: Axes, points: Sequence[Point], others: Sequence[tuple[float, float]] = ()) -> None:
    """Name points, the ends first: beside a point where its name covers nothing, else a little off, with a line to it.

    A name that has no room there either is left out. Markers are to be drawn above names, whose halo would cut them.
    """
    from matplotlib.patheffects import withStroke

    seen = [panel.transData.transform(point[:2]) for point in (*points, *others)]
    dot = 4.3 * panel.figure.dpi / 72  # a marker and a little room
    taken: list[Box] = [(x - dot, y - dot, x + dot, y + dot) for x, y in seen]
    outline: Any = [withStroke(linewidth=2.5, foreground="white")]
    between = range(1, len(points) - 1, max(1, len(points) // NAMES))
    for i in [*range(len(points))[:1], *range(len(points))[1:][-1:], *between]:
        text = panel.annotate(points[i][2], points[i][:2], (0, 0), "data", "offset points")
        text.set(ha="center", va="center", fontsize=8, fontweight="bold", path_effects=outline, zorder=3)
        box = text.get_window_extent()
        text.remove()
        found = _place(panel, (box.width, box.height), seen, i, taken)
        if found is None:
            continue
        (dx, dy), far, boxes = found
        taken += boxes
        line = {"arrowstyle": "-", "color": "#6b6b6b", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
        text = panel.annotate(
            points[i][2], points[i][:2], (dx, dy), "data", "offset points", arrowprops=line if far else None
        )
        text.set(ha="center", va="center", fontsize=8, fontweight="bold", path_effects=outline, zorder=3)


def _place(
    panel: Axes, size: tuple[float, float], seen: Sequence[Any], i: int, taken: Sequence[Box]
) -> tuple[tuple[float, float], bool, list[Box]] | None:
    """Where a name of that `size` goes: offset in points, whether that needs a line, and all that it then takes."""
    (x, y), (width, height), point = seen[i], size, panel.figure.dpi / 72
    edge = panel.bbox
    reach = (REACH + GAPS[-1]) * point + width  # nothing beyond it can be covered
    around = (x - reach, y - reach, x + reach, y + reach)
    rivals = [box for j, box in enumerate(taken) if j != i and _overlap(box, around)]
    near = [other for other in seen if math.dist(other, (x, y)) < REACH * point + width]
    for gap in GAPS:
        for turn in TURNS:
            way = math.cos(math.radians(turn)), math.sin(math.radians(turn))
            middle = x + way[0] * (gap * point + width / 2), y + way[1] * (gap * point + height / 2)
            box = (middle[0] - width / 2, middle[1] - height / 2, middle[0] + width / 2, middle[1] + height / 2)
            inside = edge.x0 + 3 < box[0] and box[2] <= edge.x1 and edge.y0 <= box[1] and box[3] <= edge.y1 + height
            far = gap > GAPS[0]
            own = far or min(math.dist(other, middle) for other in near) == math.dist((x, y), middle)
            if not inside or not own:
                continue
            line = [(x + (middle[0] - x) * k / 16, y + (middle[1] - y) * k / 16) for k in range(1, 16)] if far else []
            off = [(a, b) for a, b in line if math.dist((a, b), (x, y)) > 8 * point]  # where it has left its own marker
            boxes = [box, *((a - 1, b - 1, a + 1, b + 1) for a, b in off)]
            if not any(_overlap(mine, other) for mine in boxes for other in rivals):
                return ((middle[0] - x) / point, (middle[1] - y) / point), far, boxes
    return None


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _fixed(panel: Axes, low: float, high: float, value_of: Any) -> None:
    """Limits a little beyond `low` and `high` on a logarithmic scale, and ticks within."""
    room = (high / low) ** 0.12
    panel.set_ylim(*sorted(value_of(end) for end in (low / room, high * room)))
    marks = [value_of(mark) for mark in ticks(low, high)]
    panel.minorticks_off()
    panel.set_yticks(marks, [f"{mark:.5g}" if value_of(1.0) == 0 else words.gene(mark) for mark in marks])


def _to_one(value: Any) -> Any:
    """How near to 1, on a logarithmic scale."""
    import numpy as np

    return -np.log10(np.maximum(1 - value, 1e-12))


def _from_one(height: Any) -> Any:
    return 1 - 10.0**-height
