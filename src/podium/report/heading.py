"""What a run is about to do, in a few lines: its kinds of members, its schedule, when it stops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Config = Mapping[str, Any]
"""All settings of a run, as its config.yaml has them."""


def lines(config: Config, members: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the title does not say; `members` are the ledger's."""
    return [*kinds(config, members), *filter(None, [scheduled(config)]), stop(config)]


def stop(config: Config) -> str:
    """The rules that end the run."""
    rules, whose = config.get("stop", {}), "the champion's" if "evolve" in config else "every member's"
    words = {"steps": "{:,} steps", "seconds": "{:,g} seconds", "generations": "{:,} generations"}
    words["fitness"] = f"{whose} fitness {{:,g}}"
    found = [text.format(rules[name]) for name, text in words.items() if rules.get(name) is not None]
    if not found:
        return "ends when you stop it (Ctrl-C)"
    return f"ends at {' or '.join(found)}" + (", whichever comes first" if len(found) > 1 else "")


def scheduled(config: Config) -> str | None:
    """That genes follow a schedule, and how far it goes; None where there is none."""
    entries = config.get("train", {}).get("schedule") or ()
    if not entries:
        return None
    changes = len(entries) - 1
    last = f", the last at step {entries[-1]['step']:,}" if changes else ""
    return f"genes follow a schedule (train.schedule): {changes:,} change{'s' * (changes != 1)}{last}"


def kinds(config: Config, members: Iterable[Mapping[str, Any]]) -> list[str]:
    """Each kind of member by the name that tables use, with what sets it apart; nothing where there is one kind."""
    entrants = config.get("evolve", {}).get("entrants") or ()
    if len(entrants) < 2:
        return []
    count = Counter(row["kind"] for row in members if row["origin"] == "start")  # in the order of the entrants
    width = max(map(len, count), default=0)
    return [
        f"{name:<{width}}  {n} member{'s' * (n != 1)}  {words}".rstrip()
        for (name, n), words in zip(count.items(), _apart(entrants), strict=False)
    ]


def _apart(entrants: Sequence[Config]) -> list[str]:
    """For each entrant, the settings in which it differs from others: of the network, or of the same algorithm."""
    flat = [{**_leaves("algo", e.get("algo", {})), **_leaves("net", e.get("net", {}))} for e in entrants]
    out = []
    for mine in flat:
        rivals = [other for other in flat if other["algo.name"] == mine["algo.name"]]
        own = [
            name
            for name, value in mine.items()
            if any(other.get(name) != value for other in (flat if name.startswith("net.") else rivals))
        ]
        out.append("  ".join(f"{name}={_value(mine[name])}" for name in own))
    return out


def _leaves(prefix: str, tree: Config) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in tree.items()}


def _value(value: Any) -> str:
    """As one would write it on the command line."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
