"""Configuration: sections are pydantic records, YAML and `key=value` only override them.

What a user may write wrong is refused with the field, the value and what is allowed.
"""

from __future__ import annotations

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


class UnknownSetting(PodiumError):
    """A key that a section has no field for: where it stands, below `section`, and its value."""

    def __init__(self, cls: type[BaseModel], path: Sequence[str], value: Any, section: str) -> None:
        self.cls, self.path, self.value, self.section = cls, tuple(path), value, section
        self.name = section + ".".join(path)
        super().__init__(f"{self.name}: no such setting")


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


def parse(text: str, source: str, key: str = "") -> Any:
    """YAML text as plain values; `source` names it in the error, `key` is the setting that it is the value of."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if (double := next(_doubles(node, key, set()), None)) is not None:
            where = "" if key else f" (lines {' and '.join(map(str, double[1]))})"
            raise PodiumError(f"{source}: {double[0]} is given twice{where}; keep one of the two")
        return None if node is None else _numbers(loader.construct_document(node), itertools.count())
    except RecursionError as error:
        raise PodiumError(f"{_short(source)}: not YAML: nested too deeply; settings are a few levels deep") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2020-99-99
        raise PodiumError(f"{source}: not YAML: {' '.join(str(error).split())}") from error


def _doubles(node: yaml.Node | None, key: str, seen: set[yaml.Node]) -> Iterator[tuple[str, list[int]]]:
    """Name and lines of every key that a mapping holds twice, of which YAML would drop the first."""
    if node in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(node)  # an alias may lead back to where it stands
    if not isinstance(node, yaml.MappingNode):
        for item in node.value:
            yield from _doubles(item, key, seen)
        return
    lines: dict[tuple[str, str], int] = {}
    for name, value in node.value:
        full, line = f"{key}.{name.value}" if key else str(name.value), name.start_mark.line + 1
        known = (name.tag, str(name.value))
        if known in lines and name.value != "<<":  # of which there may be several, all of them merged in
            yield full, [lines[known], line]
        lines.setdefault(known, line)
        yield from _doubles(value, full, seen)


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
    value = parse(text, word, ".".join(path))
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
        return UnknownSetting(cls, path, error["input"], section)
    within: type[BaseModel] | None = cls
    field: FieldInfo | None = None
    depth = 0
    while within is not None and depth < len(path):  # what is below the field is a place in its value: `net.hidden.1`
        field = within.model_fields.get(path[depth])
        within, depth = _section(field), depth + 1
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


def names(cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted name of every setting below a section."""
    for name, field in cls.model_fields.items():
        inner = _section(field)
        if inner is None:
            yield prefix + name
        else:
            yield from names(inner, f"{prefix}{name}.")


def holder(cls: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """The section at `path` below another one, if there is one."""
    found: type[BaseModel] | None = cls
    for name in path:
        found = _section(found.model_fields.get(name)) if found is not None else None
    return found


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
    bounds = [f"{_BOUNDS[k]} {_figure(getattr(m, k))}" for m in limits for k in _BOUNDS if hasattr(m, k)]
    return _KINDS.get(kind, "a mapping of settings") + (
        f" of {' and '.join(bounds)}" if bounds and kind in (int, float) else ""
    )


def _figure(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
