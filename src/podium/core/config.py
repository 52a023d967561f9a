"""Configuration: sections are pydantic records, YAML and `key=value` only override them.

What a user may write wrong is refused with the field, the value and what is allowed; an unknown key with its neighbour.
"""

from __future__ import annotations

import difflib
import itertools
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from podium.core.errors import ConfigError, PodiumError

SELECTORS = {"env": "id", "algo": "name", "evolve": "strategy", "fleet": "kind"}
"""A word assigned to one of these sections sets its selector: `algo=ppo` is `algo.name=ppo`."""


class Section(BaseModel):
    """Base of every part of a config: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would take `true` for 1."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and not {bool, Any} & {field.annotation, *get_args(field.annotation)}:
            raise ValueError("not a number")
        if _section(field) is None and _beyond(value):
            raise PydanticCustomError("beyond", "beyond 64 bits")
        return value


DEEPEST = 20
"""Names in a setting, which has two or three; those of env.kwargs may have more."""
SHOWN = 80
"""Characters of a value that a message repeats."""
LARGEST = 2**63 - 1
"""No whole number may be larger: tensors, files and messages hold 64 bits."""


def _beyond(value: Any) -> bool:
    """Whether there is a whole number in a setting that 64 bits do not hold."""
    if isinstance(value, list | tuple | dict):
        return any(map(_beyond, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) > LARGEST


S = TypeVar("S", bound=Section)


def merge(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts laid over each other, later ones on top. A gene's `{each: [...]}` is a value, not a section."""
    out: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            old = out.get(key)
            if isinstance(value, Mapping) and isinstance(old, Mapping) and "each" not in {*value, *old}:
                out[key] = merge(old, value)
            else:
                out[key] = merge(value) if isinstance(value, Mapping) else value
    return out


MOST = 1_000_000
"""Values that a file or setting may hold."""
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def _numbers(value: Any, count: Iterator[int]) -> Any:
    """YAML 1.1 reads `1e-3` and `2e6` as words; here they are numbers."""
    if next(count) > MOST:  # a few lines of aliases to aliases are enough
        raise ValueError(f"more than {MOST:,} values")
    if isinstance(value, str) and _FLOAT.fullmatch(value):
        return float(value)
    if isinstance(value, list):
        return [_numbers(v, count) for v in value]
    if isinstance(value, dict):
        return {k: _numbers(v, count) for k, v in value.items()}
    return value


def parse(text: str, source: str) -> Any:
    """YAML text as plain values; `source` names it in the error."""
    try:
        return _numbers(yaml.safe_load(text), itertools.count())
    except RecursionError as error:
        raise PodiumError(f"{_short(source)}: not YAML: nested too deeply; settings are a few levels deep") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2020-99-99
        raise PodiumError(f"{source}: not YAML: {' '.join(str(error).split())}") from error


def read(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PodiumError(f"{path}: not YAML: {error}") from error
    except OSError as error:
        raise PodiumError(f"{path}: cannot be read ({error.strerror})") from error
    tree = parse(text, str(path))
    if not isinstance(tree, dict):
        found = "nothing" if tree is None else repr(tree) if isinstance(tree, str) else type(tree).__name__
        raise PodiumError(f"{path}: not a mapping of settings (found {found})")
    return selected(tree)


def is_override(word: str) -> bool:
    """Whether a word reads `key=value`; a path with a folder before the `=` does not."""
    return "=" in word and not set("/\\") & set(word.partition("=")[0])


def override(word: str) -> dict[str, Any]:
    """`a.b=c` as a nested dict; `env=x` and `algo=x` set the section's selector."""
    key, equals, text = word.partition("=")
    path = [name.strip() for name in key.split(".")]
    if not equals or not all(path):
        raise PodiumError(f"{word}: not a setting; write key=value, for example algo.lr=3e-4")
    if len(path) > DEEPEST:
        raise PodiumError(f"{word[:SHOWN]}...: a setting has at most {DEEPEST} names with dots between them")
    value = parse(text, word)
    for name in reversed(path):
        value = {name: value}
    return selected(value)


def selected(tree: dict[str, Any]) -> dict[str, Any]:
    """`algo: ppo` and `env: CartPole-v1` in full."""
    return {k: {SELECTORS[k]: v} if k in SELECTORS and not isinstance(v, Mapping) else v for k, v in tree.items()}


def build(cls: type[S], tree: Any, section: str = "") -> S:
    """A validated section, or the first thing that is wrong with it as a PodiumError; `section` leads its names."""
    if not isinstance(tree, Mapping):
        raise ConfigError(section, tree, "a mapping of settings")
    try:
        return cls.model_validate(tree)
    except ValidationError as failure:
        raise _refusal(cls, failure, f"{section}." if section else "") from None


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every setting of a config tree."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value and "each" not in value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _refusal(cls: type[Section], failure: ValidationError, section: str) -> PodiumError:
    error = min(failure.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a misspelt key explains the rest
    path = [str(part) for part in error["loc"]]
    if error["type"] in ("extra_forbidden", "invalid_key"):
        return _unknown(cls, path, section)
    holder: type[BaseModel] | None = cls
    field: FieldInfo | None = None
    depth = 0
    while holder is not None and depth < len(path):  # what is below the field is a place in its value: `net.hidden.1`
        field = holder.model_fields.get(path[depth])
        holder, depth = _section(field), depth + 1
    name = section + ".".join(path[:depth])
    if error["type"] == "missing" and depth == len(path):
        return PodiumError(f"{name}: missing; {allowed(field)}")
    if error["type"] == "beyond":
        return PodiumError(f"{name} is too large: whole numbers must be less than 2^63, got {_short(error['input'])}")
    many = "; only a gene takes a range" if isinstance(error["input"], list | dict) and _is_number(field) else ""
    return ConfigError(name, error["input"], allowed(field) + many)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _unknown(cls: type[Section], path: list[str], section: str) -> PodiumError:
    """A key that there is not: names its neighbour in the same section, or in any, or all keys of the section."""
    parent: type[BaseModel] | None = cls
    for name in path[:-1]:
        parent = _section(parent.model_fields.get(name)) if parent is not None else None
    beside = [".".join([*path[:-1], name]) for name in (parent.model_fields if parent is not None else ())]
    anywhere = {name.rpartition(".")[2]: name for name in _names(cls)}
    near = difflib.get_close_matches(".".join(path), beside, 1) or [
        anywhere[name] for name in difflib.get_close_matches(path[-1], anywhere, 1, 0.8)
    ]
    hint = f"did you mean {section}{near[0]}?" if near else f"allowed: {', '.join(section + n for n in beside)}"
    return PodiumError(f"{section}{'.'.join(path)}: no such setting; {hint}")


def _names(cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in cls.model_fields.items():
        inner = _section(field)
        if inner is None:
            yield prefix + name
        else:
            yield from _names(inner, f"{prefix}{name}.")


def _section(field: FieldInfo | None) -> type[BaseModel] | None:
    """The section that a field holds, if it holds one."""
    held = field.annotation if field is not None else None
    return held if isinstance(held, type) and issubclass(held, BaseModel) else None


def allowed(field: FieldInfo | None) -> str:
    """What may stand in a field, in words."""
    if field is None:
        return "a setting"
    if isinstance(field.json_schema_extra, dict) and "gene" in field.json_schema_extra:
        return str(field.json_schema_extra["gene"].allowed())  # type: ignore[union-attr]
    return _words(field.annotation, field.metadata)


def _is_number(field: FieldInfo | None) -> bool:
    kind = field.annotation if field is not None else None
    return get_origin(kind) is not tuple and bool({int, float} & {kind, *get_args(kind)})


_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    types.NoneType: "null",
}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def _words(kind: Any, limits: Sequence[Any] = ()) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(part, limits) for part in parts)
    if origin is Annotated:
        return _words(parts[0], parts[1:])
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if origin is tuple:
        return f"a list{'' if parts[-1] is ... else f' of {len(parts)}'}, each {_words(parts[0])}"
    if origin is dict:
        return "a mapping of settings"
    bounds = [f"{_BOUNDS[k]} {getattr(m, k):g}" for m in limits for k in _BOUNDS if hasattr(m, k)]
    return _KINDS.get(kind, "a mapping of settings") + (
        f" of {' and '.join(bounds)}" if bounds and kind in (int, float) else ""
    )
