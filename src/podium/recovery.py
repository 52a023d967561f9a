"""What a run's folder holds for a resume: its settings, its last whole checkpoint, and what is damaged in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from podium.core import tree
from podium.core.errors import ArgumentError, CheckpointError
from podium.evolve import saved as types
from podium.store import checkpoint, run_config, tensors
from podium.store.ledger import Ledger
from podium.store.run import config_of
from podium.store.schema import Damaged
from podium.topologies.driver import Driver

VARYING = ("env", "learner", "carry")
"""Parts of a pod's state whose shapes depend on the step: a replay fills, numbers that were drawn ahead are used."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that has been read."""

    path: Path
    state: tree.Tree
    info: dict[str, Any]
    found: list[Path]  # all checkpoints that there were


@dataclass(frozen=True)
class Found:
    """The settings of a run, what is damaged, and the checkpoint if it was read for them."""

    config: dict[str, Any]
    damage: list[str]
    saved: Saved | None = None


def look(path: Path, step: int | None) -> Found:
    """The settings of a run, from a checkpoint where config.yaml is damaged."""
    try:
        return Found(config_of(path), [])
    except CheckpointError as error:
        if not checkpoint.found(path):
            raise
        saved, damage = read(path, step)
        return Found(_settings(saved), [f"{error}: restored from {saved.path.name}", *damage], saved)


def _settings(saved: Saved) -> dict[str, Any]:
    return run_config.checked(saved.path, saved.info.get("config"))


def read(run: Path, step: int | None) -> tuple[Saved, list[str]]:
    """The last checkpoint that is whole, and what is damaged; or that of `step`, or why it cannot be read."""
    found = checkpoint.found(run)
    if not found:
        raise CheckpointError(f"{run / 'checkpoint'}: there is no checkpoint to go on from")
    steps = {checkpoint.step_of(path): path for path in found}
    if step is not None and step not in steps:
        raise ArgumentError("step", step, f"there are checkpoints of steps {', '.join(map(str, sorted(steps)))}")
    damage: list[str] = []
    for path in found if step is None else [steps[step]]:
        try:
            saved = Saved(path, *checkpoint.read(path), found)
            types.check(saved.info, types.Checkpoint)
            return saved, damage
        except ValueError as error:
            raise CheckpointError(f"{path}: not a checkpoint of this run ({error})") from error
        except CheckpointError as error:
            damage.append(f"{error}: the checkpoint before it is used")
            last = error
    others = [s for s in steps if s != step] if step is not None else []
    if not others:
        raise last
    hint = f"{last}; the other checkpoint may be whole: "
    python, typed = f"podium.resume({str(run)!r}, step={others[0]})", f"podium resume {run} --step {others[0]}"
    raise CheckpointError(hint + python, hint + typed) from last


def damaged_ledger(path: Path) -> str | None:
    """What is wrong with a run's ledger."""
    try:
        Ledger(path / "ledger.sqlite", readonly=True)
    except Damaged as error:
        return str(error).partition("; podium resume")[0]
    return None


def load(driver: Driver, saved: Saved, changed: Sequence[str]) -> None:
    """Put a checkpoint into memory, or refuse it whole."""
    shaping = [name for name in changed if not name.startswith(("stop.", "eval.", "train.checkpoint"))]
    unfit = f"it does not fit {', '.join(shaping)} as changed" if shaping else ""
    try:
        tensors.match(_fixed(saved.state), _fixed(driver.state()), saved.path)
        away, places = driver.pool.away(), enumerate(driver.population.places)
        pods = {place.kind: pod for pod, place in places if pod not in away}
        like = dict(zip(pods, driver.pool.read([(pod, 0) for pod in pods.values()]), strict=True))
        for entry in saved.info["orchestrator"]["population"]["board"]:
            snapshot = saved.state["orchestrator"]["board"][str(entry["member"])]
            tensors.match(snapshot, like[entry["kind"]], saved.path)
            _check_numbers(snapshot, f"the snapshot of member {entry['member']}")
        driver.load(saved.state, saved.info)
        _check_rows(driver, saved)
    except CheckpointError as error:
        where = "" if str(saved.path) in str(error) else f"{saved.path}: "
        raise CheckpointError(f"{where}{error}{unfit and '; '}{unfit}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = f"{unfit} ({error})" if unfit else f"not a checkpoint of this run ({error!r})"
        raise CheckpointError(f"{saved.path}: {reason}") from error


def _check_rows(driver: Driver, saved: Saved) -> None:
    """The tensors of every pod and the books must tell the same, of members whose numbers are numbers."""
    population = driver.population
    for pod, rows in enumerate(population.rows):
        state = saved.state["pods"][str(pod)]
        slot = state["slot"]
        if slot["ids"].tolist() != [row.member for row in rows]:
            raise ValueError(f"pod {pod} has other members than its rows")
        if any(step != population.steps[pod] for step in slot["steps"].tolist()):
            raise ValueError(f"pod {pod} has done {slot['steps'].tolist()[:3]} steps, not {population.steps[pod]}")
        well = torch.tensor([not row.failed for row in rows]) & ~slot["failed"]
        _check_numbers(tree.take(state["learnt"], well.nonzero()[:, 0]), f"pod {pod}")
    if driver.step != saved.info["step"]:
        raise ValueError(f"it is of step {saved.info['step']}, and its members have done {driver.step}")


def _check_numbers(learnt: tree.Tree, whose: str) -> None:
    if name := tensors.has_nan(learnt):
        raise ValueError(f"{whose}: tensor {name} holds NaN")


def _fixed(state: tree.Tree) -> tree.Tree:
    """All whose shape is the same at every step. The rest is checked by who loads it."""
    pods = {
        i: {"learnt": pod["learnt"], "slot": {k: v for k, v in pod["slot"].items() if k not in VARYING}}
        for i, pod in state["pods"].items()
    }
    return {"pods": pods, "orchestrator": {"rng": state["orchestrator"]["rng"]}}
