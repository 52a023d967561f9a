"""The driver: pods of this process under an orchestrator, until a stop rule holds; keeps the run's folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from podium.core.errors import PodiumError
from podium.core.tree import Tree
from podium.evolve import saved
from podium.evolve.apart import Apart
from podium.evolve.generational import Generational
from podium.evolve.pool import Pods, finish, step
from podium.evolve.tournament import Tournament
from podium.evolve.turn import Outcome
from podium.fleet.errors import NodeLost
from podium.store import checkpoint
from podium.store.run import Run
from podium.topologies.pace import Paces, Window, side_by_side
from podium.topologies.unsaved import Unsaved

LEDGER_SECONDS = 5.0
"""Between two reports in the ledger, which keeps them all."""

PATIENCE, LOOK = 60.0, 0.05
"""Seconds to wait for a pod that has to be saved, and between two looks for it."""

LEADERS = 5
"""Members of the leaderboard in a report."""

Orchestrator = Apart | Generational | Tournament


@dataclass(frozen=True)
class Plan:
    """When to stop and save. Steps are a member's own, in the mean over all."""

    stop_steps: int | None
    stop_seconds: float | None
    stop_fitness: float | None
    stop_generations: int | None
    checkpoint_every: int
    max_unsaved: float = 30.0  # minutes
    report_seconds: float = 0.5


class Sink(Protocol):
    """Where reports go: console, event file, the user's hook."""

    def report(self, report: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None:
        """As `note`, on stderr and never quiet."""
        ...

    def position(self) -> int:
        """Bytes of the event file so far: a checkpoint remembers them, a resume cuts the file there."""
        ...


class Driver:
    """Drives pods and keeps their run folder."""

    def __init__(
        self,
        pool: Pods,
        orchestrator: Orchestrator,
        plan: Plan,
        sink: Sink,
        interrupted: Callable[[], bool],
    ) -> None:
        self.pool, self.orchestrator, self.plan, self.sink = pool, orchestrator, plan, sink
        self.population = orchestrator.population
        self.population.note, self.population.fetch = sink.note, pool.read
        self._interrupted = interrupted
        log = None if isinstance(orchestrator, Apart) else lambda text: self.run.log(text)  # nobody could replace them
        pool.attach(lambda: self.seconds, interrupted, log)
        self._seconds_before, self._started = 0.0, time.perf_counter()
        self._saved = (-1, -1)  # step and turn of the checkpoint that was written or loaded last
        self._scheduled, self._restarts = True, False  # whether it was due; whether envs begin anew before they go on
        self._noted = -math.inf
        self._unsaved = Unsaved(plan.max_unsaved, sink.warn)
        self._lost: Sequence[int] = ()  # pods of the last checkpoint that had lost their members
        self._window = [Window(place.rows) for place in self.population.places]
        self.noted = 0  # what went wrong on the way, and is in the log

    @property
    def run(self) -> Run:
        return self.population.run

    @run.setter
    def run(self, run: Run) -> None:
        self.population.run = run

    @property
    def step(self) -> int:
        """Of each member; with several pods the mean."""
        return self.population.total_steps // self.population.size

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the run, over all resumes."""
        return self._seconds_before + time.perf_counter() - self._started

    def state(self) -> Tree:
        pods = self.pool.state()
        self._lost = [pod for pod in range(len(self.population.places)) if str(pod) not in pods]
        return {"pods": pods | self._before(self._lost), "orchestrator": self.orchestrator.state()}

    def _before(self, pods: Collection[int]) -> Tree:
        """Pods that are away, as the last checkpoint had them: what they had learnt is lost, but a state is whole.

        NodeLost where no checkpoint has such a pod.
        """
        latest = checkpoint.latest(self.run.path) if pods else None
        before: Tree = checkpoint.read(latest)[0]["pods"] if latest is not None else {}
        for pod in pods:
            ids = torch.tensor([row.member for row in self.population.rows[pod]])
            if str(pod) not in before or before[str(pod)]["slot"]["ids"].shape != ids.shape:
                raise NodeLost(f"pod {pod} is away, and was never saved as it is")
            slot = before[str(pod)]["slot"]
            slot["ids"] = ids
            slot["steps"] = torch.full_like(slot["steps"], self.population.steps[pod])
            slot["failed"] = torch.ones_like(slot["failed"])
        return {str(pod): before[str(pod)] for pod in pods}

    def load(self, state: Tree, info: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; ValueError, or another error of a wrong shape, where it is none of this run."""
        saved.check(info, saved.Checkpoint)
        self.pool.load(state["pods"])
        self.orchestrator.load(state["orchestrator"], info["orchestrator"])
        self._seconds_before = info["seconds"]
        self._saved, self._scheduled, self._restarts = (self.step, info["turn"]), info["scheduled"], True
        self._lost = info.get("lost", ())

    def train(self) -> str:
        """Train until done; why it stopped: "steps", "seconds", "fitness", "generations", "failed", "interrupted"."""
        plan, reported, at, saved = self.plan, time.perf_counter(), self.population.total_steps, self.step
        rate = 0.0
        self._paces = Paces(self.pool, self.population)
        for pod in self._lost:
            self.population.fail_all(pod, "its pod was away when the run was saved")
        due = False
        while not (reason := self._stop()):
            self._restart()
            self._take_in(step(self.pool, self.orchestrator))
            self._grow()
            due = self.step // plan.checkpoint_every != saved // plan.checkpoint_every
            if due:
                self._rest()
            if due and not self._stop():
                self.checkpoint()
                saved, due = self.step, False
            if (now := time.perf_counter()) - reported >= plan.report_seconds:
                self._look_after_folder()
                total = self.population.total_steps
                rate = (total - at) / (now - reported)
                self._report(rate)
                reported, at = now, total
        self._rest()
        if reason != "interrupted":
            self._complete()
            if isinstance(self.orchestrator, Apart):  # a checkpoint does not hold its snapshots, and comes after them
                self._close()
        self._save_at_last(due)
        if reason != "interrupted":
            self._close()  # after the checkpoint, so that a run that is extended goes on as a longer one would have
            for rows, steps in zip(self.population.rows, self.population.steps, strict=True):
                self.run.ledger.finish([row.member for row in rows], steps)
            self._report(rate)  # with the last scores
        self.run.sync()
        return reason

    def _look_after_folder(self) -> None:
        """See that there is a folder to save to; where nothing could be saved for too long, try once more and end."""
        if why := self.run.lost():
            self._unsaved.failed(why)
        if self._unsaved.too_long:
            self._rest()
            self._save_at_last(False)

    def _save_at_last(self, scheduled: bool) -> None:
        """Save what is in memory; where the folder is gone, in a new one, and end with an error."""
        why = self.run.lost()
        if why is None:
            self.save(scheduled)
            return
        try:
            self.run.remake()
            self._saved = (-1, -1)  # nothing of it is in the new folder
            self.save(scheduled)
        except OSError as error:
            raise PodiumError(f"{why}, and no new one can be written ({error}): the run ends unsaved") from error
        saved = f"What was in memory is saved in a new folder, as of step {self.step:,}"
        raise PodiumError(f"{why}. {saved}: podium resume {self.run.path}")

    def _grow(self) -> None:
        """Split a pod where there is room for one more; the checkpoint has to know."""
        orchestrator = self.orchestrator
        if isinstance(orchestrator, Apart) or (split := self.pool.grow(orchestrator.idle)) is None:
            return
        pod, keep = split
        orchestrator.split(pod, keep)
        rows = self.population.places[-1].rows
        self.run.log(f"pod {len(self._window)} has joined, with {rows} members of pod {pod}")
        self._window[pod] = Window(keep)
        self._window.append(Window(rows))
        self._paces = Paces(self.pool, self.population)
        self._rest()
        self._saved = (-1, -1)
        self.checkpoint()

    def _rest(self) -> None:
        """Wait until no pod is at work."""
        while not self.pool.between_rounds:
            self._take_in(finish(self.pool, self.orchestrator))

    def _complete(self) -> None:
        """Make up for evaluations that were cut short."""
        while self.orchestrator.cut and not self._interrupted():
            self._take_in(step(self.pool, self.orchestrator))

    def _close(self) -> None:
        """Score what was trained since the last evaluation."""
        for pod in range(len(self.population.places)):
            while pod not in self.pool.away() and (task := self.orchestrator.last(pod)) and not self._interrupted():
                outcome = self.pool.do(pod, task)
                self.orchestrator.tell(pod, outcome)
                self._log_notes(outcome)
                if outcome.late:
                    break

    def _stop(self) -> str | None:
        plan, orchestrator = self.plan, self.orchestrator
        if orchestrator.failed():
            return "failed"
        if self._interrupted():
            return "interrupted"
        if plan.stop_steps is not None and self.step >= plan.stop_steps:
            return "steps"
        if plan.stop_seconds is not None and self.seconds >= plan.stop_seconds:
            return "seconds"
        if plan.stop_fitness is not None and orchestrator.reached(plan.stop_fitness):
            return "fitness"
        if plan.stop_generations is not None and orchestrator.generation >= plan.stop_generations:
            return "generations"
        return None

    def checkpoint(self) -> None:
        """Save everything; on a full disk the run goes on with a warning, and the checkpoint before stays."""
        try:
            self.save()
        except OSError as error:
            self._unsaved.failed(f"The checkpoint of step {self.step:,} was not written ({error})", str(error))
            self._restarts = True  # as if it had been written: no file decides how a run goes on

    def save(self, scheduled: bool = True) -> None:
        """Write a checkpoint, unless there is one of this turn; an env that cannot be saved ends its episodes here.

        `scheduled` says that a run without a stop would have saved here, too.
        """
        now = self.step, self.run.ledger.turn
        if self._saved == now:
            return
        if why := self.run.lost():
            raise FileNotFoundError(why)
        scheduled |= self._saved[0] == self.step and self._scheduled
        state = self._whole_state()
        info = {
            "seconds": self.seconds,
            "events": self.sink.position(),
            "exact": self.pool.exact,
            "scheduled": scheduled,
            "turn": self.run.ledger.turn,
            "seats": [[place.kind, place.rows] for place in self.population.places],
            "lost": list(self._lost),
            "orchestrator": self.orchestrator.info(),
            "config": self.run.config,
        }
        self.run.sync()  # before the checkpoint that counts on it
        checkpoint.write(self.run.path, self.step, state, info)
        self._unsaved.saved()
        self._saved, self._scheduled, self._restarts = now, scheduled, True

    def _whole_state(self) -> Tree:
        """The state of all pods at one moment; where one is lost meanwhile, of that which takes its place."""
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                return self.state()
            except NodeLost:
                if time.monotonic() > ends:
                    raise
                self._rest()
                self.pool.free()  # who is back is welcome
                time.sleep(LOOK)

    def _restart(self) -> None:
        """New episodes in envs that a checkpoint cannot hold; as late as this, as it may be written once more."""
        if self._restarts:
            self.pool.restart()
        self._restarts = False

    def _take_in(self, done: tuple[int, Outcome] | None) -> None:
        if done is None and not self._interrupted():
            raise RuntimeError("no pod has anything to do")
        if done is None:
            return
        pod, outcome = done
        self._log_notes(outcome)
        if outcome.report:
            self._window[pod].add(outcome.report, outcome.ids)

    def _log_notes(self, outcome: Outcome) -> None:
        for note in outcome.notes:
            self.run.log(note)
        self.noted += len(outcome.notes)

    def _report(self, rate: float) -> None:
        """One report: of the run for the console, of each member for ledger, event file and hook."""
        rows = [row for _, _, row in self.population.all_rows()]
        members = side_by_side([window.metrics() for window in self._window])
        members["fitness"] = [self.population.fitness(row) for row in rows]
        healthy = torch.tensor([r for r, row in zip(members["return"], rows, strict=True) if not row.failed])
        healthy = healthy[healthy.isfinite()]
        each = rate / self.population.size
        left = None
        if self.plan.stop_steps is not None and each > 0:
            left = max(0, self.plan.stop_steps - self.step) / each
        ids = [member for window in self._window for member in window.ids]
        if self.seconds - self._noted >= LEDGER_SECONDS:
            self._noted = self.seconds
            self.run.ledger.report(self.step, self.seconds, members, ids)
        self.sink.report(
            {
                "step": self.step,
                "steps_total": self.population.total_steps,
                "steps_per_second": rate,
                "steps_evaluation": self.population.cost,
                "seconds": self.seconds,
                "best_return": float(healthy.max()) if len(healthy) else None,
                "median_return": float(healthy.median()) if len(healthy) else None,
                "best_fitness": self.orchestrator.leader,
                "generation": self.orchestrator.generation,
                "exchanges": self.population.exchanges,
                "leaders": self.population.leaders(LEADERS),
                "failed": sum(row.failed for row in rows),
                "pods": self._paces.since(),
                "eta_seconds": left,
                "ids": ids,
                "members": members,
            }
        )
