"""The population: who sits in which row of which pod, how good they are, and who made it to the leaderboard.

Every change is entered in the run's ledger. Orchestrators decide; this keeps the books.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from podium.core import tree
from podium.core.hyper import live, plain
from podium.core.streams import generator
from podium.core.tree import Tree
from podium.evolve import explore
from podium.evolve.leaderboard import Entry, Leaderboard
from podium.evolve.rows import Genes, Kind, Place, Row
from podium.evolve.settings import EvolveSettings
from podium.evolve.turn import Outcome, Refill, Refills, Where, played
from podium.evolve.updater import UPDATERS
from podium.store.records import Member, Score, spread
from podium.store.run import Run

Entries = dict[Where, Entry]
LONGEST = 16
"""Updates after which a pod reports, however long the interval is."""
NOT_FINITE = "a number in its observation, reward or gradient is not finite"


class Population:
    """Rows, leaderboard and ledger of a run."""

    def __init__(
        self, kinds: Sequence[Kind], places: Sequence[Place], settings: EvolveSettings, run: Run, seed: int
    ) -> None:
        self.kinds, self.places, self.settings, self.run = kinds, list(places), settings, run
        self.rng = generator(seed, "evolve")
        ids = iter(range(sum(place.rows for place in places)))
        self.rows = [
            [Row(i, place.kind, kinds[place.kind].born(i)) for i in _first(ids, place.rows)] for place in places
        ]
        share = [sum(p.rows for p in places if p.kind == k) for k in range(len(kinds))]
        self.board = Leaderboard([math.ceil(settings.capacity * n / sum(share)) for n in share])
        self.steps, self.size = [0] * len(places), sum(share)
        self.next_id, self.evaluations, self.cost, self.exchanges = self.size, 0, 0, 0
        # Before a replay is filled networks are as they were drawn, and which of them is better says nothing.
        self.burn_in = max(settings.burn_in, *(kind.learns for kind in kinds))
        self._longest = max(place.rollout for place in places)
        self.objectives = [name.removeprefix("-") for name in settings.objectives]
        self.note: Callable[[str], None] = lambda text: None
        self.fetch: Callable[[Sequence[Where]], Sequence[Tree | None]] = lambda seats: [None] * len(seats)
        self._gone: list[int] = []  # members that left the leaderboard, whose snapshots are still there

    @property
    def total_steps(self) -> int:
        """Of all rows together."""
        return sum(steps * place.rows for steps, place in zip(self.steps, self.places, strict=True))

    def all_rows(self) -> Iterator[tuple[int, int, Row]]:
        """(pod, row, what sits there)"""
        for pod, rows in enumerate(self.rows):
            for index, row in enumerate(rows):
                yield pod, index, row

    def fitness(self, row: Row) -> float:
        return row.fitness(self.settings.window)

    def enter(self) -> None:
        """Enter the first members in the ledger."""
        self.run.ledger.add_members(self.record(pod, index, row, "start") for pod, index, row in self.all_rows())

    def advance(self, pod: int, outcome: Outcome) -> list[int]:
        """Take in an outcome; the rows that failed since the last one."""
        self.run.ledger.turn += 1
        self.steps[pod] = outcome.steps
        both = enumerate(zip(self.rows[pod], outcome.failed, strict=True))
        failed = [index for index, (row, bad) in both if bad and not row.failed]
        for index in failed:
            reason = outcome.reasons[index] if outcome.reasons else None
            self.fail(pod, index, outcome.error or reason or NOT_FINITE)
        return failed

    def fail(self, pod: int, index: int, reason: str) -> None:
        """A failed member is recorded and leaves its row to another; what it was at its best may still be copied."""
        row = self.rows[pod][index]
        row.failed = True
        self.run.ledger.fail(row.member, self.steps[pod], reason)
        self.note(f"member {row.member} failed at step {self.steps[pod]:,}: {reason}")

    def fail_all(self, pod: int, reason: str) -> None:
        """All members of a pod failed."""
        for index in [index for index, row in enumerate(self.rows[pod]) if not row.failed]:
            self.fail(pod, index, reason)

    def score(self, pod: int, outcome: Outcome, strict: bool = True) -> list[int]:
        """Take in an evaluation; the rows that have a finite score now. Asked again, both evaluations count as one.

        `strict` fails the other rows; else they go on without a score.
        """
        if outcome.evaluation is None:
            return []
        scores, healthy = [], []
        all_returns, lengths, measured = outcome.evaluation
        costs, means = lengths.nansum(1).tolist(), played(measured, lengths).tolist()
        for i, index in enumerate(outcome.task.rows):
            returns = all_returns[i, ~lengths[i].isnan()].tolist()
            row, cost = self.rows[pod][index], int(costs[i])
            self.evaluations, self.cost = self.evaluations + 1, self.cost + cost
            if row.failed:
                continue
            objectives = dict(zip(self.objectives, means[i], strict=True)) if self.objectives else {}
            mean = statistics.fmean(returns)
            measured_all = {"return": mean, **objectives}
            if odd := [name for name, value in measured_all.items() if not math.isfinite(value)]:
                if strict:
                    self.fail(pod, index, f"the {odd[0]} of its evaluation was {measured_all[odd[0]]}")
                continue
            scores.append(Score(row.member, outcome.steps, outcome.seconds, returns, objectives=objectives, cost=cost))
            self._take_in(row, returns, mean, objectives, outcome.task.again)
            healthy.append(index)
        self.run.ledger.add_scores(scores)
        return healthy

    def _take_in(self, row: Row, returns: list[float], mean: float, objectives: dict[str, float], again: int) -> None:
        if again and row.returns:
            mine, all_ = len(returns), len(returns) + len(row.returns)
            row.returns = row.returns + returns
            row.history[-1] = statistics.fmean(row.returns)
            row.objectives = {k: (v * mine + row.objectives[k] * (all_ - mine)) / all_ for k, v in objectives.items()}
        else:
            row.returns, row.objectives = returns, objectives
            row.history = [*row.history[1 - self.settings.window :], mean] if self.settings.window > 1 else [mean]

    def entry(self, pod: int, index: int, outcome: Outcome) -> Entry:
        """A row's member as it would stand on the leaderboard."""
        row, place, snapshot = self.rows[pod][index], outcome.task.rows.index(index), None
        if outcome.members is not None:
            snapshot = tree.map(lambda leaf: leaf[place : place + 1], outcome.members)
        return Entry(
            member=row.member,
            kind=row.kind,
            fitness=self.fitness(row),
            step=outcome.steps,
            seconds=outcome.seconds,
            trained=row.inherited + outcome.steps - row.born,
            generation=row.generation,
            genes=row.genes,
            history=tuple(row.history),
            std=spread(row.returns),
            episodes=len(row.returns),
            objectives=row.objectives or None,
            parent=row.parent,
            snapshot=snapshot,
        )

    def claims(self, pod: int, scored: Sequence[int]) -> list[int]:
        """Rows just scored that would take the lead: they are evaluated once more, so that luck does not lead."""
        if not self.settings.confirm or not scored:
            return []
        best, fitness = self.board.best(), {index: self.fitness(self.rows[pod][index]) for index in scored}
        if best is None:
            return list(scored)
        return [index for index in scored if fitness[index] > best.fitness]

    def offer(self, pod: int, index: int, entry: Entry) -> Entry:
        """Let the updater and the leaderboard decide about a row; its member as it stands there."""
        if self._admits(pod, index, entry):
            if entry.snapshot is not None:
                entry = replace(entry, snapshot=tree.clone(entry.snapshot))
            self.ranked([entry], self.board.offer(entry))
        return entry

    def _admits(self, pod: int, index: int, entry: Entry) -> bool:
        better = UPDATERS[self.settings.updater](entry.fitness, self.rows[pod][index].parent_fitness)
        return better and self.board.admits(entry)

    def healthy(self, outcomes: Mapping[int, Outcome]) -> Entries:
        """Every healthy row that was evaluated."""
        seats = [(pod, index) for pod, outcome in outcomes.items() for index in outcome.task.rows]
        return {(p, i): self.entry(p, i, outcomes[p]) for p, i in seats if not self.rows[p][i].failed}

    def offer_all(self, outcomes: Mapping[int, Outcome]) -> Entries:
        """Offer every healthy row that was evaluated."""
        entries = self.healthy(outcomes)
        entries = self.fetched(entries, [seat for seat, entry in entries.items() if self._admits(*seat, entry)])
        return {seat: self.offer(*seat, entry) for seat, entry in entries.items()}

    def fetched(self, entries: Entries, seats: Sequence[Where]) -> Entries:
        """With the snapshots of some rows, where they did not come by themselves."""
        seats = [seat for seat in seats if entries[seat].snapshot is None]
        found = zip(seats, self.fetch(seats), strict=True) if seats else ()
        return entries | {seat: replace(entries[seat], snapshot=snapshot) for seat, snapshot in found}

    def leaders(self, n: int) -> list[dict[str, Any]]:
        """The first of the leaderboard, as `podium top` names their fields."""
        return [
            {"rank": rank, "kind": self.kinds[entry.kind].name, "algo": self.kinds[entry.kind].algo, **entry.row()}
            for rank, entry in enumerate(islice(self.board, n), 1)
        ]

    def ranked(self, entered: Sequence[Entry], left: Sequence[Entry], moved: Sequence[Entry] = ()) -> None:
        """Note changes of the leaderboard in the ledger and among the snapshots."""
        for entry in entered:
            self._keep(entry)
        self.run.ledger.rank([entry.ranked() for entry in (*entered, *moved)], [entry.member for entry in left])
        self._gone += [entry.member for entry in left]

    def tidy(self) -> None:
        """Drop the snapshots of those that left the leaderboard: after the ledger says so, never before."""
        for member in self._gone:
            if self.board.get(member) is None:
                self.run.forget(member)
        self._gone.clear()

    def _keep(self, entry: Entry) -> None:
        if entry.snapshot is not None:
            info = {"step": entry.step, "fitness": entry.fitness, "kind": entry.kind, "trained": entry.trained}
            self.run.snapshot(entry.member, entry.snapshot, info, durable=False)  # checkpoints hold it, too

    def copy(self, pod: int, index: int, parent: Entry, genes: Genes, where: Where | None = None) -> Refill:
        """Give a row to a child of `parent` with these genes; its weights come from the parent's row or snapshot."""
        child = Row(
            self._new_id(),
            parent.kind,
            genes,
            parent.member,
            parent.fitness,
            parent.generation + 1,
            self.steps[pod],
            parent.trained,
            list(parent.history),
        )
        source = where[1] if where is not None and where[0] == pod else parent.snapshot
        return self._seat(pod, index, child, "copy", source, where)

    def revive(self, pod: int, index: int) -> Refill:
        """A row whose kind has nobody well in training: the best that there was, or new weights."""
        kind = self.rows[pod][index].kind
        best = self.board.best(kind)
        if best is None:
            return self.fresh(pod, index)
        return self.copy(pod, index, best, self.mutated(kind, [best.genes])[0])

    def revive_failed(self) -> Refills:
        """New members for all rows whose member failed."""
        refills: Refills = {}
        for pod, index, row in list(self.all_rows()):
            if row.failed:
                refills.setdefault(pod, []).append(self.revive(pod, index))
        return refills

    def fresh(self, pod: int, index: int) -> Refill:
        """Give a row to a member with new weights."""
        kind, member = self.rows[pod][index].kind, self._new_id()
        child = Row(member, kind, self.kinds[kind].born(member), born=self.steps[pod])
        return self._seat(pod, index, child, "fresh", None)

    def slice(self, pod: int) -> int:
        """Updates of a pod to the next look at it: at the same steps for all pods, whatever their rollouts are."""
        longest, settings = self._longest, self.settings
        span = min(max(settings.interval // 4, longest), LONGEST * longest)
        span = settings.slice * longest if settings.slice else span
        return -(-(span - self.steps[pod] % span) // self.places[pod].rollout)

    def mutated(self, kind: int, genes: Sequence[Mapping[str, float]]) -> list[Genes]:
        """Copies of genes, each searched gene perturbed or drawn anew."""
        own, settings = self.kinds[kind], self.settings
        if not len(own.space) or not genes:
            return [dict(g) for g in genes]
        values = explore.perturb(own.values(genes), own.space, self.rng, settings.factors)
        return own.with_values(genes, explore.resample(values, own.space, self.rng, settings.resample))

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _seat(
        self, pod: int, index: int, child: Row, origin: str, source: int | Tree | None, where: Where | None = None
    ) -> Refill:
        old, ledger = self.rows[pod][index], self.run.ledger
        self.rows[pod][index] = child
        self.exchanges += 1
        ledger.replace([old.member], self.steps[pod])
        ledger.add_members([self.record(pod, index, child, origin)])
        return Refill(index, child.member, source, child.genes, where)

    def record(self, pod: int, index: int, row: Row, origin: str) -> Member:
        kind = self.kinds[row.kind]
        return Member(
            row.member,
            kind.algo,
            kind.name,
            row.parent,
            pod,
            index,
            row.generation,
            row.born,
            row.inherited,
            origin,
            plain(row.genes),
        )

    def split(self, pod: int, keep: int) -> None:
        """A pod keeps its first rows; the others are those of a new pod."""
        place, new = self.places[pod], len(self.places)
        self.places[pod] = replace(place, rows=keep)
        self.places.append(replace(place, rows=place.rows - keep))
        self.rows[pod], moved = self.rows[pod][:keep], self.rows[pod][keep:]
        self.rows.append(moved)
        self.steps.append(self.steps[pod])
        self.run.ledger.seat({row.member: (new, index) for index, row in enumerate(moved)})

    def state(self) -> Tree:
        """The tensors that a resume needs."""
        snapshots = {str(e.member): e.snapshot for e in self.board if e.snapshot is not None}
        return {"rng": self.rng.get_state(), "board": snapshots}

    def info(self) -> dict[str, Any]:
        """The rest of what a resume needs, as JSON holds it."""
        counts = {name: getattr(self, name) for name in ("steps", "next_id", "evaluations", "cost", "exchanges")}
        rows = [[row.plain() for row in rows] for rows in self.rows]
        return {**counts, "rows": rows, "board": [entry.plain() for entry in self.board]}

    def load(self, state: Tree, info: Mapping[str, Any]) -> None:
        """Go on from what `state` and `info` returned; ValueError where they are not of this population."""
        if [len(rows) for rows in info["rows"]] != [place.rows for place in self.places]:
            raise ValueError(f"rows: {[len(rows) for rows in info['rows']]} in pods of {self.places}")
        if len(info["steps"]) != len(self.places):
            raise ValueError(f"steps: {len(info['steps'])} numbers for {len(self.places)} pods")
        self.rng.set_state(state["rng"].clone())
        for name in ("steps", "next_id", "evaluations", "cost", "exchanges"):
            setattr(self, name, info[name])
        self.rows = [[Row(**{**row, "genes": live(row["genes"])}) for row in rows] for rows in info["rows"]]
        entries = [Entry(**{**entry, "genes": live(entry["genes"])}) for entry in info["board"]]
        self.board.replace(
            [replace(e, history=tuple(e.history), snapshot=state["board"].get(str(e.member))) for e in entries]
        )

    def restore(self) -> None:
        """Put leaderboard and snapshots of the run's folder back to what was loaded."""
        self.run.forget_all(keep=[entry.member for entry in self.board])
        self.ranked(list(self.board), [])


def _first(ids: Iterator[int], n: int) -> list[int]:
    return [next(ids) for _ in range(n)]
