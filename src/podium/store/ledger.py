"""The ledger: members, scores, leaderboard, metrics and events of a run, in SQLite. One writes, any number read."""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from podium.core.errors import PodiumError
from podium.core.text import encodable
from podium.store import files, schema, seal
from podium.store.records import Member, Ranked, Score, to_json

_COLUMNS = """id, parent, algo, fitness, coalesce(step, ended_step, born_step) AS steps,
       coalesce(seconds, 0.0) AS seconds, generation, genes, status, std, coalesce(episodes, 0) AS episodes, kind,
       objectives"""
_TOP = f"""
SELECT {_COLUMNS} FROM members LEFT JOIN (
    SELECT *, row_number() OVER (PARTITION BY member ORDER BY fitness DESC NULLS LAST, step) AS place FROM scores
) ON member = id AND place = 1
ORDER BY status = 'failed', fitness DESC NULLS LAST, step NULLS LAST, id LIMIT ?
"""
_BOARD = f"""
SELECT {_COLUMNS}, front FROM board JOIN members ON member = id ORDER BY front, fitness DESC, step, id LIMIT ?
"""
_PROGRESS = """
SELECT size, max(lived, coalesce(max(scores.step), 0)) AS step, coalesce(max(seconds), 0.0) AS seconds,
    count(scores.step) AS evaluations
FROM (
    SELECT pod, sum(origin IN ('start', 'rebuilt')) AS size, max(max(born_step, coalesce(ended_step, 0))) AS lived
    FROM members GROUP BY pod
) AS pods JOIN members USING (pod) LEFT JOIN scores ON member = id GROUP BY pod
"""
_LAST_REPORT = "SELECT step, seconds FROM metrics ORDER BY rowid DESC LIMIT 1"
_EXCHANGES = """
SELECT * FROM (
    SELECT id AS member, parent, lag(id) OVER (PARTITION BY pod, "row" ORDER BY id) AS replaced, pod, "row", origin,
        born_step AS step, generation, genes FROM members
) WHERE origin NOT IN ('start', 'rebuilt') ORDER BY member
"""
_REWIND = (
    "DELETE FROM board",
    "DELETE FROM scores WHERE turn > :turn OR member IN (SELECT id FROM members WHERE born_turn > :turn)",
    "DELETE FROM metrics WHERE turn > :turn",
    "DELETE FROM events WHERE turn > :turn",
    "DELETE FROM members WHERE born_turn > :turn",
    "UPDATE members SET status = 'training', ended_step = NULL, reason = NULL, ended_turn = NULL "
    "WHERE ended_turn > :turn",
)
_END = "UPDATE members SET status = ?, ended_step = ?, reason = ?, ended_turn = ? WHERE id = ? AND status = 'training'"


class Ledger:
    """The ledger in the file `path`. A writer makes it if need be; a reader (`readonly`) never touches the folder."""

    def __init__(self, path: Path, readonly: bool = False) -> None:
        self.path = path
        self._together = False
        self.turn = 0
        """What is entered now carries this number; a run counts it up, and `rewind` goes back to one."""
        self._link = None if readonly else schema.writer(path)
        if readonly:
            self.verify()

    def verify(self) -> None:
        """Refuse a ledger that is damaged, or that holds what no run enters."""
        schema.check_log(self.path)
        with closing(schema.reader(self.path)) as link, _told(self.path):
            link.execute("BEGIN")
            if why := seal.broken(link):
                raise schema.damaged(self.path, why)

    def sync(self) -> None:
        """Make all that was entered durable: before a checkpoint that counts on it."""
        with suppress(FileNotFoundError):  # its log, which SQLite itself syncs only when nobody reads
            files.sync(self.path.with_name(f"{self.path.name}-wal"))

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._link is not None:
            self._link.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """All that is entered inside is one transaction: on disk it is there as a whole or not at all."""
        with self._transaction():
            self._together = True
            try:
                yield
            finally:
                self._together = False

    def add_members(self, members: Iterable[Member]) -> None:
        """Enter new members, all or none."""
        self._many(
            'INSERT INTO members(id, parent, pod, "row", algo, kind, generation, born_step, inherited, origin, genes, '
            "born_turn) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            [
                (
                    *(m.id, m.parent, m.pod, m.row, m.algo, m.kind, m.generation, m.born_step, m.inherited, m.origin),
                    *(to_json(dict(m.genes or {})), self.turn),
                )
                for m in members
            ],
        )

    def add_scores(self, scores: Iterable[Score]) -> None:
        """Enter the evaluations of many members in one transaction."""
        self._many(
            "INSERT INTO scores VALUES (?,?,?,?,?,?,?,?,?,?)",
            [
                (
                    *(s.member, s.step, s.seconds, s.fitness, s.std, len(s.returns), to_json(s.returns)),
                    *(_objectives(s.objectives), s.cost, self.turn),
                )
                for s in scores
            ],
        )

    def rank(self, entered: Iterable[Ranked], left: Iterable[int] = ()) -> None:
        """Members that entered the leaderboard, or changed on it, and the ids of those that left it."""
        with self._transaction() as link:
            new = list(entered)
            gone = [(member,) for member in (*left, *(r.member for r in new))]
            link.executemany("DELETE FROM board WHERE member = ?", gone)
            link.executemany(
                "INSERT INTO board VALUES (?,?,?,?,?,?,?,?)",
                [
                    (r.member, r.fitness, r.std, r.episodes, r.step, r.seconds, r.front, _objectives(r.objectives))
                    for r in new
                ],
            )

    def report(
        self, step: int, seconds: float, values: Mapping[str, Sequence[float]], members: Sequence[int] | None = None
    ) -> None:
        """Enter the metrics of one report, a value a member each (7 digits); `members` are their ids, if not by row."""
        ids = None if members is None else to_json(members)
        self._many(
            "INSERT INTO metrics VALUES (?,?,?,?,?)", [(step, seconds, ids, to_json(values, digits=7), self.turn)]
        )

    def event(
        self, step: int, seconds: float, kind: str, detail: Mapping[str, Any] | None = None, member: int | None = None
    ) -> None:
        """Enter something that happened, to one member or to the run."""
        row = (step, seconds, member, kind, to_json(detail or {}), self.turn)
        self._many("INSERT INTO events VALUES (?,?,?,?,?,?)", [row])

    def fail(self, member: int, step: int, reason: str) -> None:
        """Mark a member as failed at `step`; the first reason stays."""
        self._many(_END, [("failed", step, encodable(reason), self.turn, member)])

    def finish(self, members: Iterable[int], step: int) -> None:
        """Mark members as finished at `step`, except those that failed."""
        self._many(_END, [("finished", step, None, self.turn, member) for member in members])

    def replace(self, members: Iterable[int], step: int) -> None:
        """Mark members as replaced at `step`: their rows were given to others. A failed one stays failed."""
        self._many(_END, [("replaced", step, None, self.turn, member) for member in members])

    def reopen(self, members: Iterable[int]) -> None:
        """Finished members train on: a resume extends the run."""
        self._many(
            "UPDATE members SET status = 'training', ended_step = NULL, ended_turn = NULL "
            "WHERE id = ? AND status = 'finished'",
            [(member,) for member in members],
        )

    def seat(self, seats: Mapping[int, tuple[int, int]]) -> None:
        """The rows of some members, with all who sat there before them, become those of other pods: (pod, row)."""
        with self._transaction() as link:
            for member, seat in seats.items():
                was = tuple(link.execute('SELECT pod, "row" FROM members WHERE id = ?', (member,)).fetchone())
                if was != seat:
                    link.execute('UPDATE members SET pod = ?, "row" = ? WHERE pod = ? AND "row" = ?', (*seat, *was))

    def set_genes(self, genes: Mapping[int, Mapping[str, Any]]) -> None:
        """Note the genes that members (by id) go on with: a resume may change them."""
        self._many("UPDATE members SET genes = ? WHERE id = ?", [(to_json(dict(g)), m) for m, g in genes.items()])

    def rewind(self, turn: int) -> None:
        """Forget all that was entered after `turn`, so that a resume records nothing twice.

        The leaderboard is emptied: a resumed run enters it again as its checkpoint has it.
        """
        with self._transaction() as link:
            for statement in _REWIND:
                link.execute(statement, {"turn": turn})
        self.turn = turn

    def top(self, k: int | None = None) -> list[dict[str, Any]]:
        """The leaderboard; in a run without one all members by their best fitness, none after any, failed last.

        Ties by steps, then id. `steps` and `seconds` are those of the best score, or of the leaderboard's snapshot. A
        member without a score has fitness None.
        """
        limit = -1 if k is None else k
        rows = self._rows(_BOARD, limit) or self._rows(_TOP, limit)
        return [{"rank": rank, **row} for rank, row in enumerate(rows, 1)]

    def progress(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """How far each pod has come (size, step, seconds, evaluations), and the step and seconds of the last report."""
        return self._rows(_PROGRESS), self._rows(_LAST_REPORT)

    def training(self) -> bool:
        """Whether any member is still in training."""
        return bool(self._rows("SELECT 1 AS one FROM members WHERE status = 'training' LIMIT 1"))

    def members(self) -> list[dict[str, Any]]:
        """Every member, by id."""
        return self._rows("SELECT * FROM members ORDER BY id")

    def scores(self, member: int | None = None) -> list[dict[str, Any]]:
        """Every score, or one member's, in the order they were entered."""
        return self._rows("SELECT * FROM scores WHERE ?1 IS NULL OR member = ?1 ORDER BY rowid", member)

    def metrics(self) -> list[dict[str, Any]]:
        """Every report: step, seconds, members (ids, or None: by row), values (a list a name)."""
        return self._rows("SELECT * FROM metrics ORDER BY rowid")

    def exchanges(self) -> list[dict[str, Any]]:
        """Every exchange: the member that took a row over, its parent (None: new weights) and the one it replaced."""
        return self._rows(_EXCHANGES)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Every event, or those of one kind, in the order they were entered."""
        return self._rows("SELECT * FROM events WHERE ?1 IS NULL OR kind = ?1 ORDER BY rowid", kind)

    def _many(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        with self._transaction() as link:
            link.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        link = self._link
        if link is None:
            raise PodiumError(f"{self.path}: this ledger was opened for reading only")
        if self._together:
            yield link
            return
        link.execute("BEGIN IMMEDIATE")
        try:
            yield link
            link.execute("COMMIT")
        except BaseException as error:
            if link.in_transaction:
                link.execute("ROLLBACK")
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
            with _told(self.path):
                return self._read(query, *values)

    def _read(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """One query on a fresh connection, so that a long-lived reader sees a writer come and go."""
        with closing(schema.reader(self.path)) as link:
            return [_decode(row) for row in link.execute(query, values)]


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What SQLite says of a file that it cannot read, as a refusal."""
    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        raise schema.damaged(path, str(error)) from error


def _objectives(values: Mapping[str, float] | None) -> str | None:
    return to_json(values) if values else None


def _decode(row: sqlite3.Row) -> dict[str, Any]:
    columns = dict(row)
    for name in ("genes", "returns", "members", "values", "detail", "objectives"):
        if columns.get(name) is not None:
            columns[name] = json.loads(columns[name])
    return columns
