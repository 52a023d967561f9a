"""What people read: plain lines, the live view, tables."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rich.console

import podium.core
from podium.report import tables, words
from podium.report.console import Console

REPORT: dict[str, Any] = {
    "step": 123_456,
    "steps_total": 1_975_296,
    "steps_per_second": 45_213.4,
    "seconds": 73.2,
    "best_return": 321.22,
    "median_return": 120.0,
    "best_fitness": 480.123,
    "failed": 2,
    "eta_seconds": 640.0,
}


def row(rank: int, **more: Any) -> dict[str, Any]:
    base = {"rank": rank, "id": 100 + rank, "parent": None, "algo": "ppo", "fitness": 500.0 - rank, "std": 3.25}
    base |= {"steps": 200_000, "seconds": 75.0, "generation": 1, "status": "training", "episodes": 20}
    return {**base, "genes": {"lr": rank * 1e-4, "discount": 0.98}, **more}


def test_a_gene_that_follows_from_another_is_not_off() -> None:
    found = words.genes({"max_norm": None, "policy_lr": None, "target_entropy": None})
    assert found == "max_norm off  policy_lr auto  target_entropy auto"


def test_what_is_not_unicode_is_escaped() -> None:
    raw = io.BytesIO()
    out = rich.console.Console(file=io.TextIOWrapper(raw, encoding="utf-8", write_through=True), width=80)
    Console(100, 1, out=out).note("runs/\udc80")
    assert raw.getvalue() == b"runs/\\udc80\n"


class Gone(io.StringIO):
    """A terminal that has closed."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_a_terminal_that_has_closed_is_no_error() -> None:
    console = Console(100, 1, out=rich.console.Console(file=Gone(), width=80, force_terminal=True))
    console.start("begins")
    console.update(REPORT)
    console.note("goes on")
    console.stop()


def screen(width: int = 80) -> tuple[rich.console.Console, io.StringIO]:
    file = io.StringIO()
    return rich.console.Console(file=file, width=width, force_terminal=True, color_system=None), file


def render(part: Any, width: int = 80) -> list[str]:
    out, file = screen(width)
    out.print(part)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("podium.report.console.time.monotonic", lambda: now[0])
    return now


def test_plain_lines_come_at_most_every_two_seconds(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    console = Console(2_000_000, 16)
    console.start("cartpole ppo")
    for i in range(50):
        clock[0] = 0.1 * i
        console.update({**REPORT, "step": i})
    console.note("evaluated: best [480.1]")
    console.stop()
    console.stop()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cartpole ppo"
    assert [line.split()[1] for line in lines if line.startswith("step")] == ["0", "20", "40", "49"]
    assert lines[-2] == "evaluated: best [480.1]"


def test_a_plain_line_says_everything_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(2_000_000, 16)
    console.update(REPORT)
    assert capsys.readouterr().out == (
        "step 123,456 of 2,000,000 (6%)  45.2k steps/s (2.83k each)  time 1:13  left 10:40  "
        "return best 321.2 median 120.0  evaluated best 480.1  failed 2 of 16\n"
    )


def test_what_is_unknown_is_a_dash_and_one_member_has_no_median(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = dict.fromkeys(["best_return", "median_return", "best_fitness", "eta_seconds"])
    Console(None, 1).update({**REPORT, **nothing, "failed": 0})
    assert capsys.readouterr().out == "step 123,456  45.2k steps/s  time 1:13  return best -  evaluated best -\n"


def test_a_rate_that_is_not_known_yet_is_left_out() -> None:
    line = Console(None, 16).line({**REPORT, "steps_per_second": 0.0})
    assert line.startswith("step 123,456  time 1:13  ") and "steps/s" not in line
    assert "5 steps/s  time" in Console(None, 16).line({**REPORT, "steps_per_second": 5.0})


def left(rules: dict[str, Any], **report: Any) -> str:
    console = Console(2_000_000, 1)
    console.rules = rules
    return " ".join(word for word in console.line({**REPORT, **report}).split("  ") if "left" in word)


def test_what_is_left_is_at_most_that_where_a_goal_may_end_the_run() -> None:
    assert left({"fitness": None, "seconds": None}) == "left 10:40"
    assert left({"fitness": 475.0}) == left({"generations": 9}) == "at most 10:40 left"
    assert left({"seconds": 100.0}) == "left 0:27"  # 73.2 of them are over
    assert left({"seconds": 60.0}, eta_seconds=None) == "left 0:00"
    assert left({"fitness": 475.0}, eta_seconds=None) == ""


def test_the_live_view_names_kinds_where_there_are_several() -> None:
    leaders = [{**row(1), "kind": "ppo-1"}, {**row(2), "kind": "ppo-2"}]
    lines = render(Console(10, 4).panel({**REPORT, "leaders": leaders}))
    assert lines[3].split() == ["rank", "id", "algo", "fitness", "steps", "genes"] and "ppo-2" in lines[6]
    assert "algo" not in render(Console(10, 4).panel({**REPORT, "leaders": leaders[:1]}))[3]


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    out, file = screen()
    for console in (Console(10, 1, quiet=True), Console(10, 1, quiet=True, out=out)):
        console.start("title")
        console.update(REPORT)
        console.note("note")
        console.stop()
    assert capsys.readouterr().out == "" and file.getvalue() == ""


def test_the_live_view_fits_80_columns_and_ends_with_the_last_report() -> None:
    out, file = screen()
    console = Console(2_000_000, 256, out=out)
    console.start("title")
    console.update({**REPORT, "step": 1_999_000})
    console.note("a note")
    console.stop()
    shown = file.getvalue()
    for part in ("title", "a note", "step 1,999,000 of 2,000,000 (99%)", "45.2k steps/s (177 each)", "left 10:40"):
        assert part in shown
    lines = render(console.panel({**REPORT, "failed": 12}))
    assert len(lines) == 3 and max(map(len, lines)) <= 80 and not any("…" in line for line in lines)
    assert lines[2] == "return best 321.2 median 120.0   evaluated best 480.1   failed 12 of 256"


def test_a_leaderboard_reads_in_80_columns_and_says_shared_genes_once() -> None:
    rows = [row(1, parent=7), row(2), row(3, status="failed", fitness=None, std=None), row(4, status="failed")]
    assert render(tables.leaderboard(rows, "runs/a [1]")) == [
        "runs/a [1]",
        "rank   id  parent  algo       fitness    steps  time  gen  genes",
        "─" * 79,
        "   1  101       7  ppo   499.0 ± 3.25  200,000  1:15    1  lr 1e-4",
        "   2  102       -  ppo   498.0 ± 3.25  200,000  1:15    1  lr 2e-4",
        "   3  103       -  ppo         failed  200,000  1:15    1  lr 3e-4",
        "   4  104       -  ppo   496.0 failed  200,000  1:15    1  lr 4e-4",
        "genes of all: discount 0.98",
    ]
    assert render(tables.leaderboard([row(3)]), 120)[-1].endswith("lr 3e-4  discount 0.98")
    assert render(tables.leaderboard([]))[0].startswith("rank")


def test_what_all_share_is_said_of_all_though_a_few_are_shown() -> None:
    rows = [row(1), row(2), row(3, genes={"lr": 3e-4, "discount": 0.9})]
    lines = render(tables.leaderboard(rows).first(2), 100)
    assert len(lines) == 4 and "discount 0.98" in lines[2]
    assert render(tables.leaderboard([*rows[:2], row(3)]).first(1))[-1] == "genes of all: discount 0.98"


def test_genes_that_a_kind_lacks_are_not_repeated_in_the_others() -> None:
    def of(kind: str, **genes: Any) -> dict[str, Any]:
        return {**row(1), "kind": kind, "genes": {**genes, "critic": 0.5}}

    rows = [of("ppo-1", lr=1e-4, clip=0.2), of("ppo-1", lr=2e-4, clip=0.2), of("ppo-2", lr=3e-4, clip=0.2)]
    rows += [of("ppo-2", lr=4e-4, clip=0.2), of("a2c", lr=5e-4, lam=1.0), of("a2c", lr=6e-4, lam=1.0)]
    lines = render(tables.leaderboard(rows), 100)
    assert [line.split("  ")[-1] for line in lines[2:8]] == [f"lr {n}e-4" for n in range(1, 7)]
    assert lines[8:] == [
        "genes of all: critic 0.5",
        "genes of all ppo-1 and ppo-2: clip 0.2",
        "genes of all a2c: lam 1",
    ]
    assert render(tables.leaderboard([rows[0], rows[4]]), 100)[2].endswith("lr 1e-4  clip 0.2")


def test_a_summary_shows_every_member_up_to_twenty() -> None:
    lines = render(tables.summary([row(i) for i in range(1, 21)]))
    assert lines[0].split() == ["rank", "id", "fitness", "steps", "genes", "status"]
    assert [int(line.split()[0]) for line in lines[2:-1]] == list(range(1, 21))


def test_a_long_summary_shows_ten_and_three() -> None:
    rows = [row(i) for i in range(1, 31)]
    rows[15]["genes"]["discount"] = 0.5  # not shown, but then 0.98 is not everyone's
    lines = render(tables.summary(rows, "members"))
    assert lines[0] == "members (30, 17 not shown)"
    assert [line.split()[0] for line in lines[3:]] == [*map(str, range(1, 11)), "...", "28", "29", "30"]
    assert "discount 0.98" in lines[3]


def test_show_does_not_cut_what_goes_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(tables.leaderboard([row(1, genes={f"a_long_gene_{i}": 0.5 for i in range(4)})]), "done")
    out = capsys.readouterr().out
    assert "a_long_gene_0 0.5  a_long_gene_1 0.5  a_long_gene_2 0.5  a_long_gene_3 0.5" in out
    assert out.endswith("done\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(3e-4, "3e-4"), (2.5e-5, "2.5e-5"), (1e-10, "1e-10"), (1e6, "1e6"), (1234.5, "1234"), (0.01, "0.01")],
        *[(0.95, "0.95"), (0.98, "0.98"), (0.99987, "0.99987"), (0.0, "0"), (-0.5, "-0.5")],
        *[(64, "64"), ("relu", "relu"), (True, "True")],
    ],
)
def test_genes_are_short(value: Any, text: str) -> None:
    assert words.gene(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (float("nan"), "-"), (0.5, "0.500"), (12.345, "12.35"), (-1600.0, "-1,600.0"), (123456.7, "123,457")],
)
def test_scores_keep_what_matters(value: float | None, text: str) -> None:
    assert words.score(value) == text


def test_rates_and_durations() -> None:
    assert [words.rate(v) for v in (0, 999, 1234, 45_678, 999_900, 1.5e6)] == [
        "0",
        "999",
        "1.23k",
        "45.7k",
        "1M",
        "1.5M",
    ]
    assert [words.duration(v) for v in (None, 0, 59.6, 3599, 3600)] == ["-", "0:00", "1:00", "59:59", "1:00:00"]


def test_it_does_not_import_torch() -> None:
    code = "import sys, podium.report.console, podium.report.tables, podium.report.tensorboard, podium.store.ledger\n"
    code += "assert 'torch' not in sys.modules and 'tensorboard' not in sys.modules"
    source = Path(podium.core.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(source)})
