"""The population of an experiment: its kinds of members, the pods that hold them, and the orchestrator over them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from podium import checks, footprint, lookup, naming
from podium import experiment as experiments
from podium.compose import KIND
from podium.core import config, hyper, machine
from podium.core.errors import ConfigError, PodiumError, UnknownName
from podium.evolve import exchange, nsga2
from podium.evolve.apart import Apart
from podium.evolve.explore import Searched, Space
from podium.evolve.generational import Generational
from podium.evolve.population import Population
from podium.evolve.rows import Kind, Place, Seat
from podium.evolve.settings import EvolveSettings
from podium.evolve.tournament import Tournament
from podium.fleet import wire
from podium.guests.base import is_guest
from podium.nets.settings import NetSettings
from podium.roles.evaluator import MEASURES
from podium.roles.guests import GuestPod
from podium.roles.pod import Pod
from podium.settings import Evolution, Experiment
from podium.store.run import Run
from podium.topologies.driver import Orchestrator


def complete(
    tree: dict[str, Any], said: Sequence[Collection[str]] = (), own: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The config tree of an evolving run with all that it leaves open: the ranges to search, and no annealing.

    `said` are the settings of each entrant's algorithm that the user gave: a gene that has a value of theirs keeps it.
    `own` is what each entrant says of itself, and has to mean something to it.
    """
    tree = config.merge({"evolve": {}, "train": {}}, tree)
    evolve, train = naming.build(EvolveSettings, tree["evolve"], "evolve"), tree["train"]
    evolve.check_use()
    if not isinstance(train, Mapping):
        raise ConfigError("train", train, "a mapping of settings")
    if train.get("members", evolve.members) != evolve.members:
        raise ConfigError("train.members", train["members"], f"evolve.members, {evolve.members}, sets the population")
    entrants = []
    for i, entrant in enumerate(evolve.entrants or [tree]):
        with _named(evolve, i):
            entrants.append(_searching(entrant, evolve, i, said[i] if i < len(said) else ()))
            if i < len(own) and not lookup.has_replay(entrants[i]["algo"]["name"]):
                checks.check_unused(entrants[i]["algo"]["name"], own[i])
    if evolve.entrants:
        tree["evolve"]["entrants"] = entrants
    return config.merge(tree | entrants[0], {"train": {"members": evolve.members}})


@contextmanager
def _named(evolve: EvolveSettings, i: int) -> Iterator[None]:
    """What is wrong with an entrant is refused with its number."""
    try:
        yield
    except PodiumError as error:
        if not evolve.entrants:
            raise
        raise PodiumError(f"evolve.entrants[{i}]: {error}") from error


def _searching(tree: Mapping[str, Any], evolve: EvolveSettings, i: int, said: Collection[str]) -> dict[str, Any]:
    """The sections of a kind, with a range on each gene that is to be searched."""
    algo, net = dict(tree.get("algo", {})), tree.get("net", {})
    settings = lookup.algorithm(algo.get("name")).Settings
    given = naming.build(settings, algo, "algo")
    hyper.check(given, _share(evolve, i))  # a range must not hide what is wrong
    naming.build(NetSettings, net, "net")
    if "anneal" in said and algo.get("anneal"):
        raise ConfigError("algo.anneal", algo["anneal"], "[]: evolution makes the schedules")
    declared = hyper.genes(settings)
    ranges = [name for name in declared if isinstance(algo.get(name), list | tuple)]
    each = [name for name in declared if isinstance(algo.get(name), Mapping)]
    if each and len(evolve.entrants) > 1:
        allowed = "a number or a range [low, high]: `each` is for members of one kind"
        raise ConfigError(f"algo.{each[0]}", algo[each[0]], allowed)
    fixed = {*each, *said} - {*ranges}
    names = list(evolve.genes)
    if evolve.genes == "auto":
        dead = given.dead(prioritised=True, styled=True)  # of what is searched only the plan can kill any
        alive = [name for name, gene in declared.items() if gene.search and name not in dead]
        names = [] if ranges else [name for name in alive if name not in fixed]
    for name in names:
        if name not in declared:
            raise UnknownName("evolve.genes", name, declared)
        if name in fixed:
            raise ConfigError(
                f"algo.{name}", algo.get(name), "a range [low, high] or nothing, since evolve.genes names it"
            )
        if name not in ranges:
            algo[name] = list(declared[name].search or (declared[name].low, declared[name].high))
    kind = {section: tree[section] for section in KIND if section in tree}
    return kind | {"algo": {**algo, "anneal": []}, "net": net}


def _share(evolve: EvolveSettings, i: int) -> int:
    """How many members of the i-th kind there are."""
    kinds = max(1, len(evolve.entrants))
    return (evolve.members + kinds - 1 - i) // kinds


def validate(tree: dict[str, Any], trains: bool = True) -> Experiment:
    """A complete experiment, or the first thing that is wrong with it. Touches no file and starts nothing.

    What only `trains` says: whether it fits into this machine's memory.
    """
    experiment = checks.record(tree)
    if isinstance(experiment, Evolution):
        _check(experiment)
        if trains:
            checks.fit_replays(kinds(experiment))
            footprint.fit(experiment, kinds(experiment))
        return _whole(experiment)
    checks.check(experiment)
    if trains:
        checks.fit_replays([experiment])
        footprint.fit(experiment, [experiment])
    if experiment.stop.generations is not None:
        raise ConfigError("stop.generations", experiment.stop.generations, "null: only podium evolve has generations")
    return experiment


def _whole(experiment: Evolution) -> Evolution:
    """With every setting of every entrant: a replay must not take what the first of them says for the others'."""
    if not experiment.evolve.entrants:
        return experiment
    entrants = tuple(kind.model_dump(mode="json", include={*KIND}) for kind in kinds(experiment))
    return experiment.model_copy(update={"evolve": experiment.evolve.model_copy(update={"entrants": entrants})})


def _check(experiment: Evolution) -> None:
    evolve = experiment.evolve
    evolve.check(experiment.stop.steps, experiment.eval.episodes)
    experiment.fleet.check(evolve.members, max(1, len(evolve.entrants)))
    if evolve.exchange in ("p2p", "collective") and experiment.fleet.kind != "mpi":
        raise ConfigError("evolve.exchange", evolve.exchange, f"auto or inline, since fleet is {experiment.fleet.kind}")
    if experiment.train.schedule:
        raise ConfigError("train.schedule", "a schedule", "none: evolution makes its own; replay it with podium train")
    if len(evolve.entrants) > evolve.members:
        raise ConfigError("evolve.members", evolve.members, f"at least one for each of {len(evolve.entrants)} entrants")
    for i, kind in enumerate(kinds(experiment)):
        with _named(evolve, i):
            checks.check(kind)
            _check_rollout(kind)
        if experiment.fleet.kind != "inline" and kind.replay.save_bytes > wire.LARGEST // 2:
            allowed = f"at most {wire.LARGEST // 2}: it goes to the driver in one message"
            raise ConfigError("replay.save_bytes", kind.replay.save_bytes, allowed)
    names = [name.removeprefix("-") for name in evolve.objectives]
    known = (*MEASURES, *experiments.build_env(experiment, 1, 1).objectives) if names else MEASURES
    for name in names:
        if name not in known:
            raise ConfigError("evolve.objectives", name, f"this env reports {', '.join(known)}; -name is minimised")
    if len(set(names)) < len(names):
        raise ConfigError("evolve.objectives", list(evolve.objectives), "each objective once")


def _check_rollout(kind: Experiment) -> None:
    """Nobody is evaluated before a rollout has ended: one that is longer than the run would overrun it."""
    steps, envs, stop = kind.algo.steps, kind.env.num, kind.stop.steps
    if stop is not None and steps * envs > stop:
        fits = f"at most {stop // envs}" if stop >= envs else "fewer env.num"
        rollout = f"a rollout, algo.steps x env.num = {steps} x {envs} = {steps * envs} steps"
        raise ConfigError("algo.steps", steps, f"{fits}: {rollout}, is longer than the run, stop.steps={stop}")


def kinds(experiment: Experiment) -> list[Experiment]:
    """An experiment for each kind of members, with as many as are its share."""
    if not isinstance(experiment, Evolution):
        return [experiment]
    tree = experiment.model_dump(mode="json", exclude={"evolve", "fleet"})
    entrants, out = experiment.evolve.entrants or ({},), []
    replays = any(entrant and lookup.has_replay(entrant["algo"].get("name")) for entrant in entrants)
    for i, entrant in enumerate(entrants):
        own = {**tree, **(_own(entrant) if replays else entrant)}
        own["train"] = {**tree["train"], "members": _share(experiment.evolve, i)}
        with _named(experiment.evolve, i):
            out.append(checks.record(own))
    return out


def _own(entrant: Mapping[str, Any]) -> dict[str, Any]:
    """What an entrant says; nothing of a replay, which others of the run may have, where its algorithm has none."""
    if not entrant or lookup.has_replay(entrant["algo"].get("name")):
        return dict(entrant)
    return {**entrant, "critic": {}, "replay": {}}


def seats(experiment: Experiment) -> list[Seat]:
    """The pods of an experiment: one a kind, or as many as the fleet has, dealt evenly to the kinds."""
    each = kinds(experiment)
    asked = experiment.fleet.pods if isinstance(experiment, Evolution) else "auto"
    pods = len(each) if asked == "auto" else asked
    found, first = [], 0
    for i, kind in enumerate(each):
        members = kind.train.members
        mine = min(members, (pods + len(each) - 1 - i) // len(each))
        for pod in range(mine):
            rows = (members + mine - 1 - pod) // mine
            found.append(Seat(i, rows, first))
            first += rows
    return found


def build_pod(experiment: Experiment, seat: Seat) -> Pod | GuestPod:
    """One of the pods, untrained."""
    objectives = experiment.evolve.objectives if isinstance(experiment, Evolution) else ()
    kind = kinds(experiment)[seat.kind]
    mine = kind.model_copy(update={"train": kind.train.model_copy(update={"members": seat.rows})})
    guests = is_guest(lookup.algorithm(kind.algo.name))
    build = experiments.build_guests if guests else experiments.build_pod
    return build(mine, seat.first, [name.removeprefix("-") for name in objectives])


def threads(experiment: Experiment) -> int:
    """Threads for torch, whatever kind of members is at work."""
    return max(experiments.threads(kind) for kind in kinds(experiment))


def build_pods(experiment: Experiment, dealt: Sequence[Seat] = ()) -> list[Pod | GuestPod]:
    """All pods, untrained, or a refusal where the memory does not hold them."""
    machine.keep_memory()
    machine.use_threads(threads(experiment))
    try:
        return [build_pod(experiment, seat) for seat in dealt or seats(experiment)]
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            size = f"{experiment.train.members} members x {experiment.env.num} envs"
            raise ConfigError("train.members, env.num", size, "what fits into memory") from error
        raise


def orchestrator(experiment: Experiment, run: Run, dealt: Sequence[Seat] = ()) -> Orchestrator:
    """Who decides what the pods do."""
    each = kinds(experiment)
    places = [Place(s.kind, s.rows, each[s.kind].algo.steps * experiment.env.num) for s in dealt or seats(experiment)]
    if not isinstance(experiment, Evolution):
        alone = Population([_kind(each, 0)], places, EvolveSettings(confirm=False), run, experiment.seed)
        return Apart(alone, experiment.eval.every, experiment.stop.steps, experiments.work(experiment))
    population = Population([_kind(each, i) for i in range(len(each))], places, experiment.evolve, run, experiment.seed)
    if experiment.evolve.strategy == "tournament":
        return Tournament(population, in_step=experiment.fleet.kind == "inline")
    if experiment.evolve.strategy == "nsga2":
        return Generational(population, nsga2.survive, nsga2.refill)
    return Generational(population, Population.offer_all, exchange.refill)


def _kind(each: Sequence[Experiment], i: int) -> Kind:
    experiment = each[i]
    ranges = {name: getattr(experiment.algo, name) for name in hyper.genes(experiment.algo)}
    searched = [
        Searched(name, gene, float(ranges[name][0]), float(ranges[name][1]))
        for name, gene in hyper.genes(experiment.algo).items()
        if isinstance(ranges[name], list)
    ]
    born, (learns, _) = partial(experiments.born, experiment), experiments.first_update(experiment)
    return Kind(name_of(each, i), experiment.algo.name, Space(searched), born, learns)


def name_of(each: Sequence[Experiment], i: int) -> str:
    """What the ledger calls a kind: its algorithm, numbered where another has the same."""
    names = [kind.algo.name for kind in each]
    return names[i] if names.count(names[i]) == 1 else f"{names[i]}-{names[: i + 1].count(names[i])}"
