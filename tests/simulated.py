"""Pods without networks on a virtual clock: what an orchestrator decides, seen in milliseconds.

A member's weights are one number, its skill. Training adds its gene `lr` for every step, an evaluation shows the skill
and a little noise that depends on the member, its steps and how often it was asked. Population, leaderboard, ledger and
run folder are the real ones.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from podium.core import tree
from podium.core.hyper import Gene
from podium.core.tree import Tree
from podium.envs.native.base import State
from podium.envs.native.cartpole import CartPole
from podium.evolve import exchange, nsga2
from podium.evolve.explore import Searched, Space
from podium.evolve.generational import Generational
from podium.evolve.pool import Inline, step
from podium.evolve.population import Population
from podium.evolve.rows import Kind, Place
from podium.evolve.settings import EvolveSettings
from podium.evolve.tournament import Tournament
from podium.evolve.turn import Evaluation, Outcome, Refill, Refills, Task
from podium.store.run import Run

LOW, HIGH = 1e-3, 1e-1
"""The range of the gene `lr`; `other` is not searched."""
EPISODES = 4
STRATEGIES = ("tournament", "truncation", "wta", "tournament-selection", "t-test", "softmax", "nsga2")

Born = Callable[[int], float]
"""The gene `lr` of a member with new weights."""


def settings(strategy: str = "tournament", **more: Any) -> EvolveSettings:
    if strategy == "nsga2":
        more = {"objectives": ("return", "-effort"), **more}
    return EvolveSettings(strategy=strategy, **{"interval": 400, "slice": 1, **more})


class Pod:
    """Rows that are numbers. `fails` are (row, step) at which a member fails, `cuts` says which first tries are cut."""

    def __init__(self, place: Place, ids: Sequence[int], lr: Born, noise: float, objectives: int) -> None:
        self.place, self.ids, self._noise, self._objectives = place, list(ids), noise, objectives
        self.genes = {"lr": torch.tensor([lr(i) for i in ids]), "other": torch.full((place.rows,), 0.5)}
        self.skill, self.failed = torch.zeros(place.rows), [False] * place.rows
        self.steps = 0
        self.fails: set[tuple[int, int]] = set()
        self.cuts: Callable[[int, Task], bool] = lambda steps, task: False
        self.cut: list[tuple[int, list[int], int]] = []  # steps, rows, again
        self.fitness: Callable[[int, int, int], float] | None = None  # (member, step, again) in the skill's place
        self.born: dict[int, float] = dict.fromkeys(ids, 0.0)  # the skill that each member began with

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome:
        for _ in range(task.updates):
            self.skill += self.genes["lr"] * self.place.rollout
            self.steps += self.place.rollout
            for row, at in [f for f in self.fails if f[1] <= self.steps]:
                self.fails.remove((row, at))
                self.failed[row], self.skill[row] = True, torch.nan
        evaluation = None
        if task.rows:
            evaluation = self._evaluate(task.rows, task.again)
            if (this := (self.steps, list(task.rows), task.again)) not in self.cut and self.cuts(self.steps, task):
                evaluation = self.cut.append(this)
        members = self.read(task.rows) if evaluation is not None else None
        return Outcome(task, self.steps, seconds(), list(self.failed), {}, evaluation, members)

    def _evaluate(self, rows: Sequence[int], again: int) -> Evaluation:
        returns = torch.stack([self._returns(row, again) for row in rows])
        effort = self.genes["lr"][list(rows)].double()[:, None].expand_as(returns)
        measured = torch.stack([returns, effort][: self._objectives], -1) if self._objectives else torch.zeros(0)
        return Evaluation(returns, torch.full_like(returns, 10), measured.reshape(*returns.shape, self._objectives))

    def _returns(self, row: int, again: int) -> Tensor:
        member = self.ids[row]
        if self.fitness is not None:
            return torch.full((EPISODES,), self.fitness(member, self.steps, again), dtype=torch.float64)
        names = [f"{member}/{self.steps}/{again}/{i}" for i in range(EPISODES)]
        digests = [hashlib.blake2b(name.encode(), digest_size=4).digest() for name in names]
        dice = torch.tensor([int.from_bytes(digest, "little") / 2**31 - 1 for digest in digests], dtype=torch.float64)
        return self.skill[row].double() + self._noise * dice

    def read(self, rows: Sequence[int]) -> Tree:
        return tree.take({"skill": self.skill, "genes": self.genes}, torch.tensor(list(rows)))

    def exchange(self, refills: Sequence[Refill]) -> None:
        """As a true pod does it: all that is copied is read first."""
        sources = [self.read([r.source])["skill"] if isinstance(r.source, int) else r.source for r in refills]
        for refill, source in zip(refills, sources, strict=True):
            skill = source["skill"] if isinstance(source, dict) else torch.zeros(1) if source is None else source
            self.skill[refill.row], self.ids[refill.row], self.failed[refill.row] = skill[0], refill.member, False
            self.born[refill.member] = float(skill[0])
            for name, values in self.genes.items():
                values[refill.row] = refill.genes[name]


class Virtual:
    """Pods that run free on a virtual clock; an update of pod i takes `pace[i]` seconds, an evaluation `evaluating`."""

    def __init__(self, pods: Sequence[Pod], pace: Sequence[float], evaluating: float = 1.0) -> None:
        self._pods, self._pace, self._evaluating, self._now = pods, pace, evaluating, 0.0
        self._busy: list[tuple[float, int, Task]] = []

    def seconds(self) -> float:
        return self._now

    def free(self) -> list[int]:
        return sorted(set(range(len(self._pods))) - {pod for _, pod, _ in self._busy})

    def start(self, pod: int, task: Task) -> None:
        length = self._pace[pod] * task.updates + self._evaluating * bool(task.rows)
        heapq.heappush(self._busy, (self._now + length, pod, task))

    def next(self) -> tuple[int, Outcome] | None:
        if not self._busy:
            return None
        self._now, pod, task = heapq.heappop(self._busy)
        return pod, self._pods[pod].turn(task, self.seconds, lambda: False)

    def exchange(self, pod: int, refills: Sequence[Refill]) -> None:
        assert pod not in {busy for _, busy, _ in self._busy}, "a pod at work cannot be given members"
        self._pods[pod].exchange(refills)


class World:
    """A run of simulated pods. It is its own orchestrator, so that it sees all that is asked and told.

    `reborn` puts a new orchestrator in the place of the old one before every question and after every answer, which
    knows only what a checkpoint would: its state, and its info after a trip through JSON.
    """

    def __init__(
        self,
        path: Path,
        evolve: EvolveSettings,
        places: Sequence[Place] | None = None,
        *,
        lr: Born | None = None,
        noise: float = 0.3,
        pace: Sequence[float] | None = None,
        evaluating: float = 1.0,
        seed: int = 0,
        reborn: bool = False,
    ) -> None:
        self.run = Run.create(path, {})
        self.evolve, self.places, self._seed = evolve, places or [Place(0, evolve.members, 100)], seed
        assert sum(place.rows for place in self.places) == evolve.members
        self._lr, self._reborn, self._until = lr or (lambda member: LOW * (1 + member % 8)), reborn, 0
        self.orchestrator = self.make()
        self.orchestrator.population.enter()
        self.pods, first = [], 0
        for place in self.places:
            ids = range(first, first + place.rows)
            self.pods.append(Pod(place, ids, self._lr, noise, len(evolve.objectives)))
            first += place.rows
        self.pool: Inline | Virtual = Inline(self.pods, lambda: float(self.pods[0].steps))
        if pace is not None:
            self.pool = Virtual(self.pods, pace, evaluating)
        self.tasks: list[tuple[int, int, Task]] = []  # pod, its steps, what it was given
        self.told: list[tuple[int, Outcome]] = []
        self.refills: list[tuple[int, Refill]] = []
        self.watch: Callable[[World], None] = lambda world: None

    def make(self) -> Generational | Tournament:
        names = ["a", "b", "c"][: 1 + max(place.kind for place in self.places)]
        space = Space([Searched("lr", Gene(1e-6, 1.0), LOW, HIGH)])
        kinds = [Kind(n, f"algo-{n}", space, lambda i: {"lr": self._lr(i), "other": 0.5}) for n in names]
        population = Population(kinds, self.places, self.evolve, self.run, self._seed)
        if self.evolve.strategy == "tournament":
            return Tournament(population)
        if self.evolve.strategy == "nsga2":
            return Generational(population, nsga2.survive, nsga2.refill)
        return Generational(population, Population.offer_all, exchange.refill)

    @property
    def population(self) -> Population:
        return self.orchestrator.population

    def ask(self, pod: int, seconds: float) -> Task | None:
        self._rebirth()
        task = self.orchestrator.ask(pod, seconds)
        if task is not None and task.updates and self.pods[pod].steps >= self._until:
            return None
        if task is not None:
            self.tasks.append((pod, self.pods[pod].steps, task))
        return task

    def tell(self, pod: int, outcome: Outcome) -> Refills:
        self._rebirth()
        self.told.append((pod, outcome))
        refills = self.orchestrator.tell(pod, outcome)
        self.refills += [(at, refill) for at, new in refills.items() for refill in new]
        return refills

    def _rebirth(self) -> None:
        if self._reborn:
            state = tree.clone(self.orchestrator.state())
            info = json.loads(json.dumps(self.orchestrator.info(), allow_nan=False))
            self.orchestrator = self.make()
            self.orchestrator.load(state, info)

    def go(self, steps: int) -> World:
        """Until every pod has done so many steps, and what came of them is settled."""
        self._until = steps
        for _ in range(10_000):
            if step(self.pool, self) is None:
                assert min(pod.steps for pod in self.pods) >= steps, "nobody has anything to do"
                return self
            self.watch(self)
        raise AssertionError("it does not get there")

    def close(self) -> World:
        """Do what a finished run still has to do."""
        for number, pod in enumerate(self.pods):
            for _ in range(10):
                task = self.orchestrator.last(number)
                if task is None:
                    break
                self.tasks.append((number, pod.steps, task))
                assert self.tell(number, pod.turn(task, self.pool.seconds, lambda: False)) == {}
            else:
                raise AssertionError("it never ends")
        return self

    def decisions(self) -> list[Any]:
        """Who was given what to do, and who became whose child with which weights and genes."""
        tasks = [(pod, steps, task.updates, list(task.rows), task.again) for pod, steps, task in self.tasks]
        refills = [(pod, r.row, r.member, _source(r.source), dict(r.genes)) for pod, r in self.refills]
        return [tasks, refills]

    def members(self) -> dict[int, dict[str, Any]]:
        return {row["id"]: row for row in self.run.ledger.members()}

    def scores(self) -> list[dict[str, Any]]:
        return self.run.ledger.scores()

    def snapshots(self) -> dict[int, float]:
        """The files in members/: the skill of each."""
        files = (self.run.path / "members").iterdir()
        return {i: self.run.read_snapshot(i)[0]["skill"].item() for i in (int(f.stem) for f in files)}


def _source(source: Any) -> Any:
    return source["skill"].tolist() if isinstance(source, dict) else source


Make = Callable[..., World]


def told(*values: float, default: float = 0.0) -> Callable[[int, int, int], float]:
    """A fitness by member: so much each, whenever it is asked."""
    return lambda member, step, again: values[member] if member < len(values) else default


def books(world: World) -> None:
    """The ledger, the leaderboard and the files agree with each other and with what the pods did."""
    members, scores, population = world.members(), world.scores(), world.population
    assert list(members) == list(range(population.next_id)), "ids are counters: none is left out or used twice"
    in_training = {row.member: (pod, index) for pod, index, row in population.all_rows()}
    for member, row in members.items():
        assert LOW * 0.999 <= row["genes"]["lr"] <= HIGH * 1.001 and row["genes"]["other"] == 0.5
        assert row["kind"] == "abc"[world.places[row["pod"]].kind], "a pod holds members of one kind"
        if member in in_training:
            assert (row["pod"], row["row"]) == in_training[member] and row["status"] in ("training", "failed")
            assert world.pods[row["pod"]].ids[row["row"]] == member
        else:
            assert row["status"] in ("replaced", "failed") and row["ended_step"] >= row["born_step"]
        if row["parent"] is not None:
            _descends(members[row["parent"]], row, scores)
        else:
            assert (row["inherited"], row["generation"], row["origin"] == "copy") == (0, 0, False)
        assert world.pods[row["pod"]].born[member] == pytest.approx(skill(members, row, row["inherited"]), rel=1e-4)
    _board(world, members)


def _descends(parent: dict[str, Any], child: dict[str, Any], scores: list[dict[str, Any]]) -> None:
    assert parent["id"] < child["id"] and parent["kind"] == child["kind"] and child["origin"] == "copy"
    assert child["generation"] == parent["generation"] + 1
    copied_at = child["inherited"] - parent["inherited"] + parent["born_step"]
    seen = {s["step"] for s in scores if s["member"] == parent["id"] and s["turn"] <= child["born_turn"]}
    assert copied_at in seen, "a parent has been evaluated, with the weights that are copied"


def skill(members: dict[int, dict[str, Any]], row: dict[str, Any], clock: int) -> float:
    """What a member's ancestors and itself have learnt after so many steps of their lineage."""
    own = row["genes"]["lr"] * (clock - row["inherited"])
    return own if row["parent"] is None else own + skill(members, members[row["parent"]], row["inherited"])


def _board(world: World, members: dict[int, dict[str, Any]]) -> None:
    board, table = list(world.population.board), world.run.ledger.top()
    assert board and all(math.isfinite(e.fitness) for e in board)
    for kind, capacity in enumerate(world.population.board.capacity):
        if world.evolve.strategy == "nsga2":  # the survivors, as many as there are rows
            capacity = sum(place.rows for place in world.places if place.kind == kind)
        assert len(world.population.board.of(kind)) <= capacity
    said = {row["id"]: (row["fitness"], row["steps"], row["kind"], row["front"]) for row in table}
    assert said == {e.member: (e.fitness, e.step, "ab"[e.kind], e.front) for e in board}
    files = world.snapshots()
    assert files.keys() == said.keys()
    for e in board:
        assert files[e.member] == pytest.approx(skill(members, members[e.member], e.trained), rel=1e-4)


class Treacherous(CartPole):
    """CartPole whose reward is NaN once the cart is too far out: members fail by what they do, not by a clock."""

    def advance(self, s: State, action: Tensor) -> tuple[Tensor, Tensor]:
        reward, terminated = super().advance(s, action)
        return torch.where(s["x"].abs() > 0.6, torch.nan, reward), terminated
