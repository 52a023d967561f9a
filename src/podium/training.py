"""Training as a user asks for it: a run folder, progress, Ctrl-C, resume."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from podium import experiment as experiments
from podium.core import config, hyper, tree
from podium.core.errors import CheckpointError, PodiumError
from podium.report.console import Console
from podium.report.tensorboard import Events
from podium.roles.pod import Pod
from podium.settings import Experiment
from podium.store import checkpoint, tensors
from podium.store.records import Member
from podium.store.run import Run, next_name
from podium.topologies.sync import Plan, Sync

OnReport = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Result:
    """How a run ended: its folder, the leaderboard's rows, and why it stopped."""

    path: Path
    top: list[dict[str, Any]]
    reason: str


def train(
    *words: str,
    out: str | Path | None = None,
    fresh: bool = False,
    quiet: bool = True,
    on_report: OnReport | None = None,
) -> Result:
    """Train as `podium train WORDS -o OUT` does; `on_report` is called with every report."""
    experiment = experiments.validate(experiments.compose(words))
    pod = experiments.build_pod(experiment)
    if experiment.train.start is not None:
        _start_from(pod, experiment)
    path = Path(out) if out is not None else next_name(f"{experiment.env.id}-{experiment.algo.name}")
    with Run.create(path, experiment.model_dump(mode="json"), fresh) as run:
        run.ledger.add_members(_members(pod, experiment))
        return _train(pod, run, experiment, None, quiet, on_report)


def resume(
    path: str | Path,
    *overrides: str,
    step: int | None = None,
    quiet: bool = True,
    on_report: OnReport | None = None,
) -> Result:
    """Go on with a run from its last checkpoint (or that of `step`); `overrides` may extend or change it."""
    with Run.open(Path(path), write=True) as run:
        merged = config.merge(run.config, *(config.override(word) for word in overrides))
        experiment = experiments.validate(merged)
        found = checkpoint.latest(run.path) if step is None else run.path / "checkpoint" / f"{step:012d}.safetensors"
        if found is None:
            raise CheckpointError(f"{run.path / 'checkpoint'}: there is no checkpoint to go on from")
        state, info = _read(found, run.path)
        pod = experiments.build_pod(experiment)
        if overrides:
            run.configure(experiment.model_dump(mode="json"))
        return _train(pod, run, experiment, (state, info, found), quiet, on_report)


def _read(path: Path, run: Path) -> tuple[tree.Tree, dict[str, Any]]:
    """A checkpoint; where it is damaged, the error names the one before it."""
    try:
        return checkpoint.read(path)
    except CheckpointError as error:
        others = [p for p in checkpoint.found(run) if p != path]
        hint = f"; go on from the one before with --step {checkpoint.step_of(others[0])}" if others else ""
        raise CheckpointError(f"{error}{hint}") from error


def _train(
    pod: Pod,
    run: Run,
    experiment: Experiment,
    saved: tuple[tree.Tree, dict[str, Any], Path] | None,
    quiet: bool,
    on_report: OnReport | None,
) -> Result:
    console = Console(experiment.stop.steps, experiment.train.members, quiet)
    with _Interrupt() as interrupt, _Sink(run, console, on_report, saved[1]["events"] if saved else 0) as sink:
        sync = Sync(pod, run, _plan(experiment), sink, interrupt.happened)
        if saved is None:
            sync.checkpoint()
        else:
            state, info, path = saved
            tensors.match(state, sync.state(), path)
            sync.load(state, info["seconds"])
            run.ledger.rewind(sync.step)
            run.ledger.reopen(pod.ids.tolist())
            if not info["exact"]:
                sink.note("resume is statistical: this env cannot save its state, so episodes began anew")
        sink.start(f"{_title(experiment)}  ->  {run.path}")
        reason = sync.train()
    pod.close()
    return Result(run.path, run.ledger.top(), reason)


def _plan(experiment: Experiment) -> Plan:
    stop, evaluation = experiment.stop, experiment.eval
    return Plan(
        stop.steps, stop.seconds, stop.fitness, evaluation.every, evaluation.episodes, experiment.train.checkpoint
    )


def _title(experiment: Experiment) -> str:
    members = experiment.train.members
    of = f" x {members} members" if members > 1 else ""
    return f"{experiment.algo.name} on {experiment.env.id}{of}, {experiment.env.num} envs each, seed {experiment.seed}"


def _members(pod: Pod, experiment: Experiment) -> list[Member]:
    names = list(hyper.genes(experiment.algo))
    columns = [pod.algorithm.genes[name].tolist() for name in names]
    parent = _start_id(experiment.train.start)
    return [
        Member(
            id=int(member),
            algo=experiment.algo.name,
            parent=parent,
            row=row,
            genes={n: None if math.isinf(c[row]) else c[row] for n, c in zip(names, columns, strict=True)},
        )
        for row, member in enumerate(pod.ids)
    ]


def _start_id(start: str | None) -> int | None:
    """The member named in `RUN:ID`, if any."""
    _, _, member = (start or "").rpartition(":")
    return int(member) if member.isdigit() else None


def _start_from(pod: Pod, experiment: Experiment) -> None:
    """Begin every member with what another run's member has learnt, but with this run's genes."""
    start = experiment.train.start or ""
    member = _start_id(start)
    run = Run.open(Path(start if member is None else start.rpartition(":")[0]))
    member = champion(run) if member is None else member
    state, _ = run.read_snapshot(member)
    learnt = {k: v for k, v in pod.algorithm.learnt().items() if k != "genes"}
    state.pop("genes", None)
    rows = torch.zeros(len(pod.ids), dtype=torch.int64)
    tensors.match(state, tree.take(learnt, rows[:1]), run.snapshot_path(member))
    tree.copy(learnt, tree.take(state, rows))


def champion(run: Run) -> int:
    """The id of rank 1 of a run's leaderboard."""
    top = run.ledger.top(1)
    if not top or top[0]["fitness"] is None:
        raise PodiumError(f"{run.path}: no member has been evaluated yet")
    return int(top[0]["id"])


class _Interrupt:
    """Ctrl-C (or SIGTERM) once asks the run to save and stop; a second time ends it at once."""

    def __init__(self) -> None:
        self._asked = False
        self._old: dict[signal.Signals, Any] = {}

    def happened(self) -> bool:
        return self._asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def __enter__(self) -> _Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._old = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)


class _Sink:
    """Console, event file and hook, fed with the same reports."""

    def __init__(self, run: Run, console: Console, on_report: OnReport | None, events: int) -> None:
        self._run, self._console, self._on_report = run, console, on_report
        self._events = Events(run.path, events)

    def start(self, title: str) -> None:
        self._run.log(title)
        self._console.start(title)

    def report(self, report: dict[str, Any]) -> None:
        self._console.update(report)
        self._events.scalars(report["step"], _scalars(report))
        if self._on_report is not None:
            self._on_report(report)

    def note(self, text: str) -> None:
        self._run.log(text)
        self._console.note(text)

    def position(self) -> int:
        return self._events.offset()

    def __enter__(self) -> _Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self._console.stop()
        self._events.close()


def _scalars(report: dict[str, Any]) -> dict[str, float]:
    """Scalars for TensorBoard: the run's, and each metric of every member up to 16, else its median."""
    out = {f"run/{k}": v for k, v in report.items() if isinstance(v, int | float) and k not in ("step", "eta_seconds")}
    for name, values in report["members"].items():
        if len(values) <= 16:
            out |= {f"{name}/{i}": v for i, v in enumerate(values)}
        else:
            out[f"{name}/median"] = sorted(values, key=lambda v: (math.isnan(v), v))[len(values) // 2]
    return out
