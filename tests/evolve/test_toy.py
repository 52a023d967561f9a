"""The toy of the PBT paper: what each of the four ways ends with, and the picture."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "pbt_toy.py"
SEEDS = range(20)


@pytest.fixture(scope="module")
def toy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pbt_toy", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pbt_solves_it_with_every_seed(toy: ModuleType) -> None:
    ends = [float(toy.quality(toy.train(True, True, seed)[-1]).max()) for seed in SEEDS]
    assert len(set(ends)) > 10  # chance has its part
    assert min(ends) >= 1.19, ends


def test_neither_grid_search_nor_copying_alone_gets_anywhere(toy: ModuleType) -> None:
    for exploit in (False, True):
        path = toy.train(exploit, False)
        assert path.shape == (201, 2, 2) and path[0].tolist() == [[0.9, 0.9]] * 2
        assert float(toy.quality(path[-1]).max()) == pytest.approx(1.2 - 0.81, abs=1e-4)
    assert torch.equal(path[20:, 0], path[20:, 1])  # from the first exchange on the two are twins


def test_the_tie_is_broken_at_the_first_exchange(toy: ModuleType) -> None:
    """The two are mirror images until then, and a rule that asks for strictly better would wait for ever."""
    alone, together = toy.train(False, False), toy.train(True, False)
    assert torch.equal(toy.quality(alone)[:, 0], toy.quality(alone)[:, 1])
    assert torch.equal(together[:20], alone[:20]) and torch.equal(together[20, 1], alone[20, 0])


def test_pbt_is_there_before_exploring_alone(toy: ModuleType) -> None:
    def steps(exploit: bool, seed: int) -> int:
        best = toy.quality(toy.train(exploit, True, seed)).amax(1)
        return int((best < 1.19).sum())

    assert median(steps(True, s) for s in SEEDS) < median(steps(False, s) for s in SEEDS)


def test_the_picture(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "toy.png"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ends = dict(line.split(": ") for line in done.stdout.splitlines())
    assert list(ends) == ["PBT", "explore only", "exploit only", "grid search"]
    assert float(ends["PBT"]) >= 1.19 and float(ends["grid search"]) == pytest.approx(0.39, abs=1e-4)
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
