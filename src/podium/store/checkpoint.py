"""Checkpoints of a run: the newest two, each whole, one file a step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from podium.core.tree import Tree
from podium.store import tensors

_NAME = re.compile(r"[0-9]{12,}\.safetensors")


def write(run: Path, step: int, tree: Tree, info: dict[str, Any]) -> Path:
    """Write the checkpoint of `step`; `info` gains its step. Only then drop all but it and the one before it.

    Checkpoints of later steps belong to a future that a resume gave up, and go too.
    """
    path = run / "checkpoint" / f"{step:012d}.safetensors"
    path.parent.mkdir(exist_ok=True)
    tensors.save(path, tree, {**info, "step": step}, "checkpoint")
    earlier = [old for old in found(run) if step_of(old) < step]
    for old in found(run):
        if old not in (path, *earlier[:1]):
            old.unlink()
    return path


def forget_after(run: Path, step: int) -> None:
    """Drop the checkpoints of later steps than `step`: a future that a resume gives up."""
    for path in found(run):
        if step_of(path) > step:
            path.unlink()


def read(path: Path) -> tuple[Tree, dict[str, Any]]:
    """The tree and info of a checkpoint; a damaged one is refused, nothing of it loaded."""
    return tensors.load(path, "checkpoint")


def latest(run: Path) -> Path | None:
    """The checkpoint of the last step, if there is one."""
    return next(iter(found(run)), None)


def found(run: Path) -> list[Path]:
    """All checkpoints, newest first."""
    paths = (run / "checkpoint").glob("*.safetensors")
    return sorted((p for p in paths if _NAME.fullmatch(p.name)), key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step a checkpoint was taken at, from its name."""
    return int(path.stem)
