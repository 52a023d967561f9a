"""Commands about Podium itself: presets, bench."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated

import typer

from podium.cli.base import Json, app, print_json, print_table
from podium.core.errors import UnknownName


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
            print_json(compose.presets()[name][1])
        else:
            print(text, end="")
        return
    rows = [{"name": n, "group": g, "about": tree.get("about", "")} for n, (g, tree) in compose.presets().items()]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ["name", "group", "about"])


@app.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="ppo, atari, stack, offpolicy, replay, env, mujoco, evolve, orchestrator, pareto, rpc or fleet.",
            show_default=False,
        ),
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
        print_json(rows)
    else:
        print_table(rows, ["name", "ours", "peer", "ratio", "low", "high", "unit"])
