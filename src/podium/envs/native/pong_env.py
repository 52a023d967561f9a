"""Vector Pong as a plain gymnasium.Env: to draw, and for agents of other libraries; the simulator's slow twin."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from podium.envs.native.pong import BALL, BAT, FACE, FRAMES, PATIENCE, REACH, ROUNDS, SLOWEST, SPEED, SPIN, Pong

PIXELS = 320
DARK, LIGHT, GREEN, ORANGE = (24, 26, 33), (240, 240, 240), (92, 190, 120), (236, 150, 80)


class PongEnv(gym.Env[NDArray[np.float32], np.int64]):
    """The same game with the same observation, actions and rewards; `info` says whether the player stopped or moved."""

    observation_space, action_space = Pong.obs_space, Pong.action_space
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.state = np.zeros(len(Pong.names))  # as the simulator names it

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.state = np.zeros(len(Pong.names))
        self.state[:2] = 0.5
        self._serve(dict(zip(Pong.names, self.state, strict=True)))
        return self._seen(), {}

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        s = dict(zip(Pong.names, self.state.tolist(), strict=True))
        ahead = s["y3"] - s["other"]
        chase = (ahead > 0) - (ahead < 0) if abs(ahead) > SPEED else 0
        before = {"bat": s["bat"], "other": s["other"]}
        for name, move in (("bat", int(action) - 1), ("other", chase)):
            s[name] = min(max(s[name] + SPEED * move, BAT[1] / 2), 1 - BAT[1] / 2)
        s["acts"] += action != 1
        s["moves"] += s["bat"] != before["bat"]
        for i in range(FRAMES - 1):
            s[f"x{i}"], s[f"y{i}"] = s[f"x{i + 1}"], s[f"y{i + 1}"]
        self._fly(s, {name: s[name] - before[name] for name in before})
        s["clock"] += 1
        won, lost = s["x3"] > 1, s["x3"] < 0
        over = won or lost or s["clock"] >= PATIENCE
        info = {"stop": float(action == 1), "moved": float(s["bat"] != before["bat"])}
        s["round"] += over
        self._keep(s)
        if over:
            self._serve(s)
        return self._seen(), over * (1 + won - lost) / (2 * ROUNDS), s["round"] >= ROUNDS, False, info

    def _fly(self, s: dict[str, float], moved: dict[str, float]) -> None:
        s["x3"] += s["vx"]
        s["y3"] += s["vy"]
        for wall in (BALL / 2, 1 - BALL / 2):
            if (s["y3"] < wall) == (wall < 0.5) and s["y3"] != wall:
                s["y3"], s["vy"] = 2 * wall - s["y3"], -s["vy"]
                break
        speed = s["vx"]
        for name, face, side in (("bat", FACE, -1), ("other", 1 - FACE, 1)):
            near = abs(s["x3"] - face) < REACH[0] and abs(s["y3"] - s[name]) < REACH[1]
            if near and speed * side > 0:
                s["vx"] = -speed
                s["vy"] += SPIN * moved[name]

    def _serve(self, s: dict[str, float]) -> None:
        """The ball in the middle, on its way to one side."""
        tilt = self.np_random.uniform(-1, 1)
        side = self.np_random.choice([-SPEED, SPEED])
        s |= {name: 0.5 for i in range(FRAMES) for name in (f"x{i}", f"y{i}")}
        vy = np.sign(tilt) * (SLOWEST + (SPEED - SLOWEST) * abs(tilt))
        self._keep(s | {"vx": side, "vy": vy, "clock": 0.0})

    def _keep(self, s: dict[str, float]) -> None:
        self.state = np.array([s[name] for name in Pong.names])

    def _seen(self) -> NDArray[np.float32]:
        return self.state[: 2 + 2 * FRAMES].astype(np.float32)

    def render(self) -> NDArray[np.uint8]:
        s = dict(zip(Pong.names, self.state, strict=True))
        frame = np.full((PIXELS, PIXELS, 3), DARK, np.uint8)
        for x, y, (width, height), colour in (
            (FACE, s["bat"], BAT, GREEN),
            (1 - FACE, s["other"], BAT, ORANGE),
            (s["x3"], s["y3"], (BALL, BALL), LIGHT),
        ):
            left, right, top, low = (
                int(np.clip(round(v * PIXELS), 0, PIXELS))
                for v in (x - width / 2, x + width / 2, y - height / 2, y + height / 2)
            )
            frame[top:low, left:right] = colour
        return frame
