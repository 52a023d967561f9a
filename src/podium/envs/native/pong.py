"""Vector Pong: two bats, one ball, twenty rounds; Atari's game as ten numbers, against a rule that follows the ball.

One player is the agent's. The arena is mirrored for whoever stands on the right: all see themselves on the left.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.envs.native.base import Simulator, State

ARENA = 160.0  # pixels; all below are parts of it
BAT, BALL = (5 / ARENA, 15 / ARENA), 4 / ARENA
SPEED, SLOWEST, SPIN = 4 / ARENA, 1.2 / ARENA, 0.7
FACE = (16 + 2.5) / ARENA  # where the middle of a bat stands, from its side
REACH = (BAT[0] + BALL) / 2, (BAT[1] + BALL) / 2  # closer than this, bat and ball touch
ROUNDS, PATIENCE = 20, 1000
FRAMES = 4


class Pong(Simulator):
    """Observation: my bat, the other's, (x, y) of the ball in the last four frames. Action: 0 up, 1 stop, 2 down.

    Reward at the end of a round: 1/20 if it was won, 1/40 if its time ran out, else 0. So the return of the twenty
    rounds, the fitness, is (won - lost + 20) / 40, between 0 and 1.
    """

    obs_space = Box(0.0, 1.0, (2 + 2 * FRAMES,))
    action_space = Discrete(3)
    names = ("bat", "other", *(f"{axis}{i}" for i in range(FRAMES) for axis in "xy"), "vx", "vy", "clock",
             "round", "stops", "moves")  # fmt: skip
    numbers = 2
    time_limit = ROUNDS * PATIENCE
    dtype = torch.float32
    objectives = ("stop", "moved", "lazy", "busy")

    def prepare(self) -> None:
        first = self.names.index("x0")
        self.bats, balls = self.table[:2], self.table[first : first + 2 * FRAMES]
        self.past, self.now = balls[:-2], balls[2:]
        self.x, self.y, self.vx, self.vy = (self.s[name] for name in ("x3", "y3", "vx", "vy"))
        self.ball = slice(first, self.names.index("clock") + 1)  # what a round begins with
        self.faces = self.table.new_tensor([FACE, 1 - FACE])[:, None, None]
        self.towards = self.table.new_tensor([-1.0, 1.0])[:, None, None]
        self.moves = torch.empty_like(self.bats)

    def start(self, u: Sequence[Tensor]) -> State:
        """Bats and ball in the middle; the ball leaves to one side, and up or down."""
        tilt, middle, none = 2 * u[1] - 1, torch.full_like(u[0], 0.5), torch.zeros_like(u[0])
        state = dict.fromkeys(self.names[: 2 + 2 * FRAMES], middle) | dict.fromkeys(self.names[-4:], none)
        vy = torch.where(tilt < 0, -SLOWEST, SLOWEST) + (SPEED - SLOWEST) * tilt
        return state | {"vx": torch.where(u[0] < 0.5, -SPEED, SPEED), "vy": vy}

    def rule(self, s: State) -> Tensor:
        """What the other player does: after the ball, -1, 0 or 1."""
        ahead = self.y - s["other"]
        return ahead.sign() * (ahead.abs() >= SPEED)

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.play(s, action - 1, self.rule(s))

    def play(self, s: State, mine: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """One frame, with moves -1, 0 or 1 of both players."""
        before = self.bats.clone()
        self.moves[0], self.moves[1] = mine, others
        self.bats.add_(self.moves, alpha=SPEED).clamp_(BAT[1] / 2, 1 - BAT[1] / 2)
        moved = self.bats - before
        s["stops"] += mine == 0
        s["moves"] += moved[0] != 0
        self.past.copy_(self.now.clone())
        self._fly(moved)
        s["clock"] += 1
        won, lost, late = self.x > 1, self.x < 0, s["clock"] >= PATIENCE
        over = won | lost | late
        s["round"] += over
        ball = self.table[self.ball]
        torch.where(over, self.fresh.transpose(0, 1)[self.ball], ball, out=ball)
        return (over + won.float() - (lost * 1.0)) / (2 * ROUNDS), s["round"] >= ROUNDS

    def _fly(self, moved: Tensor) -> None:
        """The ball moves on; walls turn it round, and so do bats, which give it some of their own speed."""
        x, y, vx, vy = self.x, self.y, self.vx, self.vy
        x += vx
        y += vy
        over, under = y > 1 - BALL / 2, y < BALL / 2
        torch.where(over, 2 - BALL - y, torch.where(under, BALL - y, y), out=y)
        torch.where(over | under, -vy, vy, out=vy)
        touch = ((x - self.faces).abs() < REACH[0]) & ((y - self.bats).abs() < REACH[1]) & (vx * self.towards > 0)
        vy += SPIN * (moved * touch).sum(0)
        torch.where(touch.any(0), -vx, vx, out=vx)

    def observe(self, s: State) -> Tensor:
        return self.rows[..., : 2 + 2 * FRAMES]

    def measure(self, s: State, total: Tensor, length: Tensor) -> tuple[Tensor, ...]:
        stop, moved = s["stops"] / length, s["moves"] / length
        return stop, moved, total + stop, total + moved
