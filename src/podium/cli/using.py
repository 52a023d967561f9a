"""Commands that use a member: play, export."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from podium.cli.base import BestOf, EnvId, Json, MemberId, RunPath, Seed, Trust, app, print_json


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
    trust: Trust = False,
) -> None:
    """Draw an episode of the champion as a film."""
    from podium.envs.film import draw_without_screen
    from podium.report import video

    draw_without_screen()
    path = out or Path(f"{run.resolve().name}.gif")
    video.check(path)
    from podium.agent import load

    agent, returns = load(run, member, trust, [env]), []

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
    ensemble: BestOf = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="FILE.onnx; else RUN.onnx.", show_default=False),
    ] = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the champion as an ONNX file, and check it with onnxruntime."""
    from podium import exporting

    written = exporting.export(run, member, ensemble, out, trust)
    if as_json:
        print_json(dataclasses.asdict(written) | {"path": str(written.path)})
        return
    inputs, outputs = (", ".join(map(str, end)) for end in (written.inputs, written.outputs))
    checked = f"off by at most {written.difference:.1g} on {written.checked} observations"
    print(f"{written.path}: {written.size:,} bytes, {inputs} -> {outputs}; {checked}")
