"""The ledger: ranks, rewind, versions, and readers beside the writer."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import podium.core
from podium.core.errors import CheckpointError, PodiumError
from podium.store.ledger import Ledger
from podium.store.records import Member, Score

SOURCE = Path(podium.core.__file__).parents[2]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def member(i: int, born: int = 0, parent: int | None = None) -> Member:
    return Member(id=i, algo="ppo", kind="k", parent=parent, row=i % 4, born_step=born, genes={"lr": 3e-4})


def score(i: int, step: int, *returns: float) -> Score:
    return Score(member=i, step=step, seconds=step / 10, returns=returns)


def test_top_has_the_keys_that_json_promises(ledger: Ledger) -> None:
    ledger.add_members([Member(id=3, algo="sac", kind="k", parent=1, row=2, generation=4, genes={"lr": 0.1, "n": 2})])
    ledger.add_scores([Score(member=3, step=100, seconds=2.5, returns=[1.0, 3.0], snapshot=True)])
    assert ledger.top() == [
        {
            "rank": 1,
            "id": 3,
            "parent": 1,
            "algo": "sac",
            "fitness": 2.0,
            "steps": 100,
            "seconds": 2.5,
            "generation": 4,
            "genes": {"lr": 0.1, "n": 2},
            "status": "training",
            "std": 1.0,
            "episodes": 2,
        }
    ]
    assert ledger.scores(3)[0]["snapshot"] is True and ledger.scores(3)[0]["returns"] == [1.0, 3.0]
    assert ledger.scores(9) == []


def test_top_orders_by_best_fitness_with_nan_after_and_failed_last(ledger: Ledger) -> None:
    ledger.add_members(member(i) for i in range(8))
    ledger.add_scores(
        [
            score(0, 10, 5.0),
            score(1, 10, 9.0),
            score(1, 20, 1.0),  # its best counts
            score(2, 10, math.nan),
            score(3, 10, 5.0),  # ties with 0
            score(4, 10, 100.0),  # failed below
            score(5, 10, math.inf),  # diverged, not best
            score(7, 10, -4.0),
            score(7, 20, math.nan),
        ]
    )
    ledger.fail(4, 30, "loss is NaN")
    top = ledger.top()
    assert [row["id"] for row in top] == [1, 0, 3, 7, 2, 5, 6, 4]
    assert [row["rank"] for row in top] == list(range(1, 9))
    assert [row["fitness"] for row in top] == [9.0, 5.0, 5.0, -4.0, None, None, None, 100.0]
    assert top[0]["steps"] == 10
    assert [row["id"] for row in ledger.top(2)] == [1, 0]
    assert ledger.top(0) == []


def test_of_equal_members_the_one_that_got_there_sooner_ranks_first(ledger: Ledger) -> None:
    ledger.add_members(member(i) for i in range(3))
    ledger.add_scores([score(0, 30, 5.0), score(1, 10, 5.0), score(2, 20, 5.0)])
    assert [row["id"] for row in ledger.top()] == [1, 2, 0]


def test_the_first_failure_stays_and_a_failed_member_does_not_finish(ledger: Ledger) -> None:
    ledger.add_members([member(0), member(1)])
    ledger.fail(0, 10, "first")
    ledger.fail(0, 20, "second")
    ledger.finish([0, 1], 30)
    rows = ledger.members()
    assert [(r["status"], r["failed_step"], r["reason"]) for r in rows] == [
        ("failed", 10, "first"),
        ("finished", None, None),
    ]
    ledger.reopen([0, 1])
    assert [r["status"] for r in ledger.members()] == ["failed", "training"]


def test_rewind_forgets_what_came_after_and_only_that(ledger: Ledger) -> None:
    ledger.add_members([member(0), member(1), member(2), member(3, born=100)])
    for step in (100, 101):
        ledger.add_scores([score(0, step, float(step))])
        ledger.report(step, 1.0, {"loss": [0.5, 0.25]})
        ledger.event(step, 1.0, "exploit", {"from": 1}, member=0)
    ledger.fail(1, 100, "kept")
    ledger.fail(2, 150, "forgotten")
    ledger.finish([0], 200)
    ledger.add_members([member(4, born=101, parent=3)])
    ledger.add_scores([score(4, 120, 1.0)])
    ledger.rewind(100)
    assert [s["step"] for s in ledger.scores()] == [100]
    assert [m["step"] for m in ledger.metrics()] == [100]
    assert [e["step"] for e in ledger.events()] == [100]
    assert [(m["id"], m["status"], m["failed_step"], m["reason"], m["finished_step"]) for m in ledger.members()] == [
        (0, "training", None, None, None),
        (1, "failed", 100, "kept", None),
        (2, "training", None, None, None),
        (3, "training", None, None, None),
    ]
    ledger.add_members([member(4, born=101, parent=3)])  # the same id again: nothing is recorded twice


def test_many_are_entered_all_or_none(ledger: Ledger) -> None:
    ledger.add_members([member(0)])
    with pytest.raises(sqlite3.IntegrityError):
        ledger.add_members([member(1), member(0)])
    assert [m["id"] for m in ledger.members()] == [0]
    with pytest.raises(sqlite3.IntegrityError):
        ledger.add_scores([score(0, 1, 1.0), score(77, 1, 1.0)])  # no such member
    assert ledger.scores() == []


def test_metrics_and_events_come_back(ledger: Ledger) -> None:
    ledger.add_members([member(0)])
    ledger.report(5, 0.5, {"loss": [0.1234567891, math.nan], "n": [12345678901, 2]}, members=[7, 9])
    assert ledger.metrics() == [
        {"step": 5, "seconds": 0.5, "members": [7, 9], "values": {"loss": [0.1234568, None], "n": [12345678901, 2]}}
    ]
    ledger.event(6, 0.6, "resume")
    ledger.event(7, 0.7, "mutate", {"lr": [0.1, 0.2]}, member=0)
    assert [e["kind"] for e in ledger.events()] == ["resume", "mutate"]
    assert ledger.events("mutate") == [
        {"step": 7, "seconds": 0.7, "member": 0, "kind": "mutate", "detail": {"lr": [0.1, 0.2]}}
    ]


def test_genes_and_returns_are_exact(ledger: Ledger) -> None:
    third = 1 / 3
    ledger.add_members([Member(id=0, algo="ppo", genes={"lr": third})])
    ledger.add_scores([score(0, 1, third)])
    assert ledger.top()[0]["genes"] == {"lr": third}
    assert ledger.scores()[0]["returns"] == [third]


def test_it_is_in_wal_and_versioned(ledger: Ledger) -> None:
    with sqlite3.connect(ledger.path) as link:
        assert link.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert link.execute("PRAGMA user_version").fetchone() == (1,)


@pytest.mark.parametrize("readonly", [False, True])
def test_other_versions_and_other_files_are_refused(tmp_path: Path, readonly: bool) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    with sqlite3.connect(path) as link:
        link.execute("PRAGMA user_version = 9")
    link.close()
    with pytest.raises(CheckpointError, match="version 9, this Podium reads 1"):
        Ledger(path, readonly=readonly)
    path.write_bytes(b"no database " * 100)
    with pytest.raises(CheckpointError, match=r"ledger\.sqlite: not a ledger"):
        Ledger(path, readonly=readonly)
    assert path.read_bytes() == b"no database " * 100


def test_a_strange_database_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as link:
        link.execute("CREATE TABLE theirs (x)")
    link.close()
    with pytest.raises(CheckpointError, match="version 0"):
        Ledger(path)


def test_a_reader_makes_no_files_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "a #1%" / "ledger.sqlite"
    path.parent.mkdir()
    with pytest.raises(CheckpointError, match="no such ledger"):
        Ledger(path, readonly=True)
    assert os.listdir(path.parent) == []
    with Ledger(path) as writer:
        writer.add_members([member(0)])
    assert os.listdir(path.parent) == ["ledger.sqlite"]
    reader = Ledger(path, readonly=True)
    assert [m["id"] for m in reader.members()] == [0]
    assert os.listdir(path.parent) == ["ledger.sqlite"]
    with pytest.raises(PodiumError, match="reading only"):
        reader.add_members([member(1)])


def test_one_reader_sees_writers_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    reader = Ledger(path, readonly=True)
    for i in range(3):
        with Ledger(path) as writer:
            writer.add_members([member(i)])
            assert len(reader.top()) == i + 1  # while it is open
        assert len(reader.top()) == i + 1  # and after


def test_a_reader_in_another_process_reads_while_the_writer_writes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    read = """
import sys
from pathlib import Path
from podium.store.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), readonly=True)
seen = [len(ledger.top())]
print("ready", flush=True)
while seen[-1] < 300:
    seen.append(len(ledger.top()))
    assert len(ledger.scores()) % 10 == 0, "half a transaction"
assert seen == sorted(seen)
assert "torch" not in sys.modules
"""
    with Ledger(path) as writer:
        writer.add_members([member(0)])
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        reader = subprocess.Popen(
            [sys.executable, "-c", read, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
        i = 0
        while reader.poll() is None and i < 20_000:
            i += 1
            if i < 300:
                writer.add_members([member(i)])
            writer.add_scores([score(0, i, 1.0)] * 10)
        _, error = reader.communicate(timeout=10)
    assert reader.returncode == 0, error


def test_a_killed_writer_loses_nothing_it_committed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    write = """
import os, sys
from pathlib import Path
from podium.store.ledger import Ledger
from podium.store.records import Member
ledger = Ledger(Path(sys.argv[1]))
ledger.add_members([Member(id=i, algo="ppo") for i in range(5)])
os.kill(os.getpid(), 9)
"""
    result = subprocess.run([sys.executable, "-c", write, str(path)], env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert result.returncode == -9
    assert len(Ledger(path, readonly=True).members()) == 5
    with Ledger(path) as ledger:
        assert len(ledger.members()) == 5


def test_a_full_disk_is_an_os_error_and_the_ledger_goes_on(ledger: Ledger) -> None:
    ledger.add_members([member(0)])
    assert ledger._link is not None
    pages = ledger._link.execute("PRAGMA page_count").fetchone()[0]
    ledger._link.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match="full") as caught:
        ledger.event(1, 0.1, "big", {"text": "x" * 100_000})
    assert caught.value.errno == errno.ENOSPC
    ledger._link.execute("PRAGMA max_page_count = 100000")
    ledger.event(1, 0.1, "small")
    assert [e["kind"] for e in ledger.events()] == ["small"]
