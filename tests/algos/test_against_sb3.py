"""PPO and A2C against Stable-Baselines3: the same weights and the same data give the same loss, gradient and update.

Each assertion is on the largest difference over two members; `pytest -s` prints them. Measured (torch 2.13, SB3 2.9):
loss terms 3e-6, gradients 3e-6, weights after an update 2e-7.
"""

import pytest
import torch

from algos.sb3 import ACTIONS, NAMES, copy_weights, fill, models, pairs, rollout, stack, worst
from podium.algos.a2c import a2c_loss
from podium.algos.ppo import ppo_loss
from podium.ops.returns import standardise

GENES = {
    "lr": [3e-4, 1e-3],
    "discount": [0.99, 0.9],
    "lam": [0.95, 0.7],
    "entropy": [0.0, 0.02],
    "critic": [0.5, 1.3],
    "max_norm": [0.5, 0.05],
}
BATCH = 36


def sb3_kwargs(genes: dict[str, list[float]], **plan) -> list[dict]:
    return [{NAMES[name]: row[m] for name, row in genes.items()} | plan for m in range(2)]


def twins(algorithm, action, genes, ours, **theirs):
    made = models(algorithm, action, sb3_kwargs(genes, **theirs))
    algo = stack(algorithm, action, genes, **ours)
    copy_weights(made, algo.core.net)
    return made, algo


def logged(made, name: str) -> torch.Tensor:
    return torch.tensor([float(model.logger.name_to_value[f"train/{name}"]) for model in made])


@pytest.mark.parametrize("clip_value", [False, True], ids=["", "clip_value"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_ppo_loss_and_gradient(kind: str, clip_value: bool) -> None:
    """Old log-probabilities and values are shifted, so that ratios are clipped; SB3's own train() with a rate of 0."""
    action, clip = ACTIONS[kind], {"clip": [0.2, 0.1]}
    genes = GENES | clip | {"lr": [0.0, 0.0], "max_norm": [1e9, 1e9]}
    theirs = {"n_epochs": 1, "batch_size": BATCH}
    made, algo = twins("ppo", action, genes, {"epochs": 1, "batch": BATCH, "clip_value": clip_value}, **theirs)
    batch = rollout(action, 2)
    data = algo.core.experience(batch, algo.genes["discount"], algo.genes["lam"])
    noise = torch.Generator().manual_seed(1)
    shift, other = 0.2 * torch.randn(2, 2, BATCH, generator=noise)
    data["logp"], data["value"] = data["logp"] + shift, data["value"] + other
    data["advantage"] = 3 * data["advantage"] + 1
    for m, model in enumerate(made):
        fill(model, batch, m)
        buffer, shape = model.rollout_buffer, (12, 3)
        buffer.log_probs[:] = data["logp"][m].view(shape)
        buffer.values[:] = data["value"][m].view(shape)
        buffer.advantages[:] = data["advantage"][m].view(shape)
        buffer.returns[:] = data["return"][m].view(shape)
        if clip_value:
            model.clip_range_vf = model.clip_range
        model.train()
    data["advantage"] = standardise(data["advantage"])
    net = algo.core.net
    params, value, pull = net.vjp(data["obs"])
    loss, terms, gradient = ppo_loss(net.dist, params, value, data, algo.genes, clip_value)
    pull(*gradient)
    found = {
        "loss": (loss, logged(made, "loss")),
        "policy": (terms["policy"], logged(made, "policy_gradient_loss")),
        "critic": (terms["critic"], logged(made, "value_loss")),
        "entropy": (-terms["entropy"], logged(made, "entropy_loss")),
    }
    gaps = {name: worst([pair]) for name, pair in found.items()}
    gaps["gradient"] = worst([(g, p.grad) for g, p in pairs(net, net.params[0].grad, made)])
    print("PPO", kind, gaps)
    assert max(gaps.values()) < 1e-5
    ratio = (terms["log_ratio"].exp() - 1).abs() > algo.genes["clip"][:, None]
    assert ratio.float().mean(1).tolist() == pytest.approx(logged(made, "clip_fraction").tolist())
    assert 0.1 < ratio.float().mean() < 0.9, "the test must exercise the clip"


@pytest.mark.parametrize("truncate", [False, True], ids=["", "truncated"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_advantages_and_returns(kind: str, truncate: bool) -> None:
    """Where time runs out SB3 adds gamma V(terminal obs) to the reward and ends the episode; we bootstrap. The same."""
    action, genes = ACTIONS[kind], GENES | {"clip": [0.2, 0.1]}
    made, algo = twins("ppo", action, genes, {"batch": BATCH}, batch_size=BATCH)
    batch = rollout(action, 2, truncate=truncate)
    assert batch["truncated"].any() == truncate and batch["terminated"].any()
    data = algo.core.experience(batch, algo.genes["discount"], algo.genes["lam"])
    for m, model in enumerate(made):
        fill(model, batch, m)
        names = {"advantage": "advantages", "return": "returns", "value": "values", "logp": "log_probs"}
        for ours, theirs in names.items():
            expected = torch.tensor(getattr(model.rollout_buffer, theirs)).flatten()
            assert (data[ours][m] - expected).abs().max() < 1e-5, ours


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("kind", ACTIONS)
def test_a_whole_ppo_update(kind: str, epochs: int) -> None:
    """SB3's train() and our learn() on the same rollout, twice in a row, with everything switched on."""
    action, genes = ACTIONS[kind], GENES | {"clip": [0.2, 0.05]}
    ours = {"epochs": epochs, "batch": BATCH, "clip_value": True}
    made, algo = twins("ppo", action, genes, ours, n_epochs=epochs, batch_size=BATCH)
    before = algo.core.net.params[0].detach().clone()
    for update in range(2):
        batch = rollout(action, 2, truncate=True, seed=update)
        for m, model in enumerate(made):
            model.clip_range_vf = model.clip_range
            fill(model, batch, m)
            model.train()
        metrics = algo.learn(batch)
    found = pairs(algo.core.net, algo.core.net.params[0], made)
    print("PPO update", kind, epochs, worst(found))
    assert worst(found) < 1e-5
    assert (algo.core.net.params[0].detach() - before).abs().max() > 1e-3
    assert metrics["finite"].all()
    if epochs == 1:
        assert metrics["kl"].tolist() == pytest.approx(logged(made, "approx_kl").tolist(), abs=1e-6)


@pytest.mark.parametrize("limit", [0.003, 0.0036, 0.0043, 0.0052, 0.0062, 0.0075, 0.009])
@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_ppo_stops_where_sb3_stops(kind: str, limit: float) -> None:
    """The first member reaches its target KL after a few epochs, the second never. The targets lie close together."""
    action, genes = ACTIONS[kind], GENES | {"clip": [0.2, 0.2], "lr": [4e-4, 1e-4], "max_norm": [9.0, 9.0]}
    target = [limit, 10.0]
    made = models("ppo", action, sb3_kwargs(genes, n_epochs=12, batch_size=BATCH))
    algo = stack("ppo", action, genes | {"target_kl": target}, epochs=12, batch=BATCH)
    copy_weights(made, algo.core.net)
    batch = rollout(action, 2)
    for m, model in enumerate(made):
        model.target_kl = target[m]
        fill(model, batch, m)
        model.train()
    algo.learn(batch)
    assert 1 < made[0]._n_updates < 12 and made[1]._n_updates == 12
    assert worst(pairs(algo.core.net, algo.core.net.params[0], made)) < 1e-5
    ages = algo.optimiser.age
    assert ages.tolist() == [made[0]._n_updates - 1, 12]  # SB3 counts the epoch in which it stopped


@pytest.mark.parametrize("normalise", [False, True], ids=["", "normalised"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_a2c_loss_and_gradient(kind: str, normalise: bool) -> None:
    action = ACTIONS[kind]
    genes = GENES | {"lr": [0.0, 0.0], "max_norm": [1e9, 1e9]}
    made, algo = twins("a2c", action, genes, {}, normalize_advantage=normalise)
    batch = rollout(action, 2, truncate=True)
    data = algo.core.experience(batch, algo.genes["discount"], algo.genes["lam"])
    for m, model in enumerate(made):
        fill(model, batch, m)
        model.train()
    if normalise:
        data["advantage"] = standardise(data["advantage"])
    net = algo.core.net
    params, value, pull = net.vjp(data["obs"])
    _, terms, gradient = a2c_loss(net.dist, params, value, data, algo.genes)
    pull(*gradient)
    gaps = {
        "policy": worst([(terms["policy"], logged(made, "policy_loss"))]),
        "critic": worst([(terms["critic"], logged(made, "value_loss"))]),
        "entropy": worst([(-terms["entropy"], logged(made, "entropy_loss"))]),
        "gradient": worst([(g, p.grad) for g, p in pairs(net, net.params[0].grad, made)]),
    }
    print("A2C", kind, gaps)
    assert max(gaps.values()) < 1e-5


@pytest.mark.parametrize("optimiser", ["rmsprop", "adam"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_a_whole_a2c_update(kind: str, optimiser: str) -> None:
    action = ACTIONS[kind]
    ours = {"optimiser": optimiser, "normalise_advantage": True}
    theirs = {"use_rms_prop": optimiser == "rmsprop", "normalize_advantage": True}
    genes = GENES | {"lr": [0.003, 0.01], "max_norm": [0.5, 2.0]}
    made, algo = twins("a2c", action, genes, ours, **theirs)
    if optimiser == "adam":  # SB3 leaves torch's eps there; ours is that of RMSProp
        for model in made:
            model.policy.optimizer.param_groups[0]["eps"] = 1e-5
    before = algo.core.net.params[0].detach().clone()
    for update in range(3):
        batch = rollout(action, 2, truncate=True, seed=update)
        for m, model in enumerate(made):
            fill(model, batch, m)
            model.train()
        algo.learn(batch)
    found = pairs(algo.core.net, algo.core.net.params[0], made)
    print("A2C update", kind, optimiser, worst(found))
    assert worst(found) < 1e-5
    assert (algo.core.net.params[0].detach() - before).abs().max() > 3e-3
