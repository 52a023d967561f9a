"""The pictures of pong.md, from a run of behaviour-diverse Pong: python docs/pong.py RUN"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from PIL import Image, ImageDraw, ImageFont

import podium
from podium.envs.native.pong import ROUNDS, Pong
from podium.envs.native.pong_env import PongEnv

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench"))
from behaviour import played  # noqa: E402

IMAGES = HERE / "images"
FRAMES, EVERY, SIDE, HEAD = 240, 2, 200, 34
PAPER, INK = (24, 26, 33), (235, 235, 235)


@dataclass(frozen=True)
class Style:
    """How a member plays, in episodes of its own that selection never saw."""

    member: int
    fitness: float
    stop: float
    moved: float


def main(run: str) -> None:
    members = [row["id"] for row in podium.front(run)]
    found = [(member, played(podium.load(run, member))) for member in members]
    styles = [Style(member, *(p[name] for name in ("fitness", "stop", "moved"))) for member, p in found]
    for style in sorted(styles, key=lambda s: s.stop):
        print(f"member {style.member}: fitness {style.fitness:.3f}, stop {style.stop:.3f}, moved {style.moved:.3f}")
    laziest, busiest = max(styles, key=lambda s: s.fitness + s.stop), max(styles, key=lambda s: s.fitness + s.moved)
    plot(styles, laziest, busiest)
    film(run, {"laziest": laziest, "busiest": busiest})


def plot(styles: list[Style], laziest: Style, busiest: Style) -> None:
    figure, panel = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    points = panel.scatter(
        [s.stop for s in styles], [s.moved for s in styles], c=[s.fitness for s in styles],
        cmap="viridis", vmin=0, vmax=1, s=70, edgecolors="white", linewidths=0.8, zorder=3,
    )  # fmt: skip
    panel.plot([0, 1], [1, 0], color="0.8", linewidth=1, zorder=1)
    panel.text(0.0, 0.0, "below the line it pushes against a wall", color="0.55", fontsize=8)
    for style, name in ((laziest, "laziest"), (busiest, "busiest")):
        text = f"the {name}: fitness {style.fitness:.2f}"
        panel.annotate(text, (style.stop, style.moved), (9, 5), textcoords="offset points")
    panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.08), xlabel="share of steps with the action stop")
    panel.set_ylabel("share of steps in which the bat moved")
    panel.set_title("The front of behaviour-diverse Pong", loc="left", fontsize=11, fontweight="bold")
    panel.grid(color="0.93", zorder=0)
    panel.spines[["top", "right"]].set_visible(False)
    figure.colorbar(points, label="fitness")
    figure.savefig(IMAGES / "pong-front.png", dpi=130)
    plt.close(figure)


def film(run: str, ends: dict[str, Style]) -> None:
    """Both ends of the front side by side, each in a game of its own with the same seed."""
    games = [game(run, style, name) for name, style in ends.items()]
    frames = [Image.fromarray(np.concatenate(pair, 1)) for pair in zip(*games, strict=True)]
    palette = frames[len(frames) // 2].quantize(16, dither=Image.Dither.NONE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    path = IMAGES / "pong-ends.gif"
    small[0].save(path, save_all=True, append_images=small[1:], duration=50, loop=0, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def game(run: str, style: Style, name: str) -> list[np.ndarray]:
    agent, env = podium.load(run, style.member), PongEnv(render_mode="rgb_array")
    obs, _ = env.reset(seed=1)
    frames, won, lost, font = [], 0, 0, ImageFont.load_default(13)
    for i in range(FRAMES * EVERY):
        if i % EVERY == 0:
            image = Image.new("RGB", (SIDE + 12, SIDE + HEAD + 6), (60, 63, 72))
            image.paste(Image.fromarray(env.render()).resize((SIDE, SIDE), Image.Resampling.NEAREST), (6, HEAD))
            text = ImageDraw.Draw(image)
            text.text((8, 2), f"the {name}: stops in {style.stop:.0%},", INK, font)
            text.text((8, 16), f"moves in {style.moved:.0%} of its steps", INK, font)
            text.text((SIDE + 2, 16), f"{won} : {lost}", INK, font, anchor="ra")
            frames.append(np.asarray(image))
        obs, reward, terminated, *_ = env.step(agent.act(obs))
        served = env.state[Pong.names.index("clock")] == 0
        won, lost = won + (reward > 1.5 / ROUNDS / 2), lost + (served and reward == 0)
        if terminated:
            obs, _ = env.reset()
    return frames


if __name__ == "__main__":
    main(sys.argv[1])
