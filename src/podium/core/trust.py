"""Whose code may run: what a user names does, what only a run's folder names does not, unless the user trusts it.

A run's settings may name code: an env, an algorithm, a network; or the address of a cluster, which runs code for us and
answers as it likes. Code that this user has started a run with is remembered, by the file that it stands in, in a
record outside all run folders. So one's own runs are read without a question, and a stranger's are not.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.core import home, imports
from podium.core.errors import PodiumError

RECORD = "trusted.jsonl"
LARGEST = 16 << 20
"""Bytes of the record that are read."""


class Untrusted(PodiumError):
    """A run's folder names code that nobody has allowed to run."""


def named(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, name) of all that settings name and that would run: code, and a cluster's address."""
    entrants = _section(config, "evolve").get("entrants")
    kinds = {f"evolve.entrants[{i}].": kind for i, kind in enumerate(entrants if isinstance(entrants, list) else ())}
    for prefix, part in {"": config, **kinds}.items():
        for section, field in (("env", "id"), ("algo", "name"), ("net", "module")):
            value = _section(part, section).get(field)
            if isinstance(value, str) and (":" in value or field == "module"):
                yield f"{prefix}{section}.{field}", value
        if isinstance(part, str) and ":" in part:  # an entrant may be just the name of its algorithm
            yield f"{prefix}algo.name", part
    env = _section(config, "env")
    if not _harmless(env.get("kwargs")):
        id = imports.absolute(str(env.get("id")))
        yield "env.kwargs", f"{id} {json.dumps(env.get('kwargs'), default=str)}"
    address = _section(config, "fleet").get("address")
    if address is not None:
        yield "fleet.address", str(address)


def _harmless(kwargs: Any) -> bool:
    """Tells whether keywords of an env are numbers and flags only: a text may be a file, or a module to import."""
    return not kwargs or (isinstance(kwargs, Mapping) and all(isinstance(v, int | float) for v in kwargs.values()))


def _section(config: Any, name: str) -> Mapping[str, Any]:
    """A section of settings that nobody has checked yet."""
    found = config.get(name) if isinstance(config, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def check(run: Path, config: Mapping[str, Any], trust: bool = False, typed: Collection[str | None] = ()) -> None:
    """Refuse settings of a run that name code which the user has neither typed nor started a run with."""
    allowed = {imports.absolute(name) for name in typed if name}
    wanted = [(field, name) for field, name in named(config) if imports.absolute(name) not in allowed]
    if trust or not wanted:
        return
    known = _remembered()
    if strange := [f"{name} ({field})" for field, name in wanted if _key(name) not in known]:
        said = f"{run} names code that you have started no run with: {', '.join(strange)}. It was not run"
        if places := [place for _, name in wanted for place in _places(name, known)]:
            said = f"{run} names code that is not found here: it is in {', '.join(places)}. Nothing was run; go there"
        rest = "If you trust whoever made the run, pass"
        raise Untrusted(f"{said}. {rest} trust=True", f"{said}. {rest} --trust")


def _places(name: str, known: Collection[str]) -> list[str]:
    """Where code of that name stood when this user started runs with it, if it is found nowhere now."""
    if _place(name) is not None:
        return []
    return [where for key in known for one, where in [json.loads(key)] if one == imports.absolute(name) and where]


def known(name: str) -> bool:
    """Whether the user has started a run with this code; built-in names are."""
    return ":" not in name or _key(name) in _remembered()


def remember(config: Mapping[str, Any]) -> None:
    """Note the code that a user's own run is started with. Where that cannot be written, the user will be asked."""
    keys = {_key(name) for _, name in named(config)} - _remembered()
    folder = home.state_folder()
    if not keys:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(folder / RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, "".join(f"{key}\n" for key in sorted(keys)).encode())
        finally:
            os.close(file)


def _remembered() -> set[str]:
    try:
        with (home.state_folder() / RECORD).open("rb") as file:
            return set(file.read(LARGEST).decode(errors="replace").splitlines())
    except OSError:
        return set()


def _key(name: str) -> str:
    """What is remembered of a name: the name, and the file that it stands for today."""
    return json.dumps([imports.absolute(name), _place(name)])


def _place(name: str) -> str | None:
    """Where the code of `package.module:name` stands, found without importing any of it."""
    module = name.rpartition(":")[0]
    if not module or module.endswith(".py") or not module.replace(".", "").isidentifier():
        return None
    try:
        with imports.current_folder():
            spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    where = spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), spec.origin)
    return os.path.realpath(where) if where and os.path.exists(where) else where
