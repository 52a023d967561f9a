"""Axes of pictures: the scale of a gene, its ticks, and labels that do not cover each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podium.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float, str]
"""x, y and a label."""
MOST = 5
"""Ticks of a gene."""


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
    """Name points, the ends first, where a name covers nothing and no other point is nearer to it."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    seen = [panel.transData.transform(point[:2]) for point in (*points, *others)]
    taken = [Bbox.from_extents(x - 4, y - 4, x + 4, y + 4) for x, y in seen]
    outline: Any = [withStroke(linewidth=2.5, foreground="white")]
    order = [*range(len(points))[:1], *range(len(points))[1:][-1:], *range(1, len(points) - 1)]
    for i in order:
        for dx, dy, side, base in _PLACES:
            text = panel.annotate(points[i][2], points[i][:2], (dx, dy), "data", "offset points")
            text.set(ha=side, va=base, fontsize=8, fontweight="bold", path_effects=outline)
            box = text.get_window_extent()
            middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
            own = min(range(len(points)), key=lambda j: math.dist(seen[j], middle)) == i
            inside = panel.bbox.x0 + 3 < box.x0 and box.x1 <= panel.bbox.x1 and panel.bbox.y0 <= box.y0
            if own and inside and not any(box.overlaps(other) for j, other in enumerate(taken) if j != i):
                taken.append(box)
                break
            text.remove()


_PLACES = (
    *((0, 5, "center", "bottom"), (5, 4, "left", "bottom"), (-5, 4, "right", "bottom")),
    *((0, -5, "center", "top"), (5, -4, "left", "top"), (-5, -4, "right", "top")),
)
"""Where a label may stand beside its point, best first."""


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
