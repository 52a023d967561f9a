"""The engines, by name. An optional package is imported only when its engine is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from podium.core import machine
from podium.core.errors import UnknownName
from podium.fleet.group import Group

ENGINES = {"inline": "inline", "processes": "processes", "ray": "on_ray", "mpi": "on_mpi"}


def room(name: str, kinds: int, address: str | None, cpus: float) -> int:
    """How many nodes an engine has room for; in this process one for each of some kinds."""
    if name == "inline":
        return kinds
    if name == "processes":
        return machine.bound()
    found: int = import_module(f"podium.fleet.{ENGINES[name]}").room(address, cpus)
    return found


def spare(name: str, cpus: float, gpus: float) -> bool:
    """Whether one more node could be started now; only Ray's machines come and go."""
    return name == "ray" and bool(import_module("podium.fleet.on_ray").spare(cpus, gpus))


def engine(name: str) -> Callable[..., Group]:
    """`group(target, size, *args, each=..., **named)` of an engine."""
    if name not in ENGINES:
        raise UnknownName("fleet", name, ENGINES)
    made: Callable[..., Group] = import_module(f"podium.fleet.{ENGINES[name]}").group
    return made
