"""What a run is about to do, in a few lines: its kinds of members, what they search, its schedule, when it stops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podium.report import words
from podium.store.records import FIRST

Config = Mapping[str, Any]
"""All settings of a run, as its config.yaml has them."""
Member = Mapping[str, Any]
"""A row of the ledger's members."""


def lines(config: Config, members: Iterable[Member]) -> list[str]:
    """What the title does not say; `members` are the ledger's."""
    rows = list(members)
    said = [*kinds(config, rows), *searched(config, rows), *paced(config, rows)]
    return [*said, *filter(None, [scheduled(config)]), stop(config)]


def stop(config: Config) -> str:
    """The rules that end the run."""
    rules, whose = config.get("stop", {}), "the champion's" if "evolve" in config else "every member's"
    texts = {"steps": "{:,} steps", "seconds": "{:,g} seconds", "generations": "{:,} generations"}
    texts["fitness"] = f"{whose} fitness {{:,g}}"
    found = [text.format(rules[name]) for name, text in texts.items() if rules.get(name) is not None]
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


def kinds(config: Config, members: Iterable[Member]) -> list[str]:
    """Each kind of member by the name that tables use, with what sets it apart; nothing where there is one kind."""
    entrants = config.get("evolve", {}).get("entrants") or ()
    if len(entrants) < 2:
        return []
    count = Counter(row["kind"] for row in members if row["origin"] in FIRST)  # in the order of the entrants
    width = max(map(len, count), default=0)
    return [
        f"{name:<{width}}  {n} member{'s' * (n != 1)}  {own}".rstrip()
        for (name, n), own in zip(count.items(), _apart(entrants), strict=False)
    ]


def searched(config: Config, members: Iterable[Member]) -> list[str]:
    """The genes that an evolving run searches, with their ranges; a line for each kind, one if all search alike."""
    found: dict[str, str] = {}
    for name, algo, genes in _algos(config, members):
        ranges = {gene: algo[gene] for gene in genes if isinstance(algo.get(gene), list | tuple)}
        said = ", ".join(f"{gene} [{', '.join(map(words.gene, ends))}]" for gene, ends in ranges.items())
        found[name] = f"searches {said or 'nothing: members only copy weights'}"
    if len(set(found.values())) == 1:
        return [next(iter(found.values()))]
    return [f"{name} {said}" for name, said in found.items()]


def paced(config: Config, members: Iterable[Member]) -> list[str]:
    """Of an evolving run, how often members are evaluated where it is not as often as evolve.interval says."""
    evolve = config.get("evolve", {})
    interval, envs = evolve.get("interval"), config.get("env", {}).get("num")
    if interval is None or envs is None or evolve.get("seconds") is not None:
        return []
    rollouts = {name: algo["steps"] * envs for name, algo, _ in _algos(config, members) if "steps" in algo}
    longest = max(rollouts.values(), default=0)
    if evolve.get("strategy") == "tournament" or len(set(rollouts.values())) < 2:  # a tournament keeps kinds in step
        return [f"evaluated every {longest:,} steps (a rollout), not every {interval:,}"] if longest > interval else []
    return [
        f"{name} evaluated every {steps:,} steps (a rollout), not every {interval:,}"
        for name, steps in rollouts.items()
        if steps > interval
    ]


def _algos(config: Config, members: Iterable[Member]) -> list[tuple[str, Config, Iterable[str]]]:
    """Of each kind of an evolving run its name, the settings of its algorithm, and the names of its genes."""
    if "evolve" not in config:
        return []
    genes = {row["kind"]: row["genes"] for row in members if row["origin"] in FIRST}  # in the order of the entrants
    algos = [entrant["algo"] for entrant in config["evolve"].get("entrants") or (config,)]
    return [(name, algo, genes[name]) for name, algo in zip(genes, algos, strict=False)]


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
