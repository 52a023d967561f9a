"""Training as a user asks for it: `podium train` and `podium evolve`, a run folder, progress, Ctrl-C."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium import entrants, lookup
from podium import experiment as experiments
from podium.compose import Word, compose, notes, own, said
from podium.core import config
from podium.core import trust as trusting
from podium.core.errors import CheckpointError, ConfigError, PodiumError
from podium.core.interrupt import Interrupt
from podium.envs.make import endless, source_of
from podium.evolve.lineage import read_schedule
from podium.evolve.pool import Pods
from podium.guests.base import is_guest
from podium.placing import job, place, seats, settle
from podium.report.console import Console
from podium.report.sink import OnReport, Sink
from podium.settings import Evolution, Experiment
from podium.store import checkpoint, run_config, tensors
from podium.store.run import Run, admit, next_name
from podium.store.snapshot import checked_step
from podium.topologies.driver import Driver, Plan

ENDINGS = {rule: f"stop.{rule} reached" for rule in ("steps", "seconds", "fitness", "generations")}
"""Of the reasons for which a run stops, the rules, in words."""


@dataclass(frozen=True, repr=False)
class Result:
    """How a run ended: its folder, the leaderboard's rows, the steps of each member, and why it stopped."""

    path: Path
    top: list[dict[str, Any]]
    step: int
    reason: str

    def __repr__(self) -> str:
        best = self.top[0]["fitness"] if self.top else None
        found = "no fitness yet" if best is None else f"best fitness {best:.1f}"
        return f"Result({self.path}: {ENDINGS.get(self.reason, self.reason)} at step {self.step:,}; {found})"


def train(
    *words: Word,
    out: str | Path | None = None,
    fresh: bool = False,
    quiet: bool = True,
    on_report: OnReport | None = None,
    schedule: str | Path | None = None,
    trust: bool = False,
) -> Result:
    """Train as `podium train WORDS -o OUT` does; a dictionary of settings counts as a YAML file does.

    `on_report` is called with every report; if it returns False, or raises `podium.Stop`, the run is saved and ends.
    `schedule` is a file that `podium lineage` printed: genes that change over time. `trust` is for words that are the
    settings of another run, which may name code: see `podium.load`.
    """
    settings = compose(words)
    _check_trust(words, settings, trust)
    if "evolve" in settings:
        raise PodiumError("evolve: these settings are for podium evolve; podium train has members that never meet")
    if schedule is not None:
        steps_of_genes = read_schedule(Path(schedule))
        _no_other_values(steps_of_genes, said(words)[0])
        replayed = {"train": {"schedule": steps_of_genes}, "algo": {"anneal": []}}
        settings = config.merge(settings, replayed)
    experiment = entrants.validate(settings)
    path = Path(out) if out is not None else next_name(f"{experiment.env.id}-{experiment.algo.name}")
    return begin(experiment, path, fresh, quiet, on_report, notes(words, "train"))


def evolve(
    *words: Word,
    out: str | Path | None = None,
    fresh: bool = False,
    quiet: bool = True,
    on_report: OnReport | None = None,
    trust: bool = False,
) -> Result:
    """Evolve a population as `podium evolve WORDS -o OUT` does; arguments are those of `train`."""
    tree = compose(words)
    _check_trust(words, tree, trust)
    with job(tree.get("fleet")):
        experiment = settle(entrants.validate(entrants.complete(tree, said(words), own(words))))
        strategy = experiment.evolve.strategy if isinstance(experiment, Evolution) else ""
        algos = "-".join(dict.fromkeys(kind.algo.name for kind in entrants.kinds(experiment)))
        path = Path(out) if out is not None else next_name(f"{experiment.env.id}-{algos}-{strategy}")
        return begin(experiment, path, fresh, quiet, on_report, notes(words, "evolve"))


def _check_trust(words: Sequence[Word], settings: Mapping[str, Any], trust: bool) -> None:
    """Refuses code that only the settings of another run name; remembers all other code that a run is started with."""
    files = [Path(word) for word in words if isinstance(word, str | Path) and run_config.of_a_run(Path(word))]
    if files:
        own = compose([word for word in words if not (isinstance(word, str | Path) and Path(word) in files)])
        typed = [*(word.partition("=")[2] or word for word in words if isinstance(word, str)), *_code(own)]
        trusting.check(files[0], settings, trust, typed)
    if not (files and trust):
        trusting.remember(settings)


def _code(settings: Mapping[str, Any]) -> list[str]:
    return [name for _, name in trusting.named(settings)]


def _no_other_values(schedule: Sequence[Mapping[str, Any]], said: Collection[str]) -> None:
    """A gene has one value at a time: that of the schedule."""
    for name in sorted(said):
        if any(name in part["genes"] for part in schedule):
            raise PodiumError(f"algo.{name}: the schedule sets it; leave it out, or take it out of the schedule")


def begin(
    experiment: Experiment,
    path: Path,
    fresh: bool,
    quiet: bool,
    on_report: OnReport | None,
    notes: Sequence[str] = (),
) -> Result:
    """A new run in the folder `path`; `notes` are said at its start."""
    admit(path, fresh)
    dealt = seats(experiment)
    with (
        Interrupt(at_once=True) as interrupt,
        Sink(console(experiment, quiet), on_report) as sink,
        closing(place(experiment, dealt)) as pool,
    ):
        start = _start(pool, experiment, len(dealt))
        with Run.create(path, experiment.model_dump(mode="json"), fresh) as run, disk(run):
            orchestrator = entrants.orchestrator(experiment, run, dealt)
            orchestrator.population.enter()
            if start:
                run.ledger.event(0, 0.0, "start", start)
            sink.open(run, 0)
            driver = Driver(pool, orchestrator, plan(experiment), sink, sink.or_stopped(interrupt.happened))
            interrupt.at_once = False
            driver.checkpoint()
            return finish(driver, sink, experiment, notes)


def finish(
    driver: Driver, sink: Sink, experiment: Experiment, notes: Sequence[str] = (), empty: int | None = None
) -> Result:
    """Train to the end. `empty`: the step at which the replays had to begin anew, if they had."""
    sink.start(f"{_title(experiment)}  ->  {driver.run.path}")
    more = [_endless(experiment), *map(experiments.unsaved, entrants.kinds(experiment))]
    for note in (*notes, *filter(None, more)):
        sink.note(note)
    reason = driver.train()
    if reason == "interrupted" and sink.stopped:
        reason = "stopped"
    driver.run.log(f"stopped at step {driver.step}: {reason}")
    sink.stop()
    for note in _unlearnt(driver, experiment, empty):
        sink.note(note)
    if driver.noted:
        sink.note(f"{driver.noted} notes on what went wrong on the way are in {driver.run.log_path}")
    return Result(driver.run.path, driver.run.ledger.top(), driver.step, reason)


def _endless(experiment: Experiment) -> str | None:
    """A warning where episodes may never end."""
    if not endless(experiment.env):
        return None
    cut = f"An evaluation cuts them after eval.max_steps={experiment.eval.max_steps:,} steps"
    rest = "set env.time_limit (for example 200) to end them in training, too"
    return f"{experiment.env.id} has no time limit: its episodes may never end. {cut}; {rest}"


def _unlearnt(driver: Driver, experiment: Experiment, empty: int | None) -> list[str]:
    """Of each kind of members that never came to learn, that this is so, and when it would have begun."""
    each, population, said = entrants.kinds(experiment), driver.population, {}
    for kind, steps in zip((at.kind for at in population.places), population.steps, strict=True):
        first, setting = experiments.first_update(each[kind])
        if steps < first + (empty or 0):
            name = entrants.name_of(each, kind)
            when = f"by step {steps:,}" if empty is None else f"since step {empty:,}, when its replay was empty"
            said[name] = f"{name} has learnt nothing {when}: it begins at step {first + (empty or 0):,} ({setting})"
    return list(said.values())


def _start(pool: Pods, experiment: Experiment, pods: int) -> dict[str, Any] | None:
    """Where all members begin, if not with new weights: with what another run's member has learnt; genes stay ours."""
    start = experiment.train.start
    if start is None:
        return None
    folder, _, number = start.rpartition(":")
    with Run.open(Path(folder if number.isdigit() else start)) as run:
        member = int(number) if number.isdigit() else run.champion()
        if not run.snapshot_path(member).exists():
            raise ConfigError("train.start", start, f"of {run.path} there are {', '.join(map(str, run.kept()))}")
        learnt, info = run.read_snapshot(member)
        step = checked_step(learnt, info, run.snapshot_path(member))
        learnt.pop("genes", None)
        for mine in pool.read([(pod, 0) for pod in range(pods)]):
            mine.pop("genes", None)
            try:
                tensors.match(learnt, mine, run.snapshot_path(member))
            except CheckpointError as error:
                was = f"{run.config['algo']['name']} on {run.config['env']['id']}"
                raise ConfigError("train.start", start, f"it is a member of {was}; {error}") from error
        pool.begin(learnt)
        return {"run": str(run.path), "member": member, "step": step}


def plan(experiment: Experiment) -> Plan:
    stop = experiment.stop
    train = experiment.train
    return Plan(stop.steps, stop.seconds, stop.fitness, stop.generations, train.checkpoint, train.max_unsaved)


def console(experiment: Experiment, quiet: bool) -> Console:
    return Console(experiment.stop.steps, experiment.train.members, quiet)


def _title(experiment: Experiment) -> str:
    members = experiment.train.members
    of = f" x {members} members" if members > 1 else ""
    algo = experiment.algo.name
    if isinstance(experiment, Evolution):
        algo = " and ".join(dict.fromkeys(kind.algo.name for kind in entrants.kinds(experiment)))
        algo = f"{experiment.evolve.strategy} of {algo}"
    env = experiment.env
    guests = any(is_guest(lookup.algorithm(kind.algo.name)) for kind in entrants.kinds(experiment))
    source = "" if guests else f" ({source_of(env, members * env.num)})"
    return f"{algo} on {env.id}{source}{of}, {env.num} env{'s' * (env.num != 1)} each, seed {experiment.seed}"


@contextmanager
def disk(run: Run) -> Iterator[None]:
    """What ends the run is in its log. A full disk or a lost folder: with a message that says what still stands."""
    try:
        yield
    except BrokenPipeError:
        raise  # of who reads what is printed
    except OSError as error:
        said = f"{run.path}: a file could not be written ({error}); "
        if not checkpoint.found(run.path):
            raise PodiumError(f"{said}nothing was saved") from error
        said += "make room, then: "
        python, typed = f"podium.resume({str(run.path)!r})", f"podium resume {run.path}"
        raise PodiumError(said + python, said + typed) from error
    except Exception as error:
        known = isinstance(error, PodiumError)
        run.log(f"ended by an error: {error if known else traceback.format_exc().strip()}")
        raise
