"""Commands for a fleet that is started by hand: keys, serve."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from podium.cli.base import app
from podium.core.errors import PodiumError


@app.command()
def keys(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, for you alone.", show_default=False)],
) -> None:
    """Write new keys for nodes that are started by hand."""
    from podium.fleet.keys import Keys, write

    write(file, Keys.new())
    name = shlex.quote(str(file))
    print(f"{file}: copy it to each machine (scp -p), then there: podium serve module:Class ADDRESS --keys {name}")


@app.command()
def serve(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="The node's class, importable here.", show_default=False)
    ],
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Where: tcp://0.0.0.0:7000, ipc:///path.", show_default=False)
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="What the class is made of, each as JSON.", show_default=False),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="As podium keys wrote it.", show_default=False),
    ] = None,
) -> None:
    """Be a node that others call, until Ctrl-C: podium serve my:Simulator tcp://0.0.0.0:7000 --keys fleet.keys"""
    from podium.core.interrupt import Interrupt
    from podium.fleet import by_hand
    from podium.fleet.keys import read

    def ready(where: str) -> None:
        asks = "asks for keys" if held else "asks for no keys"
        print(f"{target} at {where}, {asks}; Ctrl-C ends it", flush=True)

    values = [_value(word) for word in args or ()]
    held = read(keys) if keys is not None else None
    with Interrupt() as interrupt:
        by_hand.serve(target, address, held, values, interrupt.happened, ready)


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError as error:
        raise PodiumError(f"{word}: not JSON; a text is written as {json.dumps(word)!r}") from error
