"""The engines, by name. An optional package is imported only when its engine is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from podium.core.errors import UnknownName
from podium.fleet.group import Group

ENGINES = {"inline": "inline", "processes": "processes", "ray": "on_ray", "mpi": "on_mpi"}


def engine(name: str) -> Callable[..., Group]:
    """`group(target, size, *args, each=..., **named)` of an engine."""
    if name not in ENGINES:
        raise UnknownName("fleet", name, ENGINES)
    made: Callable[..., Group] = import_module(f"podium.fleet.{ENGINES[name]}").group
    return made
