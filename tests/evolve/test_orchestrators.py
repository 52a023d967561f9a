"""Orchestrators over simulated pods: what they decide, and what ledger, leaderboard and folder say of it."""

import itertools
import math
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from podium.evolve.rows import Place
from simulated import LOW, STRATEGIES, Make, World, books, told

MIXED = (Place(0, 3, 100), Place(1, 3, 40))
GENERATIONAL = tuple(s for s in STRATEGIES if s != "tournament")


# ---- what holds for all of them


@pytest.mark.parametrize("places", [None, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_books_are_right(strategy: str, places: Any, make: Make) -> None:
    world = make(strategy, places, members=6, board=4)
    world.pods[0].fails = {(1, 300), (2, 1100)}
    world.pods[-1].fails |= {(0, 700)}
    world.go(2000)
    books(world)
    assert world.population.exchanges > 4 and len(world.members()) == 6 + world.population.exchanges
    for failed in [row for row in world.members().values() if row["status"] == "failed"]:
        heirs = [m for m in world.members().values() if (m["pod"], m["row"]) == (failed["pod"], failed["row"])]
        heir = next(m for m in heirs if m["id"] > failed["id"])
        assert heir["origin"] == "copy" and heir["born_step"] >= failed["ended_step"]
        assert "not finite" in failed["reason"]
        late = [s for s in world.scores() if s["member"] == failed["id"] and s["step"] >= failed["ended_step"]]
        assert not late, "a failed member has no score"
    assert sum(row["status"] == "failed" for row in world.members().values()) == 3
    if strategy not in ("tournament", "nsga2"):
        assert all(copied_at(world, m) == m["born_step"] for m in world.members().values() if m["parent"] is not None)


def copied_at(world: World, child: dict[str, Any]) -> int:
    """The step of the parent's row at which it was as it was copied: in generations, as it is now."""
    parent = world.members()[child["parent"]]
    return child["inherited"] - parent["inherited"] + parent["born_step"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_files_and_leaderboard_agree_at_every_moment(strategy: str, make: Make) -> None:
    world = make(strategy, members=4, board=3)
    sizes = set()

    def watch(world: World) -> None:
        files = {int(p.stem) for p in (world.run.path / "members").iterdir()}
        assert files == {e.member for e in world.population.board}
        sizes.add(len(files))

    world.watch = watch
    world.go(2400)
    assert max(sizes) == (4 if strategy == "nsga2" else 3)
    assert len(world.members()) > 8


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s != "nsga2"])
def test_two_are_a_population(strategy: str, make: Make) -> None:
    world = make(strategy, members=2, board=2, noise=0.0).go(2400)
    books(world)
    assert world.population.exchanges >= 2
    assert world.orchestrator.leader > 2400 * LOW * 2, "more than the better of the two would have come to by itself"


@pytest.mark.parametrize("places", [None, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_fail_at_once(strategy: str, places: Any, make: Make) -> None:
    """Before anyone was evaluated they start anew; later the best there was comes back."""
    world = make(strategy, places, members=6)
    for pod in world.pods:
        pod.fails = {(row, at) for row in range(pod.place.rows) for at in (40, 1210)}
    world.go(2400)
    books(world)
    rows = world.members()
    failed = [row for row in rows.values() if row["status"] == "failed"]
    assert {row["id"] for row in failed} >= set(range(6)) and len(failed) == 12
    heirs = [next(m for m in rows.values() if (m["pod"], m["row"]) == (f["pod"], f["row"]) and m["id"] > f["id"])
             for f in failed]  # fmt: skip
    assert {m["origin"] for f, m in zip(failed, heirs, strict=True) if f["ended_step"] < 200} == {"fresh"}
    assert {m["origin"] for f, m in zip(failed, heirs, strict=True) if f["ended_step"] > 200} == {"copy"}
    assert world.orchestrator.failed() is False


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_return_that_is_not_finite_fails_its_member(strategy: str, make: Make) -> None:
    world = make(strategy, members=4, fitness=lambda m, step, again: (math.inf, math.nan, 1.0, 2.0, *[1.5] * 99)[m])
    world.go(800)
    rows = world.members()
    assert [rows[i]["status"] == "failed" for i in range(4)] == [True, True, False, False]
    assert [rows[i]["reason"] for i in (0, 1)] == [f"the return of its evaluation was {x}" for x in ("inf", "nan")]
    assert {s["member"] for s in world.scores()}.isdisjoint({0, 1})
    assert {e.member for e in world.population.board}.isdisjoint({0, 1}) and world.orchestrator.leader == 2.0


# ---- generations


def test_nobody_begins_a_generation_before_all_were_evaluated(make: Make) -> None:
    """Pods of three speeds; every evaluation of generation g comes before any training of g + 1."""
    world = make("truncation", [Place(0, 2, 100), Place(0, 3, 40), Place(0, 1, 70)], pace=[5, 1, 0.3], members=6)
    log: list[tuple[str, int, int]] = []
    ask, tell = world.orchestrator.ask, world.orchestrator.tell

    def asked(pod: int, seconds: float) -> Any:
        task = ask(pod, seconds)
        if task is not None and task.updates:
            log.append(("begins", pod, world.orchestrator.generation))
        return task

    def answered(pod: int, outcome: Any) -> Any:
        before = world.orchestrator.generation
        refills = tell(pod, outcome)
        if outcome.evaluation is not None:
            log.append(("evaluated", pod, before))
            assert list(outcome.task.rows) == list(range(world.places[pod].rows)) or outcome.task.again
            assert outcome.steps >= (before + 1) * 400
        return refills

    world.orchestrator.ask, world.orchestrator.tell = asked, answered
    world.go(2000)
    for g in range(1, 5):
        first = min(i for i, (what, _, n) in enumerate(log) if what == "begins" and n == g)
        done = {pod for what, pod, n in log[:first] if what == "evaluated" and n == g - 1}
        assert done == {0, 1, 2}
        assert not [e for e in log[first:] if e[0] == "evaluated" and e[2] < g]
    books(world)
    crossed = [m for m in world.members().values() if m["parent"] is not None]
    assert any(m["pod"] != world.members()[m["parent"]]["pod"] for m in crossed), "parents may sit in another pod"


def by_step(world: World) -> Iterator[tuple[int, dict[int, float], list[dict[str, Any]]]]:
    """Each generation: its step, the fitness of each row's member, and the members that were born from it."""
    members = world.members()
    for step in sorted({s["step"] for s in world.scores()}):
        pooled: dict[int, list[float]] = {}
        for score in world.scores():
            if score["step"] == step:
                pooled.setdefault(score["member"], []).extend(score["returns"])
        fitness = {m: sum(r) / len(r) for m, r in pooled.items()}
        yield step, fitness, [m for m in members.values() if m["born_step"] == step and m["id"] >= 8]


def test_truncation_by_the_ledger(make: Make) -> None:
    """The worst quarter are children of the best quarter; the others go on."""
    world = make("truncation", members=8).go(2000)
    parents, generations = set(), list(by_step(world))
    assert [step for step, _, _ in generations] == [400, 800, 1200, 1600, 2000]
    for _, fitness, born in generations:
        order = sorted(fitness, key=lambda m: (-fitness[m], world.members()[m]["row"]))
        rows = {world.members()[m]["row"] for m in order[-2:]}
        assert len(born) == 2 and {m["row"] for m in born} == rows
        assert {m["parent"] for m in born} <= set(order[:2])
        parents |= {order.index(m["parent"]) for m in born}
    assert parents == {0, 1}, "either of the best"


def test_the_winner_takes_all_by_the_ledger(make: Make) -> None:
    world = make("wta", members=8).go(1200)
    for _, fitness, born in by_step(world):
        best = max(fitness, key=lambda m: fitness[m])
        assert [m["parent"] for m in born] == [best] * 7
        assert world.members()[best]["row"] not in {m["row"] for m in born}


def test_a_row_that_is_copied_and_filled_is_copied_as_it_was(make: Make) -> None:
    """The second best copies the best while the third copies the second: nobody gets what another has just received."""
    world = make("tournament-selection", members=6, seed=3, noise=0.0)
    chains = 0

    def watch(world: World) -> None:
        nonlocal chains
        new = {m["row"] for m in world.members().values() if m["born_step"] == world.pods[0].steps and m["id"] >= 6}
        chains += sum(isinstance(r.source, int) and r.source in new for _, r in world.refills[-len(new) :])

    world.watch = watch
    world.go(2400)
    assert chains, "the case did arise"
    books(world)


@pytest.mark.parametrize(("mutate", "moved"), [("changed", {0}), ("all", {0, 1})])
def test_whose_genes_move(mutate: str, moved: set[int], make: Make) -> None:
    world = make("wta", members=2, mutate=mutate, fitness=told(1, 2, default=1)).go(400)
    born = {m["row"]: m for m in world.members().values() if m["id"] > 1}
    assert born.keys() == moved
    for child in born.values():
        factor = child["genes"]["lr"] / world.members()[1]["genes"]["lr"]
        assert child["parent"] == 1 and min(abs(factor - 0.8), abs(factor - 1.25)) < 1e-6
    books(world)


def test_fitness_is_the_mean_of_the_last_evaluations_and_history_travels(make: Make) -> None:
    values = {(0, 100): 10, (1, 100): 0, (0, 200): 2, (2, 200): 4, (3, 300): 0, (2, 300): 1}
    world = make("wta", members=2, interval=100, window=2, confirm=False, fitness=lambda m, step, _: values[m, step])
    world.go(300)
    rows = world.members()
    assert [rows[i]["parent"] for i in (2, 3)] == [0, 2]
    said = {row["id"]: (row["fitness"], row["steps"]) for row in world.run.ledger.top()}
    # 2 has its father's 10 behind it: (10 + 4) / 2 beats its father's (10 + 2) / 2
    assert said == {0: (10, 100), 2: (7, 200), 3: (2, 300), 1: (0, 100)}
    assert list(world.population.rows[0][1].history) == [4, 1], "as many as count"


@pytest.mark.parametrize("strategy", ["truncation", "nsga2"])
def test_a_new_leader_is_evaluated_once_more(strategy: str, make: Make) -> None:
    """Luck does not lead: both evaluations count as one."""
    values = {(0, 400, 0): 10.0, (0, 400, 1): 8.0, (1, 400, 0): 5.0, (0, 800, 0): 20.0, (0, 800, 1): -30.0}
    world = make(strategy, members=4, fitness=lambda *asked: values.get(asked, 1.0), burn_in=10_000)
    world.go(800)
    again = [(steps, list(task.rows), task.updates) for _, steps, task in world.tasks if task.again]
    assert again == [(400, [0, 1, 2, 3], 0), (800, [0], 0)], "of the first, all: nobody leads unconfirmed"
    assert [s["returns"] for s in world.scores() if (s["member"], s["step"]) == (0, 800)] == [[20] * 4, [-30] * 4]
    assert world.population.rows[0][0].history == [-5.0]
    best = world.population.board.best()
    assert (best.member, best.fitness, best.step) == (0, 9.0, 400), "as it was at its best"
    books(world)


def test_a_confirmed_leader_leads_by_all_its_episodes(make: Make) -> None:
    values = {(0, 400, 0): 10.0, (0, 800, 0): 20.0, (0, 800, 1): 15.0}
    world = make("truncation", members=4, fitness=lambda *asked: values.get(asked, 1.0)).go(800)
    best = world.population.board.best()
    assert (best.fitness, best.step, best.episodes, best.std) == (17.5, 800, 8, 2.5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_confirm_nobody_is_asked_twice(strategy: str, make: Make) -> None:
    assert any(task.again for _, _, task in make(strategy, members=4).go(1600).tasks)
    assert not any(task.again for _, _, task in make(strategy, members=4, confirm=False).go(1600).tasks)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_burn_in(strategy: str, make: Make) -> None:
    """Nobody is exchanged before; evaluations and leaderboard go on meanwhile."""
    world = make(strategy, members=4, burn_in=1000)
    world.watch = lambda world: None if world.pods[0].steps >= 1000 else _nothing_exchanged(world)
    world.go(2400)
    assert world.population.exchanges > 0
    assert {s["step"] for s in world.scores()} & set(range(1000))
    assert min(m["born_step"] for m in world.members().values() if m["id"] > 3) >= 1000
    books(world)


def _nothing_exchanged(world: World) -> None:
    assert world.population.exchanges == 0 and len(world.members()) == 4


def test_nsga2_fills_every_row_with_children_of_the_survivors(make: Make) -> None:
    world = make("nsga2", members=6, noise=0.0)
    survivors: list[set[int]] = []

    def watch(world: World) -> None:
        new = [m for m in world.members().values() if m["born_step"] == world.pods[0].steps and m["id"] >= 6]
        if new:
            survivors.append({e.member for e in world.population.board})
            assert len(new) == 6 and {m["parent"] for m in new} <= survivors[-1]

    world.watch = watch
    world.go(2400)
    assert len(survivors) == 6 and all(len(s) == 6 for s in survivors)
    fronts = {e.member: e.front for e in world.population.board}
    for a, b in itertools.permutations(world.population.board, 2):
        better = a.objectives["return"] >= b.objectives["return"] and a.objectives["effort"] <= b.objectives["effort"]
        if better and a.objectives != b.objectives:
            assert fronts[a.member] < fronts[b.member], "less effort is better: -effort"
    assert min(fronts.values()) == 0


def test_without_crossover_a_child_has_the_genes_of_the_one_whose_weights_it_has(make: Make) -> None:
    assert 0 < _from_parents(make, crossover=0.0) < 0.5 * _from_parents(make, crossover=1.0)


def test_a_smaller_eta_takes_children_further_from_their_parents(make: Make) -> None:
    assert _from_parents(make, crossover=0.0, eta=2.0) > 2 * _from_parents(make, crossover=0.0, eta=20.0)


def _from_parents(make: Make, **settings: float) -> float:
    """How far children are from their first parent, on average."""
    world = make("nsga2", members=8, **settings)
    world.go(1600)
    members = world.members()
    genes = {m["id"]: math.log(m["genes"]["lr"]) for m in members.values()}
    return statistics.fmean(abs(genes[m["id"]] - genes[m["parent"]]) for m in members.values() if m["id"] >= 8)


# ---- the end, and going on


@pytest.mark.parametrize("places", [None, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_end_scores_what_was_trained_and_makes_nobody(strategy: str, places: Any, make: Make) -> None:
    world = make(strategy, places, members=6)
    for pod in world.pods:
        pod.fails = {(0, 1290)}
    world.go(1300)  # in mid-generation
    members = world.population.next_id
    world.close()
    assert world.population.next_id == members, "no new members"
    scored = {(s["member"], s["step"]) for s in world.scores()}
    for pod, _, row in world.population.all_rows():
        trained = row.born < world.pods[pod].steps and not row.failed
        assert ((row.member, world.pods[pod].steps) in scored) == trained
    assert all(not task.updates for _, _, task in world.tasks[-len(world.pods) :])
    assert all(world.orchestrator.last(pod) is None for pod in range(len(world.pods))), "once is enough"
    books(world)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_leader_at_the_end_is_confirmed_too(strategy: str, make: Make) -> None:
    fitness = lambda m, step, again: (9.0 * (m == 2) - again) * (step == 500)  # noqa: E731
    world = make(strategy, members=4, fitness=fitness, burn_in=10_000).go(500)
    before = len(world.tasks)
    world.close()
    assert [list(task.rows) for _, _, task in world.tasks[before:] if task.again] == [[2]]
    assert world.orchestrator.leader == 8.5


@pytest.mark.parametrize("places", [None, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_goes_on_from_a_checkpoint_as_if_there_had_been_none(strategy: str, places: Any, make: Make) -> None:
    """A new orchestrator before every question and answer decides as the old one would have."""
    worlds = [make(strategy, places, members=6, window=2, reborn=reborn) for reborn in (False, True)]
    for world in worlds:
        for pod in world.pods:
            pod.fails = {(1, 500), (2, 1100)}
        world.go(2000)
        books(world)
    one, other = worlds
    assert any(task.again for _, _, task in one.tasks), "claims were pending"
    assert one.decisions() == other.decisions()
    assert one.scores() == other.scores() and one.members() == other.members()
    assert one.run.ledger.top() == other.run.ledger.top()
    assert one.orchestrator.info() == other.orchestrator.info()


@pytest.mark.parametrize("reborn", [False, True], ids=["at once", "after a resume"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_evaluation_that_was_cut_short_is_made_up_for(strategy: str, reborn: bool, make: Make) -> None:
    """Every one of them, of ready rows, of claims, while members fail: it is done again before anything else."""
    worlds = [make(strategy, members=6, reborn=reborn and cut) for cut in (False, True)]
    worlds[1].pods[0].cuts = lambda steps, task: True
    for world in worlds:
        world.pods[0].fails = {(row, at) for at in range(300, 1800, 200) for row in (at // 100 % 6,)}
        world.go(2000)
        books(world)
    one, other = worlds
    assert len(other.pods[0].cut) == sum(bool(task.rows) for _, _, task in one.tasks) > 4
    assert one.decisions()[1] == other.decisions()[1]

    def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if "turn" not in k} for row in rows]

    assert untimed(one.scores()) == untimed(other.scores())
    assert untimed(list(one.members().values())) == untimed(list(other.members().values()))


@pytest.mark.parametrize("strategy", ["tournament", "truncation"])
def test_pods_in_step_stay_so_when_an_evaluation_is_cut_short(strategy: str, make: Make) -> None:
    """Ctrl-C cuts whatever is left of the round; who had nothing to evaluate waits for those who had."""
    places = [Place(0, 3, 100), Place(1, 3, 50)]
    worlds = [make(strategy, places, members=6, slice=None) for _ in range(2)]
    worlds[1].pods[1].cuts = lambda steps, task: 500 < steps < 1300
    for world in worlds:
        world.go(4000)
        books(world)
    one, other = worlds
    assert other.pods[1].cut and len(one.refills) > 4
    assert one.decisions()[1] == other.decisions()[1]
