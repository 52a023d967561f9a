"""From an experiment to a pod: build what it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor

from podium.algos.base import Algorithm, AlgoSettings
from podium.algos.off_policy import OffPolicySettings
from podium.core import hyper, machine
from podium.core.errors import PodiumError
from podium.core.streams import Streams, generator
from podium.core.tree import Tree
from podium.envs import make as envs
from podium.envs.base import VecEnv
from podium.guests.base import Guest
from podium.lookup import algorithm, dead, has_replay, spec_of
from podium.replay import memory
from podium.replay.replay import Replay
from podium.roles.clock import Clock
from podium.roles.collector import Collector
from podium.roles.evaluator import Evaluator
from podium.roles.guests import GuestPod
from podium.roles.learner import FromReplay, FromRollout, rate
from podium.roles.pod import Pod
from podium.settings import Experiment


def unsaved(experiment: Experiment) -> str | None:
    """What there is to say of a replay that checkpoints will not hold once it is full."""
    if not isinstance(experiment.algo, OffPolicySettings):
        return None
    limit = experiment.replay.save_bytes
    size = memory.needed(spec_of(experiment, experiment.train.members), experiment.replay)
    if size <= limit:
        return None
    full = f"a full replay takes {machine.in_units(size)}, more than replay.save_bytes={limit}"
    return f"{full}: checkpoints will leave it out"


def first_update(experiment: Experiment) -> tuple[int, str]:
    """At which step a member learns for the first time, and the setting that says so; 0 without a replay."""
    algo = experiment.algo
    if not isinstance(algo, OffPolicySettings):  # an agent of another library may have a replay of its own
        return getattr(algo, "warmup", 0), "algo.warmup"
    batch = -(-algo.batch // (experiment.train.members if experiment.replay.shared else 1))
    return max((algo.warmup, "algo.warmup"), (batch, "algo.batch"))


def build_env(experiment: Experiment, members: int, num: int, scored: bool = False) -> VecEnv:
    """`scored`: as an evaluation counts, see `envs.make`."""
    with _own("env.id", experiment.env.id):
        return envs.make(experiment.env, members, num, experiment.train.device, scored)


@contextmanager
def _own(field: str, name: str) -> Iterator[None]:
    """What goes wrong in a class of the user's own, `module:Class`, is refused in one line."""
    try:
        yield
    except (PodiumError, MemoryError):
        raise
    except Exception as error:
        if ":" not in name:
            raise
        raise PodiumError(f"{field}: {name} could not be built: {type(error).__name__}: {error}") from error


def build_algorithm(experiment: Experiment, members: int, streams: Streams, ids: Sequence[int]) -> Algorithm:
    """A stack of untrained members."""
    spec, cls = spec_of(experiment, members), algorithm(experiment.algo.name)
    genes = {name: g.to(spec.device) for name, g in genes_of(experiment, ids).items()}
    more = {"critic": experiment.critic} if has_replay(experiment.algo.name) else {}
    with _own("algo.name", experiment.algo.name):
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
    spec, algo = spec_of(experiment, len(streams)), experiment.algo
    stored = Replay(spec, experiment.replay, algo.batch, algo.n_step, streams.agent)
    return FromReplay(algorithm, algo, experiment.replay, stored)


def threads(experiment: Experiment) -> int:
    """Threads for torch: small stacks are bound by dispatch, and a second thread gains them little."""
    large = experiment.train.members * experiment.algo.rows(experiment.env.num) >= 1024
    return experiment.train.threads or (machine.cores() if large else 1)


def genes_of(experiment: Experiment, ids: Sequence[int]) -> dict[str, Tensor]:
    """The genes of the members `ids`, each `[M]`, without those that mean nothing with the plan."""
    without, drawn = dead(experiment), hyper.values(experiment.algo, experiment.seed, ids)
    return {name: gene for name, gene in drawn.items() if name not in without}


def born(experiment: Experiment, member: int) -> dict[str, float]:
    """The genes that a member with new weights has, by its id."""
    drawn = genes_of(experiment, [member])
    first = experiment.train.schedule[0].genes if experiment.train.schedule else {}
    return {name: float(value) for name, value in drawn.items()} | hyper.live(first)


def build_guests(experiment: Experiment, first: int = 0, measures: Sequence[str] = ()) -> GuestPod:
    """The same of agents of another library."""
    make, rollout = partial(build_guest, experiment), experiment.algo.steps * experiment.env.num
    ids, genes = range(first, first + experiment.train.members), partial(born, experiment)
    clock = Clock(experiment.eval.seconds, experiment.stop.seconds)
    return GuestPod(
        make, ids, genes, rollout=rollout, episodes=experiment.eval.episodes, measures=measures, clock=clock
    )


def build_guest(experiment: Experiment, member: int, genes: Mapping[str, float]) -> Guest:
    """An untrained agent of another library."""
    seed = generator(experiment.seed, member, "guest").initial_seed() % 2**31
    with _own("algo.name", experiment.algo.name):
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
        clock=Clock(experiment.eval.seconds, experiment.stop.seconds),
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
        return _plan(of.algo), dead(of), of.net, of.critic, of.env.normalise_obs, of.env.normalise_reward

    return kind(one) == kind(other)


def build_evaluator(
    experiment: Experiment, seed: int, episodes: int, measures: Sequence[str] | None = None
) -> Evaluator:
    """Simulators run all episodes side by side; objects of the outside world eight at a time."""
    width = 8 if envs.outside(experiment.env, episodes) else episodes
    return Evaluator(partial(build_env, experiment, scored=True), seed, width, experiment.eval.max_steps, measures)
