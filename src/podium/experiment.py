"""From a config tree to a pod: validate it, then build what it says. Names are mapped to classes here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from podium.algos.a2c import A2C
from podium.algos.base import Algorithm, AlgoSettings
from podium.algos.ddpg import DDPG
from podium.algos.dqn import DQN
from podium.algos.off_policy import OffPolicySettings
from podium.algos.ppo import PPO
from podium.algos.redq import REDQ
from podium.algos.sac import SAC
from podium.algos.sac_discrete import DiscreteSAC
from podium.algos.td3 import TD3
from podium.core import config, hyper, machine
from podium.core.errors import ConfigError, PodiumError, UnknownName
from podium.core.imports import named
from podium.core.parts import MASK, parts_of
from podium.core.spec import Spec
from podium.core.streams import Streams, generator
from podium.core.tree import Tree
from podium.envs import make as envs
from podium.envs.base import VecEnv
from podium.envs.settings import EnvSettings
from podium.guests.base import Guest, is_guest
from podium.nets.critics import CriticSettings
from podium.ops.dist import of_space
from podium.replay import memory
from podium.replay.replay import Replay
from podium.replay.settings import ReplaySettings
from podium.roles.collector import Collector
from podium.roles.evaluator import Evaluator
from podium.roles.guests import GuestPod
from podium.roles.learner import FromReplay, FromRollout, rate
from podium.roles.pod import Pod
from podium.settings import Experiment
from podium.settings import experiment as experiment_of

ALGORITHMS: dict[str, type[Any]] = {
    "ppo": PPO,
    "a2c": A2C,
    "dqn": DQN,
    "ddpg": DDPG,
    "td3": TD3,
    "sac": SAC,
    "sac-discrete": DiscreteSAC,
    "redq": REDQ,
}
MASKED = ("ppo", "a2c", "dqn", "sac-discrete")
"""Those that obey an action mask; algorithms of a user's see to it themselves."""
REPLAYED: dict[str, type[config.Section]] = {"critic": CriticSettings, "replay": ReplaySettings}
"""Sections that only learners with a replay have."""
GUESTS = {"sb3-ppo": "podium.guests.sb3:SB3PPO"}
"""Agents of other libraries, imported only when they are asked for."""


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
    return config.build(experiment_of(cls.Settings, "evolve" in tree), tree)


def algorithm(name: object) -> type[Any]:
    if isinstance(name, str) and (":" in name or name in GUESTS):
        found: type[Any] = named("algo.name", GUESTS.get(name, name))
        settings = getattr(found, "Settings", None)
        if not (isinstance(settings, type) and issubclass(settings, AlgoSettings)):
            raise ConfigError(
                "algo.name", name, "the class needs `Settings`, a subclass of podium.algos.base.AlgoSettings"
            )
        if (getattr(found, "needs", None) == "replay") != issubclass(settings, OffPolicySettings):
            needs = "`needs` is replay where `Settings` is a subclass of podium.algos.off_policy.OffPolicySettings"
            raise ConfigError("algo.name", name, f"{needs}, and nowhere else")
        return found
    if not isinstance(name, str):
        raise ConfigError("algo.name", name, f"one of {', '.join([*ALGORITHMS, *GUESTS])}, or module:Class")
    if name not in ALGORITHMS:
        raise UnknownName("algo.name", name, [*ALGORITHMS, *GUESTS])
    return ALGORITHMS[name]


def check(experiment: Experiment) -> None:
    """What one section alone cannot know."""
    hyper.check(experiment.algo, experiment.train.members)
    device = experiment.train.device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError("train.device", device, f"a device of this machine ({str(error).splitlines()[0]})") from error
    if experiment.algo.anneal and experiment.stop.steps is None:
        raise ConfigError(
            "stop.steps", None, f"a number of steps, since algo.anneal={list(experiment.algo.anneal)} needs it"
        )
    if experiment.train.schedule:
        _check_schedule(experiment)
    spec = _spec(experiment, experiment.train.members)
    env = experiment.env
    envs.try_out(env, experiment.train.members * env.num)
    if env.normalise_obs and all(part.image or part.mask for part in parts_of(spec.obs)):
        raise ConfigError("env.normalise_obs", True, f"false: {env.id} shows images, which are scaled to 0 to 1 anyway")
    conv, module = experiment.net.conv, experiment.net.module
    if conv is not None and (module is not None or not any(part.image for part in parts_of(spec.obs))):
        why = "net.module takes the pixels itself" if module is not None else f"{env.id} shows no images"
        raise ConfigError("net.conv", [list(layer) for layer in conv], f"null: {why}")
    cls = algorithm(experiment.algo.name)
    if not is_guest(cls):
        of_space(spec.action)
    elif hasattr(cls, "env"):
        _check_unseen(env, experiment.algo.name, cls.env)
    _check_mask(env, experiment.algo.name, spec)
    experiment.algo.check(spec)
    _check_dead(experiment)
    if isinstance(experiment.algo, OffPolicySettings):
        _check_replay(experiment, experiment.algo, spec)
    else:
        check_unused(experiment.algo.name, experiment.model_dump(mode="json", include={*REPLAYED}))


def _check_unseen(env: EnvSettings, guest: str, known: Sequence[str]) -> None:
    """Refuse what an agent of another library, which makes its envs itself, would not heed."""
    for name, field in EnvSettings.model_fields.items():
        value, default = getattr(env, name), field.get_default(call_default_factory=True)
        if name not in known and value != default:
            raise ConfigError(f"env.{name}", value, f"leave it out: {guest} makes its envs itself")


def _check_mask(env: EnvSettings, algo: str, spec: Spec) -> None:
    """Refuse an action mask that would not be obeyed, or not as it is meant."""
    masks, action = [part for part in parts_of(spec.obs) if part.mask], spec.action
    if not masks:
        return
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


def has_replay(name: object) -> bool:
    """Whether an algorithm learns from a replay."""
    return getattr(algorithm(name), "needs", None) == "replay"


def _check_replay(experiment: Experiment, algo: OffPolicySettings, spec: Spec) -> None:
    experiment.critic.check()
    memory.check(spec, experiment.replay, algo.batch)
    stop, capacity = experiment.stop.steps, experiment.replay.capacity
    if stop is not None and algo.warmup >= stop:
        raise ConfigError("algo.warmup", algo.warmup, f"less than stop.steps, {stop}: it would never learn")
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
    for name, needs in _dead(experiment).items():
        if isinstance(getattr(algo, name), list | dict):
            raise ConfigError(f"algo.{name}", getattr(algo, name), f"a number: without {needs} it means nothing")
        if name in algo.anneal:
            raise ConfigError("algo.anneal", list(algo.anneal), f"{name} needs {needs}")


def _dead(experiment: Experiment) -> dict[str, str]:
    """Genes that mean nothing with the plan, and what would bring them to life."""
    return experiment.algo.dead(experiment.replay.prioritised, envs.styled(experiment.env))


def unsaved(experiment: Experiment) -> str | None:
    """What there is to say of a replay that checkpoints will not hold once it is full."""
    if not isinstance(experiment.algo, OffPolicySettings):
        return None
    limit = experiment.replay.save_bytes
    size = memory.needed(_spec(experiment, experiment.train.members), experiment.replay)
    if size <= limit:
        return None
    full = f"a full replay takes {machine.in_units(size)}, more than replay.save_bytes={limit}"
    return f"{full}: checkpoints will leave it out"


def first_update(experiment: Experiment) -> tuple[int, str]:
    """At which step a member learns for the first time, and the setting that says so; 0 without a replay."""
    algo = experiment.algo
    if not isinstance(algo, OffPolicySettings):
        return 0, "algo.steps"
    batch = -(-algo.batch // (experiment.train.members if experiment.replay.shared else 1))
    return max((algo.warmup, "algo.warmup"), (batch, "algo.batch"))


def fit_replays(kinds: Sequence[Experiment]) -> None:
    """Refuse replays that do not fit into memory, each beside those before it."""
    others = 0
    for kind in kinds:
        if isinstance(kind.algo, OffPolicySettings):
            spec = _spec(kind, kind.train.members)
            memory.fit(spec, kind.replay, others)
            others += memory.needed(spec, kind.replay)


def check_unused(name: str, tree: Mapping[str, Any]) -> None:
    """Settings of a replay and its critics say nothing to an algorithm that has none."""
    for section, cls in REPLAYED.items():
        settings = config.build(cls, tree.get(section, {}), section)
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
    for name, needs in _dead(experiment).items():
        if name in schedule[0].genes:
            raise ConfigError(f"train.schedule.{name}", schedule[0].genes[name], f"leave it out, or set {needs}")


def _check_genes(field: str, values: Mapping[str, float | None], known: Mapping[str, hyper.Gene]) -> None:
    for name, value in values.items():
        if name not in known:
            raise UnknownName(field, name, known)
        if not known[name].valid(value):
            raise ConfigError(f"{field}.{name}", value, known[name].allowed())


def _spec(experiment: Experiment, members: int) -> Spec:
    env, (obs, action) = experiment.env, spaces(experiment.env)
    return Spec(
        obs, action, members, env.num, env.normalise_obs, env.normalise_reward, torch.device(experiment.train.device)
    )


def spaces(env: EnvSettings) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Of the observations and actions of an env, or why it cannot be made."""
    try:
        return envs.describe(env)
    except PodiumError:
        raise
    except Exception as error:  # a user's env, or keywords that it does not take
        reason = f"{type(error).__name__}: {error}"
        if env.kwargs:
            raise ConfigError("env.kwargs", env.kwargs, f"{env.id} cannot be made with them ({reason})") from error
        raise ConfigError("env.id", env.id, f"it cannot be made ({reason})") from error


def build_env(experiment: Experiment, members: int, num: int, scored: bool = False) -> VecEnv:
    """`scored`: as an evaluation counts, see `envs.make`."""
    return envs.make(experiment.env, members, num, experiment.train.device, scored)


def build_algorithm(experiment: Experiment, members: int, streams: Streams, ids: Sequence[int]) -> Algorithm:
    """A stack of untrained members."""
    spec, cls = _spec(experiment, members), algorithm(experiment.algo.name)
    genes = {name: g.to(spec.device) for name, g in genes_of(experiment, ids).items()}
    more = {"critic": experiment.critic} if has_replay(experiment.algo.name) else {}
    return cls(spec, experiment.algo, experiment.net, genes, streams, **more)  # type: ignore[no-any-return]


def work(experiment: Experiment) -> float:
    """Updates that a rollout brings."""
    if not isinstance(experiment.algo, OffPolicySettings):
        return 1.0
    return rate(experiment.algo, experiment.replay) * experiment.algo.steps * experiment.env.num


def build_learner(experiment: Experiment, algorithm: Algorithm, streams: Streams) -> FromRollout | FromReplay:
    """Who hands the algorithm what was collected."""
    if not isinstance(experiment.algo, OffPolicySettings):
        return FromRollout(algorithm)
    spec, algo = _spec(experiment, len(streams)), experiment.algo
    stored = Replay(spec, experiment.replay, algo.batch, algo.n_step, streams.agent)
    return FromReplay(algorithm, algo, experiment.replay, stored)


def threads(experiment: Experiment) -> int:
    """Threads for torch: small stacks are bound by dispatch, and a second thread gains them little."""
    large = experiment.train.members * experiment.algo.rows(experiment.env.num) >= 1024
    return experiment.train.threads or (machine.cores() if large else 1)


def genes_of(experiment: Experiment, ids: Sequence[int]) -> dict[str, Tensor]:
    """The genes of the members `ids`, each `[M]`, without those that mean nothing with the plan."""
    dead, drawn = _dead(experiment), hyper.values(experiment.algo, experiment.seed, ids)
    return {name: gene for name, gene in drawn.items() if name not in dead}


def born(experiment: Experiment, member: int) -> dict[str, float]:
    """The genes that a member with new weights has, by its id."""
    drawn = genes_of(experiment, [member])
    first = experiment.train.schedule[0].genes if experiment.train.schedule else {}
    return {name: float(value) for name, value in drawn.items()} | hyper.live(first)


def build_guests(experiment: Experiment, first: int = 0, measures: Sequence[str] = ()) -> GuestPod:
    """The same of agents of another library."""
    make, rollout = partial(build_guest, experiment), experiment.algo.steps * experiment.env.num
    ids, genes = range(first, first + experiment.train.members), partial(born, experiment)
    return GuestPod(make, ids, genes, rollout=rollout, episodes=experiment.eval.episodes, measures=measures)


def build_guest(experiment: Experiment, member: int, genes: Mapping[str, float]) -> Guest:
    """An untrained agent of another library."""
    seed = generator(experiment.seed, member, "guest").initial_seed() % 2**31
    guest: Guest = algorithm(experiment.algo.name)(experiment.env, experiment.algo, genes, seed)
    return guest


def build_pod(experiment: Experiment, first: int = 0, measures: Sequence[str] = ()) -> Pod:
    """A pod as the experiment says, untrained; its members have the ids from `first` on, and are measured by name."""
    members = experiment.train.members
    ids = range(first, first + members)
    streams = Streams(experiment.seed, ids)
    algorithm = build_algorithm(experiment, members, streams, ids)
    env = build_env(experiment, members, experiment.env.num)
    return Pod(
        algorithm,
        Collector(env, algorithm, streams, experiment.algo.steps),
        build_evaluator(experiment, experiment.seed, experiment.eval.episodes, measures),
        streams,
        ids,
        learner=build_learner(experiment, algorithm, streams),
        build=lambda m: build_single(experiment, m),
        fresh=partial(_fresh, experiment),
        horizon=experiment.stop.steps if experiment.algo.anneal else None,
        episodes=experiment.eval.episodes,
        schedule=[(step.step, hyper.live(step.genes)) for step in experiment.train.schedule],
    )


def _fresh(experiment: Experiment, ids: Sequence[int]) -> Tree:
    """All that untrained members of these ids start with."""
    streams = Streams(experiment.seed, ids)
    return build_algorithm(experiment, len(ids), streams, ids).learnt()


def build_single(experiment: Experiment, members: int = 1) -> Algorithm:
    """An algorithm of its own, to load learnt rows into and to act with. Its genes come with what was learnt."""
    fixed = experiment.model_copy(update={"algo": _plan(experiment.algo)})
    return build_algorithm(fixed, members, Streams(experiment.seed, range(members)), range(members))


def _plan(algo: AlgoSettings) -> AlgoSettings:
    """The settings of an algorithm with its genes as they are by default."""
    plain = {name: getattr(algo, name) for name in type(algo).model_fields}
    return type(algo)(**{name: value for name, value in plain.items() if name not in hyper.genes(algo)})


def alike(one: Experiment, other: Experiment) -> bool:
    """Whether members of the two, given the same spaces, can be one stack: by plan, genes, nets, normalisers."""

    def kind(of: Experiment) -> tuple[Any, ...]:
        return _plan(of.algo), _dead(of), of.net, of.critic, of.env.normalise_obs, of.env.normalise_reward

    return kind(one) == kind(other)


def build_evaluator(
    experiment: Experiment, seed: int, episodes: int, measures: Sequence[str] | None = None
) -> Evaluator:
    """Simulators run all episodes side by side; objects of the outside world eight at a time."""
    width = 8 if envs.outside(experiment.env, episodes) else episodes
    return Evaluator(partial(build_env, experiment, scored=True), seed, width, experiment.eval.max_steps, measures)
