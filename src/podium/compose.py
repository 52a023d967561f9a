"""From words to a config tree: presets, files, Gymnasium ids and `key=value` laid over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import gymnasium as gym

from podium.core import config
from podium.core.errors import ConfigError, PodiumError, UnknownName

GROUPS = ("env", "algo", "evolve")
"""Groups of presets, in the order in which they are laid over each other."""
KIND = ("algo", "net", "critic", "replay")
"""Sections that members of one kind share."""
DEFAULT: dict[str, Any] = {"algo": {"name": "ppo"}}

Layer = tuple[str, dict[str, Any]]
"""Where settings come from, and the settings."""


def compose(words: Sequence[str]) -> dict[str, Any]:
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


def said(words: Sequence[str]) -> list[set[str]]:
    """The settings of the algorithm that files, `key=value` and entrants themselves name, an entrant each.

    What a preset names is a proposal; this is the user's own will.
    """
    groups, files, overrides = _sorted(words)
    whole = compose(words)
    entrants = _entrants(_lay(groups, files, overrides)) or [{}]
    names = [entrant["algo"].get("name") for entrant in _entrants(whole) or [whole]]
    return [_said(entrant, name, files, overrides) for entrant, name in zip(entrants, names, strict=True)]


def own(words: Sequence[str]) -> list[dict[str, Any]]:
    """What each entrant says of itself, beside what the words say of all."""
    return [_own(entrant) for entrant in _entrants(_lay(*_sorted(words)))]


def untuned(words: Sequence[str]) -> list[str]:
    """That the env's preset has no numbers for an algorithm, a line for each such algorithm."""
    groups = _sorted(words)[0]
    source, preset = groups.get("env", ("", {}))
    names = [entrant["algo"]["name"] for entrant in own(words)] or [compose(words)["algo"].get("name")]
    algos = [_with_algo(groups, name)["algo"] for name in names] if "for" in preset else []
    without = dict.fromkeys(algo[0] for algo in algos if not _tuned((source, preset), algo))
    return [f"preset {source} has no settings for {name}: defaults are used" for name in without]


def _own(entrant: Any) -> dict[str, Any]:
    return config.selected(dict(entrant)) if isinstance(entrant, Mapping) else {"algo": {"name": entrant}}


def _said(entrant: Any, name: Any, files: Sequence[Layer], overrides: Sequence[dict[str, Any]]) -> set[str]:
    own = [_without_other(file, name) for file in files]
    layers = [tree for file in own for tree in (_plain(file), _tuned(file, (name, {})))]
    return _names(config.merge(*layers, *overrides, _own(entrant) if entrant else {}).get("algo"))


def _names(section: Any) -> set[str]:
    return set(section) if isinstance(section, Mapping) else set()


def _sorted(words: Sequence[str]) -> tuple[dict[str, Layer], list[Layer], list[dict[str, Any]]]:
    """The presets by group, the files and the `key=value` among the words."""
    groups: dict[str, Layer] = {}
    files: list[Layer] = []
    overrides: list[dict[str, Any]] = []
    known = presets()
    for word in words:
        if config.is_override(word):
            overrides.append(config.override(word))
        elif word in known:
            group, tree = known[word]
            _add(groups, group, (word, tree))
        elif word.endswith((".yaml", ".yml")) or Path(word).is_file():
            files.append((word, config.read(Path(word))))
        elif ":" in word or word in gym.registry or word.startswith("ALE/"):
            _add(groups, "env", (word, {"env": {"id": word}}))
        else:
            allowed = f"a preset ({', '.join(known)}), a Gymnasium id, a YAML file or key=value"
            raise UnknownName("word", word, [*known, *gym.registry], allowed)
    return groups, files, overrides


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


@cache
def presets() -> dict[str, Layer]:
    """Name -> (group, tree) of every preset. Not to be changed: they are read once, as YAML is slow."""
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
