"""Commands that train: train, evolve, resume."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from podium.cli.base import Fresh, Out, Quiet, RunPath, Trust, Words, app, ended_by
from podium.cli.words import WordsCommand
from podium.core.interrupt import Ended

if TYPE_CHECKING:
    from podium.training import Result


_BEFORE = "stopped before training had begun; nothing was saved"


@app.command(cls=WordsCommand)
def train(
    words: Words,
    out: Out = None,
    fresh: Fresh = False,
    schedule: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Genes over time, as podium lineage prints them (--json, --csv).", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Train agents beside each other: podium train cartpole ppo algo.lr=5e-4 train.members=8"""
    from podium import training

    with ended_by(Ended, _BEFORE):
        result = training.train(*words, out=out, fresh=fresh, quiet=quiet, schedule=schedule, trust=trust)
    _finish(result, quiet, named=out is not None)


@app.command(cls=WordsCommand)
def evolve(words: Words, out: Out = None, fresh: Fresh = False, quiet: Quiet = False, trust: Trust = False) -> None:
    """Evolve a population while it learns: podium evolve cartpole ppo truncation "algo.lr=[1e-5,1e-2]"

    Strategies: tournament, the default, is asynchronous. In generations proceed
    truncation, wta, tournament-selection, t-test, softmax and, for several
    objectives, nsga2. `podium presets` tells of each.
    """
    from podium import training

    with ended_by(Ended, _BEFORE):
        result = training.evolve(*words, out=out, fresh=fresh, quiet=quiet, trust=trust)
    _finish(result, quiet, named=out is not None)


@app.command(cls=WordsCommand)
def resume(
    run: RunPath,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.", show_default=False)
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="The checkpoint of step N, not the last.", show_default=False)
    ] = None,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Go on with a run, or extend it: podium resume runs/x stop.steps=2e6"""
    from podium import resuming
    from podium.store import checkpoint

    before = step if step is not None else max(map(checkpoint.step_of, checkpoint.found(run)), default=0)
    with ended_by(Ended, "stopped before the run went on; it is as it was"):
        result = resuming.resume(run, *(overrides or ()), step=step, quiet=quiet, trust=trust)
    if result.step == before and not quiet:
        _say_why_not(result)
    _finish(result, quiet)


def _say_why_not(result: Result) -> None:
    """That a resumed run trained nothing, since its goal had been reached before, and how to go on."""
    from podium.store.run import config_of
    from podium.training import ENDINGS

    if result.reason in ENDINGS:
        rule, goal = f"stop.{result.reason}", config_of(result.path)["stop"][result.reason]
        print(f"Nothing was trained: {rule}={goal} had been reached before, at step {result.step:,}.")
        print(f"Go on with:  podium resume {shlex.quote(str(result.path))} {rule}=null  (or more than {goal})")


def _finish(result: Result, quiet: bool, named: bool = True) -> None:
    """What to say at the end of a run; if little is to be said, the folder that the user has not named."""
    from podium import lookup
    from podium.envs.make import source_of
    from podium.envs.settings import EnvSettings
    from podium.guests.base import is_guest
    from podium.report import tables
    from podium.store.run import config_of
    from podium.training import ENDINGS

    path = shlex.quote(str(result.path))
    if result.reason == "failed":
        fail(f"all members failed at step {result.step:,}; {result.path / 'log.txt'} says why")
    if quiet:
        if not named:
            print(result.path)
        return
    if result.reason == "interrupted":
        print(f"Stopped and saved at step {result.step:,}. Go on with:  podium resume {path}")
        return
    title, next_ = f"{result.path}: {ENDINGS[result.reason]}", [f"podium eval {path}", f"podium top {path}"]
    if result.top and "front" in result.top[0]:
        title = f"{title}; the best of {len(result.top)} on the leaderboard"
        tables.show(tables.leaderboard(result.top, title).first(10))
        _show_schedule(result.path)
        next_ += [f"podium lineage {path} --plot lineage.png"]
        if tables.objectives(result.top):
            next_ += [f"podium front {path} --plot front.png"]
    else:
        tables.show(tables.summary(result.top, title))
    settings = config_of(result.path)
    kinds = settings.get("evolve", {}).get("entrants") or [settings]
    if not any(is_guest(lookup.algorithm(kind["algo"]["name"])) for kind in kinds):
        next_ += [f"podium export {path} -o {result.path.name}.onnx"]
        if source_of(EnvSettings(**settings["env"]), 1) != "own":  # which nobody can draw
            next_ += [f"podium play {path} -o {result.path.name}.gif"]
    print("\nNext:", *next_, sep="\n  ")


def _show_schedule(run: Path) -> None:
    """The genes that the champion lived through."""
    from podium.report import documents, lineage_tables, tables

    document = documents.lineage(run)
    title = f"\nschedule of the champion, member {document['champion']['id']}"
    tables.show(lineage_tables.Schedule(document["schedule"], title))


def fail(message: str) -> NoReturn:
    print(f"podium: {message}", file=sys.stderr)
    raise typer.Exit(1)
