"""A config tree is refused before anything starts, or is an experiment: what one section alone cannot know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch

from podium import naming
from podium.algos.off_policy import OffPolicySettings
from podium.algos.ppo import PPO
from podium.core import config, hyper
from podium.core.errors import ConfigError, PodiumError, UnknownName
from podium.core.parts import MASK, parts_of
from podium.core.spec import Spec
from podium.envs import make as envs
from podium.envs.settings import EnvSettings
from podium.guests.base import is_guest
from podium.lookup import MASKED, algorithm, dead, spec_of
from podium.nets.critics import CriticSettings
from podium.ops.dist import of_space
from podium.replay import memory
from podium.replay.settings import ReplaySettings
from podium.roles.learner import rate
from podium.settings import Experiment
from podium.settings import experiment as experiment_of

REPLAYED: dict[str, type[config.Section]] = {"critic": CriticSettings, "replay": ReplaySettings}
"""Sections that only learners with a replay have."""


def validate(tree: dict[str, Any]) -> Experiment:
    """A complete experiment, or the first thing that is wrong with it. Touches no file and starts nothing."""
    experiment = record(tree)
    check(experiment)
    return experiment


def record(tree: dict[str, Any]) -> Experiment:
    """A complete experiment, each setting checked by itself."""
    algo = tree.get("algo", {})
    cls = algorithm(algo.get("name")) if isinstance(algo, dict) else PPO
    env = tree.get("env", {})
    if isinstance(env, dict) and env.get("id") is None:
        raise PodiumError("env.id: missing; name a preset (podium presets), a Gymnasium id or module:Class")
    return naming.build(experiment_of(cls.Settings, "evolve" in tree), tree)


def check(experiment: Experiment) -> None:
    """What one section alone cannot know."""
    hyper.check(experiment.algo, experiment.train.members)
    device = experiment.train.device
    try:
        torch.empty(0, device=device)
        if torch.device(device).type == "meta":
            raise RuntimeError("meta tensors hold no numbers")
    except (RuntimeError, AssertionError) as error:
        raise ConfigError("train.device", device, f"a device of this machine ({str(error).splitlines()[0]})") from error
    if experiment.algo.anneal and experiment.stop.steps is None:
        raise ConfigError(
            "stop.steps", None, f"a number of steps, since algo.anneal={list(experiment.algo.anneal)} needs it"
        )
    if experiment.train.schedule:
        _check_schedule(experiment)
    spec = spec_of(experiment, experiment.train.members)
    env = experiment.env
    envs.try_out(env, experiment.train.members * env.num)
    if env.workers is not None and envs.source_of(env, experiment.train.members * env.num) != "workers":
        raise ConfigError("env.workers", env.workers, "null: only env.source=workers has processes of its own")
    if env.normalise_obs and all(part.image or part.mask for part in parts_of(spec.obs)):
        raise ConfigError("env.normalise_obs", True, f"false: {env.id} shows images, which are scaled to 0 to 1 anyway")
    conv, module = experiment.net.conv, experiment.net.module
    if conv is not None and (module is not None or not any(part.image for part in parts_of(spec.obs))):
        why = "net.module takes the pixels itself" if module is not None else f"{env.id} shows no images"
        raise ConfigError("net.conv", [list(layer) for layer in conv], f"null: {why}")
    if module is not None and getattr(experiment.algo, "noisy", False):
        raise PodiumError(f"algo.noisy=true needs Podium's own layers, got net.module={module}. Remove one of the two.")
    cls = algorithm(experiment.algo.name)
    if not is_guest(cls):
        of_space(spec.action)
    else:
        _check_guest(experiment, getattr(cls, "env", tuple(EnvSettings.model_fields)))
    _check_mask(env, experiment.algo.name, spec)
    experiment.algo.check(spec)
    _check_dead(experiment)
    stop, warmup = experiment.stop.steps, getattr(experiment.algo, "warmup", 0)
    if stop is not None and warmup >= stop:
        raise ConfigError("algo.warmup", warmup, f"less than stop.steps, {stop}: it would never learn")
    if isinstance(experiment.algo, OffPolicySettings):
        _check_replay(experiment, experiment.algo, spec)
    else:
        check_unused(experiment.algo.name, experiment.model_dump(mode="json", include={*REPLAYED}))


def _check_guest(experiment: Experiment, known: Sequence[str]) -> None:
    """Refuse what an agent of another library, which makes its envs itself, would not heed."""
    guest = experiment.algo.name
    for field, given in (("algo.anneal", experiment.algo.anneal), ("train.schedule", experiment.train.schedule)):
        if given:
            raise PodiumError(f"{field} has no effect with {guest}: its genes change when members evolve. Remove it.")
    for name, setting in EnvSettings.model_fields.items():
        value, default = getattr(experiment.env, name), setting.get_default(call_default_factory=True)
        if name not in known and value != default:
            raise ConfigError(f"env.{name}", value, f"leave it out: {guest} makes its envs itself")


def _check_mask(env: EnvSettings, algo: str, spec: Spec) -> None:
    """Refuse an action mask that would not be obeyed, or not as it is meant."""
    parts, action = parts_of(spec.obs), spec.action
    masks = [part for part in parts if part.mask]
    if not masks:
        return
    if len(masks) == len(parts):
        raise ConfigError("env.id", env.id, f"observations that hold something beside their {MASK}")
    if len(masks) > 1:
        raise ConfigError("env.id", env.id, f"one {MASK} in its observations, not {', '.join(m.name for m in masks)}")
    if not isinstance(action, gym.spaces.Discrete):
        raise ConfigError("env.id", env.id, f"an {MASK} is for Discrete actions, and these are {action}")
    if masks[0].size != action.n:
        raise ConfigError("env.id", env.id, f"an {MASK} of a number for each action, {action.n}, not {masks[0].size}")
    if algo not in MASKED and ":" not in algo:
        raise ConfigError("algo.name", algo, f"{', '.join(MASKED)}: only these obey the {MASK} of {env.id}")
    if env.sticky:
        allowed = f"0 where observations hold an {MASK}: the action before may be forbidden now"
        raise ConfigError("env.sticky", env.sticky, allowed)


def _check_replay(experiment: Experiment, algo: OffPolicySettings, spec: Spec) -> None:
    experiment.critic.check()
    memory.check(spec, experiment.replay, algo.batch)
    stop, capacity = experiment.stop.steps, experiment.replay.capacity
    owners = spec.members if experiment.replay.shared else 1
    if stop is not None and algo.batch > stop * owners:
        raise ConfigError("algo.batch", algo.batch, f"at most stop.steps, {stop}: it would never learn")
    held = capacity - capacity % (spec.envs * owners)
    if algo.warmup * owners > held:
        allowed = f"at most what replay.capacity={capacity} holds, {held // owners} steps: it would never learn"
        raise ConfigError("algo.warmup", algo.warmup, allowed)
    if algo.n_step > held // (spec.envs * owners):
        allowed = f"at most the steps of an env that replay.capacity={capacity} holds, {held // (spec.envs * owners)}"
        raise ConfigError("algo.n_step", algo.n_step, allowed)
    if stop is not None and rate(algo, experiment.replay) * stop < 1:
        field, value = ("algo.updates", algo.updates)
        if experiment.replay.ratio is not None:
            field, value = "replay.ratio", experiment.replay.ratio
        raise ConfigError(field, value, f"more: in {stop} steps there would be no update")


def _check_dead(experiment: Experiment) -> None:
    algo = experiment.algo
    for name, needs in dead(experiment).items():
        if isinstance(getattr(algo, name), list | dict):
            raise ConfigError(f"algo.{name}", getattr(algo, name), f"a number: without {needs} it means nothing")
        if name in algo.anneal:
            raise ConfigError("algo.anneal", list(algo.anneal), f"{name} needs {needs}")


def fit_replays(kinds: Sequence[Experiment]) -> None:
    """Refuse replays that do not fit into memory, each beside those before it."""
    others = 0
    for kind in kinds:
        if isinstance(kind.algo, OffPolicySettings):
            spec = spec_of(kind, kind.train.members)
            memory.fit(spec, kind.replay, others)
            others += memory.needed(spec, kind.replay)


def check_unused(name: str, tree: Mapping[str, Any]) -> None:
    """Settings of a replay and its critics say nothing to an algorithm that has none."""
    for section, cls in REPLAYED.items():
        settings = naming.build(cls, tree.get(section, {}), section)
        for field, value in settings:
            if value != getattr(cls(), field):
                raise ConfigError(f"{section}.{field}", value, f"leave it out: {name} learns without a replay")


def _check_schedule(experiment: Experiment) -> None:
    schedule = experiment.train.schedule
    if experiment.algo.anneal:
        raise ConfigError("algo.anneal", list(experiment.algo.anneal), "none beside train.schedule, which says it all")
    steps = [part.step for part in schedule]
    if (
        steps != sorted(steps)
        or steps[0] != 0
        or any(part.genes.keys() != schedule[0].genes.keys() for part in schedule)
    ):
        raise ConfigError("train.schedule", f"steps {steps[:5]}", "ascending steps from 0 on, the same genes in each")
    for part in schedule:
        _check_genes("train.schedule", part.genes, hyper.genes(experiment.algo))
    for name, needs in dead(experiment).items():
        if name in schedule[0].genes:
            raise ConfigError(f"train.schedule.{name}", schedule[0].genes[name], f"leave it out, or set {needs}")


def _check_genes(field: str, values: Mapping[str, float | None], known: Mapping[str, hyper.Gene]) -> None:
    for name, value in values.items():
        if name not in known:
            raise UnknownName(field, name, known)
        if not known[name].valid(value):
            raise ConfigError(f"{field}.{name}", value, known[name].allowed())
