"""Training as a user asks for it: a run folder, progress, Ctrl-C, resume."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from podium import experiment as experiments
from podium.compose import compose
from podium.core import config, hyper, tree
from podium.core.errors import CheckpointError, ConfigError, PodiumError
from podium.report.console import Console
from podium.report.sink import OnReport, Sink
from podium.roles.pod import Pod
from podium.settings import Experiment
from podium.store import checkpoint, tensors
from podium.store.records import Member
from podium.store.run import Run, admit, config_of, next_name
from podium.topologies.sync import Plan, Sync

FIXED = ("seed", "env", "algo.name", "net", "train.members", "train.start")
"""What a resumed run keeps: it shaped the tensors, or drew the numbers, that the checkpoint holds."""

_STATISTICAL = (
    "resume is statistical: this env cannot save its state, so the stop ended episodes that a run without it would not"
)


@dataclass(frozen=True)
class Result:
    """How a run ended: its folder, the leaderboard's rows, the steps of each member, and why it stopped."""

    path: Path
    top: list[dict[str, Any]]
    step: int
    reason: str


@dataclass(frozen=True)
class _Saved:
    """A checkpoint that has been read."""

    path: Path
    state: tree.Tree
    info: dict[str, Any]
    found: list[Path]  # all checkpoints that there were


def train(
    *words: str,
    out: str | Path | None = None,
    fresh: bool = False,
    quiet: bool = True,
    on_report: OnReport | None = None,
) -> Result:
    """Train as `podium train WORDS -o OUT` does; `on_report` is called with every report."""
    experiment = experiments.validate(compose(words))
    path = Path(out) if out is not None else next_name(f"{experiment.env.id}-{experiment.algo.name}")
    return _begin(experiment, path, fresh, quiet, on_report)


def _begin(experiment: Experiment, path: Path, fresh: bool, quiet: bool, on_report: OnReport | None) -> Result:
    admit(path, fresh)
    with _Interrupt() as interrupt, Sink(_console(experiment, quiet), on_report) as sink:
        pod = _build(experiment)
        start = _start_from(pod, experiment) if experiment.train.start is not None else None
        with Run.create(path, experiment.model_dump(mode="json"), fresh) as run, _disk(run):
            run.ledger.add_members(_members(pod, experiment))
            if start is not None:
                run.ledger.event(0, 0.0, "start", start)
            sink.open(run, 0)
            sync = Sync(pod, run, _plan(experiment), sink, interrupt.happened)
            sync.checkpoint()
            return _run(sync, sink, experiment)


def resume(
    path: str | Path,
    *overrides: str,
    step: int | None = None,
    quiet: bool = True,
    on_report: OnReport | None = None,
) -> Result:
    """Go on with a run from its last checkpoint (or that of `step`); `overrides` may extend or change it.

    Everything is checked, and the checkpoint is in memory, before anything on disk changes.
    """
    old = config_of(Path(path))
    merged = config.merge(old, *(config.override(word) for word in overrides))
    complete = experiments.record(merged).model_dump(mode="json")
    changed = _changed(experiments.record(old).model_dump(mode="json"), complete)
    experiment = experiments.validate(merged)
    if not checkpoint.found(Path(path)) and not any((Path(path) / "members").glob("*")):
        return _begin(experiment, Path(path), True, quiet, on_report)  # it was killed before it had begun
    with Run.open(Path(path)) as reader:
        saved = _read(Path(path), step)
    with _Interrupt() as interrupt, Sink(_console(experiment, quiet), on_report) as sink:
        pod = _build(experiment)
        sync = Sync(pod, reader, _plan(experiment), sink, interrupt.happened)
        _load(sync, saved, changed)
        if "stop.steps" in changed and experiment.stop.steps is not None and experiment.stop.steps <= sync.step:
            allowed = f"more than the {sync.step} steps that the run has already"
            raise ConfigError("stop.steps", experiment.stop.steps, allowed)
        genes = _apply_genes(pod, experiment, changed)
        with Run.open(Path(path), write=True) as run, _disk(run):
            if (run.config, checkpoint.found(run.path)) != (old, saved.found):
                raise PodiumError(f"{run.path}: another process has just written to this run; try again")
            run.ledger.rewind(sync.step)
            run.ledger.reopen(pod.ids.tolist())
            run.ledger.set_genes(genes)
            if changed:
                run.configure(complete)
            sync.run = run
            sink.open(run, saved.info["events"])
            if not saved.info["exact"] and not _on_schedule(experiment, sync.step):
                sink.note(_STATISTICAL)
            sink.note(f"resumed from step {sync.step:,}")
            return _run(sync, sink, experiment)


def _build(experiment: Experiment) -> Pod:
    """The pod, or a refusal where the memory does not hold it."""
    try:
        return experiments.build_pod(experiment)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            size = f"{experiment.train.members} members x {experiment.env.num} envs"
            raise ConfigError("train.members, env.num", size, "what fits into memory") from error
        raise


def _run(sync: Sync, sink: Sink, experiment: Experiment) -> Result:
    """Train to the end and tidy up."""
    try:
        sink.start(f"{_title(experiment)}  ->  {sync.run.path}")
        reason = sync.train()
        sync.run.log(f"stopped at step {sync.step}: {reason}")
        sink.stop()
        return Result(sync.run.path, sync.run.ledger.top(), sync.step, reason)
    finally:
        sync.pod.close()


def _changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Names of the settings that differ; refuses to change what a resumed run has to keep."""
    before, after = dict(config.leaves(old)), dict(config.leaves(new))
    changed = [name for name in after if name not in before or after[name] != before[name]]
    for name in changed:
        if any(name == fixed or name.startswith(f"{fixed}.") for fixed in FIXED):
            kept = before.get(name)
            raise ConfigError(
                name, after[name], f"a resumed run keeps {kept!r}; to change it, train with train.start=RUN"
            )
    return changed


def _read(run: Path, step: int | None) -> _Saved:
    """The last checkpoint, or that of `step`; where it is damaged, the error names the other one."""
    found = checkpoint.found(run)
    if not found:
        raise CheckpointError(f"{run / 'checkpoint'}: there is no checkpoint to go on from")
    steps = {checkpoint.step_of(path): path for path in found}
    if step is not None and step not in steps:
        raise ConfigError("--step", step, f"there are checkpoints of steps {', '.join(map(str, sorted(steps)))}")
    path = found[0] if step is None else steps[step]
    try:
        return _Saved(path, *checkpoint.read(path), found)
    except CheckpointError as error:
        others = [str(s) for s, other in steps.items() if other != path]
        hint = f"; the other checkpoint may be whole: podium resume {run} --step {others[0]}" if others else ""
        raise CheckpointError(f"{error}{hint}") from error


def _load(sync: Sync, saved: _Saved, changed: Sequence[str]) -> None:
    """Put a checkpoint into memory, or refuse it whole."""
    try:
        tensors.match(_without_env(saved.state), _without_env(sync.state()), saved.path)
    except CheckpointError as error:
        hint = f"; do not change {', '.join(changed)} when resuming" if changed else ""
        raise CheckpointError(f"{error}{hint}") from error
    sync.load(saved.state, saved.info["seconds"])


def _without_env(state: tree.Tree) -> tree.Tree:
    """All but the envs' own state, whose shape may vary: an env checks it itself."""
    slot = {k: v for k, v in state["pod"]["slot"].items() if k != "env"}
    return {**state, "pod": {**state["pod"], "slot": slot}}


def _apply_genes(pod: Pod, experiment: Experiment, changed: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Overrides of genes take the place of those in the checkpoint; returns every member's genes."""
    ids = pod.ids.tolist()
    for name, values in hyper.values(experiment.algo, experiment.seed, ids).items():
        if f"algo.{name}" in changed:
            pod.algorithm.genes[name].copy_(values)
    return dict(zip(ids, _genes(pod), strict=True))


def _genes(pod: Pod) -> list[dict[str, float | None]]:
    """The genes of each row; None where one is off."""
    columns = {name: values.tolist() for name, values in pod.algorithm.genes.items()}
    rows = range(len(pod.ids))
    return [{n: None if math.isinf(c[row]) else c[row] for n, c in columns.items()} for row in rows]


def _members(pod: Pod, experiment: Experiment) -> list[Member]:
    rows = enumerate(zip(pod.ids.tolist(), _genes(pod), strict=True))
    return [Member(id=member, algo=experiment.algo.name, row=row, genes=genes) for row, (member, genes) in rows]


def _start_from(pod: Pod, experiment: Experiment) -> dict[str, Any]:
    """Begin every member with what another run's member has learnt, but with this run's genes."""
    start = experiment.train.start or ""
    folder, _, number = start.rpartition(":")
    with Run.open(Path(folder if number.isdigit() else start)) as run:
        member = int(number) if number.isdigit() else run.champion()
        state, info = run.read_snapshot(member)
        learnt = {k: v for k, v in pod.algorithm.learnt().items() if k != "genes"}
        state.pop("genes", None)
        rows = torch.zeros(len(pod.ids), dtype=torch.int64)
        tensors.match(state, tree.take(learnt, rows[:1]), run.snapshot_path(member))
        tree.copy(learnt, tree.take(state, rows))
        return {"run": str(run.path), "member": member, "step": info["step"]}


def _plan(experiment: Experiment) -> Plan:
    stop, evaluation = experiment.stop, experiment.eval
    return Plan(
        stop.steps, stop.seconds, stop.fitness, evaluation.every, evaluation.episodes, experiment.train.checkpoint
    )


def _console(experiment: Experiment, quiet: bool) -> Console:
    return Console(experiment.stop.steps, experiment.train.members, quiet)


def _title(experiment: Experiment) -> str:
    members = experiment.train.members
    of = f" x {members} members" if members > 1 else ""
    return f"{experiment.algo.name} on {experiment.env.id}{of}, {experiment.env.num} envs each, seed {experiment.seed}"


def _on_schedule(experiment: Experiment, step: int) -> bool:
    """Whether an uninterrupted run would have saved at `step`, too."""
    every, rollout = experiment.train.checkpoint, experiment.algo.steps * experiment.env.num
    return step == 0 or (step - rollout) // every != step // every


@contextmanager
def _disk(run: Run) -> Iterator[None]:
    """A full disk or a lost folder ends the run with a message that says what still stands."""
    try:
        yield
    except OSError as error:
        rest = f"make room, then: podium resume {run.path}" if checkpoint.found(run.path) else "nothing was saved"
        raise PodiumError(f"{run.path}: a file could not be written ({error}); {rest}") from error


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
