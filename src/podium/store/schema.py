"""The ledger's tables and how its file is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from podium.core.errors import CheckpointError

VERSION = 2

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
"""


def writer(path: Path) -> sqlite3.Connection:
    """A connection that writes; makes the tables of a new ledger."""
    link = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA synchronous = NORMAL")
        link.execute("PRAGMA foreign_keys = ON")
        if _version(link) == 0 and not link.execute("SELECT 1 FROM sqlite_master").fetchone():
            link.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        _check(path, link)
    except sqlite3.DatabaseError as error:
        link.close()
        raise _refusal(path, error) from error
    except CheckpointError:
        link.close()
        raise
    return link


def reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads and makes no files, whether a writer is at work or not."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such ledger")
    # Without a -wal file nobody writes, and an ordinary read-only connection would make one.
    still = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    link = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro{still}", uri=True, timeout=30)
    try:
        _check(path, link)
    except sqlite3.DatabaseError as error:
        link.close()
        raise _refusal(path, error) from error
    except CheckpointError:
        link.close()
        raise
    return link


def _check(path: Path, link: sqlite3.Connection) -> None:
    link.row_factory = sqlite3.Row
    version = _version(link)
    if version != VERSION:
        raise CheckpointError(f"{path}: version {version}, this Podium reads {VERSION}")


def _version(link: sqlite3.Connection) -> int:
    return int(link.execute("PRAGMA user_version").fetchone()[0])


def _refusal(path: Path, error: sqlite3.DatabaseError) -> CheckpointError:
    return CheckpointError(f"{path}: not a ledger that can be read ({error})")
