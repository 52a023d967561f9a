"""What PPO and A2C promise as stacks: live genes, members that never meet, early stopping, annealing, statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from podium.algos.base import annealed
from podium.core import hyper, tree
from podium.core.errors import ConfigError
from podium.core.tree import Tree
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pendulum import Pendulum
from podium.ops.grad import clip_by_norm
from probes import OpenPong
from stacks import ALGORITHMS, TwoDials, build, gap, rows, same

PLAN: dict[str, dict[str, Any]] = {
    "ppo": {"steps": 16, "epochs": 3, "batch": 32},
    "a2c": {"steps": 16},
}
BASE: dict[str, float] = {"lr": 1e-2, "entropy": 0.01, "max_norm": 0.1}
OTHER: dict[str, float] = {
    "lr": 2e-2,
    "discount": 0.9,
    "lam": 0.5,
    "clip": 0.02,
    "entropy": 0.1,
    "critic": 2.0,
    "max_norm": 0.05,
    "target_kl": 1e-4,
    "style": 0.5,
}
BOTH = pytest.mark.parametrize("name", ALGORITHMS)


def stack(name: str, env=CartPole, changed: dict[int, dict[str, float]] | None = None, members: int = 3, **plan: Any):
    """A stack of three alike, but for what is changed in some members."""
    base = {gene: [value] * members for gene, value in BASE.items()}
    for m, genes in (changed or {}).items():
        for gene, value in genes.items():
            base.setdefault(gene, [_default(name, gene)] * members)[m] = value
    return build(name, env, range(members), genes=base, **PLAN[name] | plan)


def _default(name: str, gene: str) -> Any:
    return ALGORITHMS[name].Settings.model_fields[gene].default


def learn(made, batch: dict[str, Tensor] | None = None, remaining: Tensor | None = None):
    batch = made.collector.collect() if batch is None else batch
    return made.algorithm.learn(batch, remaining)


def without_genes(learnt: Tree) -> Tree:
    return {k: v for k, v in learnt.items() if k != "genes"}


def test_every_gene_has_another_value_here() -> None:
    declared = {g for algo in ALGORITHMS.values() for g in hyper.genes(algo.Settings)}
    assert declared == OTHER.keys(), "add the new gene to OTHER"


@pytest.mark.parametrize(("name", "gene"), [(n, g) for n, a in ALGORITHMS.items() for g in hyper.genes(a.Settings)])
@pytest.mark.parametrize("env", [CartPole, Pendulum])
def test_a_gene_changes_its_own_member_and_no_other(name: str, gene: str, env) -> None:
    env = OpenPong if gene == "style" else env  # which tells how a step was done
    base, changed = stack(name, env), stack(name, env, {1: {gene: OTHER[gene]}})
    learn(base)
    learn(changed)
    a, b = without_genes(base.learnt()), without_genes(changed.learnt())
    assert same(rows(a, 0, 2), rows(b, 0, 2))
    assert not same(rows(a, 1)["weights"], rows(b, 1)["weights"])


@pytest.mark.parametrize("extras", [{}, {"normalise": True}], ids=["", "normalised"])
@pytest.mark.parametrize("where", ["obs", "reward", "last", "action", "gradient", "weights"])
@pytest.mark.parametrize(("name", "stops"), [("ppo", False), ("ppo", True), ("a2c", False)])
def test_nan_in_one_member_is_seen_at_once_and_reaches_no_other(name, where, stops, extras, monkeypatch) -> None:
    def run(poison: bool) -> tuple[Tensor, Tree, dict[str, Tensor]]:
        changed = {m: {"target_kl": t} for m, t in enumerate((0.002, 0.5, 0.5))} if stops else None
        made = stack(name, Pendulum, changed, **extras)
        learn(made)  # optimiser and statistics are not at their start
        batch = made.collector.collect()
        if poison:
            if where in batch:
                batch[where][1, 15, 2] = torch.nan
            elif where == "weights":
                made.algorithm.core.net.params[0].data[1, 0, 0] = torch.nan
            else:
                monkeypatch.setattr(f"podium.algos.{name}.clip_by_norm", _poison)
        metrics = learn(made, batch)
        monkeypatch.undo()
        finite = metrics.pop("finite")
        second = learn(made)  # and it stays away from the others afterwards
        return finite, made.learnt(), metrics | {f"second {k}": v for k, v in second.items()}

    (fine, clean, calm), (finite, poisoned, metrics) = run(False), run(True)
    assert fine.tolist() == [True, True, True]
    assert finite.tolist() == [True, False, True]
    assert same(rows(clean, 0, 2), rows(poisoned, 0, 2))
    assert same(rows(calm, 0, 2), rows(metrics, 0, 2))


def _poison(params: Sequence[Tensor], limit: Tensor) -> Tensor:
    params[0].grad[1, 0, 3] = torch.nan
    return clip_by_norm(params, limit)


def test_a_member_that_reached_its_target_kl_stops_and_the_others_go_on() -> None:
    def run(*targets: float, epochs: int = 6) -> Tree:
        changed = {m: {"target_kl": t} for m, t in enumerate(targets) if t}
        made = stack("ppo", Pendulum, changed, epochs=epochs, batch=64)
        learn(made)
        return without_genes(made.learnt())

    free, one, everyone = run(0, 0, 0), run(0, 1e-4, 0), run(1e-4, 1e-4, 1e-4)
    assert same(rows(free, 0, 2), rows(one, 0, 2)), "the others must not notice"
    assert same(rows(one, 1), rows(everyone, 1)), "as if alone: there the whole loop ends"
    steps = one["optimiser"]["age"].tolist()
    assert steps[0] == steps[2] == 6 and 1 <= steps[1] < 6
    assert same(rows(one, 1), rows(run(0, 0, 0, epochs=int(steps[1])), 1)), "it is what it was when it stopped"


def test_early_stopping_leaves_the_streams_where_they_would_be() -> None:
    """Minibatch orders are drawn before the first: stopping early changes no later random number."""
    states = []
    for target in (None, 1e-4):
        made = stack("ppo", Pendulum, {1: {"target_kl": target}} if target else None)
        learn(made)
        states.append(made.streams.state())
    assert same(*states)


@pytest.mark.parametrize("target", [1e-4, None])
def test_metrics_are_the_same_whether_or_not_all_stop(target: float | None) -> None:
    changed = {m: {"target_kl": target} for m in range(3)} if target else None
    metrics = learn(stack("ppo", Pendulum, changed))
    assert set(metrics) == {"policy", "critic", "entropy", "norm", "kl", "clipped", "finite"}
    assert all(x.shape == (3,) and not x.requires_grad for x in metrics.values())


@BOTH
def test_annealing_multiplies_the_gene(name: str) -> None:
    """A gene halved by what remains of the run does what a gene of half the size does; per member."""
    remaining = torch.tensor([1.0, 0.5, 0.25])
    for gene in ("lr", "entropy", "clip") if name == "ppo" else ("lr", "entropy"):
        value = BASE.get(gene, 0.2)
        annealing = stack(name, CartPole, {m: {gene: value} for m in range(3)}, anneal=(gene,))
        fixed = stack(name, CartPole, {m: {gene: value * float(r)} for m, r in enumerate(remaining)})
        learn(annealing, remaining=remaining)
        learn(fixed)
        assert gap(without_genes(annealing.learnt()), without_genes(fixed.learnt())) < 1e-7
        assert annealing.algorithm.genes[gene].tolist() == pytest.approx([value] * 3), "the gene itself stays"


def test_annealed() -> None:
    genes = {"lr": torch.tensor([1.0, 2.0]), "clip": torch.tensor([3.0, 4.0])}
    now = annealed(genes, ("lr",), torch.tensor([0.5, 0.0]))
    assert now["lr"].tolist() == [0.5, 0.0] and now["clip"] is genes["clip"]
    assert annealed(genes, ("lr",), None) is genes


@BOTH
def test_a_rate_of_zero_leaves_the_weights(name: str) -> None:
    made = stack(name, CartPole, {1: {"lr": 0.0}})
    before = made.learnt()
    learn(made)
    after = made.learnt()
    moved = [(before["weights"][k] != after["weights"][k]).flatten(1).any(1) for k in before["weights"]]
    assert torch.stack(moved).any(0).tolist() == [True, False, True]


@BOTH
def test_statistics_are_each_members_own(name: str) -> None:
    made = stack(name, Pendulum, normalise=True)
    batches = []
    for _ in range(3):
        batches.append(tree.clone(made.collector.collect()))
        learn(made, batches[-1])
    stats = made.learnt()["obs_stats"]
    seen = torch.cat([b["obs"].flatten(1, 2) for b in batches], 1).double()
    assert torch.allclose(stats["mean"].double(), seen.mean(1), atol=1e-4)
    assert torch.allclose(stats["var"].double(), seen.var(1, correction=0), rtol=1e-3)
    assert not torch.allclose(stats["mean"][0], stats["mean"][1])
    sums, total = [], torch.zeros(3, 4)
    for batch in batches:
        done = batch["terminated"] | batch["truncated"]
        for t in range(16):
            total = 0.99 * total + batch["reward"][:, t]
            sums.append(total)
            total = total * ~done[:, t]
    returns = torch.stack(sums, 1).flatten(1).double()
    assert torch.allclose(made.learnt()["return_stats"]["var"].double(), returns.var(1, correction=0), rtol=1e-3)
    assert torch.allclose(made.algorithm.slot()["carried"], total, atol=1e-4)


@BOTH
def test_acting_and_learning_normalise_alike(name: str) -> None:
    """The statistics move after an update: at its start the new policy is the one that acted."""
    made = stack(name, Pendulum, normalise=True)
    made.update(2)
    core, batch = made.algorithm.core, made.collector.collect()
    data = core.experience(batch, made.algorithm.genes["discount"], made.algorithm.genes["lam"])
    acted = core.net.policy(core.inputs(batch["obs"]))
    assert torch.allclose(core.net.dist.log_prob(acted, data["action"]), data["logp"], atol=1e-5)
    mode = core.act(batch["obs"][:, 3], {}, explore=False)[0]["action"]
    assert torch.allclose(mode, acted[0].view(3, 16, 4, 1)[:, 3])


@pytest.mark.parametrize("env", [CartPole, Pendulum, TwoDials])
@BOTH
def test_acting(name: str, env) -> None:
    made, obs = stack(name, env), torch.randn(3, 4, *env.obs_space.shape)
    out, carry = made.algorithm.act(obs, {}, explore=False)
    again, _ = made.algorithm.act(obs, {}, explore=False)
    assert carry == {} and torch.equal(out["action"], again["action"]), "without exploring nothing is drawn"
    one, two = (made.algorithm.act(obs, {}, explore=True)[0]["action"] for _ in range(2))
    assert one.shape == two.shape == (3, 4, *env.action_space.shape)
    assert not torch.equal(one, two)
    for action in one.flatten(0, 1):
        dtype = torch.float32 if env is Pendulum else torch.int64
        assert action.dtype == dtype
        assert env is Pendulum or env.action_space.contains(action.numpy() if action.ndim else int(action))


@pytest.mark.parametrize("batch", [48, 128])
def test_a_minibatch_that_does_not_divide_the_rollout_is_refused(batch: int) -> None:
    with pytest.raises(ConfigError, match=r"algo\.batch"):
        build("ppo", CartPole, steps=16, batch=batch)


@pytest.mark.parametrize("batch", [64, 32, 1])
def test_every_minibatch_is_part_of_the_rollout_once_an_epoch(batch: int) -> None:
    made = stack("ppo", Pendulum, batch=batch, epochs=2)
    core, rollout = made.algorithm.core, made.collector.collect()
    data = core.experience(rollout, made.algorithm.genes["discount"], made.algorithm.genes["lam"])
    expected = data["logp"].clone()
    parts = list(made.algorithm._minibatches(dict(data)))
    assert len(parts) == 2 * 64 // batch
    for epoch in (parts[: 64 // batch], parts[64 // batch :]):
        together = {k: torch.cat([p[k] for p in epoch], 1) for k in ("logp", "obs", "action", "return")}
        order = together["logp"].argsort(1)
        assert torch.equal(together["logp"].gather(1, order), expected.sort(1).values)
        for k in ("obs", "action", "return"):  # every row stays together
            a = together[k][torch.arange(3)[:, None], order]
            b = data[k][torch.arange(3)[:, None], expected.argsort(1)]
            assert torch.equal(a, b), k
    if batch > 1:
        assert all(p["advantage"].mean(1).abs().max() < 1e-5 for p in parts)
        assert all((p["advantage"].std(1) - 1).abs().max() < 1e-4 for p in parts)


@pytest.mark.parametrize("cut", [False, True])
def test_the_next_value_is_that_of_what_the_action_led_to(cut: bool) -> None:
    made = stack("ppo", TwoDials)
    batch, core = made.collector.collect(), made.algorithm.core
    if not cut:
        batch["terminated"] |= batch["truncated"]
        batch["truncated"].zero_()
    assert batch["truncated"].any() == cut
    value = core.net.value(core.inputs(batch["obs"])).view_as(batch["reward"])
    led_to = core.net.value(core.inputs(batch["last"])).view_as(value)
    found = core._next_value(value, batch)
    matters = ~batch["terminated"]
    assert torch.allclose(found[matters], led_to[matters], atol=1e-6)
    assert matters.any() and not matters.all()
