"""The plain topology: one pod in this process, collect and learn in turn, until a stop rule holds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from podium.core.tree import Tree
from podium.roles.evaluator import Interrupted
from podium.roles.pod import Pod
from podium.store import checkpoint
from podium.store.records import Score
from podium.store.run import Run

LEDGER_SECONDS = 5.0
"""Between two reports in the ledger, which keeps them all."""


@dataclass(frozen=True)
class Plan:
    """When to stop, evaluate and save. Steps are a member's own; all members of a stack have the same number."""

    stop_steps: int | None
    stop_seconds: float | None
    stop_fitness: float | None
    evaluate_every: int
    episodes: int
    checkpoint_every: int
    report_seconds: float = 0.5


class Sink(Protocol):
    """Where reports go: console, event file, the user's hook."""

    def report(self, report: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...

    def position(self) -> int:
        """Bytes of the event file so far: a checkpoint remembers them, a resume cuts the file there."""
        ...


class Sync:
    """Drives one pod and keeps its run folder."""

    def __init__(self, pod: Pod, run: Run, plan: Plan, sink: Sink, interrupted: Callable[[], bool]) -> None:
        self.pod, self.run, self.plan, self.sink, self._interrupted = pod, run, plan, sink, interrupted
        members = len(pod.ids)
        self.best = torch.full((members,), -math.inf)
        self.evaluated = torch.full((), -1, dtype=torch.int64)
        self.owed = torch.zeros((), dtype=torch.bool)  # an evaluation that an interruption cut short
        self._failed = pod.failed.clone()
        self._episodes, self._returns = torch.zeros(members), torch.zeros(members)
        self._recent = torch.full((members,), math.nan)
        self._seconds_before, self._started = 0.0, time.perf_counter()
        self._saved = -1  # the step of the checkpoint that was written or loaded last
        self._noted = -math.inf

    @property
    def step(self) -> int:
        return int(self.pod.steps[0])

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of training, over all resumes."""
        return self._seconds_before + time.perf_counter() - self._started

    def state(self) -> Tree:
        return {"pod": self.pod.state(), "best": self.best, "evaluated": self.evaluated, "owed": self.owed}

    def load(self, state: Tree, seconds: float) -> None:
        self.pod.load(state["pod"])
        self.best.copy_(state["best"])
        self.evaluated.copy_(state["evaluated"])
        self.owed.copy_(state["owed"])
        self._failed, self._seconds_before = self.pod.failed.clone(), seconds
        self._saved = self.step
        if not self.pod.exact:
            self.pod.restart()

    def train(self) -> str:
        """Train until done; returns why it stopped: "steps", "seconds", "fitness", "failed" or "interrupted"."""
        plan, reported, at = self.plan, time.perf_counter(), self.step
        if self.owed:
            self.evaluate()
        while not (reason := self._stop()):
            before = self.step
            metrics = self.pod.train(1)
            self._mark_failed()
            self._window(metrics)
            if before // plan.evaluate_every != self.step // plan.evaluate_every:
                self.evaluate()
            if before // plan.checkpoint_every != self.step // plan.checkpoint_every and not self._stop():
                self.checkpoint()
            if (now := time.perf_counter()) - reported >= plan.report_seconds:
                self._report(metrics, (self.step - at) / (now - reported))
                reported, at = now, self.step
        if reason != "interrupted":
            self.evaluate()
        self.save()
        if reason != "interrupted":
            self.run.ledger.finish(self.pod.ids.tolist(), self.step)
        return reason

    def _stop(self) -> str | None:
        plan = self.plan
        if bool(self.pod.failed.all()):
            return "failed"
        if self._interrupted():
            return "interrupted"
        if plan.stop_steps is not None and self.step >= plan.stop_steps:
            return "steps"
        if plan.stop_seconds is not None and self.seconds >= plan.stop_seconds:
            return "seconds"
        if plan.stop_fitness is not None and bool((self.best[~self.pod.failed] >= plan.stop_fitness).all()):
            return "fitness"
        return None

    def _mark_failed(self) -> None:
        for row in (self.pod.failed & ~self._failed).nonzero().flatten().tolist():
            member = int(self.pod.ids[row])
            reason = "a number in its observation, reward or gradient is not finite"
            self.run.ledger.fail(member, self.step, reason)
            self.sink.note(f"member {member} failed at step {self.step}: {reason}")
        self._failed = self.pod.failed.clone()

    def evaluate(self) -> None:
        """Score every member, and keep the weights of those that are better than they have ever been."""
        if int(self.evaluated) == self.step:
            return
        self.owed.fill_(True)
        try:
            returns, _ = self.pod.evaluate(range(len(self.pod.ids)), self.plan.episodes, self._interrupted)
        except Interrupted:
            return
        self.owed.fill_(False)
        fitness, scores = returns.mean(1).cpu(), []
        better = (fitness > self.best) & fitness.isfinite() & ~self.pod.failed
        for row, (member, values) in enumerate(zip(self.pod.ids.tolist(), returns.tolist(), strict=True)):
            if not self.pod.failed[row] and math.isfinite(fitness[row]):
                scores.append(Score(member, self.step, self.seconds, values, bool(better[row])))
        for row in better.nonzero().flatten().tolist():
            member = int(self.pod.ids[row])
            self.run.snapshot(member, self.pod.read([row]), {"step": self.step, "fitness": float(fitness[row])})
        self.run.ledger.add_scores(scores)
        self.best = torch.where(better, fitness, self.best)
        self.evaluated.fill_(self.step)

    def checkpoint(self) -> None:
        """Save everything; on a full disk the run goes on with a warning, and the checkpoint before stays."""
        try:
            self.save()
        except OSError as error:
            self.sink.note(f"warning: the checkpoint of step {self.step} was not written ({error}); training goes on")
            if not self.pod.exact:  # as if it had been written: no file decides how a run goes on
                self.pod.restart()

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this step; an env that cannot be saved ends its episodes here."""
        if self._saved == self.step:
            return
        info = {"seconds": self.seconds, "events": self.sink.position(), "exact": self.pod.exact}
        checkpoint.write(self.run.path, self.step, self.state(), info)
        self._saved = self.step
        if not self.pod.exact:
            self.pod.restart()

    def _window(self, metrics: dict[str, Tensor]) -> None:
        self._episodes += metrics["episodes"]
        self._returns += metrics["return"].nan_to_num(0) * metrics["episodes"]

    def _report(self, metrics: dict[str, Tensor], rate: float) -> None:
        """One report: of the run for the console, of each member for ledger, event file and hook."""
        self._recent = torch.where(self._episodes > 0, self._returns / self._episodes, self._recent)
        self._episodes.zero_(), self._returns.zero_()
        members = {name: value.tolist() for name, value in metrics.items()} | {"return": self._recent.tolist()}
        healthy = self._recent[~self.pod.failed & self._recent.isfinite()]
        best = float(self.best.max())
        left = None if self.plan.stop_steps is None else max(0, self.plan.stop_steps - self.step) / max(rate, 1e-9)
        if self.seconds - self._noted >= LEDGER_SECONDS:
            self._noted = self.seconds
            self.run.ledger.report(self.step, self.seconds, members)
        self.sink.report(
            {
                "step": self.step,
                "steps_total": self.step * len(self.pod.ids),
                "steps_per_second": rate * len(self.pod.ids),
                "seconds": self.seconds,
                "best_return": float(healthy.max()) if len(healthy) else None,
                "median_return": float(healthy.median()) if len(healthy) else None,
                "best_fitness": best if math.isfinite(best) else None,
                "failed": int(self.pod.failed.sum()),
                "eta_seconds": left,
                "members": members,
            }
        )
