"""A new ledger from a checkpoint, for one that was lost: who trains, who leads, and how good their snapshots were."""

from __future__ import annotations

from podium.core.hyper import plain
from podium.evolve.leaderboard import Entry
from podium.evolve.population import Population
from podium.store.records import Member, Score
from podium.store.snapshot import kept

LOST = "earlier scores, metrics and ancestors are lost"


def rebuild(population: Population) -> None:
    """Enter the members of a population that was loaded from a checkpoint.

    A parent that nobody knows any more is left out: the line begins with its child.
    """
    ledger, seated = population.run.ledger, {row.member: (pod, index) for pod, index, row in population.all_rows()}
    gone = [entry for entry in population.board if entry.member not in seated]
    known = {*seated, *(entry.member for entry in gone)}
    members = [population.record(pod, index, row, "rebuilt") for pod, index, row in population.all_rows()]
    members += [_of(population, entry) for entry in gone]
    members = [m if m.parent in known else Member(**{**vars(m), "parent": None}) for m in members]
    ledger.add_members(sorted(members, key=lambda m: m.id))
    for entry in gone:
        ledger.replace([entry.member], entry.step)
    for pod, _, row in population.all_rows():
        if row.failed:
            ledger.fail(row.member, population.steps[pod], "unknown: the ledger that said so was lost")


def rescore(population: Population) -> None:
    """Enter how good the snapshots of members are that train beside each other: no leaderboard holds it."""
    found = [kept(population.run.snapshot_path(row.member)) for _, _, row in population.all_rows()]
    scores = [
        Score(row.member, info["step"], info["seconds"], info["returns"])
        for (_, _, row), info in zip(population.all_rows(), found, strict=True)
        if info is not None and info["step"] <= max(population.steps)
    ]
    population.run.ledger.add_scores(scores)


def _of(population: Population, entry: Entry) -> Member:
    """A member of the leaderboard whose row went to another; where it sat is not known, and it is said to be row 0."""
    kind, origin = population.kinds[entry.kind], "fresh" if entry.parent is None else "copy"
    return Member(
        entry.member,
        kind.algo,
        kind.name,
        entry.parent,
        generation=entry.generation,
        born_step=entry.step,
        inherited=entry.trained,
        origin=origin,
        genes=plain(entry.genes),
    )
