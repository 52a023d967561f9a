"""What a member's file has to hold beside the right checksum, which a stranger's has, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from podium.core.bounded import Count, Number
from podium.core.errors import CheckpointError
from podium.core.tree import Tree
from podium.store import tensors


class _Info(msgspec.Struct):
    step: Count


class _Score(_Info):
    seconds: Number
    returns: list[Number]


def kept(path: Path) -> dict[str, Any] | None:
    """What a snapshot that trains beside others says of itself; None where it is missing, damaged or no member's."""
    try:
        learnt, info = tensors.load(path, "member")
        checked_step(learnt, info, path)
        msgspec.convert(info, _Score)
    except (CheckpointError, msgspec.ValidationError):
        return None
    return info


def checked_step(learnt: Tree, info: dict[str, Any], path: Path) -> int:
    """The step at which a snapshot was taken; refuses one without a step, or with NaN in its weights."""
    try:
        step = msgspec.convert(info, _Info).step
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{path}: not the weights of a member ({error})") from error
    if name := tensors.has_nan(learnt):
        raise CheckpointError(f"{path}: not the weights of a member (tensor {name} holds NaN)")
    return step
