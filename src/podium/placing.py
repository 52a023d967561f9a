"""Where pods are: in this process, or on the nodes of a fleet. What they do is the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from podium import entrants
from podium.core.errors import PodiumError
from podium.evolve.pool import Inline, Pods
from podium.evolve.rows import Seat
from podium.fleet import engines
from podium.pod_node import PodNode, RankNode
from podium.settings import Evolution, Experiment
from podium.topologies.afar import Afar
from podium.topologies.ranks import Ranks

DIRECT = ("p2p", "collective")
"""Exchanges in which every rank is a pod, and members go from rank to rank."""


def elastic(experiment: Experiment) -> bool:
    """Whether pods may join a run: their number stays open, and only its checkpoints know it."""
    return isinstance(experiment, Evolution) and experiment.fleet.kind == "ray" and experiment.fleet.pods == "auto"


def settle(experiment: Experiment) -> Experiment:
    """With all that the fleet decides and the user leaves open: how members are exchanged, and the number of pods."""
    if not isinstance(experiment, Evolution):
        return experiment
    fleet, evolve = experiment.fleet, experiment.evolve
    if evolve.exchange == "auto" and fleet.kind == "mpi" and evolve.strategy != "tournament":
        experiment = experiment.model_copy(update={"evolve": evolve.model_copy(update={"exchange": "p2p"})})
    return experiment if elastic(experiment) else _counted(experiment)


def seats(experiment: Experiment) -> list[Seat]:
    """The pods that a run begins with."""
    return entrants.seats(_counted(experiment))


def _counted(experiment: Experiment) -> Experiment:
    if not isinstance(experiment, Evolution) or experiment.fleet.pods != "auto":
        return experiment
    fleet, evolve, kinds = experiment.fleet, experiment.evolve, len(entrants.kinds(experiment))
    room = engines.room(fleet.kind, kinds, fleet.address, fleet.cpus) + (evolve.exchange in DIRECT)
    pods = min(evolve.members, max(kinds, room))
    return experiment.model_copy(update={"fleet": fleet.model_copy(update={"pods": pods})})


@contextmanager
def job(fleet: object) -> Iterator[None]:
    """What follows is done once, however often the command was started: under mpiexec by rank 0, which others serve."""
    kind = fleet.get("kind") if isinstance(fleet, Mapping) else None
    if kind != "mpi" and int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
        raise PodiumError(f"mpiexec started {os.environ['OMPI_COMM_WORLD_SIZE']} ranks of this command: add fleet=mpi")
    if kind != "mpi" or not on_mpi().launched():
        yield
        return
    with on_mpi().job():
        yield


def on_mpi() -> Any:
    """The module, imported only where it is needed."""
    return import_module("podium.fleet.on_mpi")


def place(experiment: Experiment, seats: Sequence[Seat], patient: bool = False) -> Pods:
    """The pods of an experiment, untrained. `patient`: those for which a cluster has no room may come later."""
    fleet = experiment.fleet if isinstance(experiment, Evolution) else None
    if fleet is None or fleet.kind == "inline":
        return Inline(entrants.build_pods(experiment, seats))
    config = experiment.model_dump(mode="json")
    more: dict[str, Any] = {"threads": fleet.threads}
    if elastic(experiment) and fleet.threads is None:
        more["threads"] = max(1, int(fleet.cpus))  # the share of a core would fall as pods join
    if fleet.kind == "ray":
        more |= {"address": fleet.address, "cpus": fleet.cpus, "gpus": fleet.gpus, "patient": patient}
    devices = fleet.devices or [experiment.train.device]
    each = [[i, seat, devices[i % len(devices)]] for i, seat in enumerate(seats)]
    if isinstance(experiment, Evolution) and experiment.evolve.exchange in DIRECT:
        swap = experiment.evolve.exchange
        return Ranks(on_mpi().crew_of(RankNode, len(seats), config, swap, each=each, timeout=fleet.timeout, **more))
    group = engines.engine(fleet.kind)(PodNode, len(seats), config, each=each, **more)
    if not elastic(experiment):
        return Afar(group, seats, fleet.timeout)
    room = partial(engines.spare, fleet.kind, fleet.cpus, fleet.gpus)
    return Afar(group, seats, fleet.timeout, room, [experiment.train.device])
