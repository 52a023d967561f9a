"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOTHING = "-"
AUTO = ("policy_lr", "target_entropy")
"""Genes that follow from something else where they have no value: any other is off then."""


def gene(value: Any, name: str = "") -> str:
    """A hyperparameter, short: 3e-4, 0.98, 0.9995, 64, relu."""
    if value is None:
        return "auto" if name in AUTO else "off"
    if not isinstance(value, float):
        return str(value)
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 0.9 < value < 1:
        return f"{value:.5g}"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def genes(values: Mapping[str, Any]) -> str:
    """All hyperparameters of a member on one line: `lr 3e-4  discount 0.98`."""
    return "  ".join(f"{name} {gene(value, name)}" for name, value in values.items())


def score(value: float | None) -> str:
    """A return or a fitness; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return NOTHING
    size = abs(value)
    return f"{value:,.{0 if size >= 10_000 else 1 if size >= 100 else 2 if size >= 1 else 3}f}"


def rate(value: float) -> str:
    """Steps a second: 950, 12.3k, 1.24M."""
    if value < 1000:
        return f"{value:.0f}"
    return f"{value / 1e3:.3g}k" if value < 999_500 else f"{value / 1e6:.3g}M"


def duration(seconds: float | None) -> str:
    """0:05, 12:30, 3:04:05; a dash where it is unknown."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
