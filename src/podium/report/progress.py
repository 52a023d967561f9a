"""How far a run has come, by its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podium.report import words
from podium.store.ledger import Ledger


def of(ledger: Ledger) -> dict[str, Any]:
    """step (a member's own, in the mean over all), seconds, evaluations: as far as the ledger knows."""
    pods, last = ledger.progress()
    size = sum(pod["size"] for pod in pods) or 1
    steps = [sum(pod["step"] * pod["size"] for pod in pods) // size, *(row["step"] for row in last)]
    return {
        "step": max(steps),
        "seconds": max([0.0, *(row["seconds"] for row in (*pods, *last))]),
        "evaluations": sum(pod["evaluations"] for pod in pods),
    }


def title(run: Path, config: Mapping[str, Any], ledger: Ledger) -> str:
    """A run and how far it has come, in one line."""
    now, total = of(ledger), config.get("stop", {}).get("steps")
    step = f"step {now['step']:,}" + (f" of {total:,}" if total else "")
    scored = f"{now['evaluations']:,} evaluation{'s' * (now['evaluations'] != 1)}"
    return f"{run}: {step}, time {words.duration(now['seconds'])}, {scored}"
