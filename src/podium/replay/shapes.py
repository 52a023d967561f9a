"""Whether a leaf of a checkpoint fits."""

from __future__ import annotations

import torch
from torch import Tensor

from podium.core.tree import Tree


def shaped(tree: Tree, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The leaf `name`, or a ValueError if it is of another shape or type."""
    leaf = tree.get(name)
    if not isinstance(leaf, Tensor) or leaf.shape != shape or leaf.dtype != dtype:
        found = f"{leaf.dtype} {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else "nothing"
        raise ValueError(f"{name}: {dtype} {shape} is needed, and there is {found}")
    return leaf
