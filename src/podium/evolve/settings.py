"""`evolve.*`: how a population searches while it learns."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from podium.core.config import Section
from podium.core.errors import ConfigError

Strategy = Literal["tournament", "truncation", "wta", "tournament-selection", "t-test", "softmax", "nsga2"]
LEAST = {"nsga2": 4}
"""Members that a strategy needs, if more than two."""

COPYING = ("truncation", "wta", "tournament-selection", "t-test", "softmax")
USED_BY: dict[str, tuple[str, ...]] = {
    "seconds": ("tournament",),
    "generator": ("tournament",),
    "fresh": ("tournament",),
    "top": ("generator top-k",),
    "rivals": ("tournament-selection", "generator tournament"),
    "fraction": ("truncation",),
    "alpha": ("t-test",),
    "objectives": ("nsga2",),
    "crossover": ("nsga2",),
    "eta": ("nsga2",),
    "exchange": (*COPYING, "nsga2"),
    "mutate": COPYING,
    "factors": ("tournament", *COPYING),
    "resample": ("tournament", *COPYING),
    "updater": ("tournament", *COPYING),
    "board": ("tournament", *COPYING),
}
"""Settings that not every strategy uses, and the strategies, or the generators of the tournament, that do."""


class EvolveSettings(Section):
    """`evolve.*`"""

    strategy: Strategy = Field(
        "tournament", description="tournament is asynchronous, all others proceed in generations"
    )
    members: int = Field(16, ge=2, description="the population, over all entrants")
    entrants: tuple[Any, ...] = Field(
        (), description="kinds of members: names of algorithms, or mappings with algo, and net, critic and replay"
    )
    genes: Literal["auto"] | tuple[str, ...] = Field(
        "auto",
        description="genes to search; auto: those with a range; if none has one, the usual ones that you leave open",
    )

    interval: int = Field(4096, ge=1, description="steps of each member between two of its evaluations")
    seconds: float | None = Field(None, gt=0, description="tournament: seconds between them, in place of interval")
    slice: int | None = Field(
        None,
        ge=1,
        description="updates between two reports of a pod, and looks at who is ready; null: a quarter of the interval",
    )
    burn_in: int = Field(0, ge=0, description="steps of each member before its first exchange; not less than a warm-up")
    window: int = Field(1, ge=1, description="fitness is the mean of so many last evaluations")
    confirm: bool = Field(True, description="evaluate a new leader once more before it takes the lead")

    fraction: float = Field(0.25, gt=0, le=0.5, description="truncation: the worst that copy, and the best they copy")
    rivals: int = Field(2, ge=2, description="tournament-selection, generator tournament: members that meet")
    alpha: float = Field(0.05, gt=0, lt=1, description="t-test: how sure a member must be that the other is better")
    exchange: Literal["auto", "inline", "p2p", "collective"] = Field(
        "auto",
        description="generations: how members get to other pods: by the driver (inline), or on MPI, with every rank a "
        "pod, from rank to rank (p2p, or in one collective call); auto: p2p on MPI",
    )
    mutate: Literal["changed", "all"] = Field("changed", description="generations: whose genes move at an exchange")
    factors: tuple[float, float] = Field((0.8, 1.25), description="perturbation of a gene, on its scale")
    resample: float = Field(0.05, ge=0, le=1, description="chance that a gene is drawn anew instead")

    generator: Literal["softmax", "top-k", "tournament"] = Field(
        "softmax", description="tournament: how parents are drawn"
    )
    top: int = Field(4, ge=1, description="generator top-k: how many of the best")
    fresh: float = Field(0.0, ge=0, le=1, description="tournament: share of refills that start from new weights")
    updater: Literal["score", "strictly-better"] = Field(
        "score", description="who may enter the leaderboard: any, or only who is better than its parent was"
    )
    board: int | None = Field(None, ge=2, description="size of the leaderboard; null: twice the members")
    objectives: tuple[str, ...] = Field((), description="nsga2: what to maximise; -name is minimised")
    crossover: float = Field(
        1.0, ge=0, le=1, description="nsga2: chance that a child has genes of both parents; else all from the first"
    )
    eta: float = Field(20.0, gt=0, description="nsga2: the larger, the nearer the genes of children to their parents'")

    def check(self, stop_steps: int | None, episodes: int) -> None:
        """What the fields cannot say by themselves."""
        least, length = LEAST.get(self.strategy, 2), f"the run's length, stop.steps={stop_steps}; set one of the two"
        if self.members < least:
            raise ConfigError("evolve.members", self.members, f"at least {least} for {self.strategy}")
        if self.rivals > self.members:
            raise ConfigError("evolve.rivals", self.rivals, f"at most evolve.members, {self.members}")
        if self.top > self.capacity:
            raise ConfigError("evolve.top", self.top, f"at most the leaderboard's size, {self.capacity}")
        if stop_steps is not None and self.interval > stop_steps and self.seconds is None:
            raise ConfigError("evolve.interval", self.interval, f"at most {length}")
        if stop_steps is not None and self.burn_in >= stop_steps:
            raise ConfigError("evolve.burn_in", self.burn_in, f"less than {length}")
        if min(self.factors) <= 0:
            raise ConfigError("evolve.factors", list(self.factors), "two numbers above 0")
        if self.strategy == "t-test" and episodes < 2:
            raise ConfigError("eval.episodes", episodes, "at least 2, since evolve.strategy is t-test")
        if self.strategy == "nsga2" and len(self.objectives) < 2:
            raise ConfigError("evolve.objectives", list(self.objectives), "two or more for nsga2")

    def check_use(self) -> None:
        """Refuse a setting that would change nothing."""
        used = {self.strategy, f"generator {self.generator}" if self.strategy == "tournament" else ""}
        for name, users in USED_BY.items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and not used.intersection(users):
                allowed = f"{json.dumps(default)}: it is for {', '.join(users)} only"
                raise ConfigError(f"evolve.{name}", list(value) if isinstance(value, tuple) else value, allowed)

    @property
    def capacity(self) -> int:
        """Of the leaderboard."""
        return self.board or 2 * self.members
