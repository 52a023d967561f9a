"""The ledger: ranks, turns, rewind, versions, and readers beside the writer."""

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
from podium.store.records import Member, Ranked, Score

SOURCE = Path(podium.core.__file__).parents[2]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def member(i: int, born: int = 0, parent: int | None = None) -> Member:
    return Member(id=i, algo="ppo", kind="k", parent=parent, row=i % 4, born_step=born, genes={"lr": 3e-4})


def score(i: int, step: int, *returns: float) -> Score:
    return Score(member=i, step=step, seconds=step / 10, returns=returns)


def ranked(i: int, fitness: float, step: int = 10, front: int = 0) -> Ranked:
    return Ranked(i, fitness, step, step / 10, std=0.5, episodes=4, front=front)


def test_top_has_the_keys_that_json_promises(ledger: Ledger) -> None:
    ledger.add_members([Member(id=3, algo="sac", kind="k", parent=1, row=2, generation=4, genes={"lr": 0.1, "n": 2})])
    ledger.add_scores([Score(3, step=100, seconds=2.5, returns=[1.0, 3.0], objectives={"effort": 0.5}, cost=70)])
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
            "kind": "k",
            "objectives": {"effort": 0.5},
        }
    ]
    assert ledger.scores(9) == []


def test_scores_come_back_with_what_they_measured_and_what_they_cost(ledger: Ledger) -> None:
    ledger.add_members([member(3)])
    ledger.turn = 5
    ledger.add_scores([Score(3, 100, 2.5, [1.0, 3.0], objectives={"effort": math.nan, "length": 2}, cost=70)])
    ledger.add_scores([score(3, 200, 4.0)])
    both = {"member": 3, "turn": 5}
    assert ledger.scores(3) == [
        both
        | {"step": 100, "seconds": 2.5, "fitness": 2.0, "std": 1.0, "episodes": 2, "returns": [1.0, 3.0]}
        | {"objectives": {"effort": None, "length": 2}, "cost": 70},
        both
        | {"step": 200, "seconds": 20.0, "fitness": 4.0, "std": 0.0, "episodes": 1, "returns": [4.0]}
        | {"objectives": None, "cost": 0},
    ]


def test_a_member_comes_back_with_where_it_came_from(ledger: Ledger) -> None:
    ledger.turn = 3
    ledger.add_members([member(0)])
    ledger.turn = 4
    ledger.add_members([Member(1, "a2c", "small", 0, 2, 5, 1, 640, 512, "copy", {"lr": math.inf})])
    assert ledger.members()[1] == {
        **{"id": 1, "algo": "a2c", "kind": "small", "parent": 0, "pod": 2, "row": 5, "generation": 1},
        **{"born_step": 640, "inherited": 512, "origin": "copy", "genes": {"lr": None}, "born_turn": 4},
        **{"status": "training", "ended_step": None, "ended_turn": None, "reason": None},
    }
    assert [(m["inherited"], m["origin"], m["born_turn"]) for m in ledger.members()] == [
        (0, "start", 3),
        (512, "copy", 4),
    ]


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
    assert [(r["status"], r["ended_step"], r["reason"]) for r in rows] == [
        ("failed", 10, "first"),
        ("finished", 30, None),
    ]
    ledger.reopen([0, 1])
    assert [(r["status"], r["ended_step"]) for r in ledger.members()] == [("failed", 10), ("training", None)]


def test_a_reason_that_is_not_unicode(ledger: Ledger) -> None:
    ledger.add_members([member(0)])
    ledger.fail(0, 5, "no file \udc80")
    assert ledger.members()[0]["reason"] == "no file \\udc80"


def test_a_replaced_member_stays_replaced_and_a_failed_one_failed(ledger: Ledger) -> None:
    ledger.add_members(member(i) for i in range(3))
    ledger.fail(0, 10, "loss is NaN")
    ledger.turn = 2
    ledger.replace([0, 1], 20)
    ledger.turn = 3
    ledger.fail(1, 30, "too late")
    ledger.finish([0, 1, 2], 40)
    ledger.reopen([0, 1, 2])
    ledger.finish([2], 50)
    names = ("status", "ended_step", "reason", "ended_turn")
    assert [tuple(m[name] for name in names) for m in ledger.members()] == [
        ("failed", 10, "loss is NaN", 0),
        ("replaced", 20, None, 2),
        ("finished", 50, None, 3),
    ]
    assert not ledger.training()


def test_rewind_forgets_what_came_after_and_only_that(ledger: Ledger) -> None:
    """Turns decide and not steps: rows of several pods stand at different steps in the same turn."""
    ledger.add_members(member(i) for i in range(5))
    for turn, step in ((1, 700), (2, 100), (3, 50)):
        ledger.turn = turn
        ledger.add_scores([score(0, step, float(step))])
        ledger.report(step, 1.0, {"loss": [0.5, 0.25]})
        ledger.event(step, 1.0, "exploit", {"from": 1}, member=0)
        if turn == 2:
            ledger.fail(1, 700, "kept")
            ledger.replace([4], 100)
            ledger.add_members([member(5, born=900, parent=0)])
    ledger.fail(2, 40, "forgotten")
    ledger.replace([3], 45)
    ledger.finish([0, 5], 50)
    ledger.add_members([member(6, born=45, parent=3)])
    ledger.add_scores([score(6, 46, 1.0)])
    ledger.rank([ranked(0, 700.0, 700), ranked(6, 1.0)])
    ledger.rewind(2)
    assert ledger.turn == 2
    assert [s["step"] for s in ledger.scores()] == [700, 100]
    assert [m["step"] for m in ledger.metrics()] == [700, 100]
    assert [e["step"] for e in ledger.events()] == [700, 100]
    names = ("id", "status", "ended_step", "reason", "ended_turn")
    assert [tuple(m[name] for name in names) for m in ledger.members()] == [
        (0, "training", None, None, None),
        (1, "failed", 700, "kept", 2),
        (2, "training", None, None, None),
        (3, "training", None, None, None),
        (4, "replaced", 100, None, 2),
        (5, "training", None, None, None),
    ]
    assert all("front" not in row for row in ledger.top()), "the leaderboard is empty: it is entered anew"
    ledger.turn = 3
    ledger.add_members([member(6, born=45, parent=3)])  # the same id again: nothing is recorded twice
    ledger.rank([ranked(0, 700.0, 700), ranked(6, 1.0)])
    assert [row["id"] for row in ledger.top()] == [0, 6]


def test_rewound_to_where_it_is_it_loses_only_the_leaderboard(ledger: Ledger) -> None:
    ledger.turn = 4
    ledger.add_members([member(0)])
    ledger.add_scores([score(0, 10, 1.0)])
    ledger.rank([ranked(0, 1.0)])
    ledger.finish([0], 10)
    before = ledger.members(), ledger.scores()
    ledger.rewind(4)
    assert (ledger.members(), ledger.scores()) == before


# ---- the leaderboard


def test_the_leaderboard_ranks_by_fitness_then_steps_then_id(ledger: Ledger) -> None:
    ledger.add_members(member(i) for i in range(6))
    ledger.add_scores([score(i, 10, 1000.0 * i) for i in range(6)])  # is not asked where there is a leaderboard
    ledger.rank([ranked(3, 5.0, 20), ranked(1, 5.0, 30), ranked(4, 5.0, 20), ranked(0, 9.0, 90)])
    ledger.fail(0, 95, "but its snapshot is as good as it was")
    ledger.replace([3], 95)
    top = ledger.top()
    assert [(r["rank"], r["id"], r["fitness"], r["steps"]) for r in top] == [
        (1, 0, 9.0, 90),
        (2, 3, 5.0, 20),
        (3, 4, 5.0, 20),
        (4, 1, 5.0, 30),
    ]
    assert [r["status"] for r in top] == ["failed", "replaced", "training", "training"]
    assert (top[0]["seconds"], top[0]["std"], top[0]["episodes"], top[0]["front"]) == (9.0, 0.5, 4, 0)
    assert [r["id"] for r in ledger.top(2)] == [0, 3] and ledger.top(0) == []


def test_a_better_front_ranks_before_a_better_fitness(ledger: Ledger) -> None:
    ledger.add_members(member(i) for i in range(3))
    best = Ranked(2, 1.0, 10, 1.0, front=0, objectives={"return": 1.0, "effort": 0.1})
    ledger.rank([ranked(0, 9.0, front=1), ranked(1, 5.0, front=1), best])
    assert [(r["id"], r["front"]) for r in ledger.top()] == [(2, 0), (0, 1), (1, 1)]
    assert [r["objectives"] for r in ledger.top()] == [{"return": 1.0, "effort": 0.1}, None, None]


def test_members_enter_move_and_leave_the_leaderboard(ledger: Ledger) -> None:
    ledger.add_members(member(i) for i in range(4))
    ledger.rank([ranked(0, 1.0), ranked(1, 2.0), ranked(2, 3.0)])
    ledger.rank([ranked(0, 4.0, 20), ranked(3, 2.5)], left=[1])
    assert [(r["id"], r["fitness"], r["steps"]) for r in ledger.top()] == [(0, 4.0, 20), (2, 3.0, 10), (3, 2.5, 10)]
    with pytest.raises(sqlite3.IntegrityError):
        ledger.rank([ranked(1, 9.0), ranked(77, 9.0)], left=[0])  # no such member
    assert [r["id"] for r in ledger.top()] == [0, 2, 3], "all or none"
    ledger.rank([], left=[0, 2, 3])
    assert [r["id"] for r in ledger.top()] == [0, 1, 2, 3] and ledger.top()[0]["fitness"] is None


# ---- together


def entered(ledger: Ledger) -> tuple[object, ...]:
    """All that a reader sees."""
    with Ledger(ledger.path, readonly=True) as reader:
        return reader.members(), reader.scores(), reader.metrics(), reader.events(), reader.top()


def write(ledger: Ledger) -> None:
    """Every kind of entry."""
    ledger.turn += 1
    ledger.add_members([member(2, parent=0)])
    ledger.add_scores([score(0, 20, 2.0), score(2, 20, 3.0)])
    ledger.fail(0, 20, "loss is NaN")
    ledger.replace([1], 20)
    ledger.finish([2], 20)
    ledger.reopen([2])
    ledger.set_genes({1: {"lr": 0.5}})
    ledger.report(20, 2.0, {"loss": [1.0]})
    ledger.event(20, 2.0, "exploit")
    ledger.rank([ranked(2, 3.0)], left=[0])


def begun(ledger: Ledger) -> None:
    ledger.add_members([member(0), member(1)])
    ledger.add_scores([score(0, 10, 1.0)])
    ledger.rank([ranked(0, 1.0)])


def test_what_is_entered_together_is_seen_at_once(ledger: Ledger) -> None:
    begun(ledger)
    before = entered(ledger)
    with ledger.together():
        write(ledger)
        assert entered(ledger) == before, "a reader sees nothing of it yet"
        assert len(ledger.members()) == 3, "the writer does"
    after = entered(ledger)
    assert all(one != other for one, other in zip(before, after, strict=True))
    ledger.event(21, 2.1, "later")  # each by itself again
    assert len(entered(ledger)[3]) == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_exception_inside_together_takes_everything_back(ledger: Ledger, error: type[BaseException]) -> None:
    begun(ledger)
    before = entered(ledger)
    with pytest.raises(error), ledger.together():
        write(ledger)
        raise error("in the middle")
    assert entered(ledger) == before
    with ledger.together():  # and the ledger goes on
        write(ledger)
    assert len(entered(ledger)[0]) == 3


def test_an_entry_that_is_refused_inside_together_takes_the_others_back(ledger: Ledger) -> None:
    begun(ledger)
    before = entered(ledger)
    with pytest.raises(sqlite3.IntegrityError), ledger.together():
        write(ledger)
        ledger.add_scores([score(77, 1, 1.0)])  # no such member
    assert entered(ledger) == before


def test_a_rewind_together_with_what_follows_is_one(ledger: Ledger) -> None:
    begun(ledger)
    ledger.turn = 3
    ledger.add_scores([score(1, 30, 9.0)])
    before = entered(ledger)
    with pytest.raises(OSError, match="full"), ledger.together():
        ledger.rewind(0)
        ledger.rank([ranked(1, 9.0)])
        raise OSError("the disk is full")
    assert entered(ledger) == before


def test_a_full_disk_inside_together_is_an_os_error_and_takes_everything_back(ledger: Ledger) -> None:
    begun(ledger)
    before = entered(ledger)
    assert ledger._link is not None
    pages = ledger._link.execute("PRAGMA page_count").fetchone()[0]
    ledger._link.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match="full") as caught, ledger.together():
        write(ledger)
        ledger.event(1, 0.1, "big", {"text": "x" * 100_000})
    assert caught.value.errno == errno.ENOSPC
    assert entered(ledger) == before
    ledger._link.execute("PRAGMA max_page_count = 100000")
    with ledger.together():
        write(ledger)
    assert len(entered(ledger)[0]) == 3


def test_a_writer_killed_inside_together_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    script = """
import os, sys
from pathlib import Path
from podium.store.ledger import Ledger
from podium.store.records import Member, Score
ledger = Ledger(Path(sys.argv[1]))
ledger.add_members([Member(id=0, algo="ppo")])
with ledger.together():
    ledger.add_members([Member(id=1, algo="ppo")])
    ledger.add_scores([Score(0, 1, 0.1, [1.0] * 10_000)])
    os.kill(os.getpid(), 9)
"""
    result = subprocess.run([sys.executable, "-c", script, str(path)], env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert result.returncode == -9
    with Ledger(path) as ledger:
        assert [m["id"] for m in ledger.members()] == [0] and ledger.scores() == []


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
        | {"turn": 0}
    ]
    ledger.turn = 8
    ledger.event(6, 0.6, "resume")
    ledger.event(7, 0.7, "mutate", {"lr": [0.1, 0.2]}, member=0)
    assert [e["kind"] for e in ledger.events()] == ["resume", "mutate"]
    assert ledger.events("mutate") == [
        {"step": 7, "seconds": 0.7, "member": 0, "kind": "mutate", "detail": {"lr": [0.1, 0.2]}, "turn": 8}
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
        assert link.execute("PRAGMA user_version").fetchone() == (3,)


@pytest.mark.parametrize("readonly", [False, True])
def test_other_versions_and_other_files_are_refused(tmp_path: Path, readonly: bool) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    with sqlite3.connect(path) as link:
        link.execute("PRAGMA user_version = 9")
        link.execute("CREATE TABLE more (x)")
    link.close()
    with pytest.raises(CheckpointError, match="version 9, this Podium reads 3"):
        Ledger(path, readonly=readonly)
    path.write_bytes(b"no database " * 100)
    with pytest.raises(CheckpointError, match=r"ledger\.sqlite: damaged: file is not a database; podium resume"):
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


def test_exchanges_are_read_from_who_sat_where(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        seats = [(None, 0, "start"), (None, 1, "start"), (1, 0, "copy"), (None, 1, "fresh"), (2, 0, "copy")]
        ledger.add_members(
            Member(i, "ppo", parent=parent, row=row, born_step=10 * i, origin=origin)
            for i, (parent, row, origin) in enumerate(seats)
        )
        found = [(e["member"], e["parent"], e["replaced"], e["step"]) for e in ledger.exchanges()]
        assert found == [(2, 1, 0, 20), (3, None, 1, 30), (4, 2, 2, 40)]
