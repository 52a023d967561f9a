"""The ledger's tables and how its file is opened.

Every table is sealed: `seals` holds the number of its rows and the sum of their digests, which triggers keep while rows
come, change and go. See `seal.py` for how a reader checks them.
"""

from __future__ import annotations

import os
import sqlite3
import time
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from podium.core.errors import CheckpointError
from podium.core.text import warn
from podium.store import files, lock, seal

VERSION = 3

_LARGEST_LOG = 256 << 20
"""Bytes of a write-ahead log; SQLite starts it afresh at 4 MB, unless somebody reads for long."""

_ADVICE = "podium resume {} rebuilds the ledger from the last checkpoint"
_PATIENCE, _PACE = 10.0, 10e6
"""Seconds that reading may take, and bytes per second besides: a file of tables without an end is given up."""
_LOOK = 0.05
"""Seconds between two looks at a log that seems to be damaged."""

_TABLES = """
CREATE TABLE members (
    id INTEGER PRIMARY KEY, parent INTEGER, pod INTEGER NOT NULL, "row" INTEGER NOT NULL, algo TEXT NOT NULL,
    kind TEXT NOT NULL, generation INTEGER NOT NULL, born_step INTEGER NOT NULL, inherited INTEGER NOT NULL,
    origin TEXT NOT NULL, genes TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'training' CHECK (status IN ('training', 'finished', 'replaced', 'failed')),
    ended_step INTEGER, reason TEXT, born_turn INTEGER NOT NULL, ended_turn INTEGER);
CREATE TABLE scores (
    member INTEGER NOT NULL REFERENCES members, step INTEGER NOT NULL, seconds REAL NOT NULL, fitness REAL, std REAL,
    episodes INTEGER NOT NULL, returns TEXT NOT NULL, objectives TEXT, cost INTEGER NOT NULL,
    turn INTEGER NOT NULL);
CREATE INDEX scores_by_member ON scores (member, step);
CREATE TABLE board (
    member INTEGER PRIMARY KEY REFERENCES members, fitness REAL NOT NULL, std REAL, episodes INTEGER NOT NULL,
    step INTEGER NOT NULL, seconds REAL NOT NULL, front INTEGER NOT NULL, objectives TEXT);
CREATE TABLE metrics (
    step INTEGER NOT NULL, seconds REAL NOT NULL, members TEXT, "values" TEXT NOT NULL, turn INTEGER NOT NULL);
CREATE TABLE events (
    step INTEGER NOT NULL, seconds REAL NOT NULL, member INTEGER, kind TEXT NOT NULL, detail TEXT NOT NULL,
    turn INTEGER NOT NULL);
CREATE TABLE seals (name TEXT PRIMARY KEY, "rows" INTEGER NOT NULL, "sum" INTEGER NOT NULL);
"""


def writer(path: Path) -> sqlite3.Connection:
    """A connection that writes; makes the tables of a new ledger."""
    _check_files(path, writes=True)
    link = _connect(path, f"file:{quote(str(path.absolute()))}", isolation_level=None)
    try:
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA synchronous = NORMAL")
        link.execute("PRAGMA foreign_keys = ON")
        if _version(link) == 0 and not link.execute("SELECT 1 FROM sqlite_master").fetchone():
            link.executescript(f"BEGIN IMMEDIATE; {_TABLES} {_triggers()} PRAGMA user_version = {VERSION}; COMMIT;")
        _check(path, link)
    except (sqlite3.DatabaseError, UnicodeError) as error:
        link.close()
        raise damaged(path, str(error)) from error
    except CheckpointError:
        link.close()
        raise
    return link


def reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads and makes no files, whether a writer is at work or not."""
    if not _check_files(path):
        raise Damaged(f"{path}: no such ledger; {_ADVICE.format(path.parent)}")
    # Without a -wal file nobody writes, and an ordinary read-only connection would make one.
    still = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    link = _connect(path, f"file:{quote(str(path.absolute()))}?mode=ro{still}")
    ends = time.monotonic() + _PATIENCE + _size(path) / _PACE
    link.set_progress_handler(lambda: time.monotonic() > ends, 100_000)
    try:
        _check(path, link)
    except (sqlite3.DatabaseError, UnicodeError) as error:
        link.close()
        raise damaged(path, str(error)) from error
    except CheckpointError:
        link.close()
        raise
    return link


def check_log(path: Path) -> None:
    """Refuse a damaged log, of which SQLite would drop the rest without a word; while a run is written it is SQLite's.

    A database that says that it has no log, beside one, is damaged, too.
    """
    log = path.with_name(f"{path.name}-wal")
    if lock.held(path.with_name("lock")) or not log.exists():
        return
    if files.first(path, 20)[18:] not in (b"", b"\x02\x02"):
        raise damaged(path, "its header is damaged")
    from podium.store import wal  # numpy, which readers of a finished run do not need

    for _ in range(2):  # a second look: whoever has just begun to write may have been in the middle of it
        before = files.read(log, _LARGEST_LOG, linked=True)
        why, last = wal.damage(before)
        if why is None:
            return
        time.sleep(_LOOK)
        if files.read(log, _LARGEST_LOG, linked=True) != before:
            continue
        if not last:
            raise damaged(log, why)
        warn(f"{log}: {why}, or was cut off when the machine stopped: what was entered last is missing")
        return


class Damaged(CheckpointError):
    """A ledger that is damaged or missing: a resume may rebuild it."""


def damaged(path: Path, why: str) -> Damaged:
    return Damaged(f"{path}: damaged: {why}; {_ADVICE.format(path.parent)}")


def _connect(path: Path, uri: str, **how: object) -> sqlite3.Connection:
    try:
        link = sqlite3.connect(uri, uri=True, timeout=30, **how)  # type: ignore[call-overload]
    except sqlite3.Error as error:
        raise CheckpointError(f"{path}: cannot be opened ({error})") from error
    link.row_factory = sqlite3.Row
    link.text_factory = lambda data: data.decode(errors="replace")  # which no seal was made of
    link.create_function("podium_row", -1, seal.digest, deterministic=True)
    return link  # type: ignore[no-any-return]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_files(path: Path, writes: bool = False) -> bool:
    """Tells whether there is a ledger; refuses one of whose files is not a plain file.

    A rollback journal is never ours, and a stranger's could make SQLite delete a file that it names.
    """
    found = False
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        try:
            sole = writes or name != path.name  # SQLite writes to the others, whoever reads
            os.close(files.open_file(path.with_name(name), linked=True, sole=sole))
        except FileNotFoundError:
            continue
        found |= name == path.name
    if os.path.lexists(journal := path.with_name(f"{path.name}-journal")):
        raise Damaged(f"{journal}: Podium never writes such a file, and does not read a ledger beside one")
    return found


def _check(path: Path, link: sqlite3.Connection) -> None:
    version, ours = _version(link), _tables(link) == _expected()
    if version != VERSION and ours:
        raise damaged(path, f"it says that it is of version {version}, and has the tables of version {VERSION}")
    if version != VERSION:
        raise CheckpointError(f"{path}: version {version}, this Podium reads {VERSION}")
    if not ours:
        raise damaged(path, "its tables are not those of a ledger")


def _version(link: sqlite3.Connection) -> int:
    return int(link.execute("PRAGMA user_version").fetchone()[0])


def _tables(link: sqlite3.Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in link.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name")]


@lru_cache(1)
def _expected() -> list[tuple[object, ...]]:
    link = sqlite3.connect(":memory:")
    link.executescript(f"{_TABLES} {_triggers()}")
    return _tables(link)


def _triggers() -> str:
    """For each table: start its seal, and keep it."""
    found = []
    for table, columns in seal.COLUMNS.items():
        values = [f'{{0}}."{name}"' for name in ("rowid", *columns)]
        old, new = (f"podium_row({', '.join(values)})".format(row) for row in ("OLD", "NEW"))
        for event, rows, change in (
            ("INSERT", "+ 1", f"+ {new}"),
            ("DELETE", "- 1", f"- {old}"),
            ("UPDATE", "+ 0", f"+ {new} - {old}"),
        ):
            found.append(
                f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} BEGIN UPDATE seals "
                f'SET "rows" = "rows" {rows}, "sum" = ("sum" {change}) & {seal.MASK} WHERE name = \'{table}\'; END;'
            )
        found.append(f"INSERT INTO seals VALUES ('{table}', 0, 0);")
    return "\n".join(found)
