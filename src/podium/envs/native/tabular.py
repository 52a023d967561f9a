"""FrozenLake, CliffWalking and Taxi: what follows from a place and an action stands in Gymnasium's own table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from podium.core.parts import Row
from podium.envs.native.base import Simulator, State


class Tabular(Simulator):
    """Observation: the place, one-hot. A subclass names a Gymnasium env that has a table `P` of transitions."""

    id: ClassVar[str]
    obs_space: Row
    names = ("place", "chance")  # the next transition is drawn with `chance`, which is new at every step
    numbers = 2

    def prepare(self) -> None:
        made: Any = gym.make(self.id, disable_env_checker=True).unwrapped
        places, actions = range(len(made.P)), range(len(made.P[0]))
        rows = [made.P[place][action] for place in places for action in actions]
        width = max(map(len, rows))
        # The first outcome whose sum of probabilities is above `chance` happens, as in Gymnasium; of the last one the
        # sum is taken as infinite, whatever rounding makes of it. What stands behind it is never reached.
        odds = torch.full((len(rows), width), torch.inf, dtype=torch.float64)
        outcomes = torch.zeros(3, len(rows), width, dtype=torch.float64)
        for i, row in enumerate(rows):
            probability, *found = zip(*row, strict=True)
            odds[i, : len(row) - 1] = torch.tensor(probability[:-1], dtype=torch.float64).cumsum(0)
            outcomes[:, i, : len(row)] = torch.tensor(found, dtype=torch.float64)
        self.odds, (self.next, self.reward, ends) = odds.to(self.table), outcomes.to(self.table)
        self.ends, self.actions = ends.bool(), len(actions)
        starts = torch.as_tensor(made.initial_state_distrib, dtype=torch.float64).cumsum(0)
        self.starts = starts[:-1].contiguous().to(self.table)
        self.places = torch.arange(len(places)).to(self.table)[:, None, None]
        made.close()

    def start(self, u: Sequence[Tensor]) -> State:
        return {"place": torch.bucketize(u[0].contiguous(), self.starts, right=True).to(u[0]), "chance": u[1]}

    def restart(self, done: Tensor) -> None:
        (place, chance), (first, drawn) = self.by_member.split(1, 1), self.fresh.split(1, 1)
        torch.where(done, first, place, out=place)
        chance.copy_(drawn)

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        row = s["place"].nan_to_num().long() * self.actions + action
        which = (self.odds[row] <= s["chance"][..., None]).sum(-1)
        s["place"].copy_(self.next[row, which])
        return self.reward[row, which], self.ends[row, which]

    def observe(self, s: State) -> Tensor:
        return (self.places == s["place"]).movedim(0, -1)


class FrozenLake(Tabular):
    """Action: left, down, right, up, and with probability 1/3 each to either side of it. Reward: 1 at the goal."""

    id = "FrozenLake-v1"
    obs_space = Row(Discrete(16))
    action_space = Discrete(4)
    time_limit = 100


class CliffWalking(Tabular):
    """Action: up, right, down, left. Reward: -1 per step until the goal, -100 off the cliff, back to the start."""

    id = "CliffWalking-v1"
    obs_space = Row(Discrete(48))
    action_space = Discrete(4)


class Taxi(Tabular):
    """Action: down, up, right, left, pick up, drop. Reward: -1 per step, -10 for one in vain, 20 at the end."""

    id = "Taxi-v4"
    obs_space = Row(Discrete(500))
    action_space = Discrete(6)
    time_limit = 200
