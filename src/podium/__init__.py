"""Podium trains populations of deep reinforcement learning agents as one batched tensor program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load", "resume", "train"]

if TYPE_CHECKING:
    from podium.agent import load
    from podium.training import resume, train

_HOME = {"load": "podium.agent", "resume": "podium.training", "train": "podium.training"}


def __getattr__(name: str) -> Any:
    """`podium.train` and its like import torch only when they are asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'podium' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
