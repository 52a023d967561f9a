"""Lineage: whom a member descends from, and by which genes its weights were trained, step after step.

A lineage has a clock of its own: the steps of training behind the weights, wherever they were done. A member that was
born when its row had done b steps, from a snapshot with i steps behind it, has i + (s - b) behind it at row step s.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.core.errors import ArgumentError, CheckpointError, ConfigError, PodiumError
from podium.store.ledger import Ledger
from podium.store.records import Score

LIMIT = 16 << 20
"""Bytes of the longest schedule that is read."""

_KINDS = "not a schedule: neither JSON nor CSV as `podium lineage` prints it"
_ANCESTOR = ("id", "parent", "generation", "born_step", "inherited", "origin", "genes", "fitness", "kind", "algo")
_CHAMPION = ("id", "fitness", "std", "steps", "algo", "kind", "generation", "status", "genes", "objectives")


def lineage(ledger: Ledger, member: int | None = None, replayed: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """How a member (else the champion) came to be, up to its best snapshot.

    `replayed` is the schedule that all members of the run follow (`train.schedule`), if there is one.

    champion   the member; `steps` are on its lineage's clock, when the snapshot was taken
    ancestors  from the first to the member itself; `fitness` is the best known, `born_step` counts its row's steps
    schedule   step, genes, event: which genes held from which step of the lineage's clock on; of `replayed` all that
               the member has come to
    start      run, member, step: the snapshot of another run that the line began with; None: new weights
    scores     step, fitness, id: evaluations along the line, each ancestor's up to where it was copied
    """
    top = ledger.top()  # before the members: whoever is on it is among them, even while others enter
    everyone = {row["id"]: row for row in ledger.members()}
    if member is None:
        member = _champion(ledger, top)
    if member not in everyone:
        raise ArgumentError("member", member, _ids(everyone))
    chain = _chain(ledger, everyone, member)
    scores = _by_member(ledger, chain)
    best = {row["id"]: row for row in top if row["id"] in chain}
    for row in chain.values():
        row |= _best(row, best.get(row["id"]), scores[row["id"]])
    last = {**chain[member], "steps": _clock(chain[member], chain[member]["steps"])}
    ends = [*[row["inherited"] for row in chain.values()][1:], last["steps"]]
    return {
        "champion": {name: last.get(name) for name in _CHAMPION},
        "ancestors": [{name: row[name] for name in _ANCESTOR} for row in chain.values()],
        "schedule": _followed(chain[member], replayed, scores[member]) or [_entry(row) for row in chain.values()],
        "start": _start(ledger, next(iter(chain.values()))),
        "scores": [
            {"step": step, "fitness": score["fitness"], "id": row["id"]}
            for row, end in zip(chain.values(), ends, strict=True)
            for score in scores[row["id"]]
            if score["fitness"] is not None and (step := _clock(row, score["step"])) <= end
        ],
    }


def population(ledger: Ledger) -> list[dict[str, Any]]:
    """Every member on the clock of its lineage: what a picture of one line shows behind it.

    id, genes  the member and the genes that it kept for life
    start, end the steps behind its weights when it was born and when it was last heard of
    scores     (step, fitness) of its evaluations; first that of its parent from which it was copied, if it is known
    """
    everyone = {row["id"]: row for row in ledger.members()}
    scores = {
        member: [(_clock(everyone[member], s["step"]), s["fitness"]) for s in found if s["fitness"] is not None]
        for member, found in _by_member(ledger, everyone).items()
    }
    out = []
    for id, row in everyone.items():
        before = [score for score in scores.get(row["parent"], ()) if score[0] <= row["inherited"]]
        ends = [row["inherited"], *(step for step, _ in scores[id])]
        ends += [] if row["ended_step"] is None else [_clock(row, row["ended_step"])]
        line = {"start": row["inherited"], "end": max(ends), "scores": [*before[-1:], *scores[id]]}
        out.append({"id": id, "genes": row["genes"], **line})
    return out


def _champion(ledger: Ledger, top: list[dict[str, Any]]) -> int:
    if not top or top[0]["fitness"] is None:
        raise CheckpointError(f"{ledger.path}: no member has been evaluated yet, so there is no champion")
    return int(top[0]["id"])


def _ids(everyone: Iterable[int]) -> str:
    known = sorted(everyone)
    return f"the run's members are numbered {known[0]} to {known[-1]}" if known else "the run has no members yet"


def _chain(ledger: Ledger, everyone: Mapping[int, dict[str, Any]], member: int) -> dict[int, dict[str, Any]]:
    """By id, a member and all that it descends from, the first ancestor first."""
    chain: dict[int, dict[str, Any]] = {}
    at: int | None = member
    while at is not None:
        if at in chain:
            raise CheckpointError(f"{ledger.path}: damaged: member {at} descends from itself")
        if at not in everyone:
            raise CheckpointError(
                f"{ledger.path}: damaged: member {next(reversed(chain))} has parent {at}, who is missing"
            )
        chain[at] = everyone[at]
        at = everyone[at]["parent"]
    for child, parent in itertools.pairwise(chain.values()):
        if child["inherited"] < parent["inherited"]:
            raise CheckpointError(f"{ledger.path}: damaged: member {child['id']} inherited fewer steps than its parent")
    return dict(reversed(chain.items()))


def _by_member(ledger: Ledger, ids: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """The scores of some members, in the order they were entered; one a step, though leaders are evaluated twice."""
    found: dict[int, list[dict[str, Any]]] = {member: [] for member in ids}
    for score in ledger.scores():
        if score["member"] in found:
            found[score["member"]].append(score)
    steps = operator.itemgetter("step")
    return {member: [_pool(list(g)) for _, g in itertools.groupby(every, steps)] for member, every in found.items()}


def _pool(scores: list[dict[str, Any]]) -> dict[str, Any]:
    """Several scores of the same weights as one."""
    if len(scores) == 1:
        return scores[0]
    returns = [math.nan if value is None else value for score in scores for value in score["returns"]]
    whole = Score(scores[0]["member"], scores[0]["step"], scores[0]["seconds"], returns)
    each = [score["objectives"] or {} for score in scores]
    names = [name for name in each[0] if all(other.get(name) is not None for other in each)]
    sums = {n: [e[n] * s["episodes"] for e, s in zip(each, scores, strict=True)] for n in names}
    objectives = {name: sum(values) / len(returns) for name, values in sums.items()} or None
    return {**scores[-1], "fitness": whole.fitness, "std": whole.std, "objectives": objectives}


def _best(row: Mapping[str, Any], ranked: Mapping[str, Any] | None, scores: list[dict[str, Any]]) -> dict[str, Any]:
    """Fitness and row steps of a member's best snapshot: as the leaderboard has it, else by its scores."""
    if ranked is not None:
        return {name: ranked[name] for name in ("fitness", "std", "steps", "objectives")}
    known = [score for score in scores if score["fitness"] is not None]
    if not known:
        end = row["born_step"] if row["ended_step"] is None else row["ended_step"]
        return {"fitness": None, "std": None, "steps": end, "objectives": None}
    best = max(known, key=lambda score: (score["fitness"], -score["step"]))
    return {"steps": best["step"], **{name: best[name] for name in ("fitness", "std", "objectives")}}


def _clock(row: Mapping[str, Any], step: int) -> int:
    """A row's step on the clock of its member's lineage."""
    return int(row["inherited"] + step - row["born_step"])


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["parent"] is None:
        return {"step": row["inherited"], "genes": row["genes"], "event": row["origin"]}
    return {"step": row["inherited"], "genes": row["genes"], "event": f"from {row['parent']}"}


def _followed(
    row: Mapping[str, Any], replayed: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What a member has had of a schedule; of several entries at one step the last one holds."""
    trained = max([row["steps"], row["ended_step"] or 0, *(score["step"] for score in scores)])
    held = {entry["step"]: entry["genes"] for entry in replayed if entry["step"] < max(trained, 1)}
    return [
        {"step": step, "genes": {**row["genes"], **genes}, "event": "schedule" if step else row["origin"]}
        for step, genes in held.items()
    ]


def _start(ledger: Ledger, first: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the first of a line began with, if it is another run's."""
    found = ledger.events("start") if first["origin"] == "start" else []
    return {name: found[0]["detail"][name] for name in ("run", "member", "step")} if found else None


def to_csv(schedule: Sequence[Mapping[str, Any]]) -> str:
    """A schedule as CSV: step, event, a column for every gene; nothing where a gene is off."""
    names = list(dict.fromkeys(name for entry in schedule for name in entry["genes"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", "event", *names])
    writer.writerows([e["step"], e["event"], *(e["genes"].get(name) for name in names)] for e in schedule)
    return out.getvalue()


def read_schedule(path: Path) -> list[dict[str, Any]]:
    """The schedule in a file: what `podium lineage RUN` prints with --json or --csv, or the JSON list by itself.

    A list of {"step": int, "genes": {name: number or None}}, steps ascending from 0; of several entries at one step the
    last one holds.
    """
    text = _text(path)
    out: dict[int, dict[str, Any]] = {}
    last = 0
    for where, step, genes in _from_json(path, text) if text.lstrip()[:1] in ("{", "[") else _from_csv(path, text):
        if not _finite(step) or step != int(step) or not last <= step < (2**63 if out else 1):
            raise ConfigError(f"{path}: {where}: step", step, "steps are whole numbers, begin with 0 and never fall")
        if out and genes.keys() != out[0].keys():
            raise ConfigError(f"{path}: {where}: genes", list(genes), f"every entry has the genes {', '.join(out[0])}")
        for name, value in genes.items():
            if value is not None and not _finite(value):
                raise ConfigError(
                    f"{path}: {where}: {name}", value, "a finite number, or nothing where the gene is off"
                )
        last = int(step)
        out[last] = genes
    if not out or not out[0]:
        raise PodiumError(f"{path}: the schedule is empty; it needs at least one entry, and at least one gene")
    return [{"step": step, "genes": genes} for step, genes in out.items()]


_Entries = Iterator[tuple[str, Any, dict[str, Any]]]
"""Where each stands, its step, its genes; the numbers still as they were found."""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT + 1)
    except OSError as error:
        raise PodiumError(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > LIMIT:
        raise PodiumError(f"{path}: longer than {LIMIT >> 20} MiB, so this is no schedule")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PodiumError(f"{path}: {_KINDS}; byte {error.start} is not UTF-8") from error


def _from_json(path: Path, text: str) -> _Entries:
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise PodiumError(f"{path}: line {error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of brackets
        raise PodiumError(f"{path}: not JSON that can be read: {error}") from error
    name = "schedule" if isinstance(tree, dict) else ""
    entries = tree.get("schedule") if isinstance(tree, dict) else tree
    if not isinstance(entries, list):
        raise PodiumError(f"{path}: {_KINDS}; this JSON has no list `schedule`")
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict) or "step" not in entry or not isinstance(entry.get("genes"), dict):
            raise PodiumError(f'{path}: {name}[{i}]: not an entry; write {{"step": 0, "genes": {{"lr": 3e-4}}}}')
        yield f"{name}[{i}]", entry["step"], entry["genes"]


def _from_csv(path: Path, text: str) -> _Entries:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if not columns:
                columns = cells
                if columns[0] != "step" or "" in columns or len(set(columns)) < len(columns):
                    raise PodiumError(
                        f"{path}: {_KINDS}; line {rows.line_num} is not a head of columns `step,event,lr`"
                    )
                continue
            if len(cells) != len(columns):
                raise PodiumError(
                    f"{path}: line {rows.line_num}: {len(cells)} columns, and the head has {len(columns)}"
                )
            entry = dict(zip(columns, cells, strict=True))
            genes = {name: _number(cell) for name, cell in entry.items() if name not in ("step", "event")}
            yield f"line {rows.line_num}", _number(entry["step"]), genes
    except csv.Error as error:
        raise PodiumError(f"{path}: line {rows.line_num}: not CSV: {error}") from error


def _number(cell: str) -> int | float | str | None:
    """What a cell of CSV holds; a text that is no number stays one."""
    if re.fullmatch(r"[-+]?[0-9]{1,19}", cell):
        return int(cell)
    return float(cell) if re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", cell) else cell or None


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False
