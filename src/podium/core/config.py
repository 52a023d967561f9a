"""Configuration: sections are pydantic records, YAML and `key=value` only override them.

Order: defaults < env preset < algorithm preset < files < `key=value`. An unknown key is refused with its neighbour.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from podium.core.errors import ConfigError, PodiumError

SELECTORS = {"env": "id", "algo": "name"}
"""A word assigned to one of these sections sets its selector: `algo=ppo` is `algo.name=ppo`."""


class Section(BaseModel):
    """Base of every part of a config: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


S = TypeVar("S", bound=Section)


def merge(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts laid over each other, later ones on top. A gene's `{each: [...]}` is a value, not a section."""
    out: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            old = out.get(key)
            if isinstance(value, Mapping) and isinstance(old, Mapping) and "each" not in value:
                out[key] = merge(old, value)
            else:
                out[key] = merge(value) if isinstance(value, Mapping) else value
    return out


_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def _numbers(value: Any) -> Any:
    """YAML 1.1 reads `1e-3` and `2e6` as words; here they are numbers."""
    if isinstance(value, str) and _FLOAT.fullmatch(value):
        return float(value)
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    return value


def parse(text: str, source: str) -> Any:
    """YAML text as plain values; `source` names it in the error."""
    try:
        return _numbers(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise PodiumError(f"{source}: not YAML: {' '.join(str(error).split())}") from error


def read(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PodiumError(f"{path}: cannot be read: {error}") from error
    tree = parse(text, str(path))
    if not isinstance(tree, dict):
        raise PodiumError(f"{path}: not a mapping of settings (found {type(tree).__name__})")
    return tree


def override(word: str) -> dict[str, Any]:
    """`a.b=c` as a nested dict; `env=x` and `algo=x` set the section's selector."""
    key, _, text = word.partition("=")
    path = key.strip().split(".")
    if not all(path):
        raise ConfigError("override", word, "write key=value, for example algo.lr=3e-4")
    value = parse(text, word) if text.strip() else None
    if len(path) == 1 and path[0] in SELECTORS and not isinstance(value, dict):
        path.append(SELECTORS[path[0]])
    for name in reversed(path):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def build(cls: type[S], tree: Any, section: str = "") -> S:
    """A validated section, or the first thing that is wrong with it as a ConfigError; `section` leads its names."""
    if not isinstance(tree, Mapping):
        raise ConfigError(section, tree, "a mapping of settings")
    try:
        return cls.model_validate(tree)
    except ValidationError as failure:
        raise _refusal(cls, failure, f"{section}." if section else "") from None


def _refusal(cls: type[Section], failure: ValidationError, section: str) -> PodiumError:
    error = min(failure.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a misspelt key explains the rest
    path = [str(part) for part in error["loc"]]
    field = section + ".".join(path)
    if error["type"] == "extra_forbidden":
        known = _fields(cls, path[:-1])
        near = difflib.get_close_matches(path[-1], known, 1)
        dotted = [".".join([*path[:-1], name]) for name in (near or known)]
        dotted = [section + name for name in dotted]
        hint = f"did you mean {dotted[0]}?" if near else f"allowed: {', '.join(dotted)}"
        return PodiumError(f"{field}: no such setting; {hint}")
    message = str(error["msg"]).removeprefix("Value error, ")
    return ConfigError(field, error["input"], message[:1].lower() + message[1:])


def _fields(cls: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the section at `path` below `cls`."""
    for name in path:
        field = cls.model_fields.get(name)
        options = [] if field is None else [field.annotation, *get_args(field.annotation)]
        inner = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not inner:
            return []
        cls = inner[0]
    return sorted(cls.model_fields)
