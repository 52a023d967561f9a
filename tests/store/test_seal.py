"""Seals of the ledger, and the checksums of its log: a flipped bit is told, or changes nothing that is read."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import CheckpointError
from podium.store import schema, seal, wal
from podium.store.ledger import Ledger
from podium.store.records import Member, Ranked, Score


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with something in every table, of which rows were changed and deleted."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.add_members(Member(i, "ppo", "ppo", genes={"lr": i / 7}) for i in range(6))
        ledger.add_scores(Score(i, 10, 0.5, [1.0 * i, 2.5]) for i in range(6))
        ledger.rank([Ranked(i, 1.0 * i, 10, 0.5) for i in range(4)])
        ledger.rank([Ranked(3, 9.0, 12, 0.75)], left=[0])
        ledger.report(10, 0.5, {"loss": [0.1, 0.2]}, [0, 1])
        ledger.event(10, 0.5, "note", {"text": "hello"})
        ledger.turn = 3
        ledger.replace([5], 12)
        ledger.fail(4, 12, "it broke")
        ledger.set_genes({1: {"lr": 0.25}})
        ledger.seat({2: (1, 0)})
        ledger.add_scores([Score(0, 20, 1.0, [3.0])])
        ledger.rewind(2)
        ledger.rank([Ranked(2, 1.0, 10, 0.5)])
    return path


def read(path: Path) -> list[Any]:
    """All that commands read."""
    ledger = Ledger(path, readonly=True)
    return [ledger.members(), ledger.scores(), ledger.top(), ledger.metrics(), ledger.events(), ledger.progress()]


def test_what_is_entered_changed_and_deleted_stays_sealed(path: Path) -> None:
    assert [row["status"] for row in read(path)[0]] == ["training"] * 6
    with closing(schema.reader(path)) as link:
        seals = {name: rows for name, rows, _ in link.execute("SELECT * FROM seals")}
    assert seals == {"members": 6, "scores": 6, "board": 1, "metrics": 1, "events": 1}


def test_a_flipped_bit_is_told_or_harmless(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, right = path.read_bytes(), read(path)
    rng, told, blind = random.Random(1), 0, 0
    for _ in range(1500):
        data, bit = bytearray(whole), rng.randrange(8 * len(whole))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            assert read(path) == right, f"bit {bit}: wrong without a word"
        except CheckpointError:
            told += 1
            with monkeypatch.context() as unchecked, suppress(Exception):
                unchecked.setattr(Ledger, "verify", lambda self: None)
                blind += read(path) != right
    assert told > 50
    assert blind >= 5, "without the seals these were wrong: the test is not empty"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM scores WHERE rowid = 2",
        "INSERT INTO members SELECT 9, parent, pod, 9, algo, kind, generation, born_step, inherited, origin, genes, "
        "status, ended_step, reason, born_turn, ended_turn FROM members WHERE id = 0",
        "UPDATE scores SET fitness = 1000 WHERE member = 1",
        "UPDATE seals SET rows = rows + 1 WHERE name = 'board'",
    ],
)
def test_rows_that_were_not_entered_by_podium_are_told(path: Path, change: str) -> None:
    """By a tool that does not know how rows are sealed: it has to drop the triggers first."""
    link = sqlite3.connect(path, isolation_level=None)
    triggers = link.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        link.execute(f"DROP TRIGGER {name}")
    link.execute(change)
    for _, text in triggers:
        link.execute(text)
    link.close()
    with pytest.raises(CheckpointError, match="are not those that were entered"):
        Ledger(path, readonly=True)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("members", "genes", "[1, 2]"),
        ("members", "genes", '{"lr": 1e999}'),
        ("members", "algo", "\x1b[31mred"),
        ("members", "generation", -1),
        ("scores", "fitness", "a word"),
        ("scores", "returns", "{"),
        ("scores", "step", 1 << 60),
        ("board", "fitness", float("inf")),
        ("metrics", "values", '{"loss": 3}'),
        ("events", "detail", "null"),
        ("events", "kind", b"\xff"),
    ],
)
def test_rows_that_are_sealed_but_hold_something_else_are_told(path: Path, table: str, column: str, value: Any) -> None:
    with closing(schema.writer(path)) as link:
        link.execute(f'UPDATE {table} SET "{column}" = ?', (value,))
        assert seal.broken(link, [table])
    with pytest.raises(CheckpointError, match=f"{table}, row [0-2]: "):
        Ledger(path, readonly=True)


# ---- the log


def log(tmp_path: Path) -> tuple[Path, bytes]:
    """A ledger whose writer was killed, and its log, in which frames of an earlier round follow the last ones."""
    path = tmp_path / "ledger.sqlite"
    writer = Ledger(path)
    for i in range(40):
        writer.add_members([Member(i, "ppo", "ppo", genes={"lr": 0.1})])
    link = sqlite3.connect(path)
    link.execute("PRAGMA wal_checkpoint").fetchall()
    for i in range(40, 50):
        writer.add_members([Member(i, "ppo", "ppo", genes={"lr": 0.1})])
    return path, path.with_name("ledger.sqlite-wal").read_bytes()


def sums(data: bytes, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """The checksum of SQLite's log, as its documentation writes it."""
    s0, s1 = start
    for i in range(0, len(data), 8):
        s0 = (s0 + int.from_bytes(data[i : i + 4], order) + s1) % 2**32  # type: ignore[arg-type]
        s1 = (s1 + int.from_bytes(data[i + 4 : i + 8], order) + s0) % 2**32  # type: ignore[arg-type]
    return s0, s1


def test_checksums_are_those_of_sqlite(tmp_path: Path) -> None:
    _, data = log(tmp_path)
    order = "big" if data[3] & 1 else "little"
    state = sums(data[:24], order)
    assert state == (int.from_bytes(data[24:28]), int.from_bytes(data[28:32]))
    frame = data[32 : 32 + 24 + 4096]
    found = sums(frame[:8] + frame[24:], order, state)
    assert found == (int.from_bytes(frame[16:20]), int.from_bytes(frame[20:24]))
    assert wal.damage(data) == (None, False)


def test_every_damaged_frame_is_told_and_a_cut_one_is_not(tmp_path: Path) -> None:
    _, data = log(tmp_path)
    salts, size = data[16:24], 24 + 4096
    heads = [data[32 + i * size : 32 + i * size + 24] for i in range((len(data) - 32) // size)]
    valid = next((i for i, head in enumerate(heads) if head[8:16] != salts), len(heads))
    assert 0 < valid < len(heads), "frames of an earlier round follow"
    rng = random.Random(2)
    for _ in range(300):
        bit, damaged = rng.randrange(8 * (32 + valid * size)), bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        why, last = wal.damage(bytes(damaged))
        assert why and last == (bit >= 8 * (32 + (valid - 1) * size)), f"bit {bit}"
    for length in (0, 10, 32, 33, 32 + size - 1, 32 + size, 32 + valid * size - 7):
        assert wal.damage(data[:length]) == (None, False), "a kill may cut it"


def copied(path: Path, folder: Path, data: bytes) -> Path:
    folder.mkdir()
    for name in ("ledger.sqlite", "ledger.sqlite-shm"):
        (folder / name).write_bytes(path.with_name(name).read_bytes())
    (folder / "ledger.sqlite-wal").write_bytes(data)
    return folder / "ledger.sqlite"


def test_a_damaged_log_is_told(tmp_path: Path) -> None:
    path, data = log(tmp_path)
    broken = bytearray(data)
    broken[32 + 24 + 100] ^= 1
    with pytest.raises(CheckpointError, match=r"ledger\.sqlite-wal: damaged: its entry 1 of .* podium resume"):
        Ledger(copied(path, tmp_path / "copy", broken), readonly=True)


def test_a_last_entry_that_a_power_failure_tore_is_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """SQLite goes on without it, and so does Podium: the other entries are whole."""
    path, data = log(tmp_path)
    salts, size = data[16:24], 24 + 4096
    valid = sum(data[at + 8 : at + 16] == salts for at in range(32, len(data) - size + 1, size))
    torn = bytearray(data)
    torn[32 + valid * size - 2048 : 32 + valid * size] = bytes(2048)
    found = Ledger(copied(path, tmp_path / "copy", torn), readonly=True).members()
    assert 40 <= len(found) < 50 and "what was entered last is missing" in capfd.readouterr().err


def test_rows_without_end_are_given_up(path: Path) -> None:
    """Pages that point at each other make a table of any length in a small file."""
    with closing(schema.writer(path)) as link:
        link.execute("UPDATE seals SET rows = 3 WHERE name = 'scores'")
    with closing(schema.reader(path)) as link:
        assert "rows of scores are not those" in str(seal.broken(link, ["scores"]))


def test_another_version_is_not_taken_for_damage(path: Path) -> None:
    link = sqlite3.connect(path)
    link.execute("PRAGMA user_version = 4")
    link.close()
    with pytest.raises(schema.Damaged, match="of version 4, and has the tables of version 3"):
        Ledger(path, readonly=True)
    link = sqlite3.connect(path)
    link.execute("ALTER TABLE events RENAME COLUMN detail TO details")
    link.close()
    with pytest.raises(CheckpointError, match="version 4, this Podium reads 3") as caught:
        Ledger(path, readonly=True)
    assert not isinstance(caught.value, schema.Damaged), "a resume leaves it alone"
