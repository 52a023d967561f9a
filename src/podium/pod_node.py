"""A pod as a node of a fleet: the same methods, in terms that the wire carries."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from podium import entrants
from podium.core import machine, tree
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.evolve.pool import Careful
from podium.evolve.rows import Seat
from podium.evolve.turn import Refill, Task


class PodNode:
    """A pod as a node: the same methods, in terms that the wire carries."""

    def __init__(self, config: dict[str, Any], number: int, seat: Mapping[str, int], device: str) -> None:
        self._experiment = entrants.validate({**config, "train": {**config["train"], "device": device}})
        self._name, self._notes = f"pod {number}", list[str]()
        machine.keep_memory()
        machine.use_threads(entrants.threads(self._experiment))
        self._build(Seat(**seat))

    def _build(self, seat: Seat) -> None:
        self._seat, self._pod = seat, entrants.build_pod(self._experiment, seat)
        self._careful = Careful(self._pod, self._name, self._notes.append)

    def about(self) -> dict[str, Any]:
        """What a driver asks once."""
        return {"exact": self._pod.exact}

    def turn(self, task: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Do a task that begins at `seconds` of the run; its outcome, and the tracebacks on the way."""
        start = time.perf_counter()
        outcome = self._careful.turn(Task(**task), lambda: seconds + time.perf_counter() - start, lambda: False)
        said, self._notes[:] = [*self._notes, *outcome.notes], []
        names = ("steps", "seconds", "failed", "report", "evaluation", "members", "ids", "error", "reasons", "late")
        return {**{name: getattr(outcome, name) for name in names}, "notes": said}

    def exchange(self, refills: Sequence[Mapping[str, Any]]) -> None:
        self._pod.exchange([Refill(**refill) for refill in refills])

    def adopt(self, ids: Sequence[int], steps: int, life: int) -> None:
        """Take the place of a pod that was lost: its rows, with nobody in them yet, and dice of their own."""
        self._pod.adopt(ids, steps, Streams(self._experiment.seed, [f"{member}, life {life}" for member in ids]))

    def read(self, rows: Sequence[int]) -> Tree:
        return self._pod.read(rows)

    def begin(self, learnt: Tree) -> None:
        self._pod.begin(learnt)

    def state(self) -> Tree:
        return self._pod.state()

    def load(self, state: Tree) -> None:
        self._pod.load(state)

    def split(self, keep: int) -> Tree:
        """Keep the first rows; the state of the others, for another pod."""
        state = tree.clone(self._pod.state())
        if forgotten(state):
            self._notes.append(f"{self._name} is split, and with it what was in its replays, which fill anew")
        self._pod.close()
        self._build(replace(self._seat, rows=keep))
        self._pod.load(tree.map(lambda leaf: leaf[:keep], state))
        self.restart()
        return tree.map(lambda leaf: leaf[keep:], state)

    def restart(self) -> None:
        """End the episodes of envs that a checkpoint cannot hold."""
        if not self._pod.exact:
            self._pod.restart()

    def close(self) -> None:
        self._pod.close()


def forgotten(state: Tree) -> bool:
    """Leave out a replay that cannot be split by rows, being shared; whether none goes on with the rows."""
    learner = state["slot"].get("learner", {})
    replay = learner.get("replay")
    if replay is not None and len(replay["ring"]["data"]) != len(state["slot"]["ids"]):
        del learner["replay"]
    return bool(learner) and "replay" not in learner


class RankNode(PodNode):
    """A pod of a crew: its members go straight to the pods that want them.

    `swap` is how: "p2p" or "collective".
    """

    def __init__(
        self, peers: Any, config: dict[str, Any], swap: str, number: int, seat: Mapping[str, int], device: str
    ) -> None:
        super().__init__(config, number, seat, device)
        self._peers, self._swap = peers, getattr(peers, swap)

    def turn(self, task: dict[str, Any] | None, seconds: float) -> dict[str, Any] | None:  # type: ignore[override]
        """As any pod, but what the members have learnt stays here; with the seconds that it took."""
        if task is None:
            return None
        start = time.perf_counter()
        answer = super().turn(task, seconds)
        return answer | {"members": None, "took": time.perf_counter() - start}

    def some(self, rows: Sequence[int]) -> list[Tree]:
        """All that some rows have learnt, each by itself."""
        return [self._pod.read([row]) for row in rows]

    def swapped(
        self,
        refills: Sequence[Sequence[Mapping[str, Any]]],
        moves: Sequence[Sequence[int]],
        given: Sequence[Tree],
    ) -> None:
        """Fill rows of all pods. `refills` are those of every pod, `moves` what has to go from pod to pod for that.

        A move is (from pod, its row, to pod); row -1 - i is the i-th snapshot that the first pod was given. A refill
        names its move where its source is one.
        """
        me, flat = self._peers.rank, dict[int, Tensor]()
        like = self._pod.read([0]) if any(target == me for _, _, target in moves) else {}
        buffers: list[Any] = [None] * len(moves)
        for i, (source, row, target) in enumerate(moves):
            if source == me:
                if row not in flat:
                    flat[row] = _flat(given[-1 - row] if row < 0 else self._pod.read([row]))
                buffers[i] = flat[row]
            elif target == me:
                buffers[i] = torch.empty(sum(leaf.nbytes for leaf in _leaves(like)), dtype=torch.uint8)
        far = [
            (source, target, None if buffer is None else buffer.numpy())
            for (source, _, target), buffer in zip(moves, buffers, strict=True)
            if source != target
        ]
        self._swap(far)
        mine = refills[me]
        made = [{**r, "source": _tree(buffers[r["move"]], like) if "move" in r else r["source"]} for r in mine]
        for refill in made:
            refill.pop("move", None)
        if made:
            self.exchange(made)


def _flat(member: Tree) -> Tensor:
    """One buffer of bytes: a message for each member, not for each of its tensors."""
    return torch.cat([leaf.contiguous().view(-1).view(torch.uint8).cpu() for leaf in _leaves(member)])


def _tree(buffer: Tensor, like: Tree) -> Tree:
    """The inverse: a member of the same names and shapes as `like`."""
    parts = iter(buffer.split([leaf.nbytes for leaf in _leaves(like)]))
    return tree.map(lambda leaf: next(parts).clone().view(leaf.dtype).view(leaf.shape), like)


def _leaves(member: Tree) -> list[Tensor]:
    found: list[Tensor] = []
    tree.map(found.append, member)
    return found
