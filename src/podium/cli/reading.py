"""Commands that read a run: eval, top, lineage, front."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podium.cli.base import (
    BestOf,
    EnvId,
    Json,
    MemberId,
    Plot,
    RunPath,
    Seed,
    Trust,
    app,
    counter,
    ended_by,
    ledger_of,
    print_json,
)
from podium.core.errors import ConfigError, PodiumError

if TYPE_CHECKING:
    from podium.agent import Agent, GuestAgent
    from podium.ensemble import Ensemble


@app.command("eval")
def evaluate(
    run: RunPath,
    member: MemberId = None,
    ensemble: BestOf = None,
    how: Annotated[
        str | None,
        typer.Option(
            "--how", metavar="RULE", help="How these act as one: average, vote or mixture.", show_default=False
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    env: EnvId = None,
    seed: Seed = 0,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Evaluate the champion's best snapshot, or the best members together, with the most likely actions."""
    with ended_by(KeyboardInterrupt, "the evaluation was stopped before its end"), counter() as progress:
        who, about = (
            _alone(run, member, how, trust, [env])
            if ensemble is None
            else _together(run, member, ensemble, how, trust, [env])
        )
        row = about | {"steps": who.step, "env": env or who.env, "episodes": episodes, "max_steps": who.max_steps}
        row |= _statistics(who.evaluate(episodes, env, seed, progress).tolist())
    if as_json:
        print_json(row)
    else:
        alone = f"member {row['member']} of {run}, as it was at step {row['steps']:,}"
        together = f"members {', '.join(map(str, row['members']))} of {run} as one, by {row['how']}"
        print(f"{alone if ensemble is None else together}, on {row['env']}:")
        cut = "" if who.max_steps is None else f" of at most {who.max_steps:,} steps"
        print(f"  {row['mean']:.2f} ± {row['std']:.2f} over {episodes} episode{'s' * (episodes > 1)}{cut}")
        print("  " + "  ".join(f"{name} {row[name]:.2f}" for name in ("iqm", "median", "min", "max")))


def _alone(
    run: Path, member: int | None, how: str | None, trust: bool, typed: list[str | None]
) -> tuple[Agent | GuestAgent, dict[str, Any]]:
    from podium.agent import load

    if how is not None:
        raise ConfigError("--how", how, "it goes with --ensemble top:K")
    agent = load(run, member, trust, typed)
    return agent, {"member": agent.member, "members": [agent.member], "how": None}


def _together(
    run: Path, member: int | None, top: str, how: str | None, trust: bool, typed: list[str | None]
) -> tuple[Ensemble, dict[str, Any]]:
    from podium.ensemble import Ensemble, best

    if member is not None:
        raise ConfigError("--ensemble", top, "--member and --ensemble exclude each other")
    together = Ensemble(best(run, top, trust, typed), how)
    return together, {"member": None, "members": list(together.members), "how": together.how}


def _statistics(returns: list[float]) -> dict[str, float]:
    """Of returns; `iqm` is the mean of the middle half."""
    import statistics

    ordered, cut = sorted(returns), len(returns) // 4
    return {
        "mean": statistics.fmean(returns),
        "std": statistics.pstdev(returns),
        "iqm": statistics.fmean(ordered[cut : len(ordered) - cut]),
        "median": statistics.median(ordered),
        "min": ordered[0],
        "max": ordered[-1],
    }


@app.command()
def top(
    run: RunPath,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew until the run ends.")] = False,
    as_json: Json = False,
    n: Annotated[
        int | None, typer.Option("-n", min=1, metavar="N", help="The best N only.", show_default=False)
    ] = None,
) -> None:
    """The leaderboard of a run, at work or finished."""
    from podium.cli import watching
    from podium.report import heading, progress, tables
    from podium.store.run import config_of

    ledger = ledger_of(run)

    def view() -> tables.Fitted:
        config = config_of(run)
        said = [
            progress.title(run, config, ledger),
            heading.scheduled(config),
            *heading.kinds(config, ledger.members()),
        ]
        return tables.leaderboard(ledger.top(), "\n  ".join(filter(None, said))).first(n)

    if as_json:
        print_json(ledger.top(n))
    elif not watch:
        tables.show(view())
        watching.say_stopped(run, ledger)
    else:
        watching.watch(run, view)


@app.command()
def lineage(
    run: RunPath,
    member: MemberId = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the schedule as CSV.")] = False,
    plot: Plot = None,
) -> None:
    """Whom the champion descends from, and the schedule of genes that made it."""
    from podium.evolve import lineage as lines
    from podium.report import documents, heading, lineage_tables, plots, tables
    from podium.store.run import config_of

    if as_json and as_csv:
        raise PodiumError("--csv: --json prints the schedule, too; choose one of the two")
    if plot is not None:
        plots.check(plot)
    document = documents.lineage(run, member)
    if as_json:
        print_json(document)
    elif as_csv:
        print(lines.to_csv(document["schedule"]), end="")
    else:
        config = config_of(run)
        said = [f"{run}: {lineage_tables.headline(document)}", *heading.kinds(config, ledger_of(run).members())]
        ancestry = lineage_tables.ancestry(document, "\n  ".join(filter(None, [*said, heading.scheduled(config)])))
        title = "\nschedule: from which step of its training on which genes held"
        tables.show(ancestry, lineage_tables.Schedule(document["schedule"], title))
    if plot is not None:
        plots.schedule(document, plot, _scales(document["champion"]["algo"]), documents.population(run))
        _drawn(plot, f"the lineage of member {document['champion']['id']}", as_json or as_csv)


@app.command()
def front(run: RunPath, as_json: Json = False, plot: Plot = None) -> None:
    """The members that no other surpasses in every objective, in a run with several."""
    from podium.report import documents, plots, tables

    if plot is not None:
        plots.check(plot)
    rows = ledger_of(run).top()
    best = documents.first_front(run, rows)
    if as_json:
        print_json(best)
    else:
        of = f"{len(best)} of {_members(len(rows))} {'is' if len(best) == 1 else 'are'} on the front"
        tables.show(tables.front(best, title=f"{run}: {of}"))
    if plot is not None:
        plots.front(rows, documents.objectives(run, rows), plot, f"Front of {run.resolve().name}")
        _drawn(plot, f"the front, {_members(len(best))}", as_json)


def _members(n: int) -> str:
    return f"{n} member{'s' * (n != 1)}"


def _scales(algo: str) -> dict[str, str]:
    """The scale of each gene of an algorithm; nothing where it is not to be had, or is not the user's own code."""
    from podium import lookup
    from podium.core import hyper, trust

    if not trust.known(algo):
        return {}
    try:
        return {name: gene.scale for name, gene in hyper.genes(lookup.algorithm(algo).Settings).items()}
    except PodiumError:
        return {}


def _drawn(path: Path, what: str, aside: bool) -> None:
    """Say that a picture was written; beside a document on stdout, say it on stderr."""
    print(f"{path}: {what}", file=sys.stderr if aside else sys.stdout)
