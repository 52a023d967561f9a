"""Nothing that came from a file or a socket is ever run: no pickle, no unsafe loader, no eval."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "podium"
MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
BUILTINS = {"eval", "exec"}
LOADERS = {"torch.load", "torch.save", "torch.jit.load", "torch.package"}  # torch.save writes a pickle
LOADERS |= {"yaml.load", "yaml.load_all", "yaml.full_load", "yaml.full_load_all"}
LOADERS |= {"yaml.unsafe_load", "yaml.unsafe_load_all"}


def offences(source: str) -> list[tuple[int, str]]:
    """Line and name of everything in `source` that could run what it reads."""
    found, names = [], {}  # names: what this file calls a thing -> what the thing is
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        else:
            continue
        names.update(imported)
        for thing in imported.values():
            if thing in LOADERS or thing.split(".")[0] in MODULES or "pickle" in thing.split("."):
                found.append((node.lineno, thing))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if (thing := f"{names.get(first, first)}.{rest}") in LOADERS:
                found.append((node.lineno, thing))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
                found.append((node.lineno, node.func.id))
            reads_pickle = [k for k in node.keywords if k.arg == "allow_pickle" and ast.unparse(k.value) != "False"]
            if reads_pickle:  # numpy.load
                found.append((node.lineno, "allow_pickle"))
            loads = node.args[:1] and ast.unparse(node.func).split(".")[-1] in {"import_module", "__import__"}
            if loads and isinstance(node.args[0], ast.Constant) and str(node.args[0].value).split(".")[0] in MODULES:
                found.append((node.lineno, str(node.args[0].value)))
    return found


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_runs_nothing_it_reads(file: Path) -> None:
    found = [f"{file}:{line}: {name}" for line, name in offences(file.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "import cloudpickle as c",
        "from multiprocessing.reduction import pickle",
        "importlib.import_module('dill')",
        "import torch\ntorch.load(path)",
        "import torch as t\nt.load(path)",
        "from torch import load",
        "import yaml\nyaml.load(text, yaml.SafeLoader)",
        "from yaml import unsafe_load as safe",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "eval(text)",
        "exec(text)",
    ],
)
def test_sees(source: str) -> None:
    assert offences(source)


@pytest.mark.parametrize(
    "source",
    [
        "net.eval()",
        "self.load(state)",
        "import yaml\nyaml.safe_load(text)",
        "from safetensors.torch import load_file",
        "'no pickle, no eval(x), no torch.load'",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
    ],
)
def test_lets_pass(source: str) -> None:
    assert not offences(source)
