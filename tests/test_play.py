"""Films: a file has the frames that are counted and their time, and what cannot be drawn is refused in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio.v2
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

import podium
import whole
import worlds
from podium.core.errors import MissingExtra, PodiumError
from podium.core.streams import Streams
from podium.envs import film
from podium.envs.film import Film
from podium.envs.native.cartpole import CartPole
from podium.report import video

FEW = ("ppo", "stop.steps=256", "stop.fitness=null", "eval.episodes=1", "train.threads=1")


class Plain(gym.Env[Any, Any]):
    """Two steps per episode; takes no render_mode."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(2, np.float32), 1.0, False, self.t == 2, {}


class Mute(Plain):
    """Takes a render_mode and has no render()."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode


class Human(Mute):
    metadata = {"render_modes": ["human"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode == "rgb_array":
            raise ValueError("for people only")


class Still(Mute):
    """Draws `shown`, the same picture all the time."""

    def __init__(self, render_mode: str | None = None, shown: str = "picture") -> None:
        super().__init__(render_mode)
        self.shown = shown

    def render(self) -> Any:
        if self.shown == "error":
            raise OSError("no\nlicence")
        return {"picture": np.zeros((20, 30, 3), np.uint8), "grey": np.zeros((4, 4)), "nothing": None}[self.shown]


class Batch(CartPole):
    """A VecEnv."""


if "Human-v0" not in gym.registry:
    gym.register("Human-v0", entry_point="test_play:Human")
REFUSED = {
    "Plain": "cannot be made with render_mode='rgb_array' (TypeError: Plain() takes no arguments). podium play needs",
    "Mute": "Mute cannot be drawn: its class has no render(). podium play needs a gymnasium.Env that takes render_mode",
    "Human": "cannot be made with render_mode='rgb_array' (ValueError: for people only). podium play needs",
    "Human-v0": "cannot be made with render_mode='rgb_array' (ValueError: for people only). podium play needs",
    "Still nothing": "Still cannot be drawn: render() returned NoneType, no array. podium play needs",
    "Still grey": "Still cannot be drawn: render() must return uint8 [height, width, 3], got float64 [4, 4].",
    "Still error": "Still cannot be drawn: render() raised (OSError: no\nlicence). podium play needs",
    "Batch": "it is a VecEnv, and those do not render. podium play needs a gymnasium.Env that takes render_mode",
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("error")  # a warning would stand before the one line
def test_an_env_that_does_not_draw_says_why(name: str) -> None:
    name, _, shown = name.partition(" ")
    env = worlds.settings(f"test_play:{name}", kwargs={"shown": shown} if shown else {})
    with pytest.raises(PodiumError) as caught:
        Film(env).world.reset(Streams(0, [0]))
    assert REFUSED[f"{name} {shown}".strip()] in str(caught.value)


def test_play_refuses_in_one_line_and_writes_nothing(tmp_path: Path) -> None:
    podium.train("test_play:Mute", *FEW, out=tmp_path / "run")
    (tmp_path / "old.gif").write_bytes(b"an older film")
    said = whole.refused(tmp_path, "play", tmp_path / "run", "-o", tmp_path / "old.gif")
    assert said.startswith("podium: error: Mute cannot be drawn: its class has no render().")


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(MissingExtra, match=r"pygame is not installed; .*podium-rl\[render\]"):
        Film(worlds.settings("CartPole-v1")).world.reset(Streams(0, [0]))
    for package in ("imageio_ffmpeg", "imageio.v2"):
        monkeypatch.setitem(sys.modules, package, None)
        named = package.replace("_", "-").removesuffix(".v2")
        with pytest.raises(MissingExtra, match=rf"^{named} is not installed; .*podium-rl\[render\]"):
            video.check(tmp_path / "film.mp4")
    video.check(tmp_path / "film.gif")  # needs neither


def test_mujoco_without_a_backend_says_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PodiumError, match=r"^Hopper-v5 cannot be drawn: .* 'glfw' here. Without a .* MUJOCO_GL=egl .*"):
        Film(worlds.settings("Hopper-v5")).world.reset(Streams(0, [0]))


@pytest.mark.parametrize(
    ("there", "display", "chosen"),
    [(("EGL", "OSMesa"), "", "egl"), (("OSMesa",), "", "osmesa"), ((), "", None), (("EGL",), ":0", None)],
)
def test_mujoco_draws_without_a_screen_where_it_can(
    there: tuple[str, ...], display: str, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"DISPLAY": display}
    monkeypatch.setattr(film.os, "environ", environment)
    monkeypatch.setattr(film.sys, "platform", "linux")
    monkeypatch.setattr(film, "find_library", lambda name: name in there)
    film.draw_without_screen()
    assert environment.get("MUJOCO_GL") == chosen and environment["SDL_VIDEODRIVER"] == "dummy"
    environment["MUJOCO_GL"] = "mine"
    film.draw_without_screen()
    assert environment["MUJOCO_GL"] == "mine"


def pictures(count: int, still: bool) -> Iterator[np.ndarray]:
    """A line that wanders down a coloured field, or stays; drawn into one array, as some envs do."""
    frame = np.zeros((33, 47, 3), np.uint8)
    for i in range(count):
        frame[:] = np.arange(47)[:, None] * (5, 2, 3)
        frame[0 if still else i % 33] = 255
        yield frame


@pytest.mark.parametrize("still", [True, False])
@pytest.mark.parametrize("count", [1, 2, 45])
def test_a_gif_has_every_frame_and_its_time(count: int, still: bool, tmp_path: Path) -> None:
    assert video.write(tmp_path / "a.gif", pictures(count, still), fps=30) == count
    with Image.open(tmp_path / "a.gif") as found:
        shown, times = [], []
        for i in range(found.n_frames):  # type: ignore[attr-defined]
            found.seek(i)
            shown.append(np.asarray(found.convert("RGB")).astype(int))
            times.append(found.info["duration"])
    assert len(shown) == count and sum(times) == pytest.approx(1000 * count / 30, abs=5)
    assert set(times) <= {30, 40} and found.info["loop"] == 0
    drawn = [frame.astype(int) for frame in map(np.copy, pictures(count, still))]
    assert max(abs(a - b).max() for a, b in zip(shown, drawn, strict=True)) <= 4  # a GIF has 256 colours


@pytest.mark.parametrize("still", [True, False])
def test_an_mp4_has_every_frame_and_its_time(still: bool, tmp_path: Path) -> None:
    assert video.write(tmp_path / "a.mp4", (f[:32, :46] for f in pictures(45, still)), fps=30) == 45
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert frames == 45 and seconds == pytest.approx(1.5, abs=0.02)


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_several_episodes_that_all_look_alike(suffix: str, tmp_path: Path) -> None:
    podium.train("test_play:Still", *FEW, out=tmp_path / "run")
    path = tmp_path / f"film.{suffix}"
    code, out, _ = whole.command("play", tmp_path / "run", "-o", path, "--episodes", 3)
    assert (code, out) == (0, f"{path}: 9 frames, return 2.00, 2.00, 2.00\n")
    assert len(list(imageio.v2.get_reader(path).iter_data())) == 9
