"""The learner: hands what was collected to the algorithm, at once or by way of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from podium.algos.base import Algorithm, Batch
from podium.algos.off_policy import OffPolicySettings, current
from podium.core.tree import Tree
from podium.replay.replay import Replay
from podium.replay.settings import ReplaySettings

Metrics = dict[str, Tensor]


def rate(settings: OffPolicySettings, stored: ReplaySettings) -> float:
    """Updates for each step that a member stores."""
    return settings.updates if stored.ratio is None else stored.ratio / settings.batch


def _rows(flags: Tensor) -> Sequence[int]:
    """Where `flags[M]` are set; most often nowhere."""
    return flags.nonzero().flatten().tolist() if bool(flags.any()) else ()


def _seen(rollout: Batch) -> Tensor | float:
    """A sum over what each member saw, `[M]`, that is not finite where one of the numbers is not; bytes always are."""
    if not rollout["obs"].is_floating_point():
        return 0.0
    return rollout["obs"].flatten(1).sum(1) + rollout["last"].flatten(1).sum(1)


class FromRollout:
    """Learns from every rollout once, and forgets it."""

    saved = True

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm, self._finite = algorithm, torch.tensor(True)
        self.odd: Sequence[int] = ()  # rows of the last rollout whose numbers were not finite

    def learn(self, rollout: Batch, remaining: Tensor | None) -> Metrics:
        """Metrics `[M]` of the last update."""
        metrics = self._algorithm.learn(rollout, remaining)
        finite = metrics.pop("finite").cpu()
        self._finite, self.odd = self._finite & finite, _rows(~finite)
        return metrics

    def finite(self) -> Tensor:
        """Whose numbers were finite ever since this was asked last, `[M]`, on the CPU."""
        finite, self._finite = self._finite, torch.tensor(True)
        return finite

    def clear(self, rows: Sequence[int]) -> None:
        """Forget what was collected by members that failed."""

    def restart(self) -> None:
        """All episodes end here."""

    def state(self) -> Tree:
        return {}

    def load(self, state: Tree) -> None:
        if state:
            raise ValueError("a replay for an algorithm that has none")


class FromReplay:
    """Stores every rollout, then learns from batches of all that is stored."""

    def __init__(self, algorithm: Any, settings: OffPolicySettings, stored: ReplaySettings, replay: Replay) -> None:
        self._algorithm, self._settings, self._stored, self.replay = algorithm, settings, stored, replay
        self._least = max(settings.warmup * (replay.members if stored.shared else 1), settings.batch)
        self._owed = 0.0  # updates, for a ratio that does not come out even
        # Their sum since `finite` was asked last: not finite as soon as one of them is not.
        self._rewards = torch.zeros(replay.members, device=replay.ring.data.device)
        self.odd: Sequence[int] = ()  # rows of the last rollout with an observation or reward that was not finite

    def learn(self, rollout: Batch, remaining: Tensor | None) -> Metrics:
        """Metrics `[M]` of the last update; none while nobody has enough to learn from."""
        algorithm, replay = self._algorithm, self.replay
        replay.insert(rollout)
        rewards = rollout["reward"].sum((1, 2))
        self._rewards, self.odd = self._rewards + rewards, _rows(~(rewards + _seen(rollout)).isfinite())
        algorithm.observe(rollout, algorithm.genes["discount"])
        ready = replay.size >= self._least
        if not bool(ready.any()):
            return {}
        active = None if bool(ready.all()) else ready.to(rollout["reward"].device)
        metrics: Metrics = {}
        for _ in range(self._due(rollout["reward"][0].numel())):
            metrics |= self.update(remaining, active)  # of a policy that is updated now and then the last is kept
        return metrics

    def update(self, remaining: Tensor | None = None, active: Tensor | None = None) -> Metrics:
        """One update of the members that are `active` `[M]`, or of all."""
        algorithm, replay = self._algorithm, self.replay
        genes = current(algorithm.genes, self._settings.anneal, remaining)
        batch = replay.sample(genes["discount"], genes.get("beta"))
        if active is not None:
            batch["active"] = active
        metrics: Metrics = algorithm.learn(batch, remaining)
        error = metrics.pop("error")
        if self._stored.prioritised:
            if self._stored.shared:  # what is not finite has a weight of 0, and is nobody's surprise
                error = error * (batch["weight"] > 0)
            replay.prioritise(error, genes["alpha"], active)
        return metrics

    def _due(self, steps: int) -> int:
        """Updates after so many steps of each member."""
        self._owed += steps * rate(self._settings, self._stored)
        due = int(self._owed + 1e-9)  # ten times a tenth is one
        self._owed -= due
        return due

    def finite(self) -> Tensor:
        found: Tensor = (self._algorithm.finite() & self._rewards.isfinite()).cpu()  # weights stay what they became
        self._rewards = torch.zeros_like(self._rewards)
        return found

    def clear(self, rows: Sequence[int]) -> None:
        self.replay.clear(rows)

    def restart(self) -> None:
        self.replay.cut()

    @property
    def saved(self) -> bool:
        """Whether `state` holds the replay."""
        return self.replay.saved_bytes <= self._stored.save_bytes

    def state(self) -> Tree:
        drawn, members = self._algorithm.drawn(), len(self._algorithm.genes["lr"])
        owed = torch.full((members,), self._owed, dtype=torch.float64)
        return {"drawn": drawn, "owed": owed} | ({"replay": self.replay.state()} if self.saved else {})

    def load(self, state: Tree) -> None:
        self._owed = float(state["owed"][0])
        if "replay" in state:  # else nothing goes on as it was
            self.replay.load(state["replay"])
            self._algorithm.redraw(state["drawn"])
