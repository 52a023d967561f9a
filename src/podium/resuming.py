"""Going on with a run: from its last checkpoint, as if nothing had happened, or with changed settings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from podium import checks, compose, entrants, lookup
from podium import experiment as experiments
from podium.compose import Word
from podium.core import config, hyper
from podium.core import trust as trusting
from podium.core.errors import ConfigError, PodiumError
from podium.core.interrupt import Interrupt
from podium.envs.settings import EnvSettings
from podium.evolve.apart import Apart
from podium.evolve.pool import Inline
from podium.evolve.rebuild import LOST, rebuild, rescore
from podium.evolve.rows import Seat
from podium.placing import job, place
from podium.recovery import Found, Saved, damaged_ledger, load, look, read
from podium.report.sink import OnReport, Sink
from podium.roles.guests import GuestPod
from podium.settings import Evolution, Experiment
from podium.store import checkpoint, files
from podium.store.run import Run
from podium.topologies.driver import Driver
from podium.training import Result, begin, console, disk, finish, plan

FIXED = (
    *("seed", "algo.name", "net", "train.members", "train.start"),
    *(f"env.{name}" for name in EnvSettings.model_fields if name not in ("workers", "timeout", "max_failures")),
    *("critic.count", "replay.prioritised", "replay.shared"),
    *(f"algo.{name}" for name in ("distribution", "dueling", "atoms", "low", "high")),
)
"""What a resumed run keeps: it shaped the tensors, or drew the numbers, that the checkpoint holds."""
REPLAYED = ("algo.batch",)
"""What a run with a replay keeps, too: numbers were drawn ahead for batches of that size."""
EVOLVED = (
    "algo",
    *(f"evolve.{name}" for name in ("strategy", "members", "entrants", "genes", "objectives", "seconds")),
)
"""What a run that evolves keeps, too: its members have genes of their own by now."""

_STATISTICAL = (
    "resume is statistical: this env cannot save its state, so the stop ended episodes that a run without it would not"
)
_FORGETFUL = "resume is statistical: the replay was larger than replay.save_bytes, so it was not saved and fills anew"


def resume(
    path: str | Path,
    *overrides: Word,
    step: int | None = None,
    quiet: bool = True,
    on_report: OnReport | None = None,
    trust: bool = False,
) -> Result:
    """Go on with a run from its last checkpoint (or that of `step`); `overrides` may extend or change it.

    Everything is checked, and the checkpoint is in memory, before anything on disk changes. What is damaged is put
    right from the checkpoint, where that is whole. `trust` as in `podium.load`.
    """
    found = look(Path(path), step)
    old = found.config
    trusting.check(Path(path), config.merge(old, *map(compose.override, overrides)), trust, _typed(overrides))
    with job(old.get("fleet")):
        return _resume(Path(path), found, overrides, step, quiet, on_report)


def _typed(overrides: Sequence[Word]) -> list[str]:
    """The code that a user has named by overrides."""
    return [name for _, name in trusting.named(config.merge(*map(compose.override, overrides)))]


def _resume(
    path: Path,
    found: Found,
    overrides: Sequence[Word],
    step: int | None,
    quiet: bool,
    on_report: OnReport | None,
) -> Result:
    old = found.config
    merged = config.merge(old, *(compose.override(word) for word in overrides))
    complete = checks.record(merged).model_dump(mode="json")
    changed = _changed(checks.record(old).model_dump(mode="json"), complete)
    if "stop.steps" in changed:
        _check_steps(path, complete["stop"]["steps"], step)
    experiment = entrants.validate(merged)
    if not checkpoint.found(path) and not files.names(path / "members"):
        return begin(experiment, path, True, quiet, on_report)  # it was killed before it had begun
    saved, damage = (found.saved, []) if found.saved is not None else read(path, step)
    reader, damage = Run.open(path, config=old), [*found.damage, *damage]
    lost = damaged_ledger(path)
    dealt = _seats(experiment, saved)
    with (
        Interrupt(at_once=True) as interrupt,
        Sink(console(experiment, quiet), on_report) as sink,
        closing(place(experiment, dealt, patient=True)) as pool,
    ):
        orchestrator = entrants.orchestrator(experiment, reader, dealt)
        driver = Driver(pool, orchestrator, plan(experiment), sink, sink.or_stopped(interrupt.happened))
        load(driver, saved, changed)
        _apply_genes(driver, experiment, changed)
        if lost is None and not _knows(reader, driver):
            lost = f"{path / 'ledger.sqlite'}: it does not know all members of the checkpoint"
        interrupt.at_once = False
        with (
            Run.open(path, write=True, config=old if found.damage else None, afresh=lost is not None) as run,
            disk(run),
        ):
            if (run.config, checkpoint.found(run.path)) != (old, saved.found):
                raise PodiumError(f"{run.path}: another process has just written to this run; try again")
            driver.run = run
            checkpoint.forget_after(run.path, driver.step)  # first: the ledger must never lag behind a checkpoint
            sink.open(run, saved.info["events"])
            if lost is not None:
                damage.append(f"{lost}: rebuilt from {saved.path.name}; {LOST}")
                rebuild(driver.population)
            _rewind(driver, saved.info["turn"], rebuilt=lost is not None)
            if changed or found.damage:
                run.configure(complete)
            for text in damage:
                sink.warn(text)
            if not saved.info["exact"] and not saved.info["scheduled"]:
                sink.note(_STATISTICAL)
            if _left_out(saved):
                sink.note(_FORGETFUL)
            if isinstance(experiment, Evolution) and experiment.evolve.seconds is not None:
                sink.note("resume is statistical: evolve.seconds makes ready points depend on the clock")
            sink.note(f"resumed from step {driver.step:,}")
            return finish(driver, sink, experiment, empty=driver.step if _left_out(saved) else None)


def _knows(run: Run, driver: Driver) -> bool:
    """Tells whether a run's ledger has all members that were loaded."""
    known = {row["id"] for row in run.ledger.members()}
    return all(row.member in known for _, _, row in driver.population.all_rows())


def _left_out(saved: Saved) -> bool:
    """Whether the checkpoint was written without the replay of a pod that has one."""
    learners = [pod["slot"].get("learner", {}) for pod in saved.state["pods"].values()]
    return any("drawn" in learner and "replay" not in learner for learner in learners)


def _check_steps(run: Path, stop: int | None, step: int | None) -> None:
    """Refuse to stop before where the run goes on from."""
    has = step if step is not None else max(map(checkpoint.step_of, checkpoint.found(run)), default=0)
    if stop is not None and stop <= has:
        raise ConfigError("stop.steps", stop, f"more than the {has} steps that the run has already")


def _rewind(driver: Driver, turn: int, rebuilt: bool) -> None:
    """Put the ledger and the snapshots back to where the checkpoint was taken."""
    ledger, rows = driver.run.ledger, [row for _, _, row in driver.population.all_rows()]
    with ledger.together():
        ledger.rewind(turn)
        ledger.reopen(row.member for row in rows)
        ledger.seat({row.member: (pod, index) for pod, index, row in driver.population.all_rows()})
        ledger.set_genes({row.member: hyper.plain(row.genes) for row in rows})
        driver.orchestrator.restore()
        if rebuilt and isinstance(driver.orchestrator, Apart):
            rescore(driver.population)


def _changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Names of the settings that differ; refuses to change what a resumed run has to keep."""
    if "evolve" in new and "evolve" not in old:
        raise PodiumError("evolve: these settings are for a run of podium evolve; the members of this one never meet")
    before, after = dict(config.leaves(old)), dict(config.leaves(new))
    changed = [name for name in after if name not in before or after[name] != before[name]]
    kept = (*FIXED, *EVOLVED) if "evolve" in new else FIXED
    if lookup.has_replay(new["algo"]["name"]):
        kept += REPLAYED
    for name in changed:
        if any(name == fixed or name.startswith(f"{fixed}.") for fixed in kept):
            was = before.get(name)
            raise ConfigError(
                name, after[name], f"a resumed run keeps {was!r}; to change it, train with train.start=RUN"
            )
    return changed


def _seats(experiment: Experiment, saved: Saved) -> list[Seat]:
    """The pods of a checkpoint; where another number of them is asked for, those, and its tensors will not match."""
    rows = saved.info["seats"]
    if not rows:
        return entrants.seats(experiment)
    if isinstance(experiment, Evolution) and experiment.fleet.pods not in ("auto", len(rows)):
        return entrants.seats(experiment)
    ends = itertools.accumulate(n for _, n in rows)
    return [Seat(kind, n, end - n) for (kind, n), end in zip(rows, ends, strict=True)]


def _apply_genes(driver: Driver, experiment: Experiment, changed: Sequence[str]) -> None:
    """Overrides of genes take the place of those in the checkpoint; members that evolve keep their own."""
    if isinstance(experiment, Evolution) or not isinstance(driver.pool, Inline):
        return
    (pod,), rows = driver.pool.pods, driver.population.rows[0]
    for name, values in experiments.genes_of(experiment, pod.ids.tolist()).items():
        if f"algo.{name}" not in changed:
            continue
        for row, value in zip(rows, values.tolist(), strict=True):
            row.genes[name] = value
        if not isinstance(pod, GuestPod):
            pod.algorithm.genes[name].copy_(values)
    if isinstance(pod, GuestPod):
        for guest, row in zip(pod.guests, rows, strict=True):
            guest.genes = dict(row.genes)
