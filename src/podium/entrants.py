"""The population of an experiment: its kinds of members, the pods that hold them, and the orchestrator over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podium import experiment as experiments
from podium.core import config, hyper, machine
from podium.core.errors import ConfigError, PodiumError, UnknownName
from podium.evolve import exchange, nsga2
from podium.evolve.apart import Apart
from podium.evolve.explore import Searched, Space
from podium.evolve.generational import Generational
from podium.evolve.population import Population
from podium.evolve.rows import Kind, Place
from podium.evolve.settings import EvolveSettings
from podium.evolve.tournament import Tournament
from podium.roles.evaluator import MEASURES
from podium.roles.pod import Pod
from podium.settings import Evolution, Experiment
from podium.store.run import Run
from podium.topologies.driver import Orchestrator


def complete(tree: dict[str, Any]) -> dict[str, Any]:
    """The config tree of an evolving run with all that it leaves open: the ranges to search, and no annealing."""
    tree = config.merge({"evolve": {}}, tree)
    evolve, train = tree["evolve"], tree.get("train", {})
    members = evolve.get("members", EvolveSettings.model_fields["members"].default)
    if isinstance(train, dict) and train.get("members", members) != members:
        raise ConfigError("train.members", train["members"], f"evolve.members, {members}, sets the population")
    names = evolve.get("genes", "auto")
    entrants = [_searching(entrant, names) for entrant in evolve.get("entrants") or [tree]]
    if evolve.get("entrants"):
        evolve["entrants"] = entrants
    return config.merge(tree, entrants[0], {"train": {"members": members}})


def _searching(tree: dict[str, Any], names: Any) -> dict[str, Any]:
    """`algo` and `net` of a kind, with a range on each gene that is to be searched."""
    algo = dict(tree.get("algo", {}))
    declared = hyper.genes(experiments.algorithm(algo.get("name")).Settings)
    searched = [n for n, g in declared.items() if g.search] if names == "auto" else list(names)
    if names == "auto" and any(isinstance(algo.get(name), list | tuple) for name in declared):
        searched = []
    for name in searched:
        if name not in declared:
            raise UnknownName("evolve.genes", str(name), declared)
        if not isinstance(algo.get(name), list | tuple):
            algo[name] = list(declared[name].search or (declared[name].low, declared[name].high))
    return {"algo": {**algo, "anneal": []}, "net": tree.get("net", {})}


def validate(tree: dict[str, Any]) -> Experiment:
    """A complete experiment, or the first thing that is wrong with it. Touches no file and starts nothing."""
    experiment = experiments.validate(tree)
    if isinstance(experiment, Evolution):
        _check(experiment)
    elif experiment.stop.generations is not None:
        raise ConfigError("stop.generations", experiment.stop.generations, "null: only podium evolve has generations")
    return experiment


def _check(experiment: Evolution) -> None:
    evolve = experiment.evolve
    evolve.check(experiment.stop.steps, experiment.eval.episodes)
    if experiment.train.schedule:
        raise ConfigError("train.schedule", "a schedule", "none: evolution makes its own; replay it with podium train")
    if len(evolve.entrants) > evolve.members:
        raise ConfigError("evolve.members", evolve.members, f"at least one for each of {len(evolve.entrants)} entrants")
    for kind in kinds(experiment):
        experiments.check(kind)
    names = [name.removeprefix("-") for name in evolve.objectives]
    known = (*MEASURES, *experiments.build_env(experiment, 1, 1).objectives) if names else MEASURES
    for name in names:
        if name not in known:
            raise ConfigError("evolve.objectives", name, f"this env reports {', '.join(known)}; -name is minimised")
    if len(set(names)) < len(names):
        raise ConfigError("evolve.objectives", list(evolve.objectives), "each objective once")


def kinds(experiment: Experiment) -> list[Experiment]:
    """An experiment for each kind of members, with as many as are its share."""
    if not isinstance(experiment, Evolution):
        return [experiment]
    entrants = experiment.evolve.entrants or ({},)
    tree = experiment.model_dump(mode="json", exclude={"evolve"})
    out = []
    for i, entrant in enumerate(entrants):
        members = (experiment.evolve.members + len(entrants) - 1 - i) // len(entrants)
        own = {**tree, **entrant, "train": {**tree["train"], "members": members}}
        try:
            out.append(experiments.record(own))
        except PodiumError as error:
            if not experiment.evolve.entrants:
                raise
            raise PodiumError(f"evolve.entrants[{i}]: {error}") from error
    return out


def build_pods(experiment: Experiment) -> list[Pod]:
    """A pod for each kind, untrained, or a refusal where the memory does not hold them."""
    each = kinds(experiment)
    machine.keep_memory()
    machine.use_threads(max(experiments.threads(kind) for kind in each))
    objectives = experiment.evolve.objectives if isinstance(experiment, Evolution) else ()
    names = [name.removeprefix("-") for name in objectives]
    pods, first = [], 0
    try:
        for kind in each:
            pods.append(experiments.build_pod(kind, first, names))
            first += kind.train.members
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            size = f"{experiment.train.members} members x {experiment.env.num} envs"
            raise ConfigError("train.members, env.num", size, "what fits into memory") from error
        raise
    return pods


def orchestrator(experiment: Experiment, run: Run) -> Orchestrator:
    """Who decides what the pods do."""
    each = kinds(experiment)
    places = [Place(i, kind.train.members, kind.algo.steps * kind.env.num) for i, kind in enumerate(each)]
    if not isinstance(experiment, Evolution):
        alone = Population([_kind(each, 0)], places, EvolveSettings(confirm=False), run, experiment.seed)
        return Apart(alone, experiment.eval.every)
    population = Population([_kind(each, i) for i in range(len(each))], places, experiment.evolve, run, experiment.seed)
    if experiment.evolve.strategy == "tournament":
        return Tournament(population)
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
    return Kind(name_of(each, i), experiment.algo.name, Space(searched), lambda id: experiments.born(experiment, id))


def name_of(each: Sequence[Experiment], i: int) -> str:
    """What the ledger calls a kind: its algorithm, numbered where another has the same."""
    names = [kind.algo.name for kind in each]
    return names[i] if names.count(names[i]) == 1 else f"{names[i]}-{names[: i + 1].count(names[i])}"
