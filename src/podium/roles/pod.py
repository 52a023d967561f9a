"""A pod: a stack of members with its envs, collector, learner and evaluator, placed somewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from podium.algos.base import Algorithm
from podium.core import tree
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.roles.collector import Collector, finished
from podium.roles.evaluator import Evaluator

Report = dict[str, Tensor]
"""Metrics by name, each `[M]`."""


class Pod:
    """Trains and evaluates M members. `build(m)` makes a fresh algorithm of m members to evaluate some rows with."""

    def __init__(
        self,
        algorithm: Algorithm,
        collector: Collector,
        evaluator: Evaluator,
        streams: Streams,
        ids: Sequence[int],
        *,
        build: Callable[[int], Algorithm],
        horizon: int | None = None,
    ) -> None:
        self.algorithm, self.collector, self.evaluator, self.streams = algorithm, collector, evaluator, streams
        self._build, self._horizon = build, horizon
        self._some: dict[int, Algorithm] = {}
        self.ids = torch.tensor(list(ids))
        self.steps = torch.zeros(len(self.ids), dtype=torch.int64)
        self.failed = torch.zeros(len(self.ids), dtype=torch.bool)
        # Whether `state` holds the envs, too; if not, episodes end at every checkpoint.
        self.exact = collector.env.state() is not None

    def train(self, updates: int) -> Report:
        """Collect and learn `updates` times; the last metrics, with the episodes that ended and their returns."""
        ended, total = torch.zeros(len(self.ids), dtype=torch.int64), torch.zeros(len(self.ids))
        metrics: Report = {}
        for _ in range(updates):
            batch = self.collector.collect()
            metrics = self.algorithm.learn(batch, self._remaining())
            count, returns = finished(batch)
            ended += count.cpu()
            total += returns.cpu()
            self.steps += batch["reward"][0].numel()
            self.failed |= ~metrics.pop("finite").cpu()
        return metrics | {"episodes": ended, "return": total / ended}  # NaN where no episode ended

    def _remaining(self) -> Tensor | None:
        """What is left of the run, 1 to 0, `[M]`."""
        if self._horizon is None:
            return None
        return (1 - self.steps.double() / self._horizon).clamp_(min=0).float().to(self.collector.obs.device)

    def evaluate(
        self, rows: Sequence[int], episodes: int, stop: Callable[[], bool] = lambda: False
    ) -> tuple[Tensor, Tensor]:
        """Returns `[R, episodes]` and objectives `[R, episodes, K]` of some rows; Interrupted if `stop` comes first."""
        algorithm = self._rows(rows)
        names = [f"{self.ids[row]}/{self.steps[row]}" for row in rows]
        return self.evaluator.evaluate(
            lambda obs: algorithm.act(obs, {}, explore=False)[0]["action"], names, episodes, stop
        )

    def _rows(self, rows: Sequence[int]) -> Algorithm:
        if list(rows) == list(range(len(self.ids))):
            return self.algorithm
        if len(rows) not in self._some:
            self._some[len(rows)] = self._build(len(rows))
        some = self._some[len(rows)]
        tree.copy(some.learnt(), tree.take(self.algorithm.learnt(), torch.tensor(rows)))
        return some

    def read(self, rows: Sequence[int]) -> Tree:
        """All that some rows have learnt, copied."""
        return tree.take(self.algorithm.learnt(), torch.tensor(rows))

    def write(self, rows: Sequence[int], members: Tree) -> None:
        """Put what `read` returned (here or elsewhere) into some rows."""
        tree.put(self.algorithm.learnt(), torch.tensor(rows), members)

    def restart(self) -> None:
        """End all episodes and begin new ones; what the rows had summed up over them ends, too."""
        self.collector.restart()
        for total in tree.flatten(self.algorithm.slot()).values():
            total.zero_()

    def state(self) -> Tree:
        """Everything a resumed pod needs to go on as if nothing had happened."""
        slot: Tree = {
            "algorithm": self.algorithm.slot(),
            "streams": self.streams.state(),
            "steps": self.steps,
            "ids": self.ids,
            "failed": self.failed,
        }
        env = self.collector.env.state()
        if env is not None:
            slot |= {"env": env, "obs": self.collector.obs}
        return {"learnt": self.algorithm.learnt(), "slot": slot}

    def load(self, state: Tree) -> None:
        """Go on from `state`, whose shapes have been checked."""
        slot = state["slot"]
        tree.copy(self.algorithm.learnt(), state["learnt"])
        tree.copy(self.algorithm.slot(), slot["algorithm"])
        self.streams.load(slot["streams"])
        for name in ("steps", "ids", "failed"):
            getattr(self, name).copy_(slot[name])
        if "env" in slot:
            self.collector.env.load(slot["env"])
            self.collector.obs = slot["obs"].to(self.collector.obs.device)

    def close(self) -> None:
        self.collector.env.close()
        self.evaluator.close()
