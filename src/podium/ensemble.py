"""Trained members, of one run or of several, that act as one: by average, by vote, or as a mixture."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from gymnasium.spaces import Box
from torch import Tensor

from podium import experiment as experiments
from podium.agent import Agent, Player, load, seen
from podium.algos.base import Algorithm, proposed
from podium.core import tree
from podium.core.errors import ArgumentError, ConfigError, PodiumError
from podium.core.streams import generator
from podium.ops import combine
from podium.ops.actions import ToEnv, dtype_of
from podium.store.run import Run

HOWS = ("average", "vote", "mixture")
Told = list[dict[str, Tensor]]
"""What the members of each stack propose, `[N, B, ...]`."""


def ensemble(members: Sequence[str | Path | Agent], how: str | None = None, trust: bool = False) -> Ensemble:
    """Members as one: agents, run folders (the champion of each), `RUN:ID` or `RUN:top:K`. Named twice counts twice.

    `trust` as in `podium.load`.
    """
    named = [members] if isinstance(members, str) else members
    return Ensemble([agent for member in named for agent in _agents(member, trust)], how)


def _agents(member: str | Path | Agent, trust: bool) -> list[Agent]:
    if isinstance(member, Agent):
        return [member]
    if not isinstance(member, str | Path):
        raise ConfigError("members", member, "an agent, a run's folder, RUN:ID or RUN:top:K")
    found = re.fullmatch(r"(.+?):(top:.*|[0-9]+)", member) if isinstance(member, str) else None
    if found is None:
        return [_load(Path(member), None, trust)]
    if found[2].startswith("top"):
        return best(Path(found[1]), found[2], trust)
    return [_load(Path(found[1]), int(found[2]), trust)]


def best(run: Path, text: str, trust: bool = False, typed: Collection[str | None] = ()) -> list[Agent]:
    """The best K members that have a snapshot; `text` is top:K."""
    found = re.fullmatch(r"top:([1-9][0-9]*)", text)
    if found is None:
        raise ArgumentError("ensemble", text, "top:K, the best K of the leaderboard")
    with Run.open(run) as folder:
        ranked = [int(row["id"]) for row in folder.ledger.top() if row["fitness"] is not None]
        ids = [id for id in ranked if folder.snapshot_path(id).exists()]
    if int(found[1]) > len(ids):
        raise ArgumentError("ensemble", text, f"K is at most {len(ids)}: so many members of this run have a snapshot")
    return [_load(run, id, trust, typed) for id in ids[: int(found[1])]]


def _load(run: Path, member: int | None, trust: bool, typed: Collection[str | None] = ()) -> Agent:
    agent = load(run, member, trust, typed)
    if not isinstance(agent, Agent):
        raise PodiumError(f"{run}: agents of another library act by themselves only: podium.load(RUN).guest")
    return agent


class Ensemble(Player):
    """Agents that act as one. `members` are their ids; episodes start as the first one's own would.

    `average`: in a Box the mean of their actions, else the best by the mean of their log-probabilities, or of their
    standardised action values. `vote`: what most of them choose, of equals the likelier. `mixture`: the best by the
    mean of their probabilities; in a Box the best of their modes. MultiDiscrete: each choice by itself.

    Agents of one kind act as one stack, unless `stacked` is False.
    """

    def __init__(self, agents: Sequence[Agent], how: str | None = None, stacked: bool = True) -> None:
        if not agents:
            raise ConfigError("members", [], "at least one")
        for agent in agents[1:]:
            _same_spaces(agents[0], agent)
        super().__init__(agents[0]._experiment, agents[0]._name)
        self.agents, self.members = tuple(agents), tuple(agent.member for agent in agents)
        self.step = max(agent.step for agent in agents)
        self._groups = _groups(agents) if stacked else [[agent] for agent in agents]
        self._stacks = [_stack(group) for group in self._groups]
        self._box, self._sizes = isinstance(self.action_space, Box), combine.sizes_of(self.action_space)
        self.how = ("average" if self._box else "mixture") if how is None else how
        self._bounded = ToEnv(self.action_space)
        self._random = generator(self._experiment.seed, "ensemble")
        self._check()

    def __repr__(self) -> str:
        members = f"member{'s' * (len(self.members) > 1)} {', '.join(map(str, self.members))}"
        return f"Ensemble({members} by {self.how}, on {self.env})"

    @torch.no_grad()
    def _choose(self, obs: Tensor, explore: bool = False) -> Tensor:
        if not explore:
            return self.decide(obs[0])["action"][None]
        if self.how != "mixture":
            raise ConfigError("explore", explore, f"False for how={self.how}: only a mixture can be drawn from")
        return self._draw(self._ask(obs[0]))[None]

    def decide(self, obs: Tensor) -> dict[str, Tensor]:
        told = self._ask(obs)
        if self._box:
            return {"action": self._mean(told) if self.how == "average" else self._densest(told)}
        if self.how == "vote":
            action = torch.cat([self._choices(part) for part in told])
            return {"action": self._shaped(combine.vote(action, self._probabilities(told), self._sizes))}
        if self.how == "average":
            return {"action": self._shaped(combine.choose(self._scores(told).mean(0), self._sizes))}
        likely = self._probabilities(told).mean(0)
        return {"action": self._shaped(combine.choose(likely, self._sizes)), "probabilities": likely}

    def _ask(self, obs: Tensor) -> Told:
        sizes = zip(self._stacks, self._groups, strict=True)
        return [proposed(stack, obs.expand(len(group), *obs.shape)) for stack, group in sizes]

    def _mean(self, told: Told) -> Tensor:
        """Of the actions as the env takes them: within its bounds."""
        actions = torch.cat([self._bounded(part["action"]) for part in told])
        return actions.mean(0, dtype=self._bounded.exact)

    def _densest(self, told: Told) -> Tensor:
        mean, std, action = (torch.cat([part[name] for part in told]) for name in ("mean", "std", "action"))
        return action[combine.densest(mean, std), torch.arange(action.shape[1])]

    def _draw(self, told: Told) -> Tensor:
        """From a member's distribution, the member drawn anew for each observation."""
        rows = torch.arange(told[0]["action"].shape[1])
        who = torch.randint(len(self.agents), rows.shape, generator=self._random)
        if not self._box:
            likely = self._probabilities(told)[who, rows]
            return self._shaped(combine.draw(likely, self._sizes, self._random))
        mean, std = (torch.cat([part[name] for part in told])[who, rows] for name in ("mean", "std"))
        return mean + std * torch.randn(mean.shape, generator=self._random)

    def _probabilities(self, told: Told) -> Tensor:
        """`[N, B, S]`; a member that tells none is sure of its action."""
        return torch.cat(
            [
                combine.softmax(part["logits"], self._sizes)
                if "logits" in part
                else combine.one_hot(self._choices(part), self._sizes)
                for part in told
            ]
        )

    def _scores(self, told: Told) -> Tensor:
        """Log-probabilities, or standardised values, `[N, B, S]`."""
        if "logits" in told[0]:
            return torch.cat([combine.log_softmax(part["logits"], self._sizes) for part in told])
        return torch.cat([combine.standardise(part["values"], self._sizes) for part in told])

    def _choices(self, part: dict[str, Tensor]) -> Tensor:
        return part["action"].reshape(*part["action"].shape[:2], len(self._sizes))

    def _shaped(self, choices: Tensor) -> Tensor:
        return choices.reshape(-1, *(self.action_space.shape or ()))

    def _check(self) -> None:
        """Refuse members that cannot act so together, by what they tell of an observation of zeros."""
        if self.how not in HOWS:
            raise ArgumentError("how", self.how, f"one of {', '.join(HOWS)}")
        if self._box and self.how == "vote":
            raise ArgumentError("how", "vote", "average or mixture: actions in a Box are no choices to vote on")
        if self.how == "vote" or (self._box and self.how == "average"):
            return
        zeros = torch.zeros(1, *(self.obs_space.shape or ()), dtype=dtype_of(self.obs_space.dtype))
        useful = ("mean",) if self._box else ("logits", "values")
        kinds = [next((name for name in useful if name in part), None) for part in self._ask(zeros)]
        for group, kind in zip(self._groups, kinds, strict=True):
            if kind is None:
                lacks, other = ("density", "average") if self._box else ("probabilities to average", "vote")
                who = f"member {group[0].member} ({group[0]._experiment.algo.name})"
                raise ArgumentError("how", self.how, f"{other}, since {who} has no {lacks}")
        if self.how == "average" and len(set(kinds)) > 1:
            allowed = "vote or mixture: some members have probabilities and others values, which have no common scale"
            raise ArgumentError("how", self.how, allowed)


def _same_spaces(one: Agent, other: Agent) -> None:
    """Refuse an agent that sees or does something else."""
    spaces = [(seen(a.obs_space), a.action_space) for a in (one, other)]
    if spaces[0] != spaces[1]:
        names = [f"member {a.member} of {a.env}" for a in (one, other)]
        told = [f"observations {' '.join(map(str, obs))} and actions {action}" for obs, action in spaces]
        raise ConfigError("members", names[1], f"the spaces of {names[0]}: {told[0]}; this one has {told[1]}")


def _groups(agents: Sequence[Agent]) -> list[list[Agent]]:
    """Agents of one kind together, in the order in which each kind first comes."""
    groups: list[list[Agent]] = []
    for agent in agents:
        group = next((group for group in groups if _alike(group[0], agent)), None)
        if group is None:
            groups.append([agent])
        else:
            group.append(agent)
    return groups


def _alike(one: Agent, other: Agent) -> bool:
    return one.obs_space == other.obs_space and experiments.alike(one._experiment, other._experiment)


def _stack(group: Sequence[Agent]) -> Algorithm:
    """One algorithm with a row for each agent."""
    if len(group) == 1:
        return group[0]._algorithm
    stack = experiments.build_single(group[0]._experiment, len(group))
    tree.copy(stack.learnt(), tree.stack([agent._algorithm.learnt() for agent in group]))
    return stack
