"""Lineage: the line of ancestors, the schedule on its clock, and schedules read from files."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import podium.core
from podium.core.errors import CheckpointError, ConfigError, PodiumError
from podium.evolve.lineage import LIMIT, lineage, population, read_schedule, to_csv
from podium.store import schema
from podium.store.ledger import Ledger
from podium.store.records import Member, Ranked, Score


def member(i: int, parent: int | None = None, born: int = 0, inherited: int = 0, **more: Any) -> Member:
    base: dict[str, Any] = {"genes": {"lr": 0.1 * (i + 1), "kl": None}, "origin": "start" if parent is None else "copy"}
    base |= {"generation": 0 if parent is None else 1, "row": i % 3}
    return Member(id=i, algo="ppo", kind="k", parent=parent, born_step=born, inherited=inherited, **{**base, **more})


def score(i: int, step: int, *returns: float) -> Score:
    return Score(member=i, step=step, seconds=step / 10, returns=returns)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """1 is copied at its step 100 by 3; 3 at step 300 of its row, and trained 150 steps by then, by 5, the champion."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.add_members([member(0), member(1), member(2), member(3, 1, born=250, inherited=100)])
    ledger.add_members([member(4, 0, 300, 200), member(5, 3, born=500, inherited=150, generation=2)])
    ledger.add_scores([score(0, 100, 5.0), score(1, 100, 7.0), score(1, 200, 9.0), score(1, 300, float("nan"))])
    ledger.add_scores([score(3, 300, 12.0), score(3, 400, 11.0), score(5, 550, 20.0), score(5, 600, 14.0)])
    ledger.replace([1, 3], 500)
    ledger.rank([Ranked(5, 17.0, 600, 60.0), Ranked(3, 12.0, 300, 30.0), Ranked(0, 5.0, 100, 10.0)])
    return ledger


def test_the_line_of_the_champion(ledger: Ledger) -> None:
    found = lineage(ledger)
    assert found.keys() == {"champion", "ancestors", "schedule", "start", "scores"}
    champion = found["champion"]
    assert (champion["id"], champion["fitness"], champion["steps"]) == (5, 17.0, 150 + 100)  # as the leaderboard has it
    assert champion["status"] == "training" and champion["genes"] == {"lr": pytest.approx(0.6), "kl": None}
    ancestors = found["ancestors"]
    assert [row["id"] for row in ancestors] == [1, 3, 5] and [row["parent"] for row in ancestors] == [None, 1, 3]
    assert [row["fitness"] for row in ancestors] == [9.0, 12.0, 17.0]  # 1 is no longer on the leaderboard
    assert [row["born_step"] for row in ancestors] == [0, 250, 500]
    names = {"id", "parent", "generation", "born_step", "inherited", "origin", "genes", "fitness", "kind", "algo"}
    assert all(row.keys() == names for row in ancestors)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_population_is_on_the_clocks_of_its_lines(ledger: Ledger) -> None:
    found = {row["id"]: row for row in population(ledger)}
    assert list(found) == [0, 1, 2, 3, 4, 5] and found[5]["genes"] == {"lr": pytest.approx(0.6), "kl": None}
    assert {id: (row["start"], row["end"]) for id, row in found.items()} == {
        0: (0, 100), 1: (0, 500), 2: (0, 0), 3: (100, 350), 4: (200, 200), 5: (150, 250)
    }  # fmt: skip
    assert {id: row["scores"] for id, row in found.items()} == {
        0: [(100, 5.0)], 1: [(100, 7.0), (200, 9.0)], 2: [], 3: [(100, 7.0), (150, 12.0), (250, 11.0)],
        4: [(100, 5.0)], 5: [(150, 12.0), (200, 20.0), (250, 14.0)],
    }  # fmt: skip


def test_the_schedule_is_on_the_clock_of_the_line(ledger: Ledger) -> None:
    schedule = lineage(ledger)["schedule"]
    assert [(entry["step"], entry["event"]) for entry in schedule] == [(0, "start"), (100, "from 1"), (150, "from 3")]
    assert [entry["genes"]["lr"] for entry in schedule] == pytest.approx([0.2, 0.4, 0.6])


def test_the_schedule_of_a_run_that_follows_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.add_members([member(0)])
    followed = [{"step": s, "genes": {"lr": s / 10 + 0.1}} for s in (0, 0, 50, 100, 200, 900)]
    assert [entry["step"] for entry in lineage(ledger, 0, followed)["schedule"]] == [0]
    ledger.add_scores([score(0, 100, 9.0), score(0, 200, 7.0)])  # the best snapshot comes first, it trained on
    schedule = lineage(ledger, 0, followed)["schedule"]
    assert [(entry["step"], entry["event"]) for entry in schedule] == [
        (0, "start"),
        (50, "schedule"),
        (100, "schedule"),
    ]
    assert [entry["genes"] for entry in schedule] == [{"lr": lr, "kl": None} for lr in (0.1, 5.1, 10.1)]
    ledger.finish([0], 300)
    found = lineage(ledger, 0, followed)
    assert [entry["step"] for entry in found["schedule"]] == [0, 50, 100, 200] and found["champion"]["steps"] == 100
    assert read(to_csv(found["schedule"])) == read(json.dumps(found)) == plain(found["schedule"])


def test_what_a_line_began_with(ledger: Ledger) -> None:
    assert lineage(ledger)["start"] is None
    begun = {"run": "runs/a", "member": 3, "step": 5000}
    ledger.event(0, 0.0, "start", begun)
    ledger.add_members([member(6, born=700, origin="fresh")])
    assert lineage(ledger)["start"] == begun and lineage(ledger, 6)["start"] is None


def test_scores_of_an_ancestor_end_where_it_was_copied(ledger: Ledger) -> None:
    scores = [(s["id"], s["step"], s["fitness"]) for s in lineage(ledger)["scores"]]
    assert scores == [(1, 100, 7.0), (3, 150, 12.0), (5, 200, 20.0), (5, 250, 14.0)]


@pytest.mark.parametrize(
    ("who", "steps", "fitness", "line"),
    [(1, 200, 9.0, [1]), (4, 200, None, [0, 4]), (3, 150, 12.0, [1, 3]), (2, 0, None, [2])],
)
def test_the_line_of_any_member(ledger: Ledger, who: int, steps: int, fitness: float | None, line: list[int]) -> None:
    found = lineage(ledger, who)
    assert [row["id"] for row in found["ancestors"]] == line
    assert (found["champion"]["id"], found["champion"]["steps"], found["champion"]["fitness"]) == (who, steps, fitness)


def test_without_a_leaderboard_the_best_score_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(CheckpointError, match="no champion"):
        lineage(ledger)
    ledger.add_members([member(0), member(1)])
    with pytest.raises(CheckpointError, match="no champion"):
        lineage(ledger)
    ledger.add_scores([score(0, 100, 3.0), score(1, 100, 4.0), score(1, 200, 2.0)])
    champion = lineage(ledger)["champion"]
    assert (champion["id"], champion["steps"], champion["fitness"]) == (1, 100, 4.0)


def test_evaluations_of_the_same_weights_count_as_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.add_members([member(0)])
    for returns, speed in (([9.0], 3.0), ([1.0, 2.0], 6.0)):  # a stroke of luck, then once more
        ledger.add_scores([Score(0, 100, 1.0, returns, objectives={"speed": speed})])
    ledger.add_scores([score(0, 200, 3.0), score(0, 300, float("nan")), score(0, 300, 50.0)])
    ledger.rank([Ranked(0, 3.5, 200, 2.0)])
    assert [(s["step"], s["fitness"]) for s in lineage(ledger)["scores"]] == [(100, 4.0), (200, 3.0)]
    ledger.add_members([member(1)])
    ledger.rank([Ranked(1, 1.0, 0, 0.0)], left=[0])
    champion = lineage(ledger, 0)["champion"]
    assert (champion["steps"], champion["fitness"], champion["objectives"]) == (100, 4.0, {"speed": 5.0})


def test_fresh_blood_begins_a_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.add_members([member(0), member(1, born=700, origin="fresh")])
    ledger.add_scores([score(1, 900, 4.0)])
    found = lineage(ledger, 1)
    assert found["champion"]["steps"] == 200 and found["schedule"][0]["event"] == "fresh"
    assert [entry["step"] for entry in found["schedule"]] == [0]


def test_an_unknown_member_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="member=9 is not allowed; the run's members are numbered 0 to 5"):
        lineage(ledger, 9)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no members yet"):
        lineage(Ledger(tmp_path / "empty" / "ledger.sqlite"), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("parent = 5 WHERE id = 1", "member 5 descends from itself"),
        ("parent = 3 WHERE id = 3", "member 3 descends from itself"),
        ("parent = 77 WHERE id = 1", "member 1 has parent 77, who is missing"),
        ("inherited = 20 WHERE id = 5", "member 5 inherited fewer steps than its parent"),
    ],
)
def test_a_damaged_ledger_is_refused(ledger: Ledger, change: str, message: str) -> None:
    ledger.close()
    with closing(schema.writer(ledger.path)) as link:  # as a stranger may, seals and all
        link.execute("PRAGMA foreign_keys = OFF")
        link.execute(f"UPDATE members SET {change}")
    with pytest.raises(CheckpointError, match=message):
        lineage(Ledger(ledger.path, readonly=True))


def test_a_long_line_is_quick(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.add_members(member(i, i - 1 if i else None, i * 10, i * 10) for i in range(5000))
    ledger.add_scores(score(i, i * 10 + 10, float(i)) for i in range(5000))
    found = lineage(ledger)
    assert len(found["schedule"]) == len(found["scores"]) == 5000


# ---- schedules in files

NAMES = st.lists(st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True), min_size=1, max_size=4, unique=True)
VALUES = st.none() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def schedules(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = [name for name in draw(NAMES) if name not in ("step", "event")] or ["lr"]
    steps = sorted({0, *draw(st.lists(st.integers(0, 10**12), max_size=5))})
    events = st.sampled_from(["start", "fresh", "from 3", 'of "a", b\nc'])
    return [{"step": s, "genes": {name: draw(VALUES) for name in names}, "event": draw(events)} for s in steps]


def read(text: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule"
        path.write_text(text, encoding="utf-8", newline="")
        return read_schedule(path)


def plain(schedule: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step": entry["step"], "genes": entry["genes"]} for entry in schedule]


@given(schedules())
def test_csv_comes_back_as_it_was(schedule: list[dict[str, Any]]) -> None:
    text = to_csv(schedule)
    assert read(text) == read("\ufeff" + text.replace("\n", "\r\n")) == plain(schedule)


@given(schedules(), st.sampled_from([None, 2]))
def test_json_comes_back_as_it_was(schedule: list[dict[str, Any]], indent: int | None) -> None:
    bare = json.dumps(schedule, indent=indent)
    whole = json.dumps({"champion": {}, "ancestors": [], "schedule": schedule}, indent=indent)
    assert read(bare) == read(whole) == plain(schedule)


def test_a_lineage_comes_back_as_it_was(ledger: Ledger) -> None:
    found = lineage(ledger)
    assert read(json.dumps(found)) == read(to_csv(found["schedule"])) == plain(found["schedule"])
    assert to_csv(found["schedule"]).startswith("step,event,lr,kl\n0,start,0.2,\n100,from 1,0.4,\n150,from 3,0.6")


def test_csv_by_hand() -> None:
    text = "step, lr, n, kl\n\n0, 3e-4, 64, \n1e3, .5, -2, +1.\n"
    assert read(text) == [
        {"step": 0, "genes": {"lr": 3e-4, "n": 64, "kl": None}},
        {"step": 1000, "genes": {"lr": 0.5, "n": -2, "kl": 1.0}},
    ]


def test_of_two_entries_at_one_step_the_last_holds() -> None:
    assert read("step,lr\n0,1\n0,2\n5,3\n5,4\n") == [{"step": 0, "genes": {"lr": 2}}, {"step": 5, "genes": {"lr": 4}}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schedule is empty"),
        ("[]", "the schedule is empty"),
        ("step,event\n0,start\n", "at least one gene"),
        ('[{"step": 0, "genes": {}}]', "at least one gene"),
        ("lr: 3e-4\n", "neither JSON nor CSV"),
        ("{", "line 1: not JSON"),
        ('{"schedule":\n [,]}', "line 2: not JSON"),
        ("[" * 100_000, "not JSON that can be read"),
        ("[1" + "0" * 5000 + "]", "not JSON that can be read"),
        ('{"ancestors": []}', "no list `schedule`"),
        ('{"schedule": {"step": 0}}', "no list `schedule`"),
        ("[3]", r"\[0\]: not an entry"),
        ('[{"step": 0}]', r"\[0\]: not an entry"),
        ('{"schedule": [{"step": 0, "genes": [1]}]}', r"schedule\[0\]: not an entry"),
        ('[{"step": 5, "genes": {"lr": 1}}]', r"\[0\]: step: 5 is not allowed; steps are whole numbers, begin with 0"),
        ('[{"step": true, "genes": {"lr": 1}}]', r"\[0\]: step: True"),
        ('[{"step": null, "genes": {"lr": 1}}]', r"\[0\]: step: None"),
        ('[{"step": 0.5, "genes": {"lr": 1}}]', r"\[0\]: step: 0.5"),
        ('[{"step": 0, "genes": {"lr": NaN}}]', r"\[0\]: lr: nan is not allowed; a finite number"),
        ('[{"step": 0, "genes": {"lr": 1e999}}]', r"\[0\]: lr: inf"),
        ('[{"step": 0, "genes": {"lr": 1' + "0" * 400 + "}}]", r"\[0\]: lr: 1000"),
        ('[{"step": 0, "genes": {"lr": "3e-4"}}]', r"\[0\]: lr: '3e-4'"),
        ('[{"step": 0, "genes": {"lr": false}}]', r"\[0\]: lr: False"),
        ('[{"step": 0, "genes": {"lr": 1}}, {"step": 1, "genes": {"n": 1}}]', r"\[1\]: genes: .*has the genes lr"),
        ("step,lr\n0,1\n9,1\n8,1\n", "line 4: step: 8 is not allowed; .*never fall"),
        ("step,lr\n-1,1\n", "line 2: step: -1"),
        ("step,lr\n,1\n", "line 2: step: None"),
        ("step,lr\n1e300,1\n", "line 2: step: 1e"),
        ("step,lr\n0,fast\n", "line 2: lr: 'fast' is not allowed; a finite number, or nothing"),
        ("step,lr\n0,nan\n", "line 2: lr: 'nan'"),
        ("step,lr\n0,1e999\n", "line 2: lr: inf"),
        ("step,lr\n0,1_000\n", "line 2: lr: '1_000'"),
        ("step,lr\n0,1,2\n", "line 2: 3 columns, and the head has 2"),
        ("step,lr,lr\n0,1,2\n", "line 1 is not a head"),
        ("step,,lr\n0,1,2\n", "line 1 is not a head"),
        ('step,lr\n0,"1\n', "not CSV"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PodiumError, match=message) as refusal:
        read_schedule(path)
    assert str(refusal.value).startswith(f"{path}: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match="No such file"):
        read_schedule(tmp_path / "none")
    with pytest.raises(PodiumError, match="cannot be read"):
        read_schedule(tmp_path)
    (tmp_path / "bytes").write_bytes(b"step,lr\n0,\xff\n")
    with pytest.raises(PodiumError, match="byte 10 is not UTF-8"):
        read_schedule(tmp_path / "bytes")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(LIMIT + 1)
    with pytest.raises(PodiumError, match="longer than 16 MiB"):
        read_schedule(tmp_path / "long")


def test_it_does_not_import_torch() -> None:
    code = "import sys, podium.evolve.lineage, podium.report.plots, podium.report.lineage_tables\n"
    code += "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    source = Path(podium.core.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(source)})
