"""Worlds of simulated pods for the tests of orchestrators."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulated import Make, World, settings

OURS = ("lr", "noise", "pace", "evaluating", "seed", "reborn")
"""What a world takes; all else is a setting of `evolve.*`."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    worlds: list[World] = []

    def build(strategy: str = "tournament", places: Any = None, fitness: Any = None, **more: Any) -> World:
        ours = {name: more.pop(name) for name in OURS if name in more}
        worlds.append(World(tmp_path / str(len(worlds)), settings(strategy, **more), places, **ours))
        for pod in worlds[-1].pods:
            pod.fitness = fitness
        return worlds[-1]

    yield build
    for world in worlds:
        world.run.close()
