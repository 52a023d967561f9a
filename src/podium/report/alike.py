"""Genes that many members share: a table says them once, below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podium.report import words

Row = Mapping[str, Any]


class Alike:
    """The genes in which all members of a kind are equal, among those of several rows."""

    def __init__(self, rows: Sequence[Row]) -> None:
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            groups.setdefault(kind(row), []).append(row.get("genes") or {})
        self._kinds = {name: _equal(genes) for name, genes in groups.items()}
        common = _equal(list(self._kinds.values())) if len(rows) > 1 else {}
        for name, genes in groups.items():
            if len(genes) == 1:  # what one member has alone is not worth a line
                self._kinds[name] = common

    def of(self, row: Row) -> Mapping[str, Any]:
        """The genes that a row need not say."""
        return self._kinds.get(kind(row), {})

    def lines(self) -> list[str]:
        """All that rows need not say, in words."""
        whose: dict[tuple[str, Any], list[str]] = {}
        for name, genes in self._kinds.items():
            for found in genes.items():
                whose.setdefault(found, []).append(name)
        owners: dict[tuple[str, ...], dict[str, Any]] = {}
        for (gene, value), names in sorted(whose.items(), key=lambda item: -len(item[1])):
            owners.setdefault(tuple(names), {})[gene] = value
        every = {names: "" if len(names) == len(self._kinds) else " " + " and ".join(names) for names in owners}
        return [f"genes of all{every[names]}: {words.genes(genes)}" for names, genes in owners.items()]


def kind(row: Row) -> str:
    """What tables call a member's kind: its algorithm, numbered where there are several kinds of it."""
    return str(row.get("kind") or row.get("algo") or "")


def _equal(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {k: v for k, v in every[0].items() if all(k in genes and genes[k] == v for genes in every)}
