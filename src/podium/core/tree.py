"""Trees: nested dicts with tensors at the leaves. Axis 0 of every leaf is the member."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Tree = dict[str, Any]
"""A nested dict whose leaves are tensors `[M, ...]`."""


def map(fn: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """`fn` of every leaf of `tree` and of the leaves that stand in the same place in `rest`."""
    out = {}
    for key, value in tree.items():
        others = [r[key] for r in rest]
        out[key] = map(fn, value, *others) if isinstance(value, dict) else fn(value, *others)
    return out


def take(tree: Tree, rows: Tensor) -> Tree:
    """Copies of the member rows `rows` of every leaf. Exploit is `take(learnt, parents)`."""
    return map(lambda leaf: leaf[rows.to(leaf.device)], tree)


def put(tree: Tree, rows: Tensor, members: Tree) -> None:
    """Write `members` (as `take` returns them) into the member rows `rows` of `tree`, in place."""
    map(lambda leaf, new: leaf.index_copy_(0, rows.to(leaf.device), new.to(leaf.device)), tree, members)


def copy(target: Tree, source: Tree) -> None:
    """Overwrite every leaf of `target` with `source`'s, in place."""
    map(lambda old, new: old.copy_(new), target, source)


def clone(tree: Tree) -> Tree:
    """A tree that shares no memory with `tree`."""
    return map(lambda leaf: leaf.detach().clone(), tree)


def stack(trees: Sequence[Tree]) -> Tree:
    """One tree of M members from M trees of one member each (leaves `[1, ...]`)."""
    return map(lambda *leaves: torch.cat(leaves), *trees)


def flatten(tree: Tree, prefix: str = "") -> dict[str, Tensor]:
    """Leaves by dotted path, as files hold them."""
    flat: dict[str, Tensor] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def unflatten(flat: Mapping[str, Tensor]) -> Tree:
    """The inverse of `flatten`."""
    tree: Tree = {}
    for path, leaf in flat.items():
        *folders, name = path.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = leaf
    return tree
