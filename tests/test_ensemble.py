"""Ensembles: members of one run or several, of one kind or several, act as the rules say, as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

import podium
import whole
from podium.algos.base import proposed
from podium.algos.ppo import PPO
from podium.core.errors import ConfigError, PodiumError
from podium.ensemble import Ensemble

HERE = Path(__file__)
SMALL = ("ppo", "env.num=4", "algo.steps=64", "stop.fitness=null", "stop.steps=512", "eval.episodes=2")
SMALL += ("algo.lr=0.01", "train.threads=1", "net.hidden=[16]")
RUNS = {
    "cart": ("cartpole", "train.members=3"),
    "twin": ("cartpole", "train.members=2", "algo.lr=0.02", "seed=5"),
    "wide": ("cartpole", "net.hidden=[24]", "env.normalise_obs=true"),
    "a2c": ("cartpole", "algo=a2c", "algo.steps=16", "train.members=2"),
    "box": ("Pendulum-v1", "train.members=3"),
    "multi": (f"{HERE.parent / 'test_export.py'}:Dials", "env.normalise_obs=true", "train.members=3"),
    "narrow": (f"{HERE.parent / 'test_export.py'}:Narrow", "train.members=3"),
    "own": ("cartpole", f"net.module={HERE.parent / 'test_export.py'}:Own", "train.members=2"),
    "valued": ("cartpole", f"algo={HERE}:Valued", "train.members=3"),
    "plain": ("cartpole", f"algo={HERE}:Plain", "train.members=2"),
    "masked": (
        f"{HERE.parent / 'algos' / 'test_spaces.py'}:Masked",
        "algo=dqn",
        "algo.steps=4",
        "algo.batch=16",
        "algo.warmup=32",
        "replay.capacity=600",
        "train.members=3",
    ),
    "blunt": ("Pendulum-v1", f"algo={HERE}:Plain"),
}
EVOLVED = ("cartpole", *SMALL, "truncation", "evolve.members=4", "evolve.interval=256", "stop.steps=1024")


class Valued(PPO):
    """Tells of values and of no distribution."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.act, self.propose = self._act, self._propose  # type: ignore[method-assign]

    def _act(self, obs: Tensor, carry: Any, *, explore: bool) -> Any:
        return self.core.act(obs, carry, explore=explore)

    def _propose(self, obs: Tensor) -> dict[str, Tensor]:
        told = self.core.propose(obs)
        return {"action": told["action"], "values": 100 * told["logits"] + 7}


class Plain(PPO):
    """Tells its action and no more."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        del self.propose


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a run by name, trained when first asked for."""
    base = tmp_path_factory.mktemp("ensemble")

    def get(name: str) -> Path:
        path = base / name
        if not path.exists():
            podium.evolve(*EVOLVED, out=path) if name == "evolved" else podium.train(*SMALL, *RUNS[name], out=path)
        return path

    return get


def ids(path: Path) -> list[int]:
    return [row["id"] for row in json.loads(whole.command("top", path, "--json")[1])]


def members(path: Path) -> list[Any]:
    return [podium.load(path, id) for id in ids(path)]


def observations(agent: Any, count: int = 200) -> Any:
    rows = np.random.default_rng(count).normal(size=(count, *agent.obs_space.shape)) * 2
    return (rows * [20, 0.1] + [100, 3] if rows.shape[1] == 2 else rows).astype(np.float32)


def told(agents: list[Any], rows: Any, name: str) -> Any:
    """What each agent, asked by itself, tells; `[N, B, ...]`."""
    with torch.no_grad():
        return np.stack([agent.decide(torch.from_numpy(rows))[name].numpy() for agent in agents])


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- what algorithms propose


def test_a_proposal_is_what_act_does(runs: Any) -> None:
    for name, keys in {"cart": {"logits"}, "a2c": {"logits"}, "multi": {"logits"}, "box": {"mean", "std"}}.items():
        agent = podium.load(runs(name))
        obs = torch.from_numpy(observations(agent))[None]
        found = proposed(agent._algorithm, obs)
        assert found.keys() == {"action", *keys}
        assert all(x.shape[:2] == (1, 200) for x in found.values())
        assert torch.equal(found["action"], agent._algorithm.act(obs, {}, explore=False)[0]["action"])


def test_without_a_proposal_there_is_the_action(runs: Any) -> None:
    agent = podium.load(runs("plain"))
    obs = torch.from_numpy(observations(agent))[None]
    found = proposed(agent._algorithm, obs)
    assert found.keys() == {"action"} and torch.equal(found["action"], agent._choose(obs))


def test_a_proposal_does_not_speak_for_another_act(runs: Any) -> None:
    algorithm: Any = podium.load(runs("cart"))._algorithm
    obs, act = torch.zeros(1, 3, 4), algorithm.act
    algorithm.act = lambda *args, **kwargs: ({"action": 1 - act(*args, **kwargs)[0]["action"]}, {})
    found = proposed(algorithm, obs)
    assert found.keys() == {"action"} and (found["action"] == 1 - algorithm.propose(obs)["action"]).all()


# ---- the rules


@pytest.mark.parametrize("how", ["average", "vote", "mixture", None])
@pytest.mark.parametrize("name", ["cart", "box", "multi", "narrow", "own"])
def test_an_ensemble_of_one_is_its_agent(name: str, how: str | None, runs: Any) -> None:
    if how == "vote" and name in ("box", "narrow"):
        return
    agent = podium.load(runs(name))
    one, rows = podium.ensemble([agent], how), observations(agent)
    acts = one.act(rows)
    np.testing.assert_array_equal(acts, agent.act(rows))
    assert acts.dtype == agent.act(rows).dtype
    np.testing.assert_array_equal(one.act(rows[0]), agent.act(rows[0]))
    assert type(one.act(rows[0])) is type(agent.act(rows[0]))
    assert (one.members, one.step, one.env) == ((agent.member,), agent.step, agent.env)
    if how is None:
        np.testing.assert_array_equal(one.evaluate(4, seed=3), agent.evaluate(4, seed=3))


@pytest.mark.parametrize("how", ["average", "vote", "mixture"])
@pytest.mark.parametrize("name", ["cart", "multi", "own"])
def test_choices(name: str, how: str, runs: Any) -> None:
    agents = members(runs(name))
    rows, sizes = observations(agents[0]), [3, 2] if name == "multi" else [2]
    logits, acts = told(agents, rows, "logits"), np.stack([agent.act(rows) for agent in agents])
    chosen = []
    for c, x in enumerate(np.split(logits, np.cumsum(sizes)[:-1], -1)):
        p = softmax(x)
        counts = (x.argmax(-1)[..., None] == np.arange(sizes[c])).sum(0)
        scores = {"average": np.log(p).mean(0), "mixture": p.mean(0), "vote": counts + 0.5 * p.mean(0)}
        chosen.append(scores[how].argmax(-1))
    wanted = np.stack(chosen, -1).reshape(acts.shape[1:]) + agents[0].action_space.start
    np.testing.assert_array_equal(podium.ensemble(agents, how).act(rows), wanted)
    assert (acts != acts[0]).any()  # they do not all agree


@pytest.mark.parametrize("name", ["box", "narrow"])
def test_actions_in_a_box(name: str, runs: Any) -> None:
    agents = members(runs(name))
    rows = observations(agents[0])
    acts = np.stack([agent.act(rows) for agent in agents])
    average, mixture = (podium.ensemble(agents, how).act(rows) for how in ("average", "mixture"))
    np.testing.assert_allclose(average, acts.mean(0), atol=1e-5)
    np.testing.assert_array_equal(average, podium.ensemble(agents).act(rows))
    mean, std = told(agents, rows, "mean").astype(float), told(agents, rows, "std").astype(float)
    for b in range(len(rows)):
        density = [
            sum(np.prod(np.exp(-0.5 * ((mean[i, b] - mean[j, b]) / std[j, b]) ** 2) / std[j, b]) for j in range(3))
            for i in range(3)
        ]
        np.testing.assert_allclose(mixture[b], acts[int(np.argmax(density)), b], atol=1e-5)


def test_values(runs: Any) -> None:
    agents = members(runs("valued"))
    rows = observations(agents[0])
    values, acts = told(agents, rows, "values"), np.stack([agent.act(rows) for agent in agents])
    standard = (values - values.mean(-1, keepdims=True)) / values.std(-1, keepdims=True)
    np.testing.assert_array_equal(podium.ensemble(agents, "average").act(rows), standard.mean(0).argmax(-1))
    most = (acts.mean(0) > 0.5).astype(int)  # of two actions, by three members: each is sure of its own
    for how in ("vote", "mixture"):
        np.testing.assert_array_equal(podium.ensemble(agents, how).act(rows), most)
    likely = softmax(told(members(runs("cart")), rows, "logits")).sum(0) + (acts[..., None] == [0, 1]).sum(0)
    both = podium.ensemble([f"{runs('cart')}:top:3", *agents], "mixture")
    np.testing.assert_array_equal(both.act(rows), likely.argmax(-1))


def test_values_of_forbidden_actions_do_not_count(runs: Any, tmp_path: Path) -> None:
    agents, allowed = members(runs("masked")), np.repeat([[1, 1, 0, 1], [0, 1, 1, 1]], 40, 0)
    signs = np.linspace(-2, 2, 80)[:, None]
    rows = np.concatenate([allowed, np.random.default_rng(0).permutation(signs)], 1).astype(np.float32)
    values = np.where(allowed, told(agents, rows, "values").astype(float), np.nan)
    standard = (values - np.nanmean(values, -1, keepdims=True)) / np.nanstd(values, -1, keepdims=True)
    acts = podium.ensemble(agents, "average").act(rows)
    np.testing.assert_array_equal(acts, np.nanargmax(standard.mean(0), -1))
    assert len(set(acts[:40])) > 1, "more than the first that is allowed"
    podium.export(runs("masked"), ensemble="top:3", out=tmp_path / "a.onnx")
    (action,) = onnxruntime.InferenceSession(tmp_path / "a.onnx").run(["action"], {"obs": rows})
    np.testing.assert_array_equal(action, podium.ensemble(agents).act(rows))


def test_members_that_tell_only_their_action_can_vote(runs: Any) -> None:
    agents = members(runs("plain")) + members(runs("cart"))[:1]
    rows = observations(agents[0])
    wanted = (np.mean([agent.act(rows) for agent in agents], 0) > 0.5).astype(int)
    np.testing.assert_array_equal(podium.ensemble(agents, "vote").act(rows), wanted)


# ---- exploring


@pytest.mark.parametrize("name", ["cart", "multi", "box"])
def test_a_mixture_explores(name: str, runs: Any) -> None:
    agents = members(runs(name))
    together, one = podium.ensemble(agents, "mixture"), observations(agents[0])[:1]
    drawn = together.act(np.repeat(one, 8000, 0), explore=True)
    assert agents[0].action_space.contains(together.act(one[0], explore=True))
    if name == "box":
        space, mean, std = agents[0].action_space, told(agents, one, "mean"), told(agents, one, "std")
        noise = np.random.default_rng(0).normal(size=(20000, *mean.shape))
        expected = np.clip(mean + std * noise, space.low, space.high)
        assert drawn.mean() == pytest.approx(expected.mean(), abs=0.06)
        assert drawn.std() == pytest.approx(expected.std(), abs=0.06)
        return
    likely = softmax(told(agents, one, "logits")[:, 0, : 3 if name == "multi" else 2]).mean(0)
    first = drawn.reshape(8000, -1)[:, 0] - np.ravel(agents[0].action_space.start)[0]
    np.testing.assert_allclose(np.bincount(first, minlength=len(likely)) / 8000, likely, atol=0.03)


@pytest.mark.parametrize("name, how", [("cart", "average"), ("cart", "vote"), ("box", "average")])
def test_only_a_mixture_explores(name: str, how: str, runs: Any) -> None:
    together = podium.ensemble([runs(name)], how)
    with pytest.raises(ConfigError, match=f"explore: True is not allowed; False for how={how}"):
        together.act(np.zeros(together.obs_space.shape or (), np.float32), explore=True)


# ---- who is in it


def test_members_by_name(runs: Any) -> None:
    path, order = runs("cart"), ids(runs("cart"))
    assert podium.ensemble([path]).members == podium.ensemble([str(path)]).members == (order[0],)
    assert podium.ensemble([f"{path}:{order[2]}"]).members == (order[2],)
    assert podium.ensemble([f"{path}:top:2"]).members == podium.ensemble(f"{path}:top:2").members == tuple(order[:2])
    mixed = podium.ensemble([podium.load(path, order[1]), path, f"{path}:top:3"])
    assert mixed.members == (order[1], order[0], *order)


def test_members_of_one_kind_are_one_stack(runs: Any) -> None:
    names = [f"{runs(name)}:top:{k}" for name, k in (("cart", 3), ("wide", 1), ("a2c", 2), ("twin", 2))]
    together = podium.ensemble(names)
    assert [len(group) for group in together._groups] == [5, 1, 2]
    rows = observations(together)
    apart = Ensemble(together.agents, stacked=False)
    assert len(apart._groups) == 8
    for how in ("average", "vote", "mixture"):
        both = Ensemble(together.agents, how), Ensemble(together.agents, how, stacked=False)
        np.testing.assert_array_equal(*(each.act(rows) for each in both))
    likely = softmax(told(list(together.agents), rows, "logits")).mean(0)
    np.testing.assert_allclose(together.decide(torch.from_numpy(rows))["probabilities"], likely, atol=1e-6)
    assert together.evaluate(4).shape == (4,)


def test_a_run_that_evolved(runs: Any) -> None:
    together = podium.ensemble([f"{runs('evolved')}:top:3"], how="vote")
    assert together.members == tuple(ids(runs("evolved"))[:3])
    assert together.act(np.zeros(4, np.float32)) in (0, 1)
    returns = together.evaluate(6, seed=1)
    assert returns.shape == (6,) and returns.min() > 0
    np.testing.assert_array_equal(together.evaluate(6, seed=1), returns)
    np.testing.assert_array_equal(together.evaluate(6, "CartPole-v0", 1) <= 200, True)


# ---- the command


def test_the_command(runs: Any) -> None:
    path = runs("evolved")
    words = ("eval", path, "--ensemble", "top:3", "--episodes", 6, "--seed", 1)
    code, out, err = whole.command(*words, "--how", "vote", "--json")
    row, together = json.loads(out), podium.ensemble([f"{path}:top:3"], "vote")
    assert (code, err) == (0, "")
    assert (row["member"], row["members"], row["how"]) == (None, list(together.members), "vote")
    assert (row["steps"], row["mean"]) == (together.step, together.evaluate(6, seed=1).mean())
    alone = json.loads(whole.command("eval", path, "--json", "--episodes", 2)[1])
    assert alone.keys() == row.keys() and (alone["members"], alone["how"]) == ([alone["member"]], None)
    text = whole.command(*words)[1]
    assert f"members {', '.join(map(str, together.members))} of {path} as one, by mixture, on CartPole-v1:\n" in text


@pytest.mark.parametrize("name", ["cart", "narrow"])
def test_what_is_exported_acts_so(name: str, runs: Any, tmp_path: Path) -> None:
    podium.export(runs(name), ensemble="top:3", out=tmp_path / "a.onnx")
    together = podium.ensemble([f"{runs(name)}:top:3"])
    rows = observations(together)
    (action,) = onnxruntime.InferenceSession(tmp_path / "a.onnx").run(["action"], {"obs": rows})
    np.testing.assert_allclose(action, together.act(rows), atol=1e-5)


# ---- refusals


@pytest.mark.parametrize(
    "words, reason",
    [
        (
            ["--ensemble", "top:2", "--how", "median"],
            "error: --how: 'median' is not allowed; one of average,",
        ),
        (["--ensemble", "top:4"], "--ensemble: 'top:4' is not allowed; K is at most 3"),
        (["--ensemble", "top:0"], "--ensemble: 'top:0' is not allowed; top:K"),
        (["--ensemble", "3"], "--ensemble: '3' is not allowed; top:K"),
        (["--ensemble", "top:2", "--member", "1"], "--member and --ensemble exclude each other"),
        (["--how", "vote"], "--how: 'vote' is not allowed; it goes with --ensemble"),
        (["--ensemble", "top:2", "--env", "Acrobot-v1"], "--env: 'Acrobot-v1' is not allowed; an env with"),
    ],
)
def test_the_command_refuses(words: list[str], reason: str, runs: Any) -> None:
    code, out, err = whole.command("eval", runs("cart"), *words)
    assert (code, out) == (2, "") and reason in err and err.count("\n") == 1


def refused(names: Any, how: str | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        podium.ensemble(names, how)
    return error.value


def test_refuses_members_with_other_spaces(runs: Any) -> None:
    error = refused([runs("cart"), runs("box")])
    assert (error.field, error.value) == ("members", f"member {podium.load(runs('box')).member} of Pendulum-v1")
    for part in ("of CartPole-v1: observations (4,) float32 and actions Discrete(2)", "this one has observations (3,)"):
        assert part in str(error)


def test_refuses_what_is_no_member(runs: Any, tmp_path: Path) -> None:
    assert (refused([]).field, refused([]).value) == ("members", [])
    assert (refused([3]).field, refused([3]).value) == ("members", 3)
    error = refused([f"{runs('cart')}:top:9"])
    assert (error.field, error.value) == ("ensemble", "top:9") and "K is at most 3" in str(error)
    assert refused([f"{runs('cart')}:top:x"]).value == "top:x"
    assert (refused([f"{runs('cart')}:9"]).field, refused([f"{runs('cart')}:9"]).value) == ("member", 9)
    with pytest.raises(PodiumError, match="no such run"):
        podium.ensemble([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    "names, how, reason",
    [
        (["cart"], "Vote", "one of average, vote, mixture"),
        (["cart"], "", "one of average, vote, mixture"),
        (["box"], "vote", "average or mixture: actions in a Box are no choices to vote on"),
        (["cart", "plain"], "mixture", "has no probabilities to average"),
        (["plain"], "average", "has no probabilities to average"),
        (["blunt"], "mixture", "has no density"),
        (["cart", "valued"], "average", "some members have probabilities and others values"),
    ],
)
def test_refuses_what_cannot_be_combined(names: list[str], how: str, reason: str, runs: Any) -> None:
    error = refused([runs(name) for name in names], how)
    assert (error.field, error.value) == ("how", how) and reason in error.allowed
