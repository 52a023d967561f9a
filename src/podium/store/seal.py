"""Seals: whether the rows of a ledger are those that were entered, and hold what they should.

A digest of each row, summed up over its table and counted, stands in the table `seals`. A flipped bit in a row, a row
that is missing or one too many give another sum. A stranger can compute the sums as well, so what the rows hold is
checked, too: types, ranges, and names that can be printed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from podium.core.bounded import Count, Number, Step

MASK = (1 << 62) - 1

Name = Annotated[str, Meta(max_length=4096, pattern="^[^\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e]*$")]
Reason = Annotated[str, Meta(max_length=1 << 20)]
Status = Annotated[str, Meta(pattern="^(training|finished|replaced|failed)$")]


_JSON: dict[str, Any] = {
    name: msgspec.json.Decoder(kind).decode
    for name, kind in {
        "genes": dict[Name, Number | None],
        "returns": list[Number | None],
        "objectives": dict[Name, Number | None],
        "members": list[Step],
        "values": dict[Name, list[Number | None]],
        "detail": dict[Name, Any],
    }.items()
}
COLUMNS: dict[str, dict[str, Any]] = {
    "members": {
        "id": Count,
        "parent": Count | None,
        "pod": Count,
        "row": Count,
        "algo": Name,
        "kind": Name,
        "generation": Count,
        "born_step": Count,
        "inherited": Count,
        "origin": Name,
        "genes": str,
        "status": Status,
        "ended_step": Count | None,
        "reason": Reason | None,
        "born_turn": Count,
        "ended_turn": Count | None,
    },
    "scores": {
        "member": Count,
        "step": Count,
        "seconds": Number,
        "fitness": Number | None,
        "std": Number | None,
        "episodes": Count,
        "returns": str,
        "objectives": str | None,
        "cost": Count,
        "turn": Count,
    },
    "board": {
        "member": Count,
        "fitness": Number,
        "std": Number | None,
        "episodes": Count,
        "step": Count,
        "seconds": Number,
        "front": Count,
        "objectives": str | None,
    },
    "metrics": {"step": Count, "seconds": Number, "members": str | None, "values": str, "turn": Count},
    "events": {"step": Count, "seconds": Number, "member": Count | None, "kind": Name, "detail": str, "turn": Count},
}
"""What each column of each table may hold, in order; text in a column of JSON is checked further."""


def digest(*values: Any) -> int:
    """A number of 56 bits that stands for a row."""
    return int.from_bytes(blake2b(msgspec.msgpack.encode(values), digest_size=7).digest(), "little")


def broken(link: sqlite3.Connection, tables: Iterable[str] = COLUMNS) -> str | None:
    """What is wrong with some tables; None where all rows are as they were entered. In one read transaction."""
    seals = {row[0]: (row[1], row[2]) for row in link.execute("SELECT * FROM seals LIMIT 100")}
    for table in tables:
        count, total = 0, 0
        for row in link.execute(f"SELECT rowid, * FROM {table}"):
            count, total = count + 1, (total + digest(*row)) & MASK
            if count > seals.get(table, (0, 0))[0]:  # pages that point at each other can make rows without end
                break
            if wrong := _wrong(table, tuple(row)[1:]):
                return f"{table}, row {row[0]}: {wrong}"
        if (count, total) != seals.get(table):
            return f"the rows of {table} are not those that were entered"
    return None


def _wrong(table: str, row: tuple[Any, ...]) -> str | None:
    """What is wrong with the values of a row."""
    columns = COLUMNS[table]
    try:
        msgspec.convert(row, _row(table))
        for name, value in zip(columns, row, strict=True):
            if name in _JSON and value is not None:
                _JSON[name](value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return str(error)
    return None


@cache
def _row(table: str) -> Any:
    return tuple[tuple(COLUMNS[table].values())]  # type: ignore[misc]
