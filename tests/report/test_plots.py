"""Pictures: that they are written, and that they show what they should."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import imageio.v2
import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from podium.core.errors import ConfigError, PodiumError
from podium.report import axes, plots

GENES = ({"lr": 1e-3, "n": 64, "kl": None}, {"lr": 2e-4, "n": 64, "kl": 0.01}, {"lr": 5e-5, "n": 64, "kl": None})
LINEAGE: dict[str, Any] = {
    "champion": {"id": 9, "fitness": 481.5, "steps": 900},
    "ancestors": [
        {"id": i, "fitness": f, "inherited": s} for i, f, s in ((0, 100.0, 0), (4, 300.0, 300), (9, 481.5, 600))
    ],
    "schedule": [
        {"step": step, "genes": genes, "event": event}
        for step, genes, event in zip((0, 300, 600), GENES, ("start", "from 0", "from 4"), strict=True)
    ],
    "scores": [{"step": s, "fitness": s / 2, "id": 0} for s in range(100, 1000, 100)],
}
ROWS: list[dict[str, Any]] = [
    {"id": i, "front": front, "objectives": {"speed": x, "calm": y, "cost": x * y}}
    for i, (x, y, front) in enumerate([(1.0, 9.0, 0), (4.0, 8.0, 0), (9.0, 1.0, 0), (2.0, 2.0, 1), (1.0, 1.0, 2)])
]
SERIES = [
    {"name": f"s{i}", "x": [0, 1000, 2000], "median": [i, 2, 3], "low": [0, 1, 2], "high": [4, 5, 6]} for i in range(9)
]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were written."""
    figures: list[Figure] = []
    keep = plots._figure

    @contextmanager
    def figure(*size: Any) -> Iterator[Figure]:
        with keep(*size) as made:
            figures.append(made)
            yield made

    monkeypatch.setattr(plots, "_figure", figure)
    return figures


def texts(panel: Any) -> list[str]:
    return [text.get_text() for text in panel.texts]


def apart(figure: Figure) -> bool:
    """Whether no two words on top of a panel cover each other."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    every = [text for panel in figure.axes for text in (*panel.texts, panel._left_title)]
    boxes = [Text.get_window_extent(text, renderer) for text in every]  # an annotation's own would hold its line, too
    boxes = [box for box in boxes if box.width]
    return not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "PNG"])
def test_each_kind_of_file(suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    plots.schedule(LINEAGE, first)
    plots.schedule(LINEAGE, second)
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix.lower()]
    assert first.read_bytes().startswith(magic)
    assert first.read_bytes() == second.read_bytes()
    if suffix == "png":
        picture = imageio.v2.imread(first)
        assert picture.shape[1] > 1000 and len(np.unique(picture[..., 0])) > 20


def test_a_schedule_has_a_panel_for_every_gene_that_changes(drawn: list[Figure], tmp_path: Path) -> None:
    plots.schedule(LINEAGE, tmp_path / "a.png")
    figure = drawn[0]
    fitness, lr, kl = figure.axes
    assert [panel.get_ylabel() for panel in figure.axes] == ["fitness", "lr", "kl"]
    assert (lr.get_yscale(), kl.get_yscale()) == ("log", "linear")
    assert texts(fitness) == ["9", "4", "0"] and texts(kl) == ["off", "off"]
    assert apart(figure)
    values, edges, _ = lr.patches[0].get_data()  # type: ignore[attr-defined]
    assert values.tolist() == [1e-3, 2e-4, 5e-5] and edges.tolist() == [0, 300, 600, 900]
    assert [line.get_xdata()[0] for line in lr.lines] == [300, 600]  # type: ignore[index]
    assert figure.get_suptitle() == "Lineage of member 9, fitness 481.5"
    assert figure.get_supxlabel() == "throughout: n 64"


def crowd(count: int, fitness: float = 1.0) -> list[dict[str, Any]]:
    """`count` members with genes and scores of their own, on the clock of the line."""
    return [
        {
            "id": i,
            "genes": {"lr": 10 ** (-4 + 3 * i / count), "n": 64, "kl": 0.02 if i % 2 else None},
            "start": 300 * (i % 3),
            "end": 300 * (i % 3) + 250,
            "scores": [(300 * (i % 3) + 100 * k, fitness * i * k) for k in range(3)],
        }
        for i in range(count)
    ]


def test_the_population_stands_behind_the_line(drawn: list[Figure], tmp_path: Path) -> None:
    late = {"id": 99, "genes": {"lr": 9.0}, "start": 5000, "end": 9000, "scores": [(5000, 1e9)]}  # after the line's end
    alone = {"id": 98, "genes": {"lr": 0.5, "n": 32}, "start": 0, "end": 0, "scores": [(50, 7.0)]}
    plots.schedule(LINEAGE, tmp_path / "a.png", {}, [*crowd(12), alone, late])
    fitness, lr, n, kl = drawn[0].axes
    assert [panel.get_ylabel() for panel in drawn[0].axes] == ["fitness", "lr", "n", "kl"]  # n varies among the others
    assert fitness.get_title("right") == "grey: 13 members of the run" and drawn[0].get_supxlabel() == ""
    (behind,) = fitness.collections
    lines = [line.tolist() for line in behind.get_segments()]  # type: ignore[attr-defined]
    assert len(lines) == 13 and lines[5] == [[600, 0], [700, 5], [800, 10]] and lines[12] == [[50, 7], [50, 7]]
    assert behind.get_zorder() < min(line.get_zorder() for line in fitness.lines if line.get_color() == plots.BLUE)
    assert fitness.get_ylim()[1] < 1000 and lr.get_ylim()[0] < 1.1e-4
    (genes,) = kl.collections  # only those of whom it is on
    spans = [span.tolist() for span in genes.get_segments()]  # type: ignore[attr-defined]
    assert len(spans) == 6 and spans[0] == [[300, 0.02], [550, 0.02]]
    assert n.patches[0].get_data().values.tolist() == [64, 64, 64]  # type: ignore[attr-defined]


def test_genes_of_members_that_follow_a_schedule_are_not_drawn(drawn: list[Figure], tmp_path: Path) -> None:
    """The ledger has those of step 0 only, and all members have the same."""
    line = copy.deepcopy(LINEAGE)
    line["schedule"][1]["event"] = line["schedule"][2]["event"] = "schedule"
    plots.schedule(line, tmp_path / "a.png", {}, crowd(12))
    assert [len(panel.collections) for panel in drawn[0].axes] == [1, 0, 0]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_thousands_of_members_are_few_artists_in_a_small_file(suffix: str, drawn: list[Figure], tmp_path: Path) -> None:
    plots.schedule(LINEAGE, tmp_path / f"a.{suffix}", {}, crowd(4000))
    assert (tmp_path / f"a.{suffix}").stat().st_size < 500_000
    assert all(len(panel.collections) == 1 and len(panel.get_children()) < 40 for panel in drawn[0].axes)


SKEWED = {
    "far below": ([-1e5, -3e4, -8e3, -900, -300, -150, -120, -110, -100], "symlog"),
    "far above": ([1, 3, 10, 30, 100, 300, 1e3, 1e4, 1e5], "symlog"),
    "both sides": ([-1e4, -100, -3, -1, 0, 1, 3, 100, 1e4], "symlog"),
    "even": (list(range(-1200, -100, 100)), "linear"),
    "most at the top": ([10, 20, 480, 500, 500, 500, 500, 500, 500], "linear"),
    "all the same": ([5.0] * 9, "linear"),
    "one far off": ([-1e6, *[500.0 + i for i in range(8)]], "linear"),  # a logarithm would not part the others
    "few": ([1, 10, 1e5], "linear"),
}


@pytest.mark.parametrize("name", SKEWED)
def test_what_is_skewed_is_drawn_by_its_logarithm(name: str, drawn: list[Figure], tmp_path: Path) -> None:
    values, scale = SKEWED[name]
    line = copy.deepcopy(LINEAGE)
    line["scores"] = [{"step": 100 * i, "fitness": value, "id": 0} for i, value in enumerate(values)]
    line["champion"]["fitness"] = values[-1]
    plots.schedule(line, tmp_path / "a.png")
    rows = [{"id": i, "front": i % 2, "objectives": {"a": v, "b": i}} for i, v in enumerate(values)]
    plots.front(rows, ["a", "b"], tmp_path / "b.png")
    fitness, (panel,) = drawn[0].axes[0], drawn[1].axes
    assert (fitness.get_yscale(), panel.get_xscale(), panel.get_yscale()) == (scale, scale, "linear")
    if scale == "symlog":
        ticks = [label.get_text() for label in fitness.get_yticklabels()]
        assert 2 < len(ticks) == len(set(ticks)) and not fitness.get_yticks(minor=True).size
    assert fitness.get_ylim()[0] <= min(values) and fitness.get_ylim()[1] >= max(values)
    assert apart(drawn[0]) and apart(drawn[1])


@pytest.mark.parametrize("count", [1, 2, 40, 400])
def test_ids_never_cover_each_other(count: int, drawn: list[Figure], tmp_path: Path) -> None:
    line = copy.deepcopy(LINEAGE)
    line["schedule"] = [{"step": 900 * i // count, "genes": {"lr": float(i)}, "event": "from 1"} for i in range(count)]
    line["ancestors"] = [{"id": 3 * i, "fitness": None, "inherited": 900 * i // count} for i in range(count)]
    plots.schedule(line, tmp_path / "a.png")
    assert apart(drawn[0])
    assert len(texts(drawn[0].axes[0])) >= min(count, 8)


def test_a_schedule_of_one_member(drawn: list[Figure], tmp_path: Path) -> None:
    start = {"run": "runs/a", "member": 3, "step": 50000}
    plots.schedule({**LINEAGE, "ancestors": LINEAGE["ancestors"][:1], "start": start}, tmp_path / "a.png")
    assert texts(drawn[0].axes[0]) == ["0"] and len(drawn[0].axes) == 3
    assert drawn[0].axes[-1].get_xlabel() == "steps after member 3 of runs/a at its step 50,000"


def test_a_line_of_one_without_a_score(drawn: list[Figure], tmp_path: Path) -> None:
    line: dict[str, Any] = {"champion": {"id": 1, "fitness": None, "steps": 0}, "scores": []}
    line["ancestors"] = [{"id": 1, "fitness": None, "inherited": 0}]
    plots.schedule({**line, "schedule": LINEAGE["schedule"][:1]}, tmp_path / "a.png")
    assert len(drawn[0].axes) == 1
    assert drawn[0].get_supxlabel() == "throughout: lr 0.001  n 64  kl off"


def test_ticks_of_close_values_differ(drawn: list[Figure], tmp_path: Path) -> None:
    line = copy.deepcopy(LINEAGE)
    for entry, value in zip(line["schedule"], (0.00210001, 0.00210002, 0.00210003), strict=True):
        entry["genes"]["lr"] = value
    plots.schedule(line, tmp_path / "a.png")
    panel = drawn[0].axes[1]
    labels = [label.get_text() for label in panel.get_yticklabels()]
    assert len(set(labels)) == len(labels) > 2


def test_a_front_of_two_is_a_staircase_with_ids(drawn: list[Figure], tmp_path: Path) -> None:
    plots.front(ROWS, ["speed", "calm"], tmp_path / "a.png", "Front of x")
    (panel,) = drawn[0].axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("speed (higher is better)", "calm (higher is better)")
    assert drawn[0].get_suptitle() == "Front of x" and sorted(texts(panel)) == ["0", "1", "2"]
    stairs, dominated, best = panel.lines
    assert stairs.get_drawstyle() == "steps-pre" and best.get_linestyle() == dominated.get_linestyle() == "None"
    assert list(stairs.get_xdata()) == list(best.get_xdata()) == [1, 4, 9]  # type: ignore[arg-type]
    assert list(dominated.get_xdata()) == [1, 2]  # type: ignore[arg-type]
    assert [line.get_label() for line in (dominated, best)] == ["dominated (2)", "on the front, by id (3)"]


def test_a_front_says_where_less_is_better(drawn: list[Figure], tmp_path: Path) -> None:
    plots.front(ROWS, ["-speed", "calm"], tmp_path / "a.png")
    (panel,) = drawn[0].axes
    assert panel.get_xlabel() == "speed (lower is better)" and panel.lines[0].get_drawstyle() == "steps-post"


def test_a_crowded_front_names_whom_it_can(drawn: list[Figure], tmp_path: Path) -> None:
    rows = [{"id": 1000 + i, "front": 0, "objectives": {"a": i / 99, "b": 1 - i / 99}} for i in range(100)]
    plots.front(rows, ["a", "b"], tmp_path / "a.png")
    assert apart(drawn[0]) and {"1000", "1099"} <= set(texts(drawn[0].axes[0]))


def test_names_are_sought_for_some_of_very_many(
    drawn: list[Figure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sought: list[int] = []
    place = axes._place
    monkeypatch.setattr(axes, "_place", lambda *a: (sought.append(len(a[4])), place(*a))[1])
    rows = [{"id": i, "front": 0, "objectives": {"a": i / 999, "b": 1 - i / 999}} for i in range(1000)]
    plots.front(rows, ["a", "b"], tmp_path / "a.png")
    assert apart(drawn[0]) and len(sought) < 100 and {"0", "999"} <= set(texts(drawn[0].axes[0]))


def test_members_that_are_near_each_other_are_named_off_their_points(drawn: list[Figure], tmp_path: Path) -> None:
    rows = [{"id": 100 + i, "front": 0, "objectives": {"a": 0.5 + i / 20, "b": 1 - i / 20}} for i in range(14)]
    rows += [{"id": i, "front": 0, "objectives": {"a": 3.0 * i, "b": 3.0 - 3 * i}} for i in (0, 1)]
    plots.front(rows, ["a", "b"], tmp_path / "a.png")
    (panel,) = drawn[0].axes
    assert apart(drawn[0]) and len(texts(panel)) == 16
    assert any(text.arrow_patch is not None for text in panel.texts)  # type: ignore[attr-defined]
    assert all(line.get_zorder() > text.get_zorder() for line in panel.lines[1:] for text in panel.texts)
    assert [text.get_text() for text in drawn[0].legends[0].texts] == ["on the front, by id (16)"]


def test_a_front_of_three_is_pairs(drawn: list[Figure], tmp_path: Path) -> None:
    plots.front(ROWS, ["speed", "calm", "-cost"], tmp_path / "a.png")
    pairs = [(panel.get_xlabel().split()[0], panel.get_ylabel().split()[0]) for panel in drawn[0].axes]
    assert pairs == [("speed", "calm"), ("speed", "cost"), ("calm", "cost")]
    assert all(line.get_linestyle() == "None" for panel in drawn[0].axes for line in panel.lines)


def test_a_front_leaves_out_what_is_unknown(drawn: list[Figure], tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [{"id": 7, "front": 0, "objectives": None}]
    odd += [{"id": 8, "front": 0, "objectives": {"speed": None, "calm": 3.0}}, ROWS[0]]
    plots.front(odd, ["speed", "calm"], tmp_path / "a.png")
    assert texts(drawn[0].axes[0]) == ["0"]
    plots.front([], ["speed", "calm"], tmp_path / "b.png")
    plots.front(ROWS, ["speed", "calm", "cost", "calm"], tmp_path / "c.png")
    with pytest.raises(PodiumError, match="two objectives or more, and here are 1"):
        plots.front(ROWS, ["speed"], tmp_path / "d.png")


def test_genes_are_drawn_on_their_scales(drawn: list[Figure], tmp_path: Path) -> None:
    line = copy.deepcopy(LINEAGE)
    values = {"lr": (1e-3, 2e-3, 4e-3), "discount": (0.9, 0.99, 0.995), "entropy": (0.0, 0.01, 0.03), "n": (64, 1, 900)}
    for i, entry in enumerate(line["schedule"]):
        entry["genes"] = {name: each[i] for name, each in values.items()}
    scales = {"lr": "log", "discount": "one-minus-log", "entropy": "log", "n": "int"}
    plots.schedule(line, tmp_path / "a.png", scales)
    panels = {panel.get_ylabel(): panel for panel in drawn[0].axes}
    assert {name: panels[name].get_yscale() for name in values} == {
        "lr": "log",
        "discount": "function",
        "entropy": "linear",  # nothing is no power of ten
        "n": "linear",
    }
    ticks = {name: [label.get_text() for label in panels[name].get_yticklabels()] for name in ("lr", "discount")}
    assert ticks == {"lr": ["0.001", "0.003"], "discount": ["0.99", "0.9"]}
    low, high = panels["discount"].get_ylim()
    assert low < 0.9 and 0.995 < high < 1


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1e-5, 1e-1, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        (1e-6, 1.0, [1e-6, 1e-4, 1e-2, 1.0]),
        (0.06, 0.31, [0.1, 0.3]),
        (0.0020, 0.0033, [0.002, 0.003]),
        (0.0106, 0.0179, [0.011, 0.013, 0.015, 0.017]),
        (1.001, 1.002, [1.001, 1.002]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, expected: list[float]) -> None:
    found = axes.ticks(low, high)
    assert found == pytest.approx(expected)
    assert 2 <= len(found) <= axes.MOST


def test_curves_are_told_apart(drawn: list[Figure], tmp_path: Path) -> None:
    plots.curves(SERIES, tmp_path / "a.png", "steps", "return", "CartPole-v1")
    (panel,) = drawn[0].axes
    assert len({(line.get_color(), line.get_linestyle()) for line in panel.lines}) == len(SERIES)
    assert len(panel.collections) == len(SERIES)
    legend = panel.get_legend()
    assert legend is not None and [t.get_text() for t in legend.texts] == [s["name"] for s in SERIES]
    assert (panel.get_xlabel(), panel.get_ylabel(), panel.get_title("left")) == ("steps", "return", "CartPole-v1")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (500, "500"), (12_500, "12.5k"), (10.25e6, "10.25M"), (2e9, "2G")]
)
def test_ticks(value: float, text: str) -> None:
    assert plots._count(value, None) == text


def test_what_no_picture_can_be_written_to(tmp_path: Path) -> None:
    for name in ("a.jpg", "a", "png"):
        with pytest.raises(ConfigError, match=r"--plot: .* a file that ends in \.png, \.svg or \.pdf"):
            plots.schedule(LINEAGE, tmp_path / name)
    with pytest.raises(ConfigError, match="no such folder"):
        plots.front(ROWS, ["speed", "calm"], tmp_path / "none" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(PodiumError, match="cannot be written"):
        plots.curves(SERIES, tmp_path / "folder.png", "", "", "")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.png"]


def test_it_leaves_the_settings_of_others_alone(tmp_path: Path) -> None:
    with matplotlib.rc_context({"font.size": 23, "axes.spines.top": True}):
        before = dict(matplotlib.rcParams)
        plots.curves(SERIES, tmp_path / "a.png", "", "", "")
        assert dict(matplotlib.rcParams) == before
