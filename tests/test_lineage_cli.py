"""`podium lineage`, `podium front`, and `podium top` of a run that evolves."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rich.console

import podium
import whole
from podium.cli import watching
from podium.core.errors import PodiumError
from podium.evolve.lineage import read_schedule
from podium.report import lineage_tables, tables
from podium.store.ledger import Ledger
from podium.store.lock import Lock, held
from podium.store.records import Member, Ranked, Score
from podium.store.run import Run


def genes(lr: float, discount: float = 0.99) -> dict[str, Any]:
    return {"lr": lr, "discount": discount, "clip": 0.2, "target_kl": None}


def build(path: Path, objectives: bool = False) -> Path:
    """0, 1 and 2 begin; 3 copies 1 and 4 copies 3: the champion. All but the last are replaced."""
    born = [(3, 1, 8192, 8192, 4e-4), (4, 3, 16384, 12288, 5e-4)]
    with Run.create(path, {"seed": 0}) as run:
        run.ledger.add_members(Member(i, "ppo", row=i, genes=genes((i + 1) * 1e-4)) for i in range(3))
        for i, parent, step, inherited, lr in born:
            line: dict[str, Any] = {"parent": parent, "born_step": step, "inherited": inherited, "origin": "copy"}
            run.ledger.add_members([Member(i, "ppo", generation=i - 2, genes=genes(lr, 0.9 + i / 100), **line)])
        for i, step in enumerate((8192, 8192, 8192, 12288, 20480)):
            found = {"speed": 10.0 - i, "calm": i * i / 4, "cost": -1.5} if objectives else None
            run.ledger.add_scores([Score(i, step, step / 1000, [i * 100.0, i * 100.0 + 20], objectives=found)])
            place = {"front": int(i < 2), "objectives": found} if objectives else {}
            run.ledger.rank([Ranked(i, i * 100.0 + 10, step, step / 1000, std=10.0, episodes=2, **place)])
        run.ledger.replace(range(4), 20480)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build(tmp_path / "run")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return build(tmp_path / "many", objectives=True)


def render(part: Any, width: int = 80) -> list[str]:
    file = io.StringIO()
    rich.console.Console(file=file, width=width, force_terminal=True, color_system=None).print(part)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_lineage_tells_who_came_from_whom(run: Path) -> None:
    before = whole.files(run)
    code, out, err = whole.command("lineage", run)
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.splitlines()] == [
        f"{run}: member 4, fitness 410.0, 16,384 steps, 3 members in line",
        "id   from  gen  at step  fitness  genes that changed",
        "─" * 56,
        " 1  start    0        0    110.0  lr 2e-4  discount 0.99",
        " 3      1    1    8,192    310.0  lr 4e-4  discount 0.93",
        " 4      3    2   16,384    410.0  lr 5e-4  discount 0.94",
        "",
        "schedule: from which step of its training on which genes held",
        "  step  event     lr  discount",
        "─" * 30,
        "     0  start   2e-4      0.99",
        " 8,192  from 1  4e-4      0.93",
        "12,288  from 3  5e-4      0.94",
        "throughout: clip 0.2  target_kl off",
    ]
    assert whole.files(run) == before


def test_lineage_of_another_member(run: Path) -> None:
    out = whole.command("lineage", run, "--member", 0)[1]
    assert "member 0, fitness 10.00, 8,192 steps, the first of its line" in out
    assert "throughout: lr 1e-4  discount 0.99  clip 0.2  target_kl off" in out


def test_lineage_as_json_and_csv_are_the_same_schedule(run: Path, tmp_path: Path) -> None:
    document = json.loads(whole.command("lineage", run, "--json")[1])
    assert document.keys() >= {"champion", "ancestors", "schedule"}
    assert document["champion"]["id"] == 4 and [a["id"] for a in document["ancestors"]] == [1, 3, 4]
    text = whole.command("lineage", run, "--csv")[1]
    assert [row["event"] for row in csv.DictReader(io.StringIO(text))] == ["start", "from 1", "from 3"]
    (tmp_path / "a.json").write_text(json.dumps(document))
    (tmp_path / "a.csv").write_text(text)
    assert read_schedule(tmp_path / "a.json") == read_schedule(tmp_path / "a.csv")


@pytest.mark.parametrize("form", [(), ("--json",), ("--csv",)])
def test_lineage_draws(run: Path, form: tuple[str, ...], tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    code, out, err = whole.command("lineage", run, "--plot", picture, *form)
    said = f"{picture}: the lineage of member 4\n"
    assert code == 0 and picture.read_bytes().startswith(b"\x89PNG")
    assert err == said if form else out.endswith(said) and err == ""
    if form == ("--json",):
        json.loads(out)


def test_a_drawn_lineage_shows_all_members(run: Path, tmp_path: Path) -> None:
    whole.command("lineage", run, "--plot", tmp_path / "a.svg")
    assert "grey: 5 members of the run" in (tmp_path / "a.svg").read_text()


def test_front_shows_the_best(many: Path, tmp_path: Path) -> None:
    code, out, err = whole.command("front", many, "--plot", tmp_path / "a.svg")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert f"{many}: 3 of 5 members are on the front" in " ".join(out.split())  # a long title is wrapped
    assert lines[1].split()[:7] == ["id", "parent", "algo", "speed", "calm", "cost", "fitness"]
    assert [line.split()[0] for line in lines[3:6]] == ["2", "3", "4"]  # by the first objective
    assert "genes of all: clip 0.2  target_kl off" in out and out.endswith("a.svg: the front, 3 members\n")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    rows = json.loads(whole.command("front", many, "--json")[1])
    assert [(row["id"], row["objectives"]["speed"], row["front"]) for row in rows] == [(2, 8, 0), (3, 7, 0), (4, 6, 0)]


def test_a_front_of_one(tmp_path: Path) -> None:
    with Run.create(tmp_path / "one", {}) as run:
        run.ledger.add_members([Member(0, "ppo"), Member(1, "ppo")])
        for i in (0, 1):
            run.ledger.rank([Ranked(i, 1.0, 1, 1.0, front=i, objectives={"a": 1.0, "b": 2.0})])
    out = whole.command("front", run.path, "--plot", tmp_path / "a.svg")[1]
    assert "1 of 2 members is on the front" in " ".join(out.split()) and out.endswith("the front, 1 member\n")


def test_front_before_anyone_is_ranked(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with Run.create(path, {}) as run:
        run.ledger.add_members([Member(0, "ppo")])
        run.ledger.add_scores([Score(0, 1, 1.0, [1.0], objectives={"a": 1.0, "b": 2.0})])
    code, out, err = whole.command("front", path)
    assert (code, out) == (2, "") and "no member has entered the leaderboard yet" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lineage", "RUN", "--member", "9"], "--member: 9 is not allowed; the run's members are numbered 0 to 4"),
        (["lineage", "RUN", "--json", "--csv"], "--csv: --json prints the schedule, too"),
        (["lineage", "RUN", "--plot", "RUN/a.jpg"], "a file that ends in .png, .svg or .pdf"),
        (["lineage", "RUN", "--plot", "RUN/no/a.png"], "there is no such folder"),
        (["lineage", "RUN/members"], "there is no run in it"),
        (["lineage", "nowhere"], "nowhere: no such run"),
        (["front", "RUN"], "a run without several objectives has no front; `podium top` shows its leaderboard"),
        (["front", "RUN", "--plot", "a.txt"], "a file that ends in .png, .svg or .pdf"),
        (["front", "nowhere"], "nowhere: no such run"),
    ],
)
def test_what_is_refused(run: Path, words: list[str], message: str) -> None:
    before = whole.files(run)
    code, out, err = whole.command(*(word.replace("RUN", str(run)) for word in words))
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    assert whole.files(run) == before


def test_a_run_without_a_score_has_no_lineage(tmp_path: Path) -> None:
    with Run.create(tmp_path / "new", {}) as run:
        run.ledger.add_members([Member(0, "ppo")])
    code, _, err = whole.command("lineage", tmp_path / "new")
    assert code == 2 and "no member has been evaluated yet" in err


def test_lineage_and_front_need_no_torch(run: Path, many: Path) -> None:
    code = "import sys; from podium import cli; sys.argv = ['podium', *sys.argv[1:]]; cli.main()\n"
    code += "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    for words in (["lineage", str(run)], ["lineage", str(run), "--json"], ["front", str(many)], ["top", str(many)]):
        subprocess.run([sys.executable, "-c", code, *words], check=True, timeout=60, capture_output=True)


# ---- the leaderboard


def test_watch_goes_on_while_anyone_trains(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(run / "ledger.sqlite") as ledger:  # the only one in training is not on the leaderboard
        ledger.rank([], left=[4])
    assert all(row["status"] == "replaced" for row in Ledger(run / "ledger.sqlite", readonly=True).top())
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 4
        if len(waits) == 3:
            with Ledger(run / "ledger.sqlite") as ledger:
                ledger.finish([4], 30000)
                ledger.rank([Ranked(4, 999.0, 30000, 3.0)])

    monkeypatch.setattr("time.sleep", sleep)
    lock = Lock(run / "lock")
    code, out, _ = whole.command("top", run, "--watch")
    lock.release()
    assert code == 0 and waits == [2, 2, 2] and "999.0" in out and "resume" not in out


def test_watch_ends_when_nobody_writes_any_more(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Lock(run / "lock")
    monkeypatch.setattr("time.sleep", lambda seconds: lock.release())
    before = whole.files(run)
    code, out, _ = whole.command("top", run, "--watch")
    assert code == 0 and out.endswith(f"stopped before its end. Go on with:  podium resume {run}\n")
    assert whole.files(run) == before
    (run / "lock").unlink()
    assert not held(run / "lock")


def test_a_watched_table_is_cut_to_the_screen() -> None:
    rows = [row(i, genes={f"gene_{n}": i + n / 7 for n in range(6)}) for i in range(1, 60)]
    screen = rich.console.Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    shown = watching._fitting(screen, tables.leaderboard(rows, "title\n  more"))
    assert 15 < len(screen.render_lines(shown)) < 24
    pipe = rich.console.Console(file=io.StringIO(), width=80, height=24)
    assert len(watching._fitting(pipe, tables.leaderboard(rows)).rows) == 59


def test_top_says_how_far_the_run_is(run: Path) -> None:
    assert whole.command("top", run)[1].splitlines()[0] == f"{run}: step 20,480, time 0:20, 5 evaluations"
    with Run.open(run, write=True) as opened:
        opened.configure({"stop": {"steps": 50000}})
        opened.ledger.report(24000, 91.0, {"return": [1.0]})
    title = whole.command("top", run, "-n", 1)[1].splitlines()[0]
    assert title == f"{run}: step 24,000 of 50,000, time 1:31, 5 evaluations"


def test_a_run_with_a_schedule_replays_it(tmp_path: Path) -> None:
    entries = [{"step": s, "genes": {"lr": lr}} for s, lr in ((0, 0.1), (500, 0.2), (9000, 0.3))]
    with Run.create(tmp_path / "replay", {"train": {"schedule": entries}}) as run:
        run.ledger.add_members([Member(0, "ppo", genes=genes(0.1))])
        run.ledger.add_scores([Score(0, 8192, 1.0, [1.0])])
    lines = [line.rstrip() for line in whole.command("lineage", run.path)[1].splitlines()]
    assert lines[1] == "  genes follow a schedule (train.schedule): 2 changes, the last at step 9,000"
    assert lines[-3:] == [
        "   0  start     0.1",
        " 500  schedule  0.2",
        "throughout: discount 0.99  clip 0.2  target_kl off",
    ]
    (tmp_path / "a.csv").write_text(whole.command("lineage", run.path, "--csv")[1])
    expected = [{"step": s, "genes": genes(lr)} for s, lr in ((0, 0.1), (500, 0.2))]
    assert read_schedule(tmp_path / "a.csv") == expected
    assert [(e["step"], e["genes"]) for e in podium.lineage(run.path)["schedule"]] == [
        (0, genes(0.1)),
        (500, genes(0.2)),
    ]
    assert whole.command("lineage", run.path, "--plot", tmp_path / "a.png")[0] == 0


def test_a_start_is_named(run: Path) -> None:
    with Run.open(run, write=True) as opened:
        opened.ledger.event(0, 0.0, "start", {"run": "runs/a", "member": 3, "step": 50000})
    said, found = "steps after member 3 of runs/a at its step 50,000", whole.command("lineage", run)[1]
    assert f"410.0, 16,384 {said}, 3 members in line" in " ".join(found.split())  # a long title is wrapped
    first = whole.command("lineage", run, "--member", 0)[1]
    assert f"8,192 {said}, the first of this run" in " ".join(first.split())
    assert podium.lineage(run)["start"] == {"run": "runs/a", "member": 3, "step": 50000}


def test_a_schedule_is_mentioned(run: Path) -> None:
    with Run.open(run, write=True) as opened:
        opened.configure({"train": {"schedule": [{"step": s, "genes": {"lr": 0.1}} for s in (0, 500, 9000)]}})
    said = "  genes follow a schedule (train.schedule): 2 changes, the last at step 9,000"
    assert whole.command("top", run)[1].splitlines()[1] == said


def test_from_python_it_is_the_same(run: Path, many: Path) -> None:
    assert podium.lineage(run) == json.loads(whole.command("lineage", run, "--json")[1])
    assert podium.lineage(str(run), 0)["champion"]["id"] == 0
    assert podium.front(many) == json.loads(whole.command("front", many, "--json")[1])
    with pytest.raises(PodiumError, match="a run without several objectives has no front"):
        podium.front(run)
    with pytest.raises(PodiumError, match="nowhere: no such run"):
        podium.lineage("nowhere")


def row(rank: int, **more: Any) -> dict[str, Any]:
    base = {"rank": rank, "id": 100 + rank, "parent": 7, "algo": "ppo", "kind": "ppo", "fitness": 500.0 - rank}
    base |= {"std": 3.25, "steps": 1_200_000, "seconds": 3675.0, "generation": 11, "status": "replaced", "front": 0}
    return {**base, "genes": {"lr": rank * 1e-4, "discount": 0.9 + rank / 100}, **more}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 8])
def test_a_leaderboard_with_objectives_fits_80_columns(count: int) -> None:
    names = ["speed", "calm", "energy_used", "height", "time", "jerk", "torque", "smoothness"][:count]
    found = {"objectives": {name: 1234.5 * (i - 1) for i, name in enumerate(names)}} if names else {}
    lines = render(tables.leaderboard([row(1, **found), row(2, **found), row(10, **found)], "runs/a"))
    assert max(map(len, lines)) <= 80 and not any("…" in line for line in lines)
    text = " ".join(" ".join(lines).split())
    assert all(name in text for name in (*names, "rank", "id", "algo", "fitness", "steps", "lr 1e-4"))


@pytest.mark.parametrize("width", [24, 30, 40, 50, 60, 70])
@pytest.mark.parametrize("count", [0, 2])
def test_a_narrow_leaderboard_drops_columns_and_cuts_no_number(width: int, count: int) -> None:
    found = {"objectives": dict.fromkeys(("speed", "calm")[:count], -1234.5) or None}
    lines = render(tables.leaderboard([row(i, **found) for i in (1, 2, 10)]), width)
    assert max(map(len, lines)) <= width and "…" not in "".join(lines)
    assert {"id", "fitness"} <= set(lines[0].split()) and "490.0 ± 3.25" in "".join(lines)
    assert width < 40 or {"rank", "steps"} <= set(lines[0].split())


def test_where_there_is_room_a_leaderboard_shows_everything() -> None:
    found = {"objectives": {"speed": 3.0, "calm": None}}
    lines = render(tables.leaderboard([row(1, **found), row(2, front=1, status="failed")]), 160)
    names = ["rank", "front", "id", "parent", "algo", "fitness", "speed", "calm", "steps", "time", "gen", "status"]
    assert lines[0].split() == [*names, "genes"]
    assert " ".join(lines[2].split()[:14]) == "1 0 101 7 ppo 499.0 ± 3.25 3.00 - 1,200,000 1:01:15 11 replaced"
    assert "498.0 failed" in lines[3] and " - " in lines[3]
    assert "front" not in render(tables.leaderboard([row(1), row(2)]), 160)[0]


def test_the_algorithm_says_the_kind() -> None:
    rows = [row(1, kind="ppo-1"), row(2, kind="ppo-2"), row(3, algo="a2c", kind="a2c"), row(4, kind="")]
    for shown in (tables.leaderboard(rows), tables.leaderboard(rows).first(1)):
        names = [line.split()[3] for line in render(shown, 160)[2:6] if "±" in line]
        assert names == ["ppo-1", "ppo-2", "a2c", "ppo"][: len(names)]


def test_a_schedule_of_many_genes_fits_80_columns() -> None:
    entries = [{"step": s, "event": f"from {s}", "genes": {f"gene_{i}": s + i / 7 for i in range(9)}} for s in (0, 5)]
    lines = render(lineage_tables.Schedule(entries, "title"))
    assert max(map(len, lines)) <= 80 and lines[1].split() == ["step", "event", "genes"]
    assert "gene_8" in render(lineage_tables.Schedule(entries, "title"), 160)[1]
