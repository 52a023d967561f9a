"""The asynchronous tournament over simulated pods: who is ready when, and who becomes whose child."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from podium.evolve.rows import Place
from simulated import LOW, Make, World, books, told


def evaluated(world: World) -> list[list[int]]:
    """The rows of every evaluation that does not confirm one before it."""
    return [list(task.rows) for _, _, task in world.tasks if task.rows and not task.again]


# ---- who is ready


@pytest.mark.parametrize(
    ("slice", "rows"),
    [(1, [[0], [1], [2], [3]]), (2, [[0, 1], [2, 3]]), (3, [[0, 1, 2], [3], [0, 1, 2], [3]]), (4, [[0, 1, 2, 3]])],
)
def test_ready_points_are_staggered(slice: int, rows: list[list[int]], make: Make) -> None:
    """The first interval is shared out among the rows; after it everyone has one of its own."""
    world = make(members=4, slice=slice, fitness=told(default=1)).go(1200)
    found = evaluated(world)
    assert found[: len(rows)] == rows and found == (rows * 12)[: len(found)]
    trained = [(steps, task.updates) for _, steps, task in world.tasks if not task.again]
    assert trained == [(steps, slice) for steps in range(0, 1200, 100 * slice)], "the others train on meanwhile"


def test_rows_of_several_pods_are_staggered_together(make: Make) -> None:
    world = make(places=[Place(0, 2, 100), Place(0, 2, 100)], members=4, fitness=told(default=1)).go(800)
    first = {(s["member"], s["step"]) for s in world.scores()}
    assert first == {(i, 100 * (i + 1) + more) for i in range(4) for more in (0, 400)}


def test_all_kinds_train_alike(make: Make) -> None:
    """Whatever the steps of their rollouts, and however often one of them has to confirm its lead."""
    world = make(places=[Place(0, 3, 256), Place(1, 3, 40)], members=6, interval=4096, slice=None)
    apart: list[int] = []
    world.watch = lambda world: apart.append(abs(world.pods[0].steps - world.pods[1].steps))
    world.go(40_960)
    claims = [sum(bool(task.again) for pod, _, task in world.tasks if pod == i) for i in range(2)]
    assert max(claims) >= min(claims) + 5, "the one had far more to confirm than the other"
    assert max(apart) <= 1024 + 40, "a slice is a quarter of the interval"


def test_nobody_is_evaluated_who_is_not_ready(make: Make) -> None:
    world = make(members=6, interval=700, slice=1).go(4200)
    at: dict[int, list[int]] = defaultdict(list)
    for _, steps, task in world.tasks:
        for row in task.rows if not task.again else ():
            at[row].append(steps + 100 * task.updates)
    assert all(later - earlier >= 700 for times in at.values() for earlier, later in pairwise(times))
    assert all(len(times) == 6 for times in at.values())


def test_ready_points_by_the_clock(make: Make) -> None:
    """An update takes 3 s, an evaluation 1 s: every row is evaluated soon after its time, and trained between."""
    world = make(members=4, seconds=40.0, interval=10**9, pace=[3.0], confirm=False).go(6000)
    at: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for _, outcome in world.told:
        for row in outcome.task.rows:
            at[row].append((outcome.seconds, outcome.steps))
    assert sorted(at) == [0, 1, 2, 3]
    for row, times in at.items():
        assert 10 * (row + 1) <= times[0][0] <= 10 * (row + 1) + 8
        assert len(times) >= 4
        for (then, trained), (now, more) in pairwise(times):
            assert 40 <= now - then <= 48 and more > trained
    books(world)


def test_evaluations_longer_than_the_time_between_them_do_not_stop_training(make: Make) -> None:
    """Nobody is evaluated twice with the same weights, but to confirm a lead."""
    world = make(members=4, seconds=0.5, interval=10**9, pace=[3.0], evaluating=100.0).go(1000)
    asked = [(s["member"], s["step"]) for s in world.scores()]
    again = sum(len(task.rows) for _, _, task in world.tasks if task.again)
    assert len(asked) - len(set(asked)) == again
    assert len(asked) > 8


# ---- who takes a row


def settled(world: World) -> list[tuple[int, float, float | None]]:
    """(member that was evaluated, its fitness, the fitness of the parent that took its row, or None)"""
    out: list[tuple[int, float, float | None]] = []
    tell = world.orchestrator.tell

    def watched(pod: int, outcome: Any) -> Any:
        rows = world.population.rows[pod]
        before = {index: rows[index] for index in outcome.task.rows}
        refills = tell(pod, outcome)
        owed = world.orchestrator.ask(pod, 0.0)
        waiting = list(owed.rows) if owed is not None and owed.again else []
        for index, old in before.items():
            if not old.failed and index not in waiting:
                new = rows[index]
                out.append((old.member, world.population.fitness(old), new.parent_fitness if new is not old else None))
        return refills

    world.orchestrator.tell = watched
    return out


@pytest.mark.parametrize("generator", ["softmax", "top-k", "tournament"])
def test_only_a_parent_that_is_strictly_better_takes_a_row(generator: str, make: Make) -> None:
    world = make(members=6, generator=generator)
    seen = settled(world)
    world.go(4000)
    assert all(parent > fitness for _, fitness, parent in seen if parent is not None)
    assert sum(parent is not None for *_, parent in seen) >= 5
    assert sum(parent is None for *_, parent in seen) >= 5
    books(world)


def test_equals_leave_each_other_alone(make: Make) -> None:
    world = make(members=4, fitness=told(default=3)).go(2000)
    assert world.population.exchanges == 0 and len(evaluated(world)) == 20


@pytest.mark.parametrize("seed", range(5))
def test_the_worst_in_training_copies_the_best(seed: int, make: Make) -> None:
    """Whatever the generator draws: each row that comes is worse than all that came before it."""
    world = make(members=4, seed=seed, fitness=told(4, 3, 2, 1, default=4)).go(400)
    rows = world.members()
    assert [rows[i]["status"] for i in range(4)] == ["training", "replaced", "replaced", "replaced"]
    assert [rows[i]["parent"] for i in (4, 5, 6)] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_the_worst_is_the_worst_of_its_kind(seed: int, make: Make) -> None:
    places = [Place(0, 2, 100), Place(1, 2, 100)]
    world = make(places=places, members=4, seed=seed, fitness=told(9, 8, 2, 1, default=0)).go(400)
    rows = world.members()
    assert {m["row"]: m["parent"] for m in rows.values() if m["id"] > 3 and m["pod"] == 1} == {1: 2}
    assert {m["row"]: m["parent"] for m in rows.values() if m["id"] > 3 and m["pod"] == 0} == {1: 0}


@pytest.mark.parametrize(("generator", "parents"), [("top-k", {0}), ("softmax", {0, 1})])
def test_the_generator_draws_from_the_leaderboard(generator: str, parents: set[int], make: Make) -> None:
    """Row 2 is never the worst (row 3 is), so its parent is drawn: with top=1 it is always the best."""
    seen = set()
    for seed in range(12):
        world = make(members=4, generator=generator, top=1, seed=seed, fitness=told(9, 8, 7, 6), burn_in=401).go(700)
        seen |= {m["parent"] for m in world.members().values() if m["row"] == 2 and m["id"] > 3}
    assert seen == parents


def test_children_have_their_parents_genes_but_for_one_factor(make: Make) -> None:
    world = make(members=6, resample=0.0, factors=(0.5, 1.5)).go(3000)
    rows = world.members()
    pairs = [(m["genes"]["lr"], rows[m["parent"]]["genes"]["lr"]) for m in rows.values() if m["parent"] is not None]
    assert {round(own / old, 4) for own, old in pairs if own > LOW * 1.01} == {0.5, 1.5}
    assert all(own == pytest.approx(max(LOW, own)) for own, _ in pairs), "never below its range"


def test_fresh_blood(make: Make) -> None:
    world = make(members=4, fresh=1.0, board=4).go(1200)
    new = [m for m in world.members().values() if m["id"] > 3]
    assert len(new) == world.population.exchanges > 2
    for m in new:
        assert (m["origin"], m["parent"], m["generation"], m["inherited"]) == ("fresh", None, 0, 0)
        assert m["genes"]["lr"] == LOW * (1 + m["id"] % 8) and world.pods[0].born[m["id"]] == 0.0
    books(world)
    some = make(members=4, fresh=0.3).go(4000)
    origins = [m["origin"] for m in some.members().values() if m["id"] > 3]
    assert 0 < origins.count("fresh") < origins.count("copy"), "about a third"


def test_fresh_blood_takes_the_place_of_a_copy_and_not_of_a_member_that_would_go_on(make: Make) -> None:
    world = make(members=4, fresh=1.0, fitness=lambda member, *_: 100.0 if member == 0 else 1.0).go(4000)
    assert world.population.rows[0][0].member == 0, "nobody is better than it"


@pytest.mark.parametrize(("updater", "enters"), [("score", True), ("strictly-better", False)])
def test_the_updater_decides_who_enters(updater: str, enters: bool, make: Make) -> None:
    """2 is 0's child and comes to less than its father had when it was copied."""
    world = make(members=2, interval=200, updater=updater, fitness=told(5, 1, 4, default=0)).go(400)
    assert world.members()[2]["parent"] == 0 and 2 in {s["member"] for s in world.scores()}
    assert (world.population.board.get(2) is not None) == enters
    assert world.population.board.get(1) is not None, "who has no parent may enter"


def test_a_child_that_surpasses_its_parent_enters(make: Make) -> None:
    world = make(members=2, interval=200, updater="strictly-better", fitness=told(5, 1, 6)).go(400)
    assert [e.member for e in world.population.board] == [2, 0, 1]


def test_fitness_is_the_mean_of_the_last_evaluations_and_history_travels(make: Make) -> None:
    values = {(0, 100): 10, (1, 200): 0, (0, 300): 2, (2, 400): 8}
    world = make(members=2, interval=200, window=2, confirm=False, fitness=lambda m, step, _: values[m, step]).go(400)
    # 0 falls to (10 + 2) / 2; 2, its child, comes to (10 + 8) / 2, and the 10 is its father's
    assert {e.member: (e.fitness, e.step) for e in world.population.board} == {0: (10, 100), 2: (9, 400), 1: (0, 200)}
    rows = [(row.member, row.parent, row.parent_fitness, row.history) for row in world.population.rows[0]]
    assert rows == [(3, 0, 10, [10]), (4, 0, 10, [10])]


def test_a_claim_to_the_lead_is_confirmed_before_it_leads(make: Make) -> None:
    """Its row waits for the second evaluation; others that were ready with it are settled at once."""
    values = {(2, 400, 0): 20.0, (2, 400, 1): 12.0, (0, 200, 0): 9.0, (0, 200, 1): 11.0, (3, 400, 0): 1.0}
    world = make(members=4, slice=2, fitness=lambda *asked: values.get(asked, 5.0))
    leads = []
    world.watch = lambda world: leads.append((world.pods[0].steps, world.orchestrator.leader))
    world.go(400)
    assert [(steps, list(t.rows), t.updates, t.again) for _, steps, t in world.tasks] == [
        (0, [0, 1], 2, 0),
        (200, [0, 1], 0, 1),  # nobody leads unconfirmed, not even for lack of others
        (200, [2, 3], 2, 0),
        (400, [2], 0, 1),
    ]
    assert leads == [(200, None), (200, 10.0), (400, 10.0), (400, 16.0)]
    born = [m for m in world.members().values() if m["id"] > 3]
    assert [(m["row"], m["parent"], m["born_turn"]) for m in born if m["row"] in (2, 3)] == [(3, 0, 3)]
    best = world.population.board.best()
    assert (best.member, best.fitness, best.episodes) == (2, 16.0, 8)


def test_a_claim_that_was_luck_does_not_lead(make: Make) -> None:
    values = {(2, 400, 0): 20.0, (2, 400, 1): -12.0, (0, 200, 0): 10.0, (0, 200, 1): 10.0}
    world = make(members=4, slice=2, fitness=lambda *asked: values.get(asked, 5.0)).go(400)
    best = world.population.board.best()
    assert (best.member, best.fitness) == (0, 10.0) and world.population.board.get(2).fitness == 4.0


# ---- failure


def test_a_row_that_failed_is_filled_at_once(make: Make) -> None:
    """It does not wait until it is ready, nor until the burn-in is over."""
    world = make(members=4, burn_in=10_000)
    world.pods[0].fails = {(3, 200)}
    world.go(300)
    heir = world.members()[4]
    assert (heir["row"], heir["born_step"], heir["origin"]) == (3, 200, "copy") and heir["parent"] in (0, 1)
    assert not world.pods[0].failed[3] and not world.population.rows[0][3].failed


def test_the_child_of_a_failed_member_has_an_interval_to_learn(make: Make) -> None:
    """Also where the row failed when it was ready."""
    world = make(members=4)
    world.pods[0].fails = {(3, 400)}
    world.go(1200)
    heir = world.population.rows[0][3].member if len(world.members()) == 5 else 4
    asked = [s["step"] for s in world.scores() if s["member"] == heir]
    assert world.members()[heir]["born_step"] == 400 and asked[0] == 800
