"""The pages are true: tables are current, links lead somewhere, code blocks run, commands and settings exist."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

import podium
from podium import entrants
from podium.cli import commands
from podium.compose import compose

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_table_of_settings_is_current() -> None:
    settings = load(ROOT / "docs" / "settings.py")
    assert settings.page() == settings.PAGE.read_text(), "run: python docs/settings.py"


@pages
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https:)([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing, missing


@pages
def test_commands_and_their_options_exist(page: Path) -> None:
    known = typer.main.get_command(commands.app)
    for line in re.findall(r"^    (podium .*)", page.read_text(), re.MULTILINE):
        name, *words = shlex.split(line, comments=True)[1:]
        command = known.commands[name]  # type: ignore[attr-defined]
        options = {option for parameter in command.params for option in parameter.opts}
        unknown = {word for word in words if word.startswith("-")} - options
        assert not unknown, f"{line}: {unknown}"
        if name in ("train", "evolve") and not any(word.endswith((".yaml", ".py")) or ":" in word for word in words):
            tree = compose(list(itertools.takewhile(lambda word: not word.startswith("-"), words)))
            entrants.validate(entrants.complete(tree) if name == "evolve" else tree)


def test_the_example_of_shapes_runs() -> None:
    (block,) = code(ROOT / "docs" / "shapes.md")
    names: dict[str, object] = {}
    exec(block, names)
    assert {"weight", "lr"} == set(names["learnt"])  # type: ignore[call-overload]


def test_the_simulator_of_the_guide_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page_sign.py").write_text(code(ROOT / "docs" / "vectorised.md")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    words = "page_sign:Sign", "ppo", "stop.steps=6000", "algo.lr=3e-3", "train.threads=1"
    result = podium.train(*words, out=tmp_path / "run")
    sys.modules.pop("page_sign")
    assert result.top[0]["fitness"] == 10


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = code(ROOT / "README.md")
    block = block.replace(
        '"train.members=8"', '"train.members=8", "train.threads=1", "stop.steps=256", "eval.episodes=2"'
    )
    names: dict[str, object] = {}
    exec(block, names)
    assert names["action"] in (0, 1)
