"""Genes: the numbers of an algorithm that evolution may touch. Every gene is a tensor `[M]`, one value a member.

A gene is declared beside its default, on the algorithm's own settings:

    lr: GeneValue = gene(3e-4, 1e-6, 1.0)

Its bounds limit what may be drawn or evolved; a fixed value only has to be valid (an entropy bonus of 0 is legal).
A setting is a number, a range `[low, high]` to draw from and to search, or `{each: [...]}`, one value a member.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field, PlainValidator
from torch import Tensor

from podium.core.errors import ConfigError
from podium.core.streams import generator

Scale = Literal["log", "linear", "one-minus-log", "int", "choice"]
_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Gene:
    """Where a gene may move (`low` to `high`, on `scale`), and which fixed values are valid (`least` to `most`)."""

    low: float
    high: float
    scale: Scale = "log"
    least: float = 0.0
    most: float = math.inf
    optional: bool = False
    choices: tuple[float, ...] = ()
    search: tuple[float, float] | None = None  # a range worth searching, where the user names none

    def allowed(self) -> str:
        """What a user may write, in words."""
        if self.choices:
            return "one of " + ", ".join(f"{c:g}" for c in self.choices)
        number = "a whole number" if self.scale == "int" else "a number"
        bounds = f"of at least {self.least:g}" if self.most == math.inf else f"from {self.least:g} to {self.most:g}"
        ways = [f"{number} {bounds}", "null"] if self.optional else [f"{number} {bounds}"]
        ways += [f"a range [low, high] within [{self.low:g}, {self.high:g}]", "or {each: [a value for every member]}"]
        return ", ".join(ways)

    def valid(self, value: Any) -> bool:
        """Whether `value` may stand as a fixed value."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self.optional and value is None
        if self.choices:
            return value in self.choices
        return self.least <= value <= min(self.most, _LARGEST) and (self.scale != "int" or value == int(value))

    def spans(self, low: Any, high: Any) -> bool:
        """Whether [low, high] is a range to draw from."""
        ends = self.scale not in ("int", "choice") or (self.valid(low) and self.valid(high))
        return None not in (low, high) and self.low <= low <= high <= self.high and ends

    def between(self, low: float, high: float, u: Tensor) -> Tensor:
        """Uniform numbers `u` in [0, 1) mapped to values from `low` to `high`, evenly on the gene's scale."""
        if self.scale == "choice":
            choices = [c for c in self.choices if low <= c <= high]
            return torch.tensor(choices, dtype=u.dtype)[(u * len(choices)).long()]
        if self.scale == "int":
            return torch.floor(low + u * (high - low + 1))
        if self.scale == "log" and low > 0:
            return torch.exp(math.log(low) + u * math.log(high / low)).clamp(low, high)
        if self.scale == "one-minus-log" and high < 1:
            return (1 - torch.exp(math.log(1 - low) + u * math.log((1 - high) / (1 - low)))).clamp(low, high)
        return low + u * (high - low)

    def place(self, low: float, high: float, value: Tensor) -> Tensor:
        """Where values lie from `low` to `high` on the gene's scale, in [0, 1]; `between` maps it back to them."""
        if self.scale == "choice":
            choices = [c for c in self.choices if low <= c <= high]
            nearest = (value.unsqueeze(-1) - torch.tensor(choices, dtype=value.dtype)).abs().argmin(-1)
            return (nearest + 0.5).to(value.dtype) / len(choices)
        value = value.clamp(low, high)
        if self.scale == "int":  # the middle of a number's cell
            return (value - low + 0.5) / (high - low + 1)
        if low == high:
            return torch.full_like(value, 0.5)
        if self.scale == "log" and low > 0:
            return (torch.log(value / low) / math.log(high / low)).clamp(0, 1)
        if self.scale == "one-minus-log" and high < 1:
            return (torch.log((1 - value) / (1 - low)) / math.log((1 - high) / (1 - low))).clamp(0, 1)
        return (value - low) / (high - low)


def _parse(value: Any) -> Any:
    """A number, `[low, high]` or `{each: [...]}` in plain form; whether the numbers fit is `check`'s business."""
    number = _number(value)
    if number is not _BAD:
        return number
    if isinstance(value, list | tuple) and len(value) == 2 and _BAD not in (ends := [_number(v) for v in value]):
        return ends
    if isinstance(value, dict) and list(value) == ["each"] and isinstance(value["each"], list | tuple):
        each = [_number(v) for v in value["each"]]
        if each and _BAD not in each:
            return {"each": each}
    raise ValueError("neither a number nor a range nor {each: [...]}")


_BAD: Any = object()


def _number(value: Any) -> Any:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 (no dot) as a word
        try:
            return float(value)
        except ValueError:
            return _BAD
    return _BAD


GeneValue = Annotated[Any, PlainValidator(_parse)]
"""How a gene is written in a config: a number, `[low, high]` or `{each: [...]}`."""


def gene(default: float | None, low: float, high: float, scale: Scale = "log", **limits: Any) -> Any:
    """A settings field that is a gene; `limits` are the other fields of `Gene`."""
    return Field(default, json_schema_extra={"gene": Gene(low, high, scale, **limits)})  # type: ignore[dict-item]


def genes(settings: BaseModel | type[BaseModel]) -> dict[str, Gene]:
    """The genes that an algorithm's settings declare, by name."""
    cls = settings if isinstance(settings, type) else type(settings)
    return {
        name: field.json_schema_extra["gene"]  # type: ignore[misc]
        for name, field in cls.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "gene" in field.json_schema_extra
    }


def check(settings: BaseModel, members: int, section: str = "algo") -> None:
    """Refuse gene settings that are out of range or do not fit the number of members."""
    for name, declared in genes(settings).items():
        value, field = getattr(settings, name), f"{section}.{name}"
        if isinstance(value, dict):
            if len(value["each"]) != members:
                have = f"{len(value['each'])} values for {members} members"
                raise ConfigError(field, value, f"`each` needs one value for every member, and these are {have}")
            if not all(declared.valid(v) for v in value["each"]):
                raise ConfigError(field, value, declared.allowed())
        elif not (declared.spans(*value) if isinstance(value, list) else declared.valid(value)):
            raise ConfigError(field, value, declared.allowed())


def plain(genes: Mapping[str, float]) -> dict[str, float | None]:
    """Genes as JSON holds them: one that is off, which is infinite, becomes null."""
    return {name: None if math.isinf(value) else value for name, value in genes.items()}


def live(genes: Mapping[str, float | None]) -> dict[str, float]:
    """The inverse of `plain`."""
    return {name: math.inf if value is None else value for name, value in genes.items()}


def values(settings: BaseModel, seed: int, ids: Sequence[int]) -> dict[str, Tensor]:
    """The genes of the members `ids`, each `[M]`: fixed, one `each`, or drawn from a range by the member's own dice.

    An id has the same genes whoever is asked for beside it; ids go round `each`.
    """
    out: dict[str, Tensor] = {}
    for name, declared in genes(settings).items():
        value = getattr(settings, name)
        if isinstance(value, dict):
            each = [math.inf if v is None else float(v) for v in value["each"]]
            row = [each[i % len(each)] for i in ids]
        elif isinstance(value, list):
            dice = [torch.rand((), generator=generator(seed, i, "gene", name), dtype=torch.float64) for i in ids]
            low, high = value
            row = declared.between(low, high, torch.stack(dice)).tolist()
        else:
            row = [math.inf if value is None else float(value)] * len(ids)
        out[name] = torch.tensor(row, dtype=torch.float32)
    return out
