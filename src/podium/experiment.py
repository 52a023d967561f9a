"""From words to a run: compose the config, validate it, build the pod, train. Names are mapped to classes here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from podium.algos.a2c import A2C
from podium.algos.base import Algorithm, AlgoSettings
from podium.algos.ppo import PPO
from podium.core import config, hyper, machine
from podium.core.errors import ConfigError, UnknownName
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.envs import make as envs
from podium.envs.base import VecEnv
from podium.envs.from_gymnasium import FromGymnasium
from podium.nets.policy_critic import import_path
from podium.ops.dist import of_space
from podium.roles.collector import Collector
from podium.roles.evaluator import Evaluator
from podium.roles.pod import Pod
from podium.settings import Experiment

ALGORITHMS: dict[str, type[Any]] = {"ppo": PPO, "a2c": A2C}
GROUPS = ("env", "algo")
"""Groups of presets, in the order in which they are laid over each other."""


def presets() -> dict[str, tuple[str, dict[str, Any]]]:
    """Name -> (group, tree) of every preset."""
    found = {}
    for group in GROUPS:
        folder = resources.files("podium") / "presets" / group
        for file in sorted(folder.iterdir(), key=lambda f: f.name):
            if file.name.endswith(".yaml"):
                found[file.name.removesuffix(".yaml")] = (group, config.parse(file.read_text(), file.name))
    return found


def compose(words: Sequence[str]) -> dict[str, Any]:
    """The config tree that presets, files, Gymnasium ids and `key=value` words add up to."""
    known = presets()
    groups: dict[str, tuple[str, dict[str, Any]]] = {}
    files, overrides = [], []
    for word in words:
        if "=" in word:
            overrides.append(config.override(word))
        elif word in known or ":" in word or word in gym.registry:
            group, tree = known.get(word, ("env", {"env": {"id": word}}))
            if group in groups:
                raise ConfigError(group, f"{groups[group][0]} {word}", f"name one {group}, not two")
            groups[group] = (word, dict(tree))
        elif word.endswith((".yaml", ".yml")) or Path(word).is_file():
            files.append(config.read(Path(word)))
        else:
            raise UnknownName("preset", word, [*known, *gym.registry])
    layers = [groups[group][1] for group in GROUPS if group in groups]
    merged = config.merge({"algo": {"name": "ppo"}}, *layers, *files, *overrides)
    algo = merged["algo"]["name"] if isinstance(merged["algo"], dict) else merged["algo"]
    tuned = [layer.get("for", {}).get(algo, {}) for layer in layers]
    out = config.merge({"algo": {"name": "ppo"}}, *layers, *tuned, *files, *overrides)
    return {key: value for key, value in out.items() if key not in ("for", "about")}


def validate(tree: dict[str, Any]) -> Experiment:
    """A complete experiment, or the first thing that is wrong with it. Touches no file and starts nothing."""
    algo = tree.get("algo", {})
    settings = config.build(_algorithm(algo).Settings, algo, "algo")
    if "id" not in tree.get("env", {}):
        raise ConfigError("env.id", None, "name an env: a preset (podium presets), a Gymnasium id or module:Class")
    experiment = config.build(Experiment, {**tree, "algo": settings})
    _check(experiment)
    return experiment


def _algorithm(algo: Any) -> type[Any]:
    name = algo.get("name") if isinstance(algo, dict) else algo
    if isinstance(name, str) and ":" in name:
        found: type[Any] = import_path("algo.name", name)
        if not issubclass(getattr(found, "Settings", type), AlgoSettings):
            raise ConfigError("algo.name", name, "the class needs `Settings`, a subclass of podium.algos.base.AlgoSettings")
        return found
    if name not in ALGORITHMS:
        raise UnknownName("algo.name", str(name), ALGORITHMS)
    return ALGORITHMS[str(name)]


def _check(experiment: Experiment) -> None:
    """What one section alone cannot know."""
    hyper.check(experiment.algo, experiment.train.members)
    try:
        torch.empty(0, device=experiment.train.device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError("train.device", experiment.train.device, f"a device of this machine ({error})") from error
    if experiment.algo.anneal and experiment.stop.steps is None:
        raise ConfigError("algo.anneal", experiment.algo.anneal, "annealing needs stop.steps")
    spec = _spec(experiment, experiment.train.members)
    of_space(spec.action)
    experiment.algo.check(spec)


def _spec(experiment: Experiment, members: int) -> Spec:
    obs, action = envs.describe(experiment.env.id, experiment.env.kwargs)
    env = experiment.env
    return Spec(
        obs, action, members, env.num, env.normalise_obs, env.normalise_reward, torch.device(experiment.train.device)
    )


def build_env(experiment: Experiment, members: int, num: int) -> VecEnv:
    env = experiment.env
    return envs.make(env.id, members, num, env.source, experiment.train.device, env.kwargs)


def build_algorithm(experiment: Experiment, members: int, streams: Streams, ids: Sequence[int]) -> Algorithm:
    """A stack of untrained members."""
    device = torch.device(experiment.train.device)
    genes = {name: g.to(device) for name, g in hyper.values(experiment.algo, experiment.seed, ids).items()}
    cls = _algorithm({"name": experiment.algo.name})
    return cls(_spec(experiment, members), experiment.algo, experiment.net, genes, streams)  # type: ignore[no-any-return]


def threads(experiment: Experiment) -> int:
    """Threads for torch: small stacks are bound by dispatch, and a second thread only costs them time."""
    return experiment.train.threads or (machine.cores() if experiment.train.members >= 4 else 1)


def build_pod(experiment: Experiment) -> Pod:
    """A pod as the experiment says, untrained."""
    machine.keep_memory()
    machine.use_threads(threads(experiment))
    members = experiment.train.members
    ids = range(members)
    streams = Streams(experiment.seed, ids)
    algorithm = build_algorithm(experiment, members, streams, ids)
    env = build_env(experiment, members, experiment.env.num)
    return Pod(
        algorithm,
        Collector(env, algorithm, streams, experiment.algo.steps),
        build_evaluator(experiment),
        streams,
        ids,
        build=lambda m: build_single(experiment, m),
        horizon=experiment.stop.steps if experiment.algo.anneal else None,
    )


def build_single(experiment: Experiment, members: int = 1) -> Algorithm:
    """An algorithm of its own, to load learnt rows into and to act with."""
    fixed = experiment.model_copy(update={"algo": type(experiment.algo)(name=experiment.algo.name, **_plan(experiment))})
    return build_algorithm(fixed, members, Streams(experiment.seed, range(members)), range(members))


def _plan(experiment: Experiment) -> dict[str, Any]:
    """The algorithm's settings without its genes, which come with what was learnt."""
    skip = {"name", *hyper.genes(experiment.algo)}
    return {k: v for k, v in experiment.algo.model_dump().items() if k not in skip}


def build_evaluator(experiment: Experiment) -> Evaluator:
    """Simulators run all episodes side by side; objects of the outside world eight at a time."""
    make = partial(build_env, experiment)
    probe = make(1, 1)
    probe.close()
    width = 8 if isinstance(probe, FromGymnasium) else experiment.eval.episodes
    return Evaluator(make, experiment.seed, width, experiment.eval.max_steps)
