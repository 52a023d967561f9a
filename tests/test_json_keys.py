"""docs/cli.md lists the keys of every JSON document that a command prints: those, and no others."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import podium
import whole
from podium.bench import _side_by_side

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
OPEN = {"genes", "objectives"}
"""Keys whose value has keys that the run decides."""


def documented(command: str) -> tuple[set[str], set[str]]:
    """The keys that a command's section lists: those that are always there, and those with an `if`."""
    (section,) = re.findall(rf"^## {command}\n(.*?)(?=^## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    table = section.partition("\nJSON: ")[2].partition("| key | meaning |\n")[2]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, re.MULTILINE)
    assert rows and all(meaning.strip() for _, meaning in rows)
    optional = {key for key, meaning in rows if meaning.startswith("if ")}
    return {key for key, _ in rows} - optional, optional


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Every key of a document: `a`, `a.b`, `list[].c`; the document itself may be a list."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item, f"{path}[]" if path else "")
    elif isinstance(value, dict):
        for key, item in value.items():
            here = f"{path}.{key}" if path else key
            yield here
            if key not in OPEN:
                yield from keys(item, here)


def check(command: str, document: Any) -> None:
    always, optional = documented(command)
    found = set(keys(document))
    assert always <= found <= always | optional, (found - always - optional, always - found)


def printed(command: str, *words: object) -> Any:
    code, out, err = whole.command(command, *words, "--json")
    assert code == 0, err
    return json.loads(out)


FEW = ("cartpole", "ppo", "train.threads=1", "stop.fitness=null", "eval.episodes=2", "algo.epochs=1")


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a leaderboard, two objectives, and a snapshot of another run to start with."""
    folder = tmp_path_factory.mktemp("keys")
    first, path = folder / "first", folder / "evolved"
    podium.train(*FEW, "stop.steps=256", out=first)
    few = ("evolve.members=4", "stop.steps=3072", "evolve.interval=512", "evolve.burn_in=0", f"train.start={first}")
    podium.evolve(*FEW, "nsga2", "evolve.objectives=[return,-switching]", *few, out=path)
    return path


def test_keys_of_eval(evolved: Path) -> None:
    check("eval", printed("eval", evolved, "--episodes", 2))
    check("eval", printed("eval", evolved, "--episodes", 2, "--ensemble", "top:2"))


def test_keys_of_top_and_front(evolved: Path) -> None:
    always, optional = documented("top")
    rows = printed("top", evolved)
    assert optional == {"front"} and all(row.keys() == always | optional for row in [*rows, *printed("front", evolved)])
    plain = printed("top", evolved.parent / "first")  # without a leaderboard of snapshots
    assert all(row.keys() == always for row in plain)


def test_keys_of_lineage(evolved: Path) -> None:
    always, optional = documented("lineage")
    assert set(keys(printed("lineage", evolved))) == always | optional  # it has a start
    check("lineage", printed("lineage", evolved.parent / "first"))


@pytest.mark.slow
def test_keys_of_export(evolved: Path, tmp_path: Path) -> None:
    check("export", printed("export", evolved, "-o", tmp_path / "a.onnx"))


def test_keys_of_presets() -> None:
    assert all(row.keys() == documented("presets")[0] for row in printed("presets"))


def test_keys_of_bench() -> None:
    for row in printed("bench", "orchestrator", "--quick", "--rounds", 1):
        check("bench", row)
    side = _side_by_side.Side("sleep", lambda: lambda pieces: time.sleep(pieces * 1e-3) or pieces)
    row = _side_by_side.compare("a", "1/s", side, [side], 2, 0.01, key="a", note="b")
    always, optional = documented("bench")
    assert row.keys() == always | optional
