"""Commands that read a run: eval, top, lineage, front."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from podium.cli.base import EnvId, Json, MemberId, Plot, RunPath, Seed, app, ledger_of, print_json
from podium.core.errors import PodiumError


@app.command("eval")
def evaluate(
    run: RunPath,
    member: MemberId = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    env: EnvId = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Evaluate the champion's best snapshot, with its most likely actions."""
    from podium.agent import load

    agent = load(run, member)
    row = {"member": agent.member, "steps": agent.step, "env": env or agent.env, "episodes": episodes}
    row |= _statistics(agent.evaluate(episodes, env, seed).tolist())
    if as_json:
        print_json(row)
    else:
        print(f"member {row['member']} of {run}, as it was at step {row['steps']:,}, on {row['env']}:")
        print(f"  {row['mean']:.2f} ± {row['std']:.2f} over {episodes} episodes")
        print("  " + "  ".join(f"{name} {row[name]:.2f}" for name in ("iqm", "median", "min", "max")))


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
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew every two seconds.")] = False,
    as_json: Json = False,
    n: Annotated[
        int | None, typer.Option("-n", min=1, metavar="N", help="The best N only.", show_default=False)
    ] = None,
) -> None:
    """The leaderboard of a run, at work or finished."""
    from podium.report import tables

    ledger = ledger_of(run)
    rows = ledger.top(n)
    if as_json:
        print_json(rows)
    elif not watch:
        tables.show(tables.leaderboard(rows, title=str(run)))
    else:
        from rich.live import Live

        with Live(tables.leaderboard(rows, title=str(run)), auto_refresh=False) as live:
            try:
                while ledger.training():
                    time.sleep(2)
                    live.update(tables.leaderboard(ledger.top(n), title=str(run)), refresh=True)
                live.update(tables.leaderboard(ledger.top(n), title=str(run)), refresh=True)
            except KeyboardInterrupt:
                pass


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
    from podium.report import lineage_tables, plots, tables

    if as_json and as_csv:
        raise PodiumError("--csv: --json prints the schedule, too; choose one of the two")
    if plot is not None:
        plots.check(plot)
    document = lines.lineage(ledger_of(run), member)
    if as_json:
        print_json(document)
    elif as_csv:
        print(lines.to_csv(document["schedule"]), end="")
    else:
        ancestry = lineage_tables.ancestry(document, f"{run}: {lineage_tables.headline(document)}")
        title = "\nschedule: from which step of its training on which genes held"
        tables.show(ancestry, lineage_tables.Schedule(document["schedule"], title))
    if plot is not None:
        plots.schedule(document, plot)
        _drawn(plot, f"the lineage of member {document['champion']['id']}", as_json or as_csv)


@app.command()
def front(run: RunPath, as_json: Json = False, plot: Plot = None) -> None:
    """The members that no other surpasses in every objective, in a run with several."""
    from podium.report import plots, tables
    from podium.store.run import config_of

    if plot is not None:
        plots.check(plot)
    rows = ledger_of(run).top()
    names = tables.objectives(rows)
    if len(names) < 2:
        raise PodiumError(f"{run}: a run without several objectives has no front; `podium top` shows its leaderboard")
    if not any("front" in row for row in rows):
        raise PodiumError(f"{run}: no member has entered the leaderboard yet, so there is no front")
    best = [row for row in rows if row["front"] == 0]
    wanted = config_of(run).get("evolve", {}).get("objectives") or names
    sign, first = (1, wanted[0][1:]) if wanted[0].startswith("-") else (-1, wanted[0])
    best.sort(key=lambda row: sign * ((row["objectives"] or {}).get(first) or 0))
    if as_json:
        print_json(best)
    else:
        tables.show(tables.front(best, title=f"{run}: {len(best)} of {len(rows)} members are on the front"))
    if plot is not None:
        plots.front(rows, names, plot)
        _drawn(plot, f"the front, {len(best)} members", as_json)


def _drawn(path: Path, what: str, aside: bool) -> None:
    """Say that a picture was written; beside a document on stdout, say it on stderr."""
    print(f"{path}: {what}", file=sys.stderr if aside else sys.stdout)
