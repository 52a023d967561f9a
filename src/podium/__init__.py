"""Podium trains populations of deep reinforcement learning agents as one batched tensor program."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

# Before torch is imported: threads that wait spin for a bounded time and then sleep. For 32 members on two threads
# that kept 23k steps/s beside two busy processes, where the default kept 15k; never spinning lost a third of the
# speed on an idle machine.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

__version__ = "0.1.0"
__all__ = [
    "Stack",
    "Stop",
    "__version__",
    "ensemble",
    "evolve",
    "export",
    "front",
    "lineage",
    "load",
    "resume",
    "train",
]

if TYPE_CHECKING:
    from podium.agent import load
    from podium.core.errors import Stop
    from podium.ensemble import ensemble
    from podium.exporting import export
    from podium.report.documents import front, lineage
    from podium.resuming import resume
    from podium.stack import Stack
    from podium.training import evolve, train

_HOME = {
    "Stack": "podium.stack",
    "Stop": "podium.core.errors",
    "ensemble": "podium.ensemble",
    "export": "podium.exporting",
    "front": "podium.report.documents",
    "lineage": "podium.report.documents",
    "load": "podium.agent",
    "evolve": "podium.training",
    "resume": "podium.resuming",
    "train": "podium.training",
}


def __getattr__(name: str) -> Any:
    """`podium.train` and its like import torch only when they are asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'podium' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """With what is imported only when it is asked for, so that a shell can complete it."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


class _Podium(ModuleType):
    """Keeps `podium.evolve` the function: importing the folder of that name would put a module in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Podium
