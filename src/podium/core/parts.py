"""What an observation consists of. However nested its space is, it is one row of numbers, or one image.

A Dict or Tuple becomes a row of float32 numbers with its leaves one after another: what collects, stores, sends and
saves observations knows one tensor only. Networks ask for the parts, so that images go through convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from numpy.typing import NDArray

MASK = "action_mask"
"""The key of a Dict that says which actions are allowed: 1 or 0 for each."""

SMALLEST = 8
"""Pixels of the sides of an image; bytes of a smaller shape are numbers."""


@dataclass(frozen=True)
class Part:
    """A leaf of an observation: where it stands in the row, and what it is."""

    name: str
    shape: tuple[int, ...]
    first: int = 0
    image: bool = False

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def mask(self) -> bool:
        """Whether it says which actions are allowed."""
        return self.name.rpartition(".")[2] == MASK


class Row(Box):
    """A row of float32 numbers that knows the space it was made from."""

    def __init__(self, source: Space[Any]) -> None:
        self.source, self.parts = source, tuple(_laid_out(source))
        leaves = [leaf for _, leaf in _leaves(source)]
        bounds = [_bounds(leaf) for leaf in leaves]
        low, high = (np.concatenate([b[i] for b in bounds]).astype(np.float32) for i in (0, 1))
        super().__init__(low, high, dtype=np.float32)
        places = (slice(part.first, part.first + part.size) for part in self.parts)
        self._writers = list(zip(places, map(_writer, leaves), strict=True))

    def write(self, obs: Any, row: NDArray[Any]) -> None:
        """Put an observation of the source space into a row; ValueError where it does not fit."""
        for (place, numbers), value in zip(self._writers, _values(self.source, obs), strict=True):
            row[place] = numbers(value)

    def rows(self, obs: Any) -> tuple[NDArray[np.float32], bool] | None:
        """One observation of the source space, or a list of such, as `[B, n]`, and whether it was one; else None."""
        single = self.source.contains(obs)
        each = [obs] if single else obs if isinstance(obs, Sequence) or np.ndim(obs) == 1 else []
        if not single and not (len(each) and all(self.source.contains(one) for one in each)):
            return None
        out = np.empty((len(each), *(self.shape or ())), np.float32)
        for one, row in zip(each, out, strict=True):
            self.write(one, row)
        return out, single


def parts_of(space: Space[Any]) -> tuple[Part, ...]:
    """Of a Row its parts; of a Box the one that it is."""
    if isinstance(space, Row):
        return space.parts
    shape = space.shape or ()
    return (Part("", shape, image=_is_image(space)),)


def _is_image(space: Space[Any]) -> bool:
    """Bytes with two sides of some length, and perhaps channels before or behind them."""
    return is_bytes(space) and len(space.shape or ()) in (2, 3) and sorted(space.shape or ())[-2] >= SMALLEST


def is_bytes(space: Space[Any]) -> bool:
    """Whether its numbers go from 0 to 255, and not just from 0 to 1, as flags of the same dtype do."""
    return isinstance(space, Box) and space.dtype == np.uint8 and bool((space.high > 1).any())


def _leaves(space: Space[Any], name: str = "") -> Iterator[tuple[str, Space[Any]]]:
    if isinstance(space, Dict | Tuple):
        inside = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, child in inside:
            yield from _leaves(child, f"{name}.{key}" if name else str(key))
    elif isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary):
        yield name, space
    else:
        where = f" ({name})" if name else ""
        raise TypeError(f"{type(space).__name__}{where}: Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple")


def _laid_out(space: Space[Any]) -> Iterator[Part]:
    first = 0
    for name, leaf in _leaves(space):
        shape = (len(_bounds(leaf)[0]),) if not isinstance(leaf, Box) else leaf.shape
        part = Part(name, shape, first, _is_image(leaf))
        yield part
        first += part.size


def _bounds(leaf: Space[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if isinstance(leaf, Box):
        numbers = _writer(leaf)
        return numbers(leaf.low), numbers(leaf.high)
    if isinstance(leaf, Discrete):
        n = int(leaf.n)
    elif isinstance(leaf, MultiDiscrete):
        n = int(leaf.nvec.sum())
    else:
        n = prod(leaf.shape or ())
    return np.zeros(n), np.ones(n)


def _values(space: Space[Any], obs: Any) -> Iterator[Any]:
    """The leaves of an observation, in order."""
    if isinstance(space, Dict | Tuple):
        inside = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, child in inside:
            yield from _values(child, obs[key])
    else:
        yield obs


def _writer(leaf: Space[Any]) -> Callable[[Any], NDArray[Any]]:
    """From a value of a leaf to its numbers: one-hot where it is one of n; bytes that are no image as 0 to 1."""
    if isinstance(leaf, Discrete):
        return _one_of(int(leaf.n), int(leaf.start))
    if isinstance(leaf, MultiDiscrete):
        ones = [_one_of(int(n), int(s)) for n, s in zip(leaf.nvec.flat, leaf.start.flat, strict=True)]
        return lambda value: np.concatenate([one(v) for one, v in zip(ones, np.asarray(value).flat, strict=True)])
    scale = 255 if is_bytes(leaf) and not _is_image(leaf) else 1
    return lambda value: np.asarray(value).reshape(-1) / scale if scale > 1 else np.asarray(value).reshape(-1)


def _one_of(n: int, start: int) -> Callable[[Any], NDArray[Any]]:
    codes = np.eye(n, dtype=np.float32)

    def code(value: Any) -> NDArray[Any]:
        if not start <= value < start + n:
            raise ValueError(f"{value} is none of {start} to {start + n - 1}")
        found: NDArray[Any] = codes[int(value) - start]
        return found

    return code
