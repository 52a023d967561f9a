"""The `podium` command. Torch is imported only by the commands that need it, so that help and tables are quick."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pkgutil
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from podium import __version__
from podium.core.errors import PodiumError, UnknownName

if TYPE_CHECKING:
    from podium.store.ledger import Ledger
    from podium.training import Result

app = typer.Typer(
    name="podium",
    help="Populations of deep reinforcement learning agents, trained as one tensor program.",
    epilog="Start with: podium train cartpole ppo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Words = Annotated[
    list[str],
    typer.Argument(metavar="WORDS...", help="Presets, YAML files, a Gymnasium id, key=value.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="The run's folder; else runs/NAME-N.", show_default=False),
]
Fresh = Annotated[bool, typer.Option("-D", "--fresh", help="Delete the run in DIR and start it afresh.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)]
MemberId = Annotated[
    int | None, typer.Option("--member", metavar="ID", help="A member, not the champion.", show_default=False)
]
EnvId = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="ID", help="A Gymnasium env with the same spaces, not the run's.", show_default=False
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the episodes.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it: FILE.png, FILE.svg or FILE.pdf.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def main() -> None:
    """Run the command line; an error that a user can cause is one line, exit code 2."""
    sys.path.append(os.getcwd())  # so that module:Class finds the user's own files
    try:
        app()
    except PodiumError as error:
        print(f"podium: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"podium {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
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
) -> None:
    """Train agents beside each other: podium train cartpole ppo algo.lr=5e-4 train.members=8"""
    from podium import training

    _finish(training.train(*words, out=out, fresh=fresh, quiet=quiet, schedule=schedule), quiet)


@app.command()
def evolve(words: Words, out: Out = None, fresh: Fresh = False, quiet: Quiet = False) -> None:
    """Evolve a population while it learns: podium evolve cartpole ppo tournament "algo.lr=[1e-5,1e-2]\""""
    from podium import training

    _finish(training.evolve(*words, out=out, fresh=fresh, quiet=quiet), quiet)


@app.command()
def resume(
    run: RunPath,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.", show_default=False)
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="The checkpoint of step N, not the last.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a run, or extend it: podium resume runs/x stop.steps=2e6"""
    from podium import resuming

    _finish(resuming.resume(run, *(overrides or ()), step=step, quiet=quiet), quiet)


def _finish(result: Result, quiet: bool) -> None:
    """What to say at the end of a run."""
    from podium.report import tables

    path = shlex.quote(str(result.path))
    if result.reason == "failed":
        _fail(f"all members failed at step {result.step:,}; {result.path / 'log.txt'} says why")
    if quiet:
        return
    if result.reason == "interrupted":
        print(f"Stopped and saved at step {result.step:,}. Go on with:  podium resume {path}")
        return
    title, next_ = f"{result.path}: {_ENDINGS[result.reason]}", [f"podium eval {path}", f"podium top {path}"]
    if result.top and "front" in result.top[0]:
        tables.show(tables.leaderboard(result.top[:10], f"{title}; the best of {len(result.top)} on the leaderboard"))
        _show_schedule(result.path)
        next_ += [f"podium lineage {path} --plot lineage.png", f"podium export {path} -o {result.path.name}.onnx"]
        if tables.objectives(result.top):
            next_ += [f"podium front {path} --plot front.png"]
    else:
        tables.show(tables.summary(result.top, title))
    print("\nNext:", *next_, f"podium play {path} -o {result.path.name}.gif", sep="\n  ")


def _show_schedule(run: Path) -> None:
    """The genes that the champion lived through."""
    from podium.evolve.lineage import lineage as line_of
    from podium.report import lineage_tables, tables

    document = line_of(_ledger(run), None)
    title = f"\nschedule of the champion, member {document['champion']['id']}"
    tables.show(lineage_tables.Schedule(document["schedule"], title))


_ENDINGS = {rule: f"stop.{rule} reached" for rule in ("steps", "seconds", "fitness", "generations")}


def _fail(message: str) -> NoReturn:
    print(f"podium: {message}", file=sys.stderr)
    raise typer.Exit(1)


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
        _json(row)
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

    ledger = _ledger(run)
    rows = ledger.top(n)
    if as_json:
        _json(rows)
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


def _ledger(run: Path) -> Ledger:
    """The ledger of a run, for reading."""
    from podium.store.ledger import Ledger

    if not (run / "ledger.sqlite").is_file():
        raise PodiumError(f"{run}: there is no run in it" if run.is_dir() else f"{run}: no such run")
    return Ledger(run / "ledger.sqlite", readonly=True)


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
    document = lines.lineage(_ledger(run), member)
    if as_json:
        _json(document)
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

    if plot is not None:
        plots.check(plot)
    rows = _ledger(run).top()
    names = tables.objectives(rows)
    if len(names) < 2:
        raise PodiumError(f"{run}: a run without several objectives has no front; `podium top` shows its leaderboard")
    if not any("front" in row for row in rows):
        raise PodiumError(f"{run}: no member has entered the leaderboard yet, so there is no front")
    best = [row for row in rows if row["front"] == 0]
    best.sort(key=lambda row: -((row["objectives"] or {}).get(names[0]) or 0))
    if as_json:
        _json(best)
    else:
        tables.show(tables.front(best, title=f"{run}: {len(best)} of {len(rows)} members are on the front"))
    if plot is not None:
        plots.front(rows, names, plot)
        _drawn(plot, f"the front, {len(best)} members", as_json)


def _drawn(path: Path, what: str, aside: bool) -> None:
    """Say that a picture was written; beside a document on stdout, say it on stderr."""
    print(f"{path}: {what}", file=sys.stderr if aside else sys.stdout)


@app.command()
def play(
    run: RunPath,
    member: MemberId = None,
    env: EnvId = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="FILE.gif or FILE.mp4; else RUN.gif.", show_default=False),
    ] = None,
    seed: Seed = 0,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to draw.")] = 1,
) -> None:
    """Draw an episode of the champion as a film."""
    from podium.report import video

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # draw without a screen
    path = out or Path(f"{run.resolve().name}.gif")
    video.check(path)
    from podium.agent import load

    agent, returns = load(run, member), []

    def frames() -> Any:
        for episode in range(episodes):
            returns.append(0.0)
            for frame, returns[-1] in agent.play(env, seed + episode):
                yield frame

    count = video.write(path, frames())
    print(f"{path}: {count:,} frames, return {', '.join(f'{r:.2f}' for r in returns)}")


@app.command()
def export(
    run: RunPath,
    member: MemberId = None,
    ensemble: Annotated[
        str | None,
        typer.Option("--ensemble", metavar="top:K", help="The best K members together.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="FILE.onnx; else RUN.onnx.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the champion as an ONNX file, and check it with onnxruntime."""
    from podium import exporting

    written = exporting.export(run, member, ensemble, out)
    if as_json:
        _json(dataclasses.asdict(written) | {"path": str(written.path)})
        return
    inputs, outputs = (", ".join(map(str, end)) for end in (written.inputs, written.outputs))
    checked = f"off by at most {written.difference:.1g} on {written.checked} observations"
    print(f"{written.path}: {written.size:,} bytes, {inputs} -> {outputs}; {checked}")


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print this one.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """The presets there are; with NAME, what it says."""
    from podium import compose

    if name is not None:
        text = compose.preset_text(name)
        if as_json:
            _json(compose.presets()[name][1])
        else:
            print(text, end="")
        return
    rows = [{"name": n, "group": g, "about": tree.get("about", "")} for n, (g, tree) in compose.presets().items()]
    if as_json:
        _json(rows)
    else:
        _table(rows, ["name", "group", "about"])


@app.command()
def bench(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="ppo, stack, env, evolve, orchestrator or pareto.", show_default=False)
    ],
    as_json: Json = False,
    rounds: Annotated[int, typer.Option(min=1, help="Times to measure both sides, in turn.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: to see that it works.")] = False,
) -> None:
    """Measure Podium side by side with its peers."""
    import podium.bench

    known = [found.name for found in pkgutil.iter_modules(podium.bench.__path__) if not found.name.startswith("_")]
    if name not in known:
        raise UnknownName("bench", name, known)
    rows = importlib.import_module(f"podium.bench.{name}").main(rounds=rounds, quick=quick)
    if as_json:
        _json(rows)
    else:
        _table(rows, ["name", "ours", "peer", "ratio", "low", "high", "unit"])


def _table(rows: list[dict[str, Any]], columns: list[str]) -> None:
    from rich import box
    from rich.table import Table

    from podium.report import tables

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        number = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(column, justify="right" if number else "left", no_wrap=column != "about")
    for row in rows:
        table.add_row(*(f"{row[c]:,.4g}" if isinstance(row[c], float) else str(row[c]) for c in columns))
    tables.show(table)


def _json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))
