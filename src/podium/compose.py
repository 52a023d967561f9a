"""From words to a config tree: presets, files, Gymnasium ids and `key=value` laid over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import gymnasium as gym

from podium.core import config
from podium.core.errors import ConfigError, PodiumError, UnknownName
from podium.store import run_config

GROUPS = ("env", "algo", "evolve")
"""Groups of presets, in the order in which they are laid over each other."""
KIND = ("algo", "net", "critic", "replay")
"""Sections that members of one kind share."""
DEFAULT: dict[str, Any] = {"algo": {"name": "ppo"}}

Layer = tuple[str, dict[str, Any]]
"""Where settings come from, and the settings."""
Word = str | Path | Mapping[str, Any]
"""What a run is made of: a word, a file's path, or in Python a dictionary of settings, which counts as a file does."""


def compose(words: Sequence[Word]) -> dict[str, Any]:
    """The config tree that the words add up to; nothing in it is checked yet.

    Later over earlier: env, algorithm, what the env's preset says `for` that algorithm, evolve, files, `key=value`.
    """
    groups, files, overrides = _sorted(words)
    _check_typed(config.merge(*overrides))
    named = [groups[group] for group in GROUPS if group in groups]
    algo = config.merge(DEFAULT, *(tree for _, tree in [*named, *files]), *overrides)["algo"]
    tree = _lay(_with_algo(groups, algo.get("name") if isinstance(algo, dict) else None), files, overrides)
    if entrants := _entrants(tree):
        tree["evolve"]["entrants"] = [_entrant(entrant, groups, files, overrides) for entrant in entrants]
        names = [entrant["algo"]["name"] for entrant in tree["evolve"]["entrants"]]
        word, preset = groups.get("algo", (names[0], {}))
        if preset.get("algo", {}).get("name", word) not in names:
            raise PodiumError(f"{word}: not one of evolve.entrants, {', '.join(names)}; add it or leave it out")
        tree |= tree["evolve"]["entrants"][0]  # in place of what the words say of another algorithm
    return tree


def _check_typed(typed: Mapping[str, Any]) -> None:
    """Refuse two numbers for one thing; only of what was typed now, since a run's own file holds every setting."""
    algo, replay = (part if isinstance(part := typed.get(name), Mapping) else {} for name in ("algo", "replay"))
    if "updates" in algo and replay.get("ratio") is not None:
        allowed = f"leave it out: replay.ratio={replay['ratio']} takes its place"
        raise ConfigError("algo.updates", algo["updates"], allowed)


def said(words: Sequence[Word]) -> list[set[str]]:
    """The settings of the algorithm that files, `key=value` and entrants themselves name, an entrant each.

    What a preset names is a proposal; this is the user's own will.
    """
    groups, files, overrides = _sorted(words)
    whole = compose(words)
    entrants = _entrants(_lay(groups, files, overrides)) or [{}]
    names = [entrant["algo"].get("name") for entrant in _entrants(whole) or [whole]]
    return [_said(entrant, name, files, overrides) for entrant, name in zip(entrants, names, strict=True)]


def own(words: Sequence[Word]) -> list[dict[str, Any]]:
    """What each entrant says of itself, beside what the words say of all."""
    return [_own(entrant) for entrant in _entrants(_lay(*_sorted(words)))]


def notes(words: Sequence[Word], command: str) -> list[str]:
    """What to say of the numbers at the start: that an env's preset has none for an algorithm, or lies unused."""
    groups, files, _ = _sorted(words)
    source, preset = groups.get("env", ("", {}))
    names = [entrant["algo"]["name"] for entrant in own(words)] or [compose(words)["algo"].get("name")]
    if source not in presets():
        return [] if files else _tuned_preset(source, _with_algo(groups, names[0])["algo"], command)
    algos = [_with_algo(groups, name)["algo"] for name in names] if "for" in preset else []
    without = dict.fromkeys(algo[0] for algo in algos if not _tuned((source, preset), algo))
    return [f"preset {source} has no settings for {name}: defaults are used" for name in without]


def _tuned_preset(id: str, algo: Layer, command: str) -> list[str]:
    """That there is a preset for an env that was named by its id, if it has numbers for the algorithm."""
    for name, (group, tree) in presets().items():
        if group == "env" and tree["env"]["id"] == id and _tuned((name, tree), algo):
            return [f"a tuned preset exists: podium {command} {name} {algo[0]}"]
    return []


def _own(entrant: Any) -> dict[str, Any]:
    return config.selected(dict(entrant)) if isinstance(entrant, Mapping) else {"algo": {"name": entrant}}


def _said(entrant: Any, name: Any, files: Sequence[Layer], overrides: Sequence[dict[str, Any]]) -> set[str]:
    own = [_without_other(file, name) for file in files]
    layers = [tree for file in own for tree in (_plain(file), _tuned(file, (name, {})))]
    return _names(config.merge(*layers, *overrides, _own(entrant) if entrant else {}).get("algo"))


def _names(section: Any) -> set[str]:
    return set(section) if isinstance(section, Mapping) else set()


def _sorted(words: Sequence[Word]) -> tuple[dict[str, Layer], list[Layer], list[dict[str, Any]]]:
    """The presets by group, the files (and dictionaries) and the `key=value` among the words."""
    groups: dict[str, Layer] = {}
    files: list[Layer] = []
    overrides: list[dict[str, Any]] = []
    unknown: list[str] = []
    known = presets()
    for given in words:
        if isinstance(given, Mapping):
            files.append(("the dictionary", config.selected(dict(given))))
            continue
        word = _text(given)
        if config.is_override(word):
            overrides.append(config.override(word))
        elif word in known:
            group, tree = known[word]
            _add(groups, group, (word, tree))
        elif word.endswith((".yaml", ".yml")) or _is_file(word):
            files.append((word, _read(Path(word))))
        elif ":" in word or word in gym.registry or word.startswith("ALE/"):
            _add(groups, "env", (word, {"env": {"id": word}}))
        else:
            unknown.append(word)
    if unknown:
        raise _unknown(unknown[0], groups.get("algo", ("", {}))[1])
    return groups, files, overrides


def _read(path: Path) -> dict[str, Any]:
    """The settings in a file; those of a run are read as the data that they are."""
    return run_config.read(path) if run_config.of_a_run(path) else config.read(path)


def override(word: Word) -> dict[str, Any]:
    """A setting of a run that there is: `key=value`, or in Python a dictionary."""
    if isinstance(word, Mapping):
        return config.selected(dict(word))
    text = _text(word)
    if "=" not in text and text not in presets():
        raise _unknown(text, {})
    return config.override(text)


def _text(given: Any) -> str:
    """A word, or what to write in the place of something else."""
    if isinstance(given, str | Path):
        return str(given)
    if isinstance(given, list | tuple):
        raise PodiumError(f"{given!r} is a {type(given).__name__}; pass its words one by one: train(*words)")
    cls = given if callable(given) else type(given)
    name = f"'{cls.__module__}:{getattr(cls, '__qualname__', 'NAME')}'"
    instead = ""
    if callable(given):
        instead = f"; pass its name, {name}"
    elif hasattr(given, "reset"):  # an env
        spec = getattr(given, "spec", None)
        instead = f"; pass its id, {spec.id!r}" if spec is not None else f"; pass the name of its class, {name}"
    expected = "presets, ids, file names and 'key=value' are strings, settings a dict"
    raise PodiumError(f"{given!r} is not a word: {expected}{instead}")


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # no file has so long a name
        return False


def _unknown(word: str, algo: Mapping[str, Any]) -> PodiumError:
    """For a word that is nothing: what may have been meant."""
    from podium import naming  # brings torch

    name, _, value = word.partition(" ")
    if said := naming.meant(word, name, value.strip() or "VALUE", algo.get("algo", {}).get("name")):
        return PodiumError(said)
    allowed = "it may be a preset (podium presets lists them), a Gymnasium id, a YAML file or key=value"
    return UnknownName("word", word, [*presets(), *gym.registry], allowed)


def _with_algo(groups: Mapping[str, Layer], name: Any) -> dict[str, Layer]:
    """With the preset of the algorithm `name`, unless there is one of it: `algo=sac` is as good as `sac`."""
    own = groups.get("algo")
    if own is not None and own[1].get("algo", {}).get("name") == name:
        return dict(groups)
    group, tree = presets().get(name, ("", {})) if isinstance(name, str) else ("", {})
    return {**groups, "algo": (str(name), tree if group == "algo" else {})}


def _lay(layers: Mapping[str, Layer], files: Sequence[Layer], overrides: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All layers over each other; what an env says `for` an algorithm lies over the algorithm's own preset."""
    algo = layers.get("algo", ("", {}))
    first, later = [layers[g] for g in ("env", "algo") if g in layers], [layers[g] for g in GROUPS[2:] if g in layers]
    plain, tuned = [_plain(layer) for layer in first], [_tuned(layer, algo) for layer in first]
    own = [tree for layer in (*later, *files) for tree in (_plain(layer), _tuned(layer, algo))]
    return config.merge(DEFAULT, *plain, *tuned, *own, *overrides)


def _entrants(tree: dict[str, Any]) -> list[Any]:
    entrants = tree["evolve"].get("entrants") if isinstance(tree.get("evolve"), Mapping) else None
    if entrants is not None and not isinstance(entrants, list | tuple):
        raise ConfigError("evolve.entrants", entrants, "a list, for example [ppo, a2c]")
    return list(entrants or ())


def _entrant(
    entrant: Any, layers: Mapping[str, Layer], files: Sequence[Layer], overrides: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The algorithm and network of one kind of members: as if it were alone, and what the entrant itself says."""
    own = _own(entrant)
    allowed = f"names of algorithms, or mappings with {', '.join(KIND[:-1])} and {KIND[-1]} only"
    if set(own) - {*KIND} or not isinstance(own.get("algo", {}), Mapping):
        raise ConfigError("evolve.entrants", entrant, allowed)
    name = own.get("algo", {}).get("name")
    if name is None:
        raise ConfigError("evolve.entrants", entrant, f"{allowed}; this one names no algorithm")
    known = [preset for preset, (group, _) in presets().items() if group == "algo"]
    if not isinstance(name, str) or (name not in known and ":" not in name):
        raise UnknownName("evolve.entrants", str(name), known, f"{allowed}; algorithms: {', '.join(known)}")
    layers = _with_algo(layers, name)
    if name in known:
        own["algo"] = {**own["algo"], "name": layers["algo"][1]["algo"]["name"]}
    tree = config.merge(_lay(layers, [_without_other(file, name) for file in files], overrides), own)
    return {section: tree.get(section, {}) for section in KIND}


def _without_other(file: Layer, name: str) -> Layer:
    """A file without its `algo` where that is another algorithm's."""
    source, tree = file
    algo = tree.get("algo")
    other = isinstance(algo, Mapping) and algo.get("name", name) != name
    return source, {key: value for key, value in tree.items() if key != "algo"} if other else tree


def presets() -> dict[str, Layer]:
    """Name -> (group, tree) of every preset."""
    return deepcopy(_presets())


@cache
def _presets() -> dict[str, Layer]:
    """They are read once: all of them take a fifth of a second, and words are looked up several times."""
    found = {}
    for group in GROUPS:
        folder = resources.files("podium") / "presets" / group
        for file in sorted(folder.iterdir(), key=lambda f: f.name):
            if file.name.endswith(".yaml"):
                found[file.name.removesuffix(".yaml")] = (group, config.parse(file.read_text(), file.name))
    return found


def preset_text(name: str) -> str:
    """A preset's YAML, as it was written."""
    known = presets()
    if name not in known:
        raise UnknownName("preset", name, known)
    return (resources.files("podium") / "presets" / known[name][0] / f"{name}.yaml").read_text()


def _add(groups: dict[str, Layer], group: str, layer: Layer) -> None:
    if group in groups:
        raise PodiumError(f"{groups[group][0]} {layer[0]}: two names of one group; name one {group}, not two")
    groups[group] = layer


def _plain(layer: Layer) -> dict[str, Any]:
    """The settings of a preset or file without its notes."""
    return {key: value for key, value in layer[1].items() if key not in ("about", "for")}


def _tuned(layer: Layer, algo: Layer) -> dict[str, Any]:
    """What a preset or file says `for` the preset of an algorithm, or else for the algorithm."""
    source, tree = layer
    name = algo[1].get("algo", {}).get("name", algo[0])
    tuned = tree.get("for", {})
    if not isinstance(tuned, Mapping) or not all(isinstance(t, Mapping) for t in tuned.values()):
        raise ConfigError(f"{source}: for", tuned, "a mapping from names of algorithms to settings")
    return config.selected(dict(tuned.get(algo[0], tuned.get(name, {}))))
