"""A user's own classes and functions, by name: `package.module:name`, or `path/to/file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import AfterValidator

from podium.core.errors import ConfigError, PodiumError


def absolute(name: str) -> str:
    """A file's path made absolute, so that a run can be read from any folder."""
    file, colon, attribute = name.rpartition(":")
    return f"{Path(file).resolve()}:{attribute}" if colon and file.endswith(".py") else name


Importable = Annotated[str, AfterValidator(absolute)]
"""A setting that may name something of the user's own."""


@contextmanager
def current_folder() -> Iterator[None]:
    """Modules are looked for in the current folder, too, after all other places.

    It is on the path no longer than it takes to find what a user has named: other packages look for helpers that may
    not be installed, and would run a file of that name that happens to lie there.
    """
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        for i in reversed(range(len(sys.path))):
            if sys.path[i] == folder:
                del sys.path[i]
                break


def module(field: str, path: str) -> ModuleType:
    """The module of `package.module:name` or `path/to/file.py:name`; a file is run once, the main script not again."""
    source = path.rpartition(":")[0]
    try:
        with current_folder():
            return _file(Path(source).resolve()) if source.endswith(".py") else importlib.import_module(source)
    except (ImportError, OSError, ValueError) as error:
        allowed = f"package.module:name or path/to/file.py:name of something that can be imported ({error})"
        raise ConfigError(field, path, allowed) from error
    except PodiumError:  # ours, such as an extra that is missing
        raise
    except Exception as error:  # whatever the user's own file does
        raise PodiumError(f"{field}: {path} cannot be imported: {type(error).__name__}: {error}") from error


def _file(path: Path) -> ModuleType:
    for loaded in list(sys.modules.values()):
        if getattr(loaded, "__file__", None) and Path(str(loaded.__file__)) == path:
            return loaded
    spec = importlib.util.spec_from_file_location(f"podium_user_{path.stem}_{len(sys.modules)}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    sys.modules[spec.name] = found = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return found


def named(field: str, path: str) -> Any:
    """What `module:name` names."""
    source, _, name = path.rpartition(":")
    found = module(field, path)
    if not hasattr(found, name):
        raise ConfigError(field, path, f"{source} has no {name!r}")
    return getattr(found, name)
