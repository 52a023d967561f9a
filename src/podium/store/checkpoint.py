"""Checkpoints of a run: the newest two, each whole, one file a step."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.core.tree import Tree
from podium.store import files, tensors

_NAME = re.compile(r"[0-9]{12,18}\.safetensors")


def write(run: Path, step: int, tree: Tree, info: dict[str, Any]) -> Path:
    """Write the checkpoint of `step`; `info` gains its step. Only then drop all but it and the one before it.

    Checkpoints of later steps belong to a future that a resume gave up, and go too.
    """
    path = run / "checkpoint" / f"{step:012d}.safetensors"
    with suppress(FileExistsError):
        path.parent.mkdir()
    tensors.save(path, tree, {**info, "step": step}, "checkpoint")
    earlier = [old for old in found(run) if step_of(old) < step]
    for old in found(run):
        if old not in (path, *earlier[:1]):
            files.unlink(old)
    return path


def forget_after(run: Path, step: int) -> None:
    """Drop the checkpoints of later steps than `step`: a future that a resume gives up."""
    for path in found(run):
        if step_of(path) > step:
            files.unlink(path)


def read(path: Path) -> tuple[Tree, dict[str, Any]]:
    """The tree and info of a checkpoint; a damaged one is refused, nothing of it loaded."""
    return tensors.load(path, "checkpoint")


def latest(run: Path) -> Path | None:
    """The checkpoint of the last step, if there is one."""
    return next(iter(found(run)), None)


def found(run: Path) -> list[Path]:
    """All checkpoints, newest first."""
    names = [name for name in files.names(run / "checkpoint") if _NAME.fullmatch(name)]
    return sorted((run / "checkpoint" / name for name in names), key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step a checkpoint was taken at, from its name."""
    return int(path.stem)
