"""The part that all simulators share: time limit, episode totals, autoreset. To write one, read `cartpole.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor

from podium.core.errors import CheckpointError, PodiumError
from podium.core.spec import Episode, Step
from podium.core.streams import Block, Streams, uniform
from podium.core.tree import Tree

State = dict[str, Tensor]
"""The variables of a simulator by name, each `[M, E]`."""


class Simulator:
    """A VecEnv whose dynamics are tensor arithmetic. A subclass says what follows and `start`, `advance`, `observe`."""

    obs_space: Space[Any]
    action_space: Space[Any]
    names: ClassVar[tuple[str, ...]]  # the variables of the state
    numbers: ClassVar[int]  # how many uniform numbers a start needs
    time_limit: ClassVar[float] = math.inf
    # float64 as Gymnasium: these systems are unstable, and float32 leaves the twin within one episode.
    dtype: ClassVar[torch.dtype] = torch.float64
    objectives: tuple[str, ...] = ()
    styled: ClassVar[bool] = False  # whether `style` tells how a step was done

    def __init__(
        self, members: int, envs: int, device: torch.device | str = "cpu", time_limit: float | None = None
    ) -> None:
        self.members, self.envs, self.device = members, envs, torch.device(device)
        dtype = torch.float32 if self.device.type == "mps" else self.dtype  # Apple's GPUs have no float64
        with torch.inference_mode(False):  # else a pod built in inference mode could not be stepped outside it
            self.table = torch.zeros(len(self.names), members, envs, dtype=dtype, device=self.device)
            self._tally = torch.zeros(2, members, envs, device=self.device)  # running episode: reward, steps
            self._done, self._late = torch.zeros(2, members, envs, dtype=torch.bool, device=self.device)
            # Tensors, as a Python number in an operation costs 2 us more.
            self._zero, self._limit = torch.tensor([0.0, time_limit or self.time_limit], device=self.device)
            self._out, self._spare = self._outputs(), self._outputs()
            self.s: State = dict(zip(self.names, self.table, strict=True))
            self.rows = self.table.movedim(0, -1)  # [M, E, S]
            self.by_member, self._done_row = self.table.transpose(0, 1), self._done[:, None]  # [M, S, E], [M, 1, E]
            self.prepare()
        self._box = isinstance(self.action_space, Box)
        self._streams: Streams | None = None
        self.fresh: Tensor  # [M, S, E], a start for each env, drawn anew at every step: what a new round may begin with
        self._fresh = Block(self._draw)

    def prepare(self) -> None:
        """Called once: make what `advance` wants to keep between steps."""

    def start(self, u: Sequence[Tensor]) -> State:
        """A start of an episode from uniform numbers in [0, 1), all of one shape, which is not `[M, E]`."""
        raise NotImplementedError

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        """Move `s` one step, in place; reward `[M, E]` and terminated `[M, E]` bool."""
        raise NotImplementedError

    def observe(self, s: State) -> Tensor:
        """`[M, E, *O]` of any float dtype; here: the variables in their order."""
        return self.rows

    def measure(self, s: State, total: Tensor, length: Tensor) -> tuple[Tensor, ...]:
        """The `objectives` of the episodes so far, each `[M, E]`, from their state, reward and steps."""
        return ()

    def style(self) -> Tensor | None:
        """How the step was done that `advance` made last, `[M, E]`, as a tensor of its own."""
        return None

    def restart(self, done: Tensor) -> None:
        """Begin an episode where `done[M, 1, E]`; to be overridden where `start` draws some of the variables only."""
        torch.where(done, self.fresh, self.by_member, out=self.by_member)

    def reset(self, streams: Streams) -> Tensor:
        self._streams = streams
        self._fresh.drop()
        self.fresh = self._fresh.next()
        self.restart(torch.ones_like(self._done_row))
        self._tally.zero_()
        seen = self.observe(self.s)
        self._check("observe", seen, self._out[0].shape)
        return self._out[0].copy_(seen)

    def step(self, action: Tensor) -> Step:
        self._out, self._spare = self._spare, self._out
        obs, last, truncated, gain, gained, ended, measured, episode = self._out
        if self._box:
            action = action.nan_to_num()  # a failed member's NaN must not outlive it in the state of its envs
        self.fresh = self._fresh.next()
        reward, terminated = self.advance(self.s, action.detach())
        if not reward.shape == terminated.shape == gained.shape:  # else they would be spread over all without a word
            self._check("advance, its reward", reward, gained.shape)
            self._check("advance, its terminated", terminated, gained.shape)
        gained.copy_(reward)
        torch.add(self._tally, gain, out=ended)
        torch.ge(episode.length, self._limit, out=self._late)
        torch.gt(self._late, terminated, out=truncated)
        torch.logical_or(self._late, terminated, out=self._done)
        last.copy_(self.observe(self.s))
        style = self.style()
        if self.objectives:
            torch.stack(self.measure(self.s, *ended), out=measured)
        # A reset state is taken from the block at every step, used or not: no member's numbers depend on another's.
        self.restart(self._done_row)
        torch.where(self._done, self._zero, ended, out=self._tally)
        obs.copy_(self.observe(self.s))
        return Step(obs, gained, terminated, truncated, last, episode, style)

    def state(self) -> Tree:
        rest = self._fresh.rest()
        if rest is None:
            rest = self.table.new_empty(self.members, 0, len(self.names), self.envs)
        reward, length = self._tally.clone()
        return {"now": {k: v.clone() for k, v in self.s.items()}, "reward": reward, "length": length, "fresh": rest}

    def load(self, tree: Tree) -> Tensor:
        now = [tree["now"].get(name) for name in self.names]
        for leaf in (*now, tree["reward"], tree["length"]):
            if leaf is None or leaf.shape != self._done.shape:
                raise CheckpointError(f"env: not the state of {self.members} x {self.envs} {type(self).__name__}")
        self.table.copy_(torch.stack(now))
        self._tally.copy_(torch.stack((tree["reward"], tree["length"])))
        fresh = tree["fresh"].to(self.table)
        self._fresh.refill(fresh if fresh.shape[1] else None)
        return self._out[0].copy_(self.observe(self.s))

    def close(self) -> None:
        pass

    def _draw(self) -> Tensor:
        """Reset states of the coming steps, `[M, N, S, E]`."""
        if self._streams is None:
            raise RuntimeError("call reset before step")
        # N may depend on what a member has, never on how many members there are; at most 16k numbers a member.
        steps = max(1, min(128, 2**14 // (self.envs * max(1, self.numbers))))
        u = uniform(self._streams.env, steps, self.numbers, self.envs).permute(1, 2, 0, 3).to(self.table)
        s = self.start(u.unbind(1) if self.numbers else [u.new_zeros(steps, self.members, self.envs)])
        if (wrong := [name for name in s if name not in self.names]) or not s:
            raise PodiumError(f"{type(self).__name__}.start: gives {wrong or 'nothing'}, but names={self.names}")
        if type(self).restart is Simulator.restart and (missing := [name for name in self.names if name not in s]):
            raise PodiumError(f"{type(self).__name__}.start: gives no {', '.join(missing)}, but names={self.names}")
        for name, x in s.items():
            self._check(f"start, its {name}", x, torch.Size((steps, self.members, self.envs)))
        # Laid out as the table is, [N, S, M, E], which makes the choice between the two one pass over memory.
        return torch.stack([s[name] for name in self.names if name in s], 1).permute(2, 0, 1, 3)

    def _check(self, what: str, found: Tensor, shape: torch.Size) -> None:
        if found.shape != shape:
            raise PodiumError(f"{type(self).__name__}.{what}: shape {[*found.shape]}, and it has to be {[*shape]}")

    def _outputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Episode]:
        """What a step fills: obs, last, truncated, gain (reward, 1), its first row, totals, objectives, the record."""
        M, E, shape = self.members, self.envs, self.obs_space.shape or ()
        # Variable by variable in memory, as the table is: a step would take longer to transpose them than to compute.
        obs, last = torch.zeros(2, *shape, M, E, device=self.device).movedim((-2, -1), (1, 2))
        gain, ended = torch.ones(2, M, E, device=self.device), torch.zeros(2, M, E, device=self.device)
        measured = torch.zeros(len(self.objectives), M, E, device=self.device)
        truncated = torch.zeros(M, E, dtype=torch.bool, device=self.device)
        episode = Episode(ended[0], ended[1], measured.movedim(0, -1))
        return obs, last, truncated, gain, gain[0], ended, measured, episode
