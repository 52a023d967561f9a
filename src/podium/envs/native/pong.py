"""Vector Pong: two bats, one ball, twenty rounds; Atari's game as ten numbers, against a rule that follows the ball.

One player is the agent's. The arena is mirrored for whoever stands on the right: all see themselves on the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
             "acts", "moves", "round")  # fmt: skip
    numbers = 2
    time_limit = ROUNDS * PATIENCE
    dtype = torch.float32
    objectives = ("stop", "moved", "lazy", "busy")
    styled = True

    def prepare(self) -> None:
        """Views of the table and of what a step works with: its time is the number of operations."""
        x, vx, clock = (self.names.index(name) for name in ("x0", "vx", "clock"))
        speed = slice(vx, vx + 2)
        table, empty = self.table, partial(torch.zeros_like, self.table[0])
        self.bats, self.past, self.later = table[:2], table[x : vx - 2], table[x + 2 : vx]
        self.ball, self.v, self.counts = table[vx - 2 : vx], table[speed], table[clock : clock + 3]
        self.y, self.vx, self.vy = (self.s[name] for name in ("y3", "vx", "vy"))
        self.opponent, self.clock, self.rounds = (self.s[name] for name in ("other", "clock", "round"))
        self.seen = self.rows[..., :vx]
        self.styles = table[clock + 1 : clock + 3]
        # How all begins, and the part of it that begins anew with each round.
        first = torch.zeros_like(table)
        first[:vx] = 0.5
        self.beginning, self.serve = first.transpose(0, 1), first[speed].transpose(0, 1)
        self.round, self.new_round = table[x : clock + 1], first[x : clock + 1]

        # The rows a step works with. Of the first five it asks in one operation whether they are 0:
        # 0: one; 1, 3: how far the ball is out along x, y; 2: my move; 4-6: how far my bat moved, its x and its y;
        # 7-9: the same of the other's; 10: its move. Of the answers, 1 is needed again later, for who has hit the ball.
        work, self.answers = table.new_zeros(11, *table.shape[1:]), table.new_zeros(5, *table.shape[1:])
        work[0], work[5], work[8] = 1, FACE, 1 - FACE
        self.asked, self.back, self.loser, self.wall = work[:5], work[1:5:2], work[1], work[3]
        self.mine, self.others, self.wanted = work[2], work[10], work[2::8]
        self.left, self.right = sides = work[4:10].view(2, 3, *table.shape[1:])
        self.moved, self.next = sides[:, 0], sides[:, 2]
        self.counted, self.turns = self.answers[0::2], self.answers[1::2]
        _, self.acted, self.shifted = self.counted
        self.out = self.touch = self.answers[1]
        self.met = torch.zeros_like(self.left)
        self.push, self.target = self.met[0], self.met[1:]

        self.low, self.high = table.new_tensor([[0.0, BALL / 2], [1.0, 1 - BALL / 2]])[..., None, None]
        self.kept, self.inside, self.off = (torch.zeros_like(rows) for rows in (self.past, self.ball, self.ball))
        self.near, self.reach = torch.zeros_like(self.ball), table.new_tensor(REACH)[:, None, None]
        self.near_x, self.near_y = self.near
        self.late, self.over, self.reward, self.rightward = empty(), empty(), empty(), empty(dtype=torch.bool)
        self.zero, self.one, self.patience, self.last = table.new_tensor([0, 1, PATIENCE, ROUNDS]).unbind()
        measures = table.new_zeros(len(self.objectives), *table.shape[1:])
        self.measures, self.shares, self.sums = measures.unbind(), measures[:2], measures[2:]
        self.share = table.new_tensor(1 / (2 * ROUNDS))

    def start(self, u: Sequence[Tensor]) -> State:
        """Bats and ball in the middle; the ball leaves to one side, and up or down. Only its speed is drawn."""
        tilt = 2 * u[1] - 1
        vy = torch.where(tilt < 0, -SLOWEST, SLOWEST) + (SPEED - SLOWEST) * tilt
        return {"vx": torch.where(u[0] < 0.5, -SPEED, SPEED), "vy": vy}

    def style(self) -> Tensor:
        """1 for a stop, -1 for a move, 0 where the bat is pushed against a wall: while the ball flies away.

        When it is on its way to the player, to like stops would be to like to let it pass.
        """
        return torch.sub(self.one, self.acted).sub_(self.shifted).mul_(self.rightward)

    def restart(self, done: Tensor) -> None:
        self.serve.copy_(self.fresh)
        torch.where(done, self.beginning, self.by_member, out=self.by_member)

    def rule(self) -> None:
        """What the other player does: after the ball, -1, 0 or 1."""
        torch.hardshrink(torch.sub(self.y, self.opponent, out=self.reward), SPEED, out=self.others)
        self.others.sign_()

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        self.mine.copy_(action).sub_(self.one)
        self.rule()
        torch.add(self.bats, self.wanted, alpha=SPEED, out=self.next).clamp_(BAT[1] / 2, 1 - BAT[1] / 2)
        torch.sub(self.next, self.bats, out=self.moved)
        self.bats.copy_(self.next)
        self._fly()
        self.counts.add_(self.counted)  # a frame, an action, a move
        torch.ge(self.clock, self.patience, out=self.late)
        torch.logical_or(self.out, self.late, out=self.over)
        torch.sub(self.over, self.loser.sign_(), out=self.reward).mul_(self.share)
        self._bounce()
        self.rounds.add_(self.over)
        self.serve.copy_(self.fresh)
        torch.lerp(self.round, self.new_round, self.over, out=self.round)
        return self.reward, self.rounds >= self.last

    def _fly(self) -> None:
        """The ball moves on, and the walls throw it back."""
        self.past.copy_(self.kept.copy_(self.later))
        torch.clamp(self.ball.add_(self.v), self.low, self.high, out=self.inside)
        torch.sub(self.inside, self.ball, out=self.back)
        self.y.add_(self.wall, alpha=2)
        torch.ne(self.asked, self.zero, out=self.answers)

    def _bounce(self) -> None:
        """Walls turn the ball round, and so does the bat that it flies to, which gives it some of its own speed."""
        torch.gt(self.vx, self.zero, out=self.rightward)
        torch.where(self.rightward, self.right, self.left, out=self.met)
        torch.lt(torch.sub(self.ball, self.target, out=self.off).abs_(), self.reach, out=self.near)
        torch.mul(self.near_x, self.near_y, out=self.touch)
        self.v.addcmul_(self.v, self.turns, value=-2)
        self.vy.addcmul_(self.push, self.touch, value=SPIN)

    def observe(self, s: State) -> Tensor:
        return self.seen

    def measure(self, s: State, total: Tensor, length: Tensor) -> tuple[Tensor, ...]:
        torch.div(self.styles, length, out=self.shares)
        torch.sub(self.one, self.measures[0], out=self.measures[0])
        torch.add(self.shares, total, out=self.sums)
        return self.measures
