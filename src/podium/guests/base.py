"""Guests: agents that Podium did not write. Any object with these few methods can be a member of a population.

A guest's class stands where an algorithm's does, `algo.name=module:Class`. Its `Settings` declare its genes, and its
constructor takes what a member is made of:

    class MyAgent:
        class Settings(AlgoSettings):
            name: Importable = "my_module:MyAgent"
            lr: GeneValue = gene(3e-4, 1e-6, 1.0, search=(1e-5, 1e-2))

        def __init__(self, env: EnvSettings, settings: Settings, genes: Mapping[str, float], seed: int): ...

A class that makes its envs by some of `env.*` only may name them, `env = ("id", "num", ...)`; others are refused then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from podium.core.tree import Tree


class Guest(Protocol):
    """One agent with its own envs."""

    @property
    def genes(self) -> Mapping[str, float]:
        """The genes as they are."""
        ...

    @genes.setter
    def genes(self, genes: Mapping[str, float]) -> None:
        """Live: a change counts from the next update on."""

    def train(self, steps: int) -> None: ...

    def evaluate(self, episodes: int) -> Sequence[float] | Mapping[str, Sequence[float]]:
        """The return of each episode; or by name `return`, `length` and whatever else is measured."""
        ...

    def state(self) -> Tree:
        """All that was learnt, of the same shapes at all times: tensors by name."""
        ...

    def load(self, state: Tree) -> None:
        """Go on from what `state` of another returned; random streams and envs stay as they are."""
        ...


def is_guest(cls: type[Any]) -> bool:
    """Whether a class is that of a guest, and not of an algorithm."""
    return all(callable(getattr(cls, name, None)) for name in ("train", "evaluate", "state", "load"))
