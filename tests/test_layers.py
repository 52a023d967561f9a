"""Imports point down only, wherever in a file they stand, and an optional package is known to one file."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "podium"
# Highest first; the names on one line do not import each other. "podium" is the package's own front, __init__.py.
ORDER = """
    __main__
    cli
    bench
    podium
    exporting
    export_check
    resuming ensemble
    agent stack training
    placing
    pod_node
    entrants
    footprint
    experiment
    checks
    compose recovery
    naming
    lookup foreign_names
    settings
    topologies report
    roles
    evolve
    guests
    algos fleet store
    nets envs replay
    ops
    core
"""
RANK = {name: rank for rank, line in enumerate(ORDER.split("\n")) for name in line.split()}
DATA = {"presets"}  # files that are read, not imported
OPTIONAL = {"Box2D", "ale_py", "envpool", "fastapi", "imageio", "mpe2", "mpi4py", "mujoco", "onnx", "onnxruntime"}
OPTIONAL |= {"onnxscript", "pettingzoo", "plotly", "pygame", "pymoo", "ray", "stable_baselines3", "tianshou"}
OPTIONAL |= {"sb3_contrib", "torchrl", "uvicorn"}
FILES = sorted(ROOT.rglob("*.py"))


def layer(file: Path) -> str:
    """The part of the package that a file belongs to: its folder under podium/, or its own name."""
    top = file.relative_to(ROOT).parts[0].removesuffix(".py")
    return "podium" if top == "__init__" else top


def imports(file: Path) -> Iterator[tuple[int, str, bool]]:
    """Line, dotted name, and whether it is imported as soon as the file is: for every import of a file."""
    package = ["podium", *file.relative_to(ROOT).parent.parts]

    def walk(node: ast.AST, top: bool) -> Iterator[tuple[int, str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{source}.{alias.name}", top) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"import_module", "__import__"}:
            yield from ((node.lineno, str(arg.value), top) for arg in node.args[:1] if isinstance(arg, ast.Constant))
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, top and not inside)

    yield from walk(ast.parse(file.read_text()), True)


def test_every_part_has_a_place_in_the_order() -> None:
    held = [p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    parts = {p.parts[0].removesuffix(".py") for p in held if len(p.parts) > 1 or p.suffix == ".py"}
    strangers = parts - RANK.keys() - DATA - {"__init__"}
    assert not strangers, f"{sorted(strangers)} in src/podium: give each a line in ORDER of {__file__}"
    vague = [p for p in ROOT.rglob("*") if p.stem in {"utils", "util", "common", "helpers", "misc"}]
    assert not vague, f"{vague}: name a file for what it holds"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_down(file: Path) -> None:
    here = layer(file)
    if here == "podium" or here not in RANK:  # the front imports anything, lazily; strangers fail above
        return
    wrong = []
    for line, name, _ in imports(file):
        package, _, rest = name.partition(".")
        part = rest.split(".")[0]
        there = part if part in RANK else "podium"
        if package == "podium" and rest != "__version__" and there != here and RANK[there] <= RANK[here]:
            wrong.append(f"{file}:{line}: {here} may not import {there}")
    assert not wrong, "\n".join(wrong)


def test_an_optional_package_is_known_to_one_file() -> None:
    homes: dict[str, set[Path]] = defaultdict(set)
    hasty = []
    for file in FILES:
        for line, name, top in imports(file):
            if (package := name.partition(".")[0]) in OPTIONAL:
                if layer(file) != "bench":
                    homes[package].add(file)
                elif top:
                    hasty.append(f"{file}:{line}: import {package} inside the function that needs it")
    many = [f"{package} is imported in {sorted(map(str, files))}" for package, files in homes.items() if len(files) > 1]
    assert not many + hasty, "\n".join(many + hasty)
