"""How far a run has come, by its ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from podium.report import words
from podium.store import schema

_PODS = """
SELECT size, max(lived, coalesce(max(scores.step), 0)) AS step, coalesce(max(seconds), 0.0) AS seconds,
    count(DISTINCT member || ' ' || scores.step) AS evaluations
FROM (
    SELECT pod, sum(origin = 'start') AS size, max(max(born_step, coalesce(ended_step, 0))) AS lived
    FROM members GROUP BY pod
) AS pods JOIN members USING (pod) LEFT JOIN scores ON member = id GROUP BY pod
"""
_LAST = "SELECT step, seconds FROM metrics ORDER BY rowid DESC LIMIT 1"


def of(ledger: Path) -> dict[str, Any]:
    """step (a member's own, in the mean over all), seconds, evaluations: as far as the ledger knows."""
    try:
        pods, last = _read(ledger)
    except sqlite3.DatabaseError:  # a writer came or went meanwhile
        pods, last = _read(ledger)
    size = sum(pod["size"] for pod in pods) or 1
    steps = [sum(pod["step"] * pod["size"] for pod in pods) // size, *(row["step"] for row in last)]
    return {
        "step": max(steps),
        "seconds": max([0.0, *(row["seconds"] for row in (*pods, *last))]),
        "evaluations": sum(pod["evaluations"] for pod in pods),
    }


def title(run: Path, config: Mapping[str, Any]) -> str:
    """A run and how far it has come, in one line."""
    now, total = of(run / "ledger.sqlite"), config.get("stop", {}).get("steps")
    step = f"step {now['step']:,}" + (f" of {total:,}" if total else "")
    scored = f"{now['evaluations']:,} evaluation{'s' * (now['evaluations'] != 1)}"
    return f"{run}: {step}, time {words.duration(now['seconds'])}, {scored}"


def _read(ledger: Path) -> tuple[list[sqlite3.Row], list[sqlite3.Row]]:
    with closing(schema.reader(ledger)) as link:
        return link.execute(_PODS).fetchall(), link.execute(_LAST).fetchall()
