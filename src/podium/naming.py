"""What a user may have meant by a name that no setting has: another section's, another library's, a neighbour's."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from podium import foreign_names, lookup
from podium.algos.base import AlgoSettings
from podium.core import config, hyper
from podium.core.config import UnknownSetting
from podium.core.errors import NEAR, PodiumError
from podium.settings import Evolution, Experiment

ELSEWHERE = 0.8
"""How alike a name of another section must be to be proposed."""


def build(cls: type[config.S], tree: Any, section: str = "") -> config.S:
    """As `config.build`; of a key that there is not, says what may have been meant."""
    try:
        return config.build(cls, tree, section)
    except UnknownSetting as error:
        raise PodiumError(_explained(error)) from None


def meant(head: str, name: str, value: str, algo: str | None = None, evolves: bool = True) -> str | None:
    """What a word or an option that is no setting should have been; None if nobody can tell.

    `head` is how it was written, `algo` the algorithm's name, if it is known.
    """
    settings = [lookup.ALGORITHMS[algo].Settings] if algo in lookup.ALGORITHMS else _all_settings()
    known = {f"algo.{field}" for cls in settings for field in cls.model_fields}
    known |= {n for n in config.names(Evolution if evolves else Experiment) if not n.startswith("algo.")}
    plain = name.lstrip("-").replace("-", "_")
    if plain in known or plain in config.SELECTORS:
        return f"{head}: write {plain}={value}"
    return _told(head, plain, value, known, algo)


def _explained(error: UnknownSetting) -> str:
    known, algo, value = _known(error), _algo(error), error.value
    inside = config.leaves(value, f"{error.name}.") if isinstance(value, Mapping) else ()  # of a section
    tries = (_told_of(name, value, known, algo) for name, value in [(error.name, value), *inside])
    if found := _nested(error, known) or next(filter(None, tries), None):
        return found
    near = _near(error)
    return f"{error.name}: no such setting; {f'did you mean {near}?' if near else _listed(error)}"


def _told_of(name: str, value: Any, known: Collection[str], algo: str | None) -> str | None:
    head = name if isinstance(value, Mapping) else f"{name}={brief(value)}"
    return _told(head, name, brief(value), known, algo)


def _told(head: str, name: str, value: str, known: Collection[str], algo: str | None) -> str | None:
    """For a name of another library's, of another section, or of another algorithm."""
    leaf = name.rpartition(".")[2]
    if guest := _of_guest(leaf, algo):
        return f"{head}: Podium calls it {guest}; write {guest}={value}"
    entry, own = foreign_names.NAMES.get(leaf), _own(leaf, known)
    if entry is None and own:
        return f"{head}: no such setting; write {' or '.join(f'{n}={value}' for n in own)}"
    entry = entry or foreign_names.FOLDED.get(foreign_names.folded(leaf))
    if entry is None:
        others = _own(leaf, {f"algo.{field}" for cls in _all_settings() for field in cls.model_fields})
        return f"{head}: {others[0]} is {_whose(others[0], algo)}" if others else None
    if isinstance(entry, str):
        return f"{head}: {entry}"
    target = next((target for target in entry if target in known and _replays(target, algo)), None)
    if target is not None:
        return f"{head}: Podium calls it {target}; write {target}={value}"
    return f"{head}: Podium calls it {entry[0]}, {_whose(entry[0], algo)}"


def _of_guest(leaf: str, algo: str | None) -> str | None:
    """The setting of another library's agent that the library itself calls so."""
    if algo not in lookup.GUESTS:
        return None
    keywords = getattr(lookup.algorithm(algo).Settings, "keywords", {})
    return next((f"algo.{name}" for name, keyword in keywords.items() if keyword == leaf), None)


def _own(leaf: str, known: Iterable[str]) -> list[str]:
    """The settings of that name, whatever their section; a population's size is set once."""
    found = sorted(name for name in known if name.rpartition(".")[2] == foreign_names.folded(leaf))
    return ["evolve.members"] if "evolve.members" in found else found


def _replays(target: str, algo: str | None) -> bool:
    """Whether an algorithm has a use for a setting of the replay; where it is not known, it may have one."""
    return not target.startswith(("replay.", "critic.")) or algo not in lookup.ALGORITHMS or lookup.has_replay(algo)


def _whose(target: str, algo: str | None) -> str:
    """Who has a setting that the run does not have."""
    section, _, name = target.partition(".")
    if section in ("evolve", "fleet"):
        return "a setting of podium evolve"
    users = [user for user in lookup.ALGORITHMS if _replays(target, user)]
    if section == "algo":
        users = [user for user, cls in lookup.ALGORITHMS.items() if name in cls.Settings.model_fields]
    return f"a setting of {_listing(users)}; {algo or 'the chosen algorithm'} does not have it"


def _nested(error: UnknownSetting, known: Collection[str]) -> str | None:
    """For `algo.lr: 1` in a file."""
    section, _, name = error.path[-1].partition(".")
    inner = f"{error.section}{'.'.join([*error.path[:-1], error.path[-1]])}"
    return f"{inner}: write it as {section}: {{{name}: {brief(error.value)}}}" if name and inner in known else None


def _near(error: UnknownSetting) -> str | None:
    """The most similar name beside the one in question, else anywhere."""
    beside = {name: ".".join([*error.path[:-1], name]) for name in _beside(error)}
    anywhere = {name.rpartition(".")[2]: name for name in config.names(error.cls)}
    for names, cutoff in ((beside, NEAR), (anywhere, ELSEWHERE)):
        for name in difflib.get_close_matches(error.path[-1], names, 1, cutoff):
            return error.section + names[name]
    return None


def _listed(error: UnknownSetting) -> str:
    """All settings of the section, in short: those of an algorithm as genes and plan."""
    parent, names = config.holder(error.cls, error.path[:-1]), _beside(error)
    section = error.name.rpartition(".")[0]
    if parent is not None and issubclass(parent, AlgoSettings):
        genes = hyper.genes(parent)
        plan = [name for name in names if name not in genes and name != "name"]
        return f"{_algo(error) or 'it'} has the genes {', '.join(genes)} and the plan {', '.join(plan)}"
    return f"allowed{f' in {section}' if section else ''}: {', '.join(names)}"


def _beside(error: UnknownSetting) -> list[str]:
    parent = config.holder(error.cls, error.path[:-1])
    return list(parent.model_fields) if parent is not None else []


def _known(error: UnknownSetting) -> set[str]:
    """Every setting of the run, as far as the section in question tells."""
    names = {error.section + name for name in config.names(error.cls)}
    if not error.section:
        return names
    others = {name for name in config.names(Evolution) if not name.startswith(("algo.", error.section))}
    if error.section != "algo.":
        others |= {f"algo.{field}" for cls in _all_settings() for field in cls.model_fields}
    return names | others


def _algo(error: UnknownSetting) -> str | None:
    """The name of the algorithm, where the section in question tells."""
    settings = error.cls if issubclass(error.cls, AlgoSettings) else config.holder(error.cls, ["algo"])
    name = settings.model_fields["name"].default if settings is not None else None
    return name if isinstance(name, str) else None


def _all_settings() -> list[type[AlgoSettings]]:
    return [cls.Settings for cls in lookup.ALGORITHMS.values()]


def _listing(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def brief(value: Any) -> str:
    """A value as one would type it: 1e-3, [64, 64]; a mapping of settings is VALUE."""
    if isinstance(value, float):
        mantissa, _, power = f"{value:e}".partition("e")
        short = f"{float(mantissa):g}e{int(power)}"
        return short if float(short) == value and len(short) < len(f"{value:.15g}") else f"{value:.15g}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(brief, value))}]"
    if isinstance(value, Mapping):
        return "VALUE"
    return value if isinstance(value, str) else json.dumps(value, default=str)
