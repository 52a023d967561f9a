"""A trained member by itself: load it, act with it, evaluate it, watch it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete

from podium import entrants, footprint, lookup
from podium import experiment as experiments
from podium.algos.base import proposed
from podium.core import config, given, hyper, tree
from podium.core.errors import ArgumentError, CheckpointError, PodiumError, UnknownName
from podium.core.parts import Row
from podium.core.streams import Streams
from podium.core.trust import check as check_trust
from podium.envs import make as envs
from podium.envs.film import OTHER, Film
from podium.envs.settings import EnvSettings
from podium.guests.base import Guest, is_guest
from podium.roles.evaluator import Progress
from podium.settings import Experiment
from podium.store import tensors
from podium.store.run import Run
from podium.store.snapshot import checked_step

Array = np.ndarray[Any, Any]


def load(
    run: str | Path, member: int | None = None, trust: bool = False, typed: Collection[str | None] = ()
) -> Agent | GuestAgent:
    """The best snapshot of a run's champion, or of the member of that id.

    Code that the run names is imported only if this user has started a run with it, if it is among the names that the
    user has `typed`, or with `trust`.
    """
    with Run.open(Path(run)) as folder:
        check_trust(Path(run), folder.config, trust, typed)
        elsewhere = config.merge(folder.config, {"train": {"device": "cpu"}})  # one agent needs no GPU
        each = entrants.kinds(entrants.validate(elsewhere, trains=False))
        members = {row["id"]: row for row in folder.ledger.members()}
        known = {id: row["kind"] for id, row in members.items()}
        if member is not None and member not in known:
            raise ArgumentError("member", member, f"this run has {', '.join(map(str, list(known)[:20]))}")
        chosen = folder.champion() if member is None else member
        kinds = {entrants.name_of(each, i): kind for i, kind in enumerate(each)}
        if known[chosen] not in kinds:
            raise CheckpointError(f"{run}: member {chosen} is of kind {known[chosen]}, which its settings do not know")
        experiment = kinds[known[chosen]]
        footprint.fit_one(experiment)
        path = folder.snapshot_path(chosen)
        if not path.exists():
            why = "it has not been evaluated yet, it failed, or it left the leaderboard"
            raise PodiumError(f"{path}: member {chosen} has no snapshot: {why}")
        learnt, info = folder.read_snapshot(chosen)
    step = checked_step(learnt, info, path)
    if is_guest(lookup.algorithm(experiment.algo.name)):
        return GuestAgent(experiment, learnt, hyper.live(members[chosen]["genes"]), chosen, step)
    return Agent(experiment, learnt, path, chosen, step)


class GuestAgent:
    """A member of another library's, as it was at its best: `guest` is the agent itself."""

    def __init__(
        self, experiment: Experiment, learnt: tree.Tree, genes: Mapping[str, float], member: int, step: int
    ) -> None:
        self._experiment, self._learnt, self._genes = experiment, learnt, genes
        self.member, self.step, self.env = member, step, experiment.env.id
        self.max_steps: int | None = None  # of an episode that it evaluates: it does so by its own rules
        self.guest = self._build(experiment)

    def __repr__(self) -> str:
        return f"GuestAgent(member {self.member}, {_what(self._experiment)}, at step {self.step:,})"

    def _build(self, experiment: Experiment) -> Guest:
        guest = experiments.build_guest(experiment, self.member, self._genes)
        guest.load(tree.map(lambda leaf: leaf[0], self._learnt))
        return guest

    def evaluate(
        self, episodes: int = 100, env: str | None = None, seed: int = 0, progress: Progress | None = None
    ) -> Array:
        """Returns of whole episodes, `[episodes]`, as the guest itself measures them; it tells of no progress."""
        update = {"env": self._experiment.env.model_copy(update={"id": env or self.env}), "seed": seed}
        found = self._build(self._experiment.model_copy(update=update)).evaluate(episodes)
        return np.asarray(found["return"] if isinstance(found, Mapping) else found)

    def act(self, obs: Any, explore: bool = False) -> Any:
        raise PodiumError(f"{self._experiment.algo.name}: act with the agent itself, `.guest`")

    def play(self, env: str | None = None, seed: int = 0) -> Iterator[tuple[Array, float]]:
        raise PodiumError(f"{self._experiment.algo.name}: play with the agent itself, podium.load(RUN).guest")


class Player:
    """What acts in an env: on one observation or a batch, for whole episodes, on film. `name` seeds the episodes."""

    def __init__(self, experiment: Experiment, name: str) -> None:
        self._experiment, self._name, env = experiment, name, experiment.env
        self.max_steps: int | None = experiment.eval.max_steps  # of an episode that it evaluates
        self.obs_space, self.action_space = lookup.spaces(env)
        self._actions = envs.actions(env)

    def _choose(self, obs: torch.Tensor, explore: bool = False) -> torch.Tensor:
        """`[1, E, *O]` -> actions `[1, E, ...]`, as a VecEnv takes them."""
        raise NotImplementedError

    def decide(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """`[B, *O]` -> the most likely `action` `[B, ...]`, counted from 0, and what it is chosen by, if it is told."""
        raise NotImplementedError

    @property
    def env(self) -> str:
        """The id of the env it was trained in."""
        return self._experiment.env.id

    def act(self, obs: Any, explore: bool = False) -> Any:
        """The action for one observation `[*O]` or for each of a batch `[B, *O]`, as the env takes it.

        The most likely action, or with `explore` one drawn from the policy.
        """
        rows, single = self._rows(obs)
        x = torch.as_tensor(rows, device=self._experiment.train.device)
        action = self._actions.to_env(self._choose(x[None], explore)[0].cpu().numpy())
        if not single:
            return action
        return int(action[0]) if isinstance(self.action_space, Discrete) else action[0]

    def evaluate(
        self, episodes: int = 100, env: str | None = None, seed: int = 0, progress: Progress | None = None
    ) -> Array:
        """Returns of episodes with the most likely actions, `[episodes]`; whole ones, up to `max_steps`.

        `progress` is told at every step how many episodes have ended, of how many.

        In the run's own env, or in `env`, a Gymnasium id with the same spaces, stepped by Gymnasium itself; a game of
        Atari is shown as the run's own was.
        """
        if episodes < 1:
            raise ArgumentError("episodes", episodes, "a whole number of at least 1")
        evaluator = experiments.build_evaluator(self._world(env), seed, episodes)
        try:
            done = evaluator.evaluate(self._choose, [self._name], episodes, progress=progress)
        finally:
            evaluator.close()
        return np.asarray(done.returns[0].cpu().numpy())

    def play(self, env: str | None = None, seed: int = 0) -> Iterator[tuple[Array, float]]:
        """One episode, a step at a time: the picture, and the return so far."""
        film = _film(self._world(env).env)
        try:
            obs, total, done = film.world.reset(Streams(seed, [self._name])), 0.0, False
            yield film.picture(obs), total
            while not done:
                step = film.world.step(self._choose(obs))
                obs, total, done = step.obs, total + float(step.reward), bool(step.terminated | step.truncated)
                yield film.picture(step.last), total
        finally:
            film.world.close()

    def _world(self, env: str | None) -> Experiment:
        """The experiment with the env to act in; refuses one whose spaces are others."""
        own = self._experiment.env
        if env is None:
            return self._experiment
        settings = own.model_copy(update={"id": env, "source": _source(own, env)})
        if env != own.id and settings.source == "gymnasium":
            settings = settings.model_copy(update={"kwargs": {}})  # games of Atari all take the same
        obs, action = lookup.spaces(settings)
        if (seen(obs), action) != (seen(self.obs_space), self.action_space):
            theirs, these = (" ".join(map(str, seen(space))) for space in (self.obs_space, obs))
            allowed = f"an env with observations {theirs} and actions {self.action_space}"
            raise ArgumentError("env", env, f"{allowed}; this one has {these} and {action}")
        return self._experiment.model_copy(update={"env": settings})

    def _rows(self, obs: Any) -> tuple[Array, bool]:
        """Observations as `[B, *O]`, and whether there was but one."""
        obs, shape = obs.cpu().numpy() if isinstance(obs, torch.Tensor) else obs, self.obs_space.shape or ()
        source = getattr(self.obs_space, "source", self.obs_space)
        if isinstance(self.obs_space, Row):
            found = given.rows(self.obs_space, obs)
            if found is not None:
                return found
        try:
            x = np.asarray(obs)
        except ValueError as error:  # parts of several lengths
            raise PodiumError(f"obs: {obs} is not in {source}") from error
        if isinstance(self.obs_space, Row) and x.dtype.kind in "iuO":
            raise PodiumError(f"obs: {obs} is not in {source}")
        single = x.shape == shape
        if not single and (x.ndim != len(shape) + 1 or x.shape[1:] != shape):
            allowed = f"one observation {list(shape)} or a batch [B{''.join(f', {n}' for n in shape)}]"
            raise PodiumError(f"obs: shape {list(x.shape)} is not allowed; {allowed}")
        if x.dtype.kind not in "biuf":
            raise PodiumError(f"obs: {x.dtype} is not allowed; numbers are")
        return np.ascontiguousarray((x[None] if single else x).astype(self.obs_space.dtype, copy=False)), single


def seen(space: Any) -> tuple[Any, ...]:
    """What observations have in common that a member can act on: shape and type, and what a row is made from."""
    return (space.shape, space.dtype, space.source) if isinstance(space, Row) else (space.shape, space.dtype)


def _source(own: EnvSettings, env: str) -> str:
    """Where another env than one's own comes from: Gymnasium, unless only another source shows it in the same way."""
    source = envs.source_of(own, 1)
    if env == own.id and source in ("atari", "envpool"):
        return own.source
    auto = own.model_copy(update={"id": env, "source": "auto"})
    return "auto" if source == "atari" and envs.source_of(auto, 1) == "atari" else "gymnasium"


def _what(experiment: Experiment) -> str:
    return f"{lookup.algorithm(experiment.algo.name).__name__} on {experiment.env.id}"


def _film(env: EnvSettings) -> Film:
    try:
        return Film(env)
    except UnknownName as error:
        if env.source != "envpool":
            raise
        said = f"{env.id}: EnvPool's envs cannot be drawn, and Gymnasium has none of this name"
        raise PodiumError(f"{said}. {OTHER}") from error


class Agent(Player):
    """One member with what it had learnt when it was at its best. `step` is when that was."""

    def __init__(self, experiment: Experiment, learnt: tree.Tree, path: Path, member: int, step: int) -> None:
        self._algorithm = experiments.build_single(experiment)
        tensors.match(learnt, self._algorithm.learnt(), path)
        tree.copy(self._algorithm.learnt(), learnt)
        super().__init__(experiment, f"agent/{member}")
        self.member, self.step, self._run = member, step, path.parent.parent

    def __repr__(self) -> str:
        return f"Agent(member {self.member} of {self._run}, {_what(self._experiment)}, at step {self.step:,})"

    def _choose(self, obs: torch.Tensor, explore: bool = False) -> torch.Tensor:
        act = self._algorithm.act
        if not explore:
            return act(obs, {}, explore=False)[0]["action"]
        count, size = obs.shape[1], self._experiment.env.num  # noise is drawn for so many rows at a time
        padded = torch.cat([obs, obs.new_zeros(1, -count % size, *obs.shape[2:])], 1)
        parts = [act(part, {}, explore=True)[0]["action"] for part in padded.split(size, 1)]
        return torch.cat(parts, 1)[:, :count]

    def decide(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: x[0] for name, x in proposed(self._algorithm, obs[None]).items()}
