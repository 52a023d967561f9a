"""A stack in a loop of your own: you step the envs, it acts and learns. Numpy in, numpy out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from podium import checks, footprint, lookup
from podium import experiment as experiments
from podium.compose import Word, compose
from podium.core import given, machine, tree
from podium.core.errors import CheckpointError, ConfigError, PodiumError
from podium.core.parts import Row
from podium.core.streams import Streams
from podium.envs import make as envs
from podium.replay.rollout import Rollout
from podium.roles.collector import fresh
from podium.store import tensors

Array = np.ndarray[Any, Any]


class Stack:
    """`train.members` agents with `env.num` envs each, made of the words that `podium train` takes.

    What belongs to one step is `[M, E, ...]`, or flat `[M * E, ...]`, member after member, as a vector env has it.
    In turn: `act`, step your envs, `store`; when `ready`, `learn`. Spaces are those of `env.id`; with env.frame_stack
    and env.time_aware your envs show what these ask for. Observations that are no Box may be lists of the envs' own.
    """

    def __init__(self, *words: Word) -> None:
        self.experiment = experiment = checks.validate(compose(words))
        for name in ("sticky", "time_limit"):
            if value := getattr(experiment.env, name):
                raise ConfigError(f"env.{name}", value, "leave it out: your own loop steps the envs")
        checks.fit_replays([experiment])
        footprint.fit(experiment, [experiment])
        machine.keep_memory()
        machine.use_threads(experiments.threads(experiment))
        self._device = torch.device(experiment.train.device)
        self.obs_space, self.action_space = lookup.spaces(experiment.env)
        self._shape, self._actions = self.obs_space.shape or (), envs.actions(experiment.env)
        self.members, self.envs = experiment.train.members, experiment.env.num
        self._streams = Streams(experiment.seed, range(self.members))
        self._build()
        self._rollout, self._filled = Rollout(experiment.algo.steps), 0
        self._pending: dict[str, Tensor] | None = None
        self.steps = 0  # of each member

    def __repr__(self) -> str:
        members, algo = self.members, lookup.algorithm(self.experiment.algo.name).__name__
        of = f"{members} member{'s' * (members != 1)} of {self.envs} env{'s' * (self.envs != 1)}"
        return f"Stack({of}, {algo} on {self.experiment.env.id}, at step {self.steps:,})"

    def _build(self) -> None:
        members = range(self.members)
        self.algorithm = experiments.build_algorithm(self.experiment, self.members, self._streams, members)
        self._learner = experiments.build_learner(self.experiment, self.algorithm, self._streams)
        self._carry: tree.Tree = {}

    def act(self, obs: Any, explore: bool = True) -> Array:
        """Actions for `obs`, as the envs take them: sampled and remembered for `store`, or the most likely ones."""
        x, flat = self._seen("obs", obs)
        out, carry = self.algorithm.act(x, self._carry, explore=explore)
        action = out["action"]
        if explore:
            self._pending, self._carry = {"obs": x, **out}, carry
        taken = self._actions.to_env(action.flatten(0, 1).cpu().numpy())
        return taken if flat else taken.reshape(self.members, self.envs, *taken.shape[1:])

    def store(self, reward: Any, terminated: Any, truncated: Any, last: Any, style: Any = None) -> None:
        """What the last actions brought. `last` is the observation they truly led to, before any reset.

        Where an episode terminated nothing is expected after it; where it was truncated, the value of `last` is.
        Rewards are scaled and clipped as env.reward_scale and env.reward_clip say. `style` is how it was done, a number
        for each env, where members have a taste for that (algo.style).
        """
        taste = self.algorithm.genes.get("style")
        if style is None and taste is not None and bool(taste.any()):
            raise PodiumError(f"store: style is missing, and algo.style counts it ({taste.tolist()})")
        if self._pending is None or self.ready:
            raise PodiumError(f"store: call {'learn' if self.ready else 'act'} first")
        pending, self._pending = self._pending, None
        over = self._tensor("terminated", terminated, (), np.bool_)
        cut = self._tensor("truncated", truncated, (), np.bool_) & ~over
        self._carry = fresh(self._carry, over | cut)
        more = {} if style is None else {"style": self._tensor("style", style, (), np.float32)}
        self._rollout.write(
            self._filled,
            **pending,
            **more,
            reward=self._reward(reward),
            terminated=over,
            truncated=cut,
            last=self._seen("last", last)[0],
        )
        self._filled += 1
        self.steps += self.envs

    @property
    def ready(self) -> bool:
        """Whether `algo.steps` steps are stored, so that it is time to `learn`."""
        return self._filled == self._rollout.steps

    def learn(self) -> dict[str, Array]:
        """Learn from the stored steps; metrics `[M]`, or few while a replay fills. One that is not `finite` has failed.

        Without a replay the steps are then forgotten.
        """
        if not self.ready:
            raise PodiumError(f"learn: {self._filled} of {self._rollout.steps} steps are stored (algo.steps)")
        self._filled, horizon = 0, self.experiment.stop.steps
        before = self.steps - self.envs * self._rollout.steps
        remaining = (
            torch.full((self.members,), 1 - before / horizon).clamp_(min=0).to(self._device) if horizon else None
        )
        metrics = self._learner.learn(self._rollout.data, remaining)
        return {name: x.cpu().numpy() for name, x in (metrics | {"finite": self._learner.finite()}).items()}

    def save(self, path: str | Path) -> None:
        """Keep what was learnt, the random streams, and a replay that is not too large (replay.save_bytes).

        Steps that were not learnt from are not kept.
        """
        tensors.save(Path(path), self._state(), {"steps": self.steps, "lost": self._filled}, "stack")

    def load(self, path: str | Path, goes_on: bool = False) -> None:
        """Go on from what `save` kept of a stack with the same settings.

        All episodes end here, unless your envs are where they were then and it all `goes_on`.
        """
        state, info = tensors.load(Path(path), "stack")
        fixed = ("learnt", "slot", "streams")
        mine = self._state()
        tensors.match({name: state[name] for name in fixed}, {name: mine[name] for name in fixed}, Path(path))
        self._build()  # a fresh one, without noise drawn for steps that were never taken
        tree.copy(self.algorithm.learnt(), state["learnt"])
        tree.copy(self.algorithm.slot(), state["slot"])
        self._streams.load(state["streams"])
        try:
            self._learner.load(state["learner"])
        except ValueError as error:
            raise CheckpointError(f"{path}: its replay is another than this stack's ({error})") from error
        if goes_on:
            self._carry = state["carry"]
        else:
            self.algorithm.restart()
        if not goes_on or info["lost"]:  # what is stored next does not follow what is in a replay
            self._learner.restart()
        self.steps, self._filled, self._pending = info["steps"], 0, None

    def _state(self) -> tree.Tree:
        return {
            "learnt": self.algorithm.learnt(),
            "slot": self.algorithm.slot(),
            "streams": self._streams.state(),
            "learner": self._learner.state(),
            "carry": self._carry,
        }

    def _reward(self, reward: Any) -> Tensor:
        env = self.experiment.env
        x = self._tensor("reward", reward, (), np.float32) * env.reward_scale
        return x if env.reward_clip is None else x.clamp_(-env.reward_clip, env.reward_clip)

    def _seen(self, name: str, obs: Any) -> tuple[Tensor, bool]:
        """Observations as `[M, E, *O]`, and whether they were given flat."""
        space = self.obs_space
        if isinstance(space, Row) and not (isinstance(obs, np.ndarray) and obs.dtype.kind == "f"):
            for flat, each in ((True, obs), (False, _joined(obs))):
                found = given.rows(space, each)
                if found is not None and not found[1]:
                    return self._tensor(name, found[0] if flat else found[0].reshape(len(obs), -1, *self._shape)), flat
        x = self._tensor(name, obs)
        return x, np.ndim(obs) == len(self._shape) + 1

    def _tensor(self, name: str, value: Any, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Tensor:
        """`[M, E, *shape]`, copied; as observations are, unless told."""
        shape, dtype = (self._shape, self.obs_space.dtype) if shape is None else (shape, dtype)
        allowed = f"{[self.members, self.envs, *shape]} or {[self.members * self.envs, *shape]}"
        try:
            x = np.asarray(value, dtype)
        except (TypeError, ValueError) as error:
            source = getattr(self.obs_space, "source", None)
            more = f", or a list of {self.members * self.envs} of {source}" if source and shape == self._shape else ""
            raise PodiumError(f"{name}: numbers of the shape {allowed} are allowed{more} ({error})") from error
        if x.shape not in ((self.members, self.envs, *shape), (self.members * self.envs, *shape)):
            raise PodiumError(f"{name}: shape {list(x.shape)} is not allowed; {allowed}")
        return torch.tensor(x, device=self._device).view(self.members, self.envs, *shape)


def _joined(obs: Any) -> list[Any] | None:
    """What is listed by members, member after member."""
    listed = isinstance(obs, list | tuple) or (isinstance(obs, np.ndarray) and obs.ndim > 1)
    if not listed or not all(isinstance(member, list | tuple | np.ndarray) for member in obs):
        return None
    return [one for member in obs for one in member]
