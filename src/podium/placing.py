"""Where pods are: in this process, or on the nodes of a fleet. What they do is the same."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from podium import entrants
from podium.core import machine, tree
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.evolve.pool import Careful, Inline, Pods
from podium.evolve.rows import Seat
from podium.evolve.turn import Refill, Task
from podium.fleet import engines
from podium.settings import Evolution, Experiment
from podium.topologies.afar import Afar


def elastic(experiment: Experiment) -> bool:
    """Whether pods may join a run: their number stays open, and only its checkpoints know it."""
    return isinstance(experiment, Evolution) and experiment.fleet.kind == "ray" and experiment.fleet.pods == "auto"


def settle(experiment: Experiment) -> Experiment:
    """With the number of pods that the fleet has room for, where it is left open: a resume keeps it."""
    return experiment if elastic(experiment) else _counted(experiment)


def seats(experiment: Experiment) -> list[Seat]:
    """The pods that a run begins with."""
    return entrants.seats(_counted(experiment))


def _counted(experiment: Experiment) -> Experiment:
    if not isinstance(experiment, Evolution) or experiment.fleet.pods != "auto":
        return experiment
    fleet, kinds = experiment.fleet, len(entrants.kinds(experiment))
    room = engines.room(fleet.kind, kinds, fleet.address, fleet.cpus)
    pods = min(experiment.evolve.members, max(kinds, room))
    return experiment.model_copy(update={"fleet": fleet.model_copy(update={"pods": pods})})


@contextmanager
def job(fleet: object) -> Iterator[None]:
    """What follows is done once, however often the command was started: under mpiexec by rank 0, which others serve."""
    kind = fleet.get("kind") if isinstance(fleet, Mapping) else None
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
    group = engines.engine(fleet.kind)(PodNode, len(seats), config, each=each, **more)
    if not elastic(experiment):
        return Afar(group, seats, fleet.timeout)
    room = partial(engines.spare, fleet.kind, fleet.cpus, fleet.gpus)
    return Afar(group, seats, fleet.timeout, room, [experiment.train.device])


class PodNode:
    """A pod as a node: the same methods, in terms that the wire carries."""

    def __init__(self, config: dict[str, Any], number: int, seat: Mapping[str, int], device: str) -> None:
        self._experiment = entrants.validate({**config, "train": {**config["train"], "device": device}})
        self._name, self._notes = f"pod {number}", list[str]()
        machine.keep_memory()
        machine.use_threads(entrants.threads(self._experiment))
        self._build(Seat(**seat))

    def _build(self, seat: Seat) -> None:
        self._seat, self._pod = seat, entrants.build_pod(self._experiment, seat)
        self._careful = Careful(self._pod, self._name, self._notes.append)

    def about(self) -> dict[str, Any]:
        """What a driver asks once."""
        return {"exact": self._pod.exact, "like": self._pod.read([0])}

    def turn(self, task: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Do a task that begins at `seconds` of the run; its outcome, and the tracebacks on the way."""
        start = time.perf_counter()
        outcome = self._careful.turn(Task(**task), lambda: seconds + time.perf_counter() - start, lambda: False)
        said, self._notes[:] = [*self._notes, *outcome.notes], []
        names = ("steps", "seconds", "failed", "report", "evaluation", "members", "ids", "error")
        return {**{name: getattr(outcome, name) for name in names}, "notes": said}

    def exchange(self, refills: Sequence[Mapping[str, Any]]) -> None:
        self._pod.exchange([Refill(**refill) for refill in refills])

    def adopt(self, ids: Sequence[int], steps: int, life: int) -> None:
        """Take the place of a pod that was lost: its rows, with nobody in them yet, and dice of their own."""
        self._pod.adopt(ids, steps, Streams(self._experiment.seed, [f"{member}, life {life}" for member in ids]))

    def state(self) -> Tree:
        return self._pod.state()

    def load(self, state: Tree) -> None:
        self._pod.load(state)

    def split(self, keep: int) -> Tree:
        """Keep the first rows; the state of the others, for another pod."""
        state = tree.clone(self._pod.state())
        self._pod.close()
        self._build(replace(self._seat, rows=keep))
        self._pod.load(tree.map(lambda leaf: leaf[:keep], state))
        if not self._pod.exact:
            self._pod.restart()
        return tree.map(lambda leaf: leaf[keep:], state)

    def restart(self) -> None:
        self._pod.restart()

    def close(self) -> None:
        self._pod.close()
