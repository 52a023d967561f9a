import json
import math
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from podium.evolve.leaderboard import Entry, Leaderboard

NOT_FINITE = (math.nan, math.inf, -math.inf)


def entry(member: int, fitness: float, step: int = 0, kind: int = 0, front: int = 0) -> Entry:
    return Entry(member, kind, fitness, step, 0.5, step, 0, {"lr": 0.1}, (fitness,), front=front)


def ids(board: Leaderboard, kind: int | None = None) -> list[int]:
    return [e.member for e in (board if kind is None else board.of(kind))]


def test_the_best_come_first_then_the_quickest_then_the_oldest() -> None:
    board = Leaderboard([8])
    for member, fitness, step in [(5, 1.0, 9), (4, 3.0, 9), (3, 3.0, 9), (2, 3.0, 7), (1, -4.0, 0)]:
        board.offer(entry(member, fitness, step))
    assert ids(board) == [2, 3, 4, 5, 1]
    assert board.best() is board.get(2)
    assert board.fitness(0).tolist() == [3.0, 3.0, 3.0, 1.0, -4.0]


@pytest.mark.parametrize("turned", [False, True])
def test_of_equals_the_same_ones_stay_whatever_the_order_in_which_they_came(turned: bool) -> None:
    board = Leaderboard([2])
    for member in sorted(range(5), reverse=turned):
        board.offer(entry(member, 1.0, 4))
    assert ids(board) == [0, 1]


def test_a_full_board_drives_out_its_worst_and_says_so() -> None:
    board = Leaderboard([3])
    for member in range(3):
        assert board.offer(entry(member, float(member))) == []
    first = board.get(0)
    assert board.offer(entry(3, 1.5)) == [first]
    assert ids(board) == [2, 3, 1] and board.get(0) is None
    assert not board.admits(entry(4, 1.0)) and board.offer(entry(4, 1.0)) == []
    assert ids(board) == [2, 3, 1]


def test_a_member_has_one_entry_which_only_moves_up() -> None:
    board = Leaderboard([3])
    for member in range(3):
        board.offer(entry(member, float(member), 8))
    for worse in (entry(1, 0.5, 1), entry(1, 1.0, 8), entry(1, 1.0, 9)):
        assert not board.admits(worse) and board.offer(worse) == []
    assert board.get(1) == entry(1, 1.0, 8)
    assert board.offer(entry(1, 1.0, 7)) == [], "as good in fewer steps"
    assert board.offer(entry(1, 9.0, 16)) == [], "it leaves no place behind that another would have to give up"
    assert ids(board) == [1, 2, 0] and len(board) == 3


@pytest.mark.parametrize("fitness", NOT_FINITE)
def test_what_is_not_finite_never_enters(fitness: float) -> None:
    board = Leaderboard([2])
    assert not board.admits(entry(0, fitness)) and board.offer(entry(0, fitness)) == []
    board.offer(entry(1, 1.0))
    assert board.offer(entry(1, fitness)) == []
    assert ids(board) == [1] and board.best() == entry(1, 1.0)


def test_every_kind_has_places_of_its_own_and_two_at_least() -> None:
    board = Leaderboard([3, 0, 1])
    assert board.capacity == [3, 2, 2]
    for member in range(12):
        board.offer(entry(member, float(member if member % 3 == 0 else -member), kind=member % 3))
    assert [ids(board, kind) for kind in range(3)] == [[9, 6, 3], [1, 4], [2, 5]]
    assert ids(board) == [9, 6, 3, 1, 2, 4, 5], "ranks are global"
    assert [board.best(kind).member for kind in range(3)] == [9, 1, 2] and board.best().member == 9


def test_an_empty_board() -> None:
    board = Leaderboard([2, 2])
    assert board.best() is None and board.best(1) is None and board.get(0) is None
    assert len(board) == 0 and list(board) == [] and board.fitness(0).tolist() == []


def test_replace_puts_others_in_their_place() -> None:
    board = Leaderboard([2, 2])
    for member in range(4):
        board.offer(entry(member, float(member), kind=member % 2))
    stays, worse, fresh = entry(3, 3.0, kind=1), entry(2, -1.0), entry(9, 0.5, kind=1)
    left = board.replace([worse, fresh, stays])
    assert [e.member for e in left] == [1, 0]
    assert list(board) == [stays, fresh, worse], "those that stay may have become worse"
    assert board.get(2) is worse and board.fitness(1).tolist() == [3.0, 0.5]
    assert board.replace([]) == [stays, fresh, worse] and len(board) == 0


def test_an_entry_survives_json() -> None:
    """All but its snapshot, and a gene that is off becomes null."""
    whole = Entry(3, 1, 1.5, 64, 2.25, 128, 4, {"lr": 0.1, "kl": math.inf}, (1.0, 2.0), 0.5, 8, {"calm": 0.25}, 2, {})
    plain = json.loads(json.dumps(whole.plain(), allow_nan=False))
    assert "snapshot" not in plain and plain["genes"] == {"lr": 0.1, "kl": None}
    rest = {k: v for k, v in plain.items() if k not in ("genes", "history")}
    assert rest == {k: getattr(whole, k) for k in rest} and plain["history"] == [1.0, 2.0]


@dataclass
class Slow:
    """A leaderboard as one would explain it: sort all, keep the best of each kind."""

    capacity: list[int]
    entries: list[Entry] = field(default_factory=list)

    def offer(self, new: Entry) -> list[Entry]:
        old = [e for e in self.entries if e.member == new.member]
        if not math.isfinite(new.fitness) or any(self.order(e) <= self.order(new) for e in old):
            return []
        before = [e for e in self.entries if e.member != new.member]
        everyone = sorted([*before, new], key=self.order)
        self.entries = []
        for e in everyone:
            if sum(other.kind == e.kind for other in self.entries) < max(2, self.capacity[e.kind]):
                self.entries.append(e)
        return [e for e in before if e not in self.entries]

    @staticmethod
    def order(e: Entry) -> tuple[float, int, int]:
        return -e.fitness, e.step, e.member


FITNESS = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, *NOT_FINITE]) | st.floats(-1e9, 1e9)
OFFERS = st.lists(st.tuples(st.integers(0, 15), FITNESS, st.integers(0, 3)), max_size=60)


@given(offers=OFFERS, capacity=st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_it_agrees_with_its_slow_twin(offers: list[tuple[int, float, int]], capacity: list[int]) -> None:
    board, slow = Leaderboard(capacity), Slow(capacity)
    for member, fitness, step in offers:
        new = entry(member, fitness, step, member % len(capacity))
        before, admitted = list(board), board.admits(new)
        left = board.offer(new)
        assert left == slow.offer(new)
        assert list(board) == slow.entries
        assert admitted == (list(board) != before)
        assert len(board) == len(slow.entries)
    for kind in range(len(capacity)):
        mine = [e for e in slow.entries if e.kind == kind]
        assert list(board.of(kind)) == mine
        assert torch.equal(board.fitness(kind), torch.tensor([e.fitness for e in mine], dtype=torch.float64))
        assert board.best(kind) == (mine[0] if mine else None)
    assert board.best() == (slow.entries[0] if slow.entries else None)
    assert all(board.get(e.member) == e for e in slow.entries)
    assert board.replace(slow.entries) == [] and list(board) == slow.entries
