import pytest
import torch

from podium.core import tree
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pendulum import Pendulum
from podium.roles.evaluator import Evaluator
from podium.roles.pod import Pod
from stacks import TwoDials, build, gap, rows, same

PLAN = {"ppo": {"steps": 16, "batch": 32, "epochs": 2}, "a2c": {"steps": 8}}


def pod(name: str = "ppo", env=CartPole, ids=(0, 1, 2), horizon: int | None = None, **kwargs) -> Pod:
    plan = PLAN[name] | kwargs
    genes = {"lr": [3e-3 / (i + 1) for i in range(len(ids))]}
    stack = build(name, env, ids, genes=genes, **plan)
    evaluator = Evaluator(env, 0, 4, 500)
    made = []

    def make(m: int):
        made.append(m)
        return build(name, env, range(m), seed=99, **plan).algorithm

    out = Pod(stack.algorithm, stack.collector, evaluator, stack.streams, ids, build=make, horizon=horizon)
    out.made = made
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
    every, objectives = a.evaluate([0, 1, 2], 6)
    assert every.shape == (3, 6) and objectives.shape == (3, 6, 0)
    for rows_ in ([1], [2, 0], [2]):
        assert torch.equal(a.evaluate(rows_, 6)[0], every[rows_])
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
