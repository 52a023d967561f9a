"""The ledger: members, scores, metrics and events of a run, in SQLite. One process writes, any number read."""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from podium.core.errors import PodiumError
from podium.store import schema
from podium.store.records import Member, Score, to_json

_TOP = """
SELECT id, parent, algo, fitness, coalesce(step, failed_step, born_step) AS steps, coalesce(seconds, 0.0) AS seconds,
       generation, genes, status, std, coalesce(episodes, 0) AS episodes
FROM members LEFT JOIN (
    SELECT *, row_number() OVER (PARTITION BY member ORDER BY fitness DESC NULLS LAST, step) AS place FROM scores
) ON member = id AND place = 1
ORDER BY status = 'failed', fitness DESC NULLS LAST, step NULLS LAST, id LIMIT ?
"""
_REWIND = (
    "DELETE FROM scores WHERE step > :step OR member IN (SELECT id FROM members WHERE born_step > :step)",
    "DELETE FROM metrics WHERE step > :step",
    "DELETE FROM events WHERE step > :step",
    "DELETE FROM members WHERE born_step > :step",
    "UPDATE members SET status = 'training', finished_step = NULL WHERE status = 'finished' AND finished_step > :step",
    "UPDATE members SET failed_step = NULL, reason = NULL, "
    "status = CASE WHEN finished_step <= :step THEN 'finished' ELSE 'training' END WHERE failed_step > :step",
)


class Ledger:
    """The ledger in the file `path`. A writer makes it if need be; a reader (`readonly`) never touches the folder."""

    def __init__(self, path: Path, readonly: bool = False) -> None:
        self.path = path
        self._link = None if readonly else schema.writer(path)
        if readonly:
            schema.reader(path).close()

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._link is not None:
            self._link.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_members(self, members: Iterable[Member]) -> None:
        """Enter new members, all or none."""
        self._many(
            'INSERT INTO members(id, parent, "row", algo, kind, generation, born_step, genes) VALUES (?,?,?,?,?,?,?,?)',
            [
                (m.id, m.parent, m.row, m.algo, m.kind, m.generation, m.born_step, to_json(dict(m.genes or {})))
                for m in members
            ],
        )

    def add_scores(self, scores: Iterable[Score]) -> None:
        """Enter the evaluations of many members in one transaction."""
        self._many(
            "INSERT INTO scores VALUES (?,?,?,?,?,?,?,?)",
            [
                (s.member, s.step, s.seconds, s.fitness, s.std, len(s.returns), to_json(s.returns), s.snapshot)
                for s in scores
            ],
        )

    def report(
        self, step: int, seconds: float, values: Mapping[str, Sequence[float]], members: Sequence[int] | None = None
    ) -> None:
        """Enter the metrics of one report, a value a member each (7 digits); `members` are their ids, if not by row."""
        ids = None if members is None else to_json(members)
        self._many("INSERT INTO metrics VALUES (?,?,?,?)", [(step, seconds, ids, to_json(values, digits=7))])

    def event(
        self, step: int, seconds: float, kind: str, detail: Mapping[str, Any] | None = None, member: int | None = None
    ) -> None:
        """Enter something that happened, to one member or to the run."""
        self._many("INSERT INTO events VALUES (?,?,?,?,?)", [(step, seconds, member, kind, to_json(detail or {}))])

    def fail(self, member: int, step: int, reason: str) -> None:
        """Mark a member as failed at `step`; the first reason stays."""
        self._many(
            "UPDATE members SET status = 'failed', failed_step = ?, reason = ? WHERE id = ? AND status != 'failed'",
            [(step, reason, member)],
        )

    def finish(self, members: Iterable[int], step: int) -> None:
        """Mark members as finished at `step`, except those that failed."""
        self._many(
            "UPDATE members SET status = 'finished', finished_step = ? WHERE id = ? AND status = 'training'",
            [(step, member) for member in members],
        )

    def reopen(self, members: Iterable[int]) -> None:
        """Finished members train on: a resume extends the run."""
        self._many(
            "UPDATE members SET status = 'training', finished_step = NULL WHERE id = ? AND status = 'finished'",
            [(member,) for member in members],
        )

    def set_genes(self, genes: Mapping[int, Mapping[str, Any]]) -> None:
        """Note the genes that members (by id) go on with: a resume may change them."""
        self._many("UPDATE members SET genes = ? WHERE id = ?", [(to_json(dict(g)), m) for m, g in genes.items()])

    def rewind(self, step: int) -> None:
        """Forget all that happened after `step`, so that a resume records nothing twice.

        What happened at `step` itself stays: a checkpoint is the last thing written at its step.
        """
        with self._transaction() as link:
            for statement in _REWIND:
                link.execute(statement, {"step": step})

    def top(self, k: int | None = None) -> list[dict[str, Any]]:
        """Members by their best fitness; no fitness after any, failed last, ties by steps, then id.

        `steps` and `seconds` are those of the best score. A member without one has fitness None.
        """
        rows = self._rows(_TOP, -1 if k is None else k)
        return [{"rank": rank, **row} for rank, row in enumerate(rows, 1)]

    def members(self) -> list[dict[str, Any]]:
        """Every member, by id."""
        return self._rows("SELECT * FROM members ORDER BY id")

    def scores(self, member: int | None = None) -> list[dict[str, Any]]:
        """Every score, or one member's, in the order they were entered."""
        return self._rows("SELECT * FROM scores WHERE ?1 IS NULL OR member = ?1 ORDER BY rowid", member)

    def metrics(self) -> list[dict[str, Any]]:
        """Every report: step, seconds, members (ids, or None: by row), values (a list a name)."""
        return self._rows("SELECT * FROM metrics ORDER BY rowid")

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Every event, or those of one kind, in the order they were entered."""
        return self._rows("SELECT * FROM events WHERE ?1 IS NULL OR kind = ?1 ORDER BY rowid", kind)

    def _many(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        with self._transaction() as link:
            link.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._link is None:
            raise PodiumError(f"{self.path}: this ledger was opened for reading only")
        self._link.execute("BEGIN IMMEDIATE")
        try:
            yield self._link
            self._link.execute("COMMIT")
        except BaseException as error:
            if self._link.in_transaction:
                self._link.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
                raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(self.path)) from error
            raise

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        if self._link is not None:
            return [_decode(row) for row in self._link.execute(query, values)]
        try:
            return self._read(query, *values)
        except sqlite3.DatabaseError:  # a writer came or went between the look at the folder and the query
            return self._read(query, *values)

    def _read(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """One query on a fresh connection, so that a long-lived reader sees a writer come and go."""
        with closing(schema.reader(self.path)) as link:
            return [_decode(row) for row in link.execute(query, values)]


def _decode(row: sqlite3.Row) -> dict[str, Any]:
    columns = dict(row)
    for name in ("genes", "returns", "members", "values", "detail"):
        if columns.get(name) is not None:
            columns[name] = json.loads(columns[name])
    if "snapshot" in columns:
        columns["snapshot"] = bool(columns["snapshot"])
    return columns
