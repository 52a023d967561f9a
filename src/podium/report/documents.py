"""What a run's files say, as plain data: what `podium lineage` and `podium front` print with --json."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podium.core.errors import PodiumError
from podium.evolve import lineage as lines
from podium.store.ledger import Ledger
from podium.store.run import config_of


def ledger_of(run: str | Path) -> Ledger:
    """The ledger of a run, for reading."""
    path = Path(run)
    if not any(os.path.lexists(path / name) for name in ("ledger.sqlite", "config.yaml", "checkpoint")):
        raise PodiumError(f"{path}: there is no run in it" if path.is_dir() else f"{path}: no such run")
    return Ledger(path / "ledger.sqlite", readonly=True)


def lineage(run: str | Path, member: int | None = None) -> dict[str, Any]:
    """How the champion, or another member, came to be: `champion`, `ancestors`, `schedule`, `start`, `scores`."""
    ledger = ledger_of(run)
    return lines.lineage(ledger, member, config_of(Path(run)).get("train", {}).get("schedule") or ())


def population(run: str | Path) -> list[dict[str, Any]]:
    """All members of a run, with genes and scores by the steps behind their weights; too long for a document."""
    return lines.population(ledger_of(run))


def front(run: str | Path) -> list[dict[str, Any]]:
    """The members of a run's leaderboard that no other surpasses in every objective, by the first objective."""
    return first_front(run, ledger_of(run).top())


def first_front(run: str | Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a leaderboard's rows those on the first front, or why there is none."""
    names = objectives(run, rows)
    if len(names) < 2:
        raise PodiumError(f"{run}: a run without several objectives has no front; `podium top` shows its leaderboard")
    if not any("front" in row for row in rows):
        raise PodiumError(f"{run}: no member has entered the leaderboard yet, so there is no front")
    best = [row for row in rows if row["front"] == 0]
    sign, first = (1, names[0][1:]) if names[0].startswith("-") else (-1, names[0])
    return sorted(best, key=lambda row: sign * ((row["objectives"] or {}).get(first) or 0))


def objectives(run: str | Path, rows: Sequence[dict[str, Any]]) -> list[str]:
    """The objectives of a run, -name where the least is best: those of its settings, else those of its rows."""
    found = list(dict.fromkeys(name for row in rows for name in row.get("objectives") or ()))
    return found and list(config_of(Path(run)).get("evolve", {}).get("objectives") or found)
