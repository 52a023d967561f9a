import pytest
import torch

from podium.core import tree
from podium.core.errors import PodiumError
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pendulum import Pendulum
from podium.evolve.turn import Refill, Task
from podium.roles.evaluator import Evaluator
from podium.roles.pod import Pod
from stacks import TwoDials, build, gap, rows, same

PLAN = {"ppo": {"steps": 16, "batch": 32, "epochs": 2}, "a2c": {"steps": 8}}


def pod(name: str = "ppo", env=CartPole, ids=(0, 1, 2), horizon: int | None = None, schedule=(), **kwargs) -> Pod:
    plan = PLAN[name] | kwargs
    genes = {"lr": [3e-3 / (i + 1) for i in range(len(ids))]}
    stack = build(name, env, ids, genes=genes, **plan)
    evaluator = Evaluator(env, 0, 4, 500)
    made = []

    def make(m: int):
        made.append(m)
        return build(name, env, range(m), seed=99, **plan).algorithm

    def fresh(new):
        return build(name, env, new, **plan).algorithm.learnt()

    out = Pod(stack.algorithm, stack.collector, evaluator, stack.streams, ids, build=make, fresh=fresh,
              horizon=horizon, episodes=4, schedule=schedule)  # fmt: skip
    out.made, out.untrained = made, fresh
    return out


@pytest.mark.parametrize("env", [CartPole, Pendulum, TwoDials])
@pytest.mark.parametrize("name", PLAN)
@pytest.mark.parametrize("normalise", [False, True])
def test_resume_is_exact(name: str, env, normalise: bool) -> None:
    """State taken in mid-run, loaded into a pod of another seed, goes on bit for bit."""
    a = pod(name, env, normalise=normalise)
    a.train(2)
    saved = tree.clone(a.state())
    expected = a.train(3)
    b = pod(name, env, normalise=normalise, seed=7)
    b.train(1)
    b.load(tree.clone(saved))
    found = b.train(3)
    assert same(a.state(), b.state())
    assert same(expected, found)
    a.load(saved)
    a.train(3)
    assert same(a.state(), b.state())


def test_resume_survives_flattening() -> None:
    """As a file holds it: every leaf has a dotted path and a leading axis of the members."""
    state = tree.clone(pod(normalise=True).state())
    assert same(tree.unflatten(tree.flatten(state)), state)
    assert all(len(leaf) == 3 for leaf in tree.flatten(state).values())


def test_the_report() -> None:
    a = pod()
    report = a.train(8)
    assert all(x.shape == (3,) for x in report.values())
    assert a.steps.tolist() == [8 * 16 * 4] * 3
    assert (report["episodes"] > 0).all()
    assert ((report["return"] >= 8) & (report["return"] <= 100)).all()  # CartPole under a young policy
    assert "finite" not in report and not a.failed.any()
    assert pod(env=Pendulum).train(1)["return"].isnan().all(), "no episode has ended"


def test_evaluation_of_some_rows_is_that_of_all() -> None:
    a = pod(normalise=True)
    a.train(5)
    every = a.evaluate([0, 1, 2], 6)
    assert every.returns.shape == every.lengths.shape == (3, 6) and every.objectives.shape == (3, 6, 0)
    for rows_ in ([1], [2, 0], [2]):
        found = a.evaluate(rows_, 6)
        assert all(torch.equal(x, y[rows_]) for x, y in zip(found, every, strict=True))
    assert a.made == [1, 2], "one algorithm for each number of rows"


def test_evaluation_changes_nothing() -> None:
    a, b = pod(normalise=True), pod(normalise=True)
    for _ in range(3):
        a.train(1), b.train(1)
        a.evaluate([0, 1, 2], 4), a.evaluate([1], 4)
    assert same(a.state(), b.state())


@pytest.mark.parametrize("name", PLAN)
def test_read_copies_and_write_puts_into_those_rows(name: str) -> None:
    a = pod(name)
    a.train(2)
    before, parent = tree.clone(a.algorithm.learnt()), a.read([2])
    a.train(1)
    assert same(parent, rows(before, 2)), "a copy, not a view"
    a.write([0], parent)
    now = a.read([0, 1, 2])
    assert same(rows(now, 0), parent)
    assert gap(rows(now, 1), rows(before, 1)) > 0
    assert a.algorithm.genes["lr"][0] == a.algorithm.genes["lr"][2], "genes are learnt, too"
    other = pod(name, ids=(5, 6))
    other.write([1], parent)
    assert same(other.read([1]), parent)


def test_a_failure_is_remembered() -> None:
    a = pod("a2c")
    a.train(1)
    a.algorithm.core.net.params[0].data[1] = torch.nan
    healthy = a.read([0])
    a.train(1)
    assert a.failed.tolist() == [False, True, False]
    a.write([1], healthy)
    a.train(1)
    assert a.failed.tolist() == [False, True, False]


def test_annealing_follows_the_steps() -> None:
    seen = []
    a = pod(horizon=16 * 4 * 4)
    learn = a.algorithm.learn

    def spy(batch, remaining=None):
        seen.append(remaining.clone())
        return learn(batch, remaining)

    a.algorithm.learn = spy
    a.train(6)
    assert [x.tolist() for x in seen] == [[v] * 3 for v in (1.0, 0.75, 0.5, 0.25, 0.0, 0.0)]
    assert pod()._remaining() is None


@pytest.mark.parametrize("name", PLAN)
def test_a_row_whose_reward_was_nan_can_be_filled_again(name: str) -> None:
    """The sum of past rewards belongs to the row: it must not hand the NaN on to the next member."""
    a = pod(name, Pendulum, normalise=True)
    a.train(1)
    healthy, batch = a.read([0]), a.collector.collect()
    batch["reward"][1, -1, 2] = torch.nan
    assert a.algorithm.learn(batch)["finite"].tolist() == [True, False, True]
    a.write([1], healthy)
    a.train(1)
    assert not a.failed.any()


# ---- turns


def clock() -> float:
    return 12.5


def never() -> bool:
    return False


def test_a_turn_trains_then_evaluates_some_rows() -> None:
    a, b = pod(normalise=True), pod(normalise=True)
    outcome, report = a.turn(Task(3, [2, 0]), clock, never), b.train(3)
    assert (outcome.task, outcome.steps, outcome.seconds) == (Task(3, [2, 0]), 3 * 16 * 4, 12.5)
    assert same(dict(outcome.report), report) and list(outcome.failed) == [False] * 3
    assert all(torch.equal(x, y) for x, y in zip(outcome.evaluation, b.evaluate([2, 0], 4), strict=True))
    scored = tree.clone(outcome.members)
    assert same(scored, b.read([2, 0])) and same(a.state(), b.state())
    a.turn(Task(1), clock, never)
    assert same(outcome.members, scored), "what was scored, whatever becomes of the rows"


def test_a_turn_without_rows_or_without_updates() -> None:
    a = pod()
    outcome = a.turn(Task(1), clock, never)
    assert outcome.report and outcome.evaluation is None and outcome.members is None
    before = tree.clone(a.state())
    outcome = a.turn(Task(0, [1]), clock, never)
    assert not outcome.report and outcome.evaluation is not None and outcome.steps == 64
    assert same(a.state(), before)


def test_an_evaluation_that_is_cut_short_leaves_the_training() -> None:
    a, b = pod(), pod()
    outcome = a.turn(Task(2, [0, 1]), clock, lambda: True)
    assert outcome.evaluation is None and outcome.members is None and outcome.steps == 128
    b.train(2)
    assert same(a.state(), b.state())
    made_up = a.turn(Task(0, [0, 1]), clock, never)
    assert torch.equal(made_up.evaluation.returns, b.evaluate([0, 1], 4).returns)


def test_asked_again_the_same_weights_play_other_episodes() -> None:
    a = pod()
    a.train(2)
    first, again, other = (a.turn(Task(0, [0, 1, 2], n), clock, never) for n in (0, 1, 2))
    assert same(first.members, again.members)
    assert not torch.equal(first.evaluation.returns, again.evaluation.returns)
    assert not torch.equal(again.evaluation.returns, other.evaluation.returns)
    repeated = a.turn(Task(0, [1], 1), clock, never)
    assert torch.equal(repeated.evaluation.returns, again.evaluation.returns[1:2])


def test_a_pod_that_broke_down_goes_on_once_its_rows_are_filled() -> None:
    a = pod(normalise=True)
    a.train(2)
    before = a.collector.obs.clone()
    outcome = a.broken(Task(1, [0, 1]), 3.5, "the env is gone")
    assert (outcome.steps, outcome.seconds, outcome.error) == (128, 3.5, "the env is gone")
    assert list(outcome.failed) == a.failed.tolist() == [True] * 3
    assert outcome.evaluation is None and not outcome.cut_short, "there is nothing to make up for"
    assert not torch.equal(a.collector.obs, before) and a.collector.obs.abs().max() <= 0.05, "new episodes"
    a.exchange([Refill(row, 3 + row, None, genes(a, row)) for row in range(3)])
    a.train(1)
    assert not a.failed.any()


class Fragile(CartPole):
    """Raises at its `breaks`-th step, and at every reset once it is `gone`."""

    breaks, gone = 0, False

    def reset(self, streams):
        if self.gone:
            raise OSError("no such simulator")
        return super().reset(streams)

    def step(self, action):
        self.breaks -= 1
        if self.breaks == 0:
            raise ValueError("the pole is bent")
        return super().step(action)


@pytest.mark.parametrize("name", PLAN)
@pytest.mark.parametrize("step", [1, 3, 8])
def test_after_a_breakdown_in_mid_rollout_resume_is_exact(name: str, step: int) -> None:
    """No checkpoint holds the noise that is left of a rollout: nor may the pod go on with it."""
    a, b = pod(name, Fragile), pod(name, Fragile)
    a.train(1)
    a.collector.env.breaks = step
    with pytest.raises(ValueError, match="bent"):
        a.train(1)
    a.broken(Task(1), 0.0, "ValueError: the pole is bent")
    b.load(tree.clone(a.state()))
    for each in (a, b):
        each.exchange([Refill(row, 3 + row, None, genes(each, row)) for row in range(3)])
        each.train(2)
    assert same(a.state(), b.state())


def test_a_pod_whose_envs_do_not_start_again_ends_the_run() -> None:
    a = pod(env=Fragile, ids=(7, 8))
    a.collector.env.gone = True
    with pytest.raises(
        PodiumError, match=r"pod of member 7 broke down \(the pole.* again \(OSError: no such simulator"
    ):
        a.broken(Task(1), 0.0, "the pole is bent")


# ---- exchanges


def but_genes(members):
    return {name: leaf for name, leaf in tree.flatten(members).items() if not name.startswith("genes.")}


def genes(a: Pod, n: int) -> dict[str, float]:
    """Values that no row has by itself."""
    return {name: 0.001 * (n + 1) + 0.01 * i for i, name in enumerate(a.algorithm.genes)}


def slot(a: Pod):
    """What stays with the row, whoever sits in it."""
    held = a.state()["slot"]
    return tree.clone({name: held[name] for name in held if name not in ("ids", "failed")})


@pytest.mark.parametrize("env", [CartPole, Pendulum])
@pytest.mark.parametrize("name", PLAN)
def test_an_exchange_fills_all_rows_at_once(name: str, env) -> None:
    """Two rows swap, a third copies one of them, others get a snapshot and new weights; one is left alone."""
    a = pod(name, env, ids=range(6), normalise=True)
    a.train(2)
    snapshot = a.read([4])
    kept = tree.clone(snapshot)
    a.train(2)
    a.failed[1], a.failed[5] = True, True
    before, held = tree.clone(a.algorithm.learnt()), slot(a)
    sources = {0: 1, 1: 0, 2: 1, 3: snapshot, 4: None}
    a.exchange([Refill(row, 20 + row, source, genes(a, row)) for row, source in sources.items()])

    expected = {0: rows(before, 1), 1: rows(before, 0), 2: rows(before, 1), 3: kept, 4: a.untrained([24])}
    for row, parent in expected.items():
        assert same(but_genes(a.read([row])), but_genes(parent)), row
        for gene, value in genes(a, row).items():
            assert a.algorithm.genes[gene][row] == torch.tensor(value), (row, gene)
            assert a.algorithm.learnt()["genes"][gene][row] == torch.tensor(value), (row, gene)
    assert same(a.read([5]), rows(before, 5))
    assert a.ids.tolist() == [20, 21, 22, 23, 24, 5]
    assert a.failed.tolist() == [False] * 5 + [True]
    assert same(slot(a), held), "streams, envs, steps and running sums belong to the row"

    for leaf in but_genes(before):  # else a leaf that was not copied would not have been noticed
        one, other = tree.flatten(before)[leaf], tree.flatten(kept)[leaf]
        counted = leaf.endswith(("count", "age"))  # which every row has alike
        assert counted or not torch.equal(one[0], one[1]), leaf
        assert not torch.equal(one[4], other[0]), leaf
    assert any(name.startswith("optimiser.") for name in but_genes(before))
    a.train(1)
    assert same(snapshot, kept), "copied, not shared"


def test_an_exchange_does_not_touch_the_other_rows() -> None:
    a, b = pod(normalise=True), pod(normalise=True)
    for one in (a, b):
        one.train(2)
    a.exchange([Refill(1, 7, 2, genes(a, 0))])
    assert [same(rows(a.read([0, 1, 2]), i), rows(b.read([0, 1, 2]), i)) for i in range(3)] == [True, False, True]
    for one in (a, b):
        one.train(2)
    for part in ("learnt", "slot"):
        mine, theirs = ({k: v[[0, 2]] for k, v in tree.flatten(one.state()[part]).items()} for one in (a, b))
        assert same(mine, theirs), "bit for bit, while another trains beside them"


def test_an_exchange_of_nobody_changes_nothing() -> None:
    a = pod()
    before = tree.clone(a.state())
    a.exchange([])
    assert same(a.state(), before)


def test_a_failed_row_that_was_exchanged_is_well() -> None:
    a = pod("a2c", Pendulum, normalise=True)
    a.train(1)
    a.algorithm.core.net.params[0].data[1] = torch.nan
    a.train(1)
    assert a.failed.tolist() == [False, True, False]
    a.exchange([Refill(1, 3, 0, genes(a, 0))])
    a.train(2)
    assert not a.failed.any()
    assert all(leaf.isfinite().all() for leaf in but_genes(a.read([1])).values())


def test_an_exchanged_row_is_evaluated_as_itself() -> None:
    """The id names the episodes, so that a child does not repeat those that its parent was chosen for."""
    a = pod()
    a.train(2)
    parent = a.evaluate([0], 4)
    a.exchange([Refill(1, 9, 0, {name: float(v[0]) for name, v in a.algorithm.genes.items()})])
    assert same(a.read([0]), a.read([1]))
    assert not torch.equal(a.evaluate([1], 4).returns, parent.returns)
    assert torch.equal(a.evaluate([0], 4).returns, parent.returns)


@pytest.mark.parametrize("name", PLAN)
def test_resume_after_an_exchange_is_exact(name: str) -> None:
    a, b = pod(name, normalise=True), pod(name, normalise=True, seed=7)
    a.train(1)
    a.exchange([Refill(0, 3, 2, genes(a, 0)), Refill(2, 4, None, genes(a, 1))])
    b.load(tree.clone(a.state()))
    a.train(2), b.train(2)
    assert same(a.state(), b.state()) and b.ids.tolist() == [3, 1, 4]


# ---- schedules

SCHEDULE = (
    (0, {"lr": 1e-3, "entropy": 0.02}),
    (128, {"lr": 2e-3, "entropy": 0.02}),
    (150, {"lr": 3e-3, "entropy": 0.0}),
    (151, {"lr": 4e-3, "entropy": 0.01}),
    (10_000, {"lr": 9e-3, "entropy": 0.09}),
)


def watch(a: Pod) -> list[tuple[int, list[float], list[float]]]:
    """Fills with the step and the genes of every update."""
    seen, learn = [], a.algorithm.learn

    def spy(batch, remaining=None):
        held = a.algorithm.genes
        seen.append((int(a.steps[0]), held["lr"].tolist(), held["entropy"].tolist()))
        return learn(batch, remaining)

    a.algorithm.learn = spy
    return seen


def at(step: int) -> tuple[int, list[float], list[float]]:
    """What an update that begins at `step` should use: the last entry that is not after it."""
    held = max((entry for entry in SCHEDULE if entry[0] <= step), key=lambda entry: entry[0])[1]
    lr, entropy = torch.tensor([held["lr"], held["entropy"]]).tolist()
    return step, [lr] * 3, [entropy] * 3


def test_genes_follow_the_schedule() -> None:
    a = pod(schedule=SCHEDULE)
    others = tree.clone({k: v for k, v in a.algorithm.genes.items() if k not in ("lr", "entropy")})
    seen = watch(a)
    a.train(2), a.train(3)
    assert seen == [at(step) for step in (0, 64, 128, 192, 256)]
    assert seen[2][1] != seen[1][1] and seen[3][2] == at(151)[2], "of several that are due the last one holds"
    assert same({k: a.algorithm.genes[k] for k in others}, others)


def test_before_its_first_entry_a_schedule_says_nothing() -> None:
    a = pod(schedule=[(128, {"lr": 5e-3})])
    drawn, seen = a.algorithm.genes["lr"].tolist(), watch(a)
    a.train(3)
    assert [lr for _, lr, _ in seen] == [drawn, drawn, torch.full((3,), 5e-3).tolist()]


@pytest.mark.parametrize("saved", [1, 2, 3])
def test_a_schedule_is_exact_on_resume(saved: int) -> None:
    a, b = pod(schedule=SCHEDULE, normalise=True), pod(schedule=SCHEDULE, normalise=True, seed=7)
    a.train(saved)
    b.load(tree.clone(a.state()))
    seen = watch(b)
    a.train(4), b.train(4)
    assert same(a.state(), b.state())
    assert seen == [at(64 * n) for n in range(saved, saved + 4)]


# ---- where a number that is not finite came from


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("reward", (1, 3, 2), float("nan"), "the reward of env 2 was nan (step 4 of the rollout)"),
        ("reward", (1, 0, 0), float("-inf"), "the reward of env 0 was -inf (step 1 of the rollout)"),
        ("obs", (1, 3, 2, 1), float("inf"), "the observation of env 2 was inf (step 3 of the rollout)"),
        ("obs", (1, 0, 1, 0), float("nan"), "the observation of env 1 was nan (at the start of the rollout)"),
        ("last", (1, 7, 3, 0), float("nan"), "the observation of env 3 was nan (step 8 of the rollout)"),
    ],
)
def test_a_member_that_fails_says_where_the_number_came_from(name: str, place, value: float, said: str) -> None:
    a = pod("a2c")
    collect = a.collector.collect

    def spoilt():
        batch = collect()
        batch[name][place] = value
        return batch

    a.collector.collect = spoilt
    outcome = a.turn(Task(1), lambda: 0.0, lambda: False)
    assert outcome.failed == [False, True, False]
    assert outcome.reasons == [None, said, None]
    a.collector.collect = collect
    assert a.turn(Task(1), lambda: 0.0, lambda: False).reasons[1] == said, "the first one is to blame"
    a.exchange([Refill(1, 7, 0, {name: float(gene[0]) for name, gene in a.algorithm.genes.items()})])
    assert a.turn(Task(1), lambda: 0.0, lambda: False).reasons == [None] * 3


def test_weights_that_are_not_finite_by_themselves_are_told_apart() -> None:
    a = pod()
    a.algorithm.core.net.params[0].data[2] = torch.nan
    outcome = a.turn(Task(1), lambda: 0.0, lambda: False)
    said = "a loss or gradient was nan or infinite, and all observations and rewards were finite"
    assert outcome.reasons == [None, None, said]
