"""What a checkpoint says beside its tensors, by type: a file with the right checksum may hold anything all the same."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from podium.core.bounded import Count, Number, Step

Genes = dict[str, Number | None]


class Row(msgspec.Struct):
    """A row of a pod."""

    member: Count
    kind: Count
    genes: Genes
    parent: Count | None
    parent_fitness: Number | None
    generation: Count
    born: Count
    inherited: Count
    history: list[Number]
    returns: list[Number]
    objectives: dict[str, Number]
    failed: bool


class Entry(msgspec.Struct):
    """A place on the leaderboard."""

    member: Count
    kind: Count
    fitness: Number
    step: Count
    seconds: Number
    trained: Count
    generation: Count
    genes: Genes
    history: list[Number]
    std: Number
    episodes: Count
    objectives: dict[str, Number] | None
    front: Count
    place: Count
    parent: Count | None


class Population(msgspec.Struct):
    """The books of a population."""

    steps: list[Count]
    next_id: Count
    evaluations: Count
    cost: Count
    exchanges: Count
    rows: list[list[Row]]
    board: list[Entry]


class Independent(msgspec.Struct):
    """Of members that train beside each other."""

    population: Population
    best: list[Number | None]
    evaluated: Step
    owed: bool


class Searching(msgspec.Struct):
    """Of members that replace each other."""

    population: Population
    owed: dict[str, tuple[list[Count], Count]]
    cut: list[Count]


class Generations(Searching):
    """In generations."""

    generation: Count
    ends: list[Number]
    scored: list[Step]
    told: dict[str, tuple[Count, Number, list[Count]]]


class Tournament(Searching):
    """In a tournament."""

    ready: list[list[Number]]
    scored: list[list[Step]]


class Checkpoint(msgspec.Struct):
    """Of the run as a whole."""

    step: Count
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    events: Count
    exact: bool
    scheduled: bool
    turn: Count
    seats: list[tuple[Count, Annotated[int, Meta(ge=1, le=1 << 32)]]]
    lost: list[Count]
    orchestrator: dict[str, Any]
    config: dict[str, Any]


def check(info: Any, kind: Any, what: str = "info") -> None:
    """ValueError where `info` is not of a kind of this file."""
    try:
        msgspec.convert(info, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what}: {error}") from error
