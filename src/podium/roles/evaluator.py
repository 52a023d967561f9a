"""The evaluator: whole episodes with the most likely actions, in envs and with random numbers of their own.

Evaluating draws nothing from a member's streams, so how often it is done never changes training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from podium.core.errors import PodiumError
from podium.core.spec import Step
from podium.core.streams import Streams
from podium.envs.base import VecEnv, notes
from podium.evolve.turn import Evaluation

Act = Callable[[Tensor], Tensor]
"""`[R, E, *O]` -> actions `[R, E, ...]`"""


Progress = Callable[[int, int], None]
"""Is told how many episodes have ended, of how many."""


class Interrupted(Exception):
    """An evaluation was asked to stop before it was done."""


KEPT = 3
"""Stacks of envs, each for a number of policies; the objects of the outside world are many, and may be large."""

LOST = 100
"""Episodes that one env may lose in a row; a loop without an end otherwise."""

MEASURES = ("return", "length", "switching", "effort")
"""Objectives that any env has: `switching` is the share of steps with another action than the step before, `effort` the
mean square of the action. All others are the env's own."""


class Evaluator:
    """Runs a fixed number of episodes in every env, so that short episodes count no more than long ones.

    `measures` names the objectives; None takes all that the env reports.
    """

    def __init__(
        self,
        make: Callable[[int, int], VecEnv],
        seed: int,
        envs: int,
        max_steps: int,
        measures: Sequence[str] | None = None,
    ) -> None:
        self._make, self._seed, self._envs, self._max_steps, self._measures = make, seed, envs, max_steps, measures
        self.cut: tuple[int, int] | None = None  # episodes that had ended when the last evaluation was cut, and all
        self._built: dict[tuple[int, int], VecEnv] = {}  # the one that was used last comes last

    @torch.no_grad()
    def evaluate(
        self,
        act: Act,
        names: Sequence[str],
        episodes: int,
        stop: Callable[[], bool] = lambda: False,
        seconds: float = math.inf,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Episodes of R policies; `names` seed their envs. Raises Interrupted as soon as `stop` says so.

        After `seconds` it is cut: episodes count as they stand, and of those that had not begun the length is NaN.
        `progress` is called at every step.
        """
        ends, self.cut = time.perf_counter() + seconds, None
        envs = max(n for n in range(1, min(self._envs, episodes) + 1) if episodes % n == 0)
        env = self._env(len(names), envs)
        obs = env.reset(Streams(self._seed, [f"evaluate/{name}" for name in names]))
        tally = _Tally(env, self._measures, len(names), envs, episodes // envs)
        full = False
        while not full:  # each env does its quota of episodes of at most `max_steps`; what its failures cost, again
            if stop():
                raise Interrupted
            action = act(obs)
            step = env.step(action)
            if time.perf_counter() > ends:
                waiting: Tensor | None = None if self.cut is None else tally.count.sum(1, keepdim=True) == 0
                self.cut = self.cut or (int(tally.count.sum()), len(names) * episodes)
                tally.add(step, action, 0, waiting)
                full = tally.leave_out()
            else:
                full = tally.add(step, action, self._max_steps)
            obs = step.obs
            if progress is not None:
                progress(int(tally.count.sum()), len(names) * episodes)
        return Evaluation(tally.returns.flatten(1), tally.lengths.flatten(1), tally.objectives.flatten(1, 2))

    def _env(self, members: int, envs: int) -> VecEnv:
        env = self._built.pop((members, envs), None)
        if env is None:
            while len(self._built) >= KEPT:
                self._built.pop(next(iter(self._built))).close()
            env = self._make(members, envs)
        self._built[members, envs] = env
        return env

    def notes(self) -> list[str]:
        """What the envs have to say for the log."""
        return [note for env in self._built.values() for note in notes(env)]

    def close(self) -> None:
        for env in self._built.values():
            env.close()


class _Tally:
    """Sums of the running episodes, and what the finished ones came to. The env itself tells only of whole ones."""

    def __init__(self, env: VecEnv, measures: Sequence[str] | None, rows: int, envs: int, quota: int) -> None:
        self.quota, device = quota, env.device
        self._name, self._steps = type(env).__name__, 0
        names = list(env.objectives if measures is None else measures)
        self.returns, self.lengths = torch.zeros(2, rows, envs, quota, device=device)
        self.objectives = torch.zeros(rows, envs, quota, len(names), device=device)
        self.count, self._length, self._lost = torch.zeros(3, rows, envs, dtype=torch.int64, device=device)
        self._total = torch.zeros(rows, envs, device=device)
        self._own = [(i, env.objectives.index(name)) for i, name in enumerate(names) if name not in MEASURES]
        self._common = [(i, name) for i, name in enumerate(names) if name in MEASURES]
        self._sums = {name: torch.zeros(rows, envs, device=device) for _, name in self._common}
        self._before: Tensor | None = None

    def add(self, step: Step, action: Tensor, max_steps: int, waiting: Tensor | None = None) -> bool:
        """Take in one step; whether every env has done its episodes. Only rows that are `waiting` `[R, 1]` count."""
        self._length += 1
        self._total += step.reward
        self._behave(action)
        over = step.terminated | step.truncated
        lost = over & (step.episode.length == 0)
        done = (over | (self._length >= max_steps)) & ~lost & (self.count < self.quota)
        done = done if waiting is None else done & waiting
        self._lost.add_(lost).masked_fill_(done, 0)
        self._steps += 1
        if self._steps % LOST == 0 and bool(((self._lost >= LOST) & (self.count < self.quota)).any()):
            raise PodiumError(
                f"{self._name}: {LOST} episodes of one env ended in a row with episode.length 0, which says that they "
                "were lost; episode.length has to count the steps of the episode that ends"
            )
        if not done.any():
            self._forget(lost)
            return False
        row, column = done.nonzero(as_tuple=True)
        place = (row, column, self.count[row, column])
        length = self._length[row, column]
        self.returns[place], self.lengths[place] = self._total[row, column], length.float()
        for i, own in self._own:
            self.objectives[(*place, torch.full_like(row, i))] = step.episode.objectives[row, column, own]
        for i, name in self._common:
            value = {"return": self._total, "length": self._length}.get(name)
            mean = self._sums[name][row, column] / length if value is None else value[row, column].float()
            self.objectives[(*place, torch.full_like(row, i))] = mean
        self._forget(done | over)
        self.count += done
        return bool((self.count == self.quota).all())

    def leave_out(self) -> bool:
        """Mark the episodes that have not begun; whether every policy has one that counts."""
        begun = torch.arange(self.quota, device=self.count.device) < self.count.unsqueeze(-1)
        for sums in (self.returns, self.lengths, self.objectives):
            sums.masked_fill_(~begun if sums.ndim == 3 else ~begun.unsqueeze(-1), math.nan)
        return bool(begun.flatten(1).any(1).all())

    def _forget(self, where: Tensor) -> None:
        for sums in (self._length, self._total, *self._sums.values()):
            sums.masked_fill_(where, 0)

    def _behave(self, action: Tensor) -> None:
        if "switching" in self._sums and self._before is not None:
            changed = (action != self._before).flatten(2).any(-1) if action.ndim > 2 else action != self._before
            self._sums["switching"] += changed & (self._length > 1)
        if "effort" in self._sums:
            square = action.float().square()
            self._sums["effort"] += square.flatten(2).mean(-1) if action.ndim > 2 else square
        if "switching" in self._sums:
            self._before = action.clone()
