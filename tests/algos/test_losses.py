"""The losses of PPO and A2C against slow twins of one member under autograd, written as the papers write them."""

import pytest
import torch
from torch import Tensor

from podium.algos.a2c import a2c_loss
from podium.algos.ppo import approximate_kl, ppo_loss
from podium.ops.dist import Categorical, MultiCategorical, Normal

M, B = 3, 40
DISTS = {
    "discrete": (Categorical(4), lambda g: torch.randint(4, (M, B), generator=g)),
    "multi": (MultiCategorical((2, 3)), lambda g: torch.randint(2, (M, B, 2), generator=g)),
    "box": (Normal(2), lambda g: torch.randn(M, B, 2, generator=g)),
}
GENES = {
    "clip": torch.tensor([0.2, 0.05, 0.4]),
    "critic": torch.tensor([0.5, 2.0, 0.0]),
    "entropy": torch.tensor([0.0, 0.01, 1.0]),
}


def data(kind: str, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    dist, draw = DISTS[kind]
    params = (torch.randn(M, B, dist.size, generator=g),)
    if dist.extra:
        params += (0.3 * torch.randn(M, dist.size, generator=g),)
    value, old_value, returns, advantage, noise = torch.randn(5, M, B, generator=g)
    batch = {"action": draw(g), "value": value + 0.3 * old_value, "return": returns, "advantage": advantage}
    batch["logp"] = dist.log_prob(params, batch["action"]) + 0.3 * noise
    return dist, params, value, batch


def slow_ppo(dist, params, value, batch, clip, critic, entropy, clip_value) -> Tensor:
    """Of one member, `[1, B]`."""
    ratio = (dist.log_prob(params, batch["action"]) - batch["logp"]).exp()
    a = batch["advantage"]
    surrogate = torch.min(ratio * a, torch.clip(ratio, 1 - clip, 1 + clip) * a).mean()
    if clip_value:
        value = batch["value"] + torch.clip(value - batch["value"], -clip, clip)
    return -surrogate + critic * ((value - batch["return"]) ** 2).mean() - entropy * dist.entropy(params).mean()


def slow_a2c(dist, params, value, batch, clip, critic, entropy, clip_value) -> Tensor:
    gain = (dist.log_prob(params, batch["action"]) * batch["advantage"]).mean()
    return -gain + critic * ((value - batch["return"]) ** 2).mean() - entropy * dist.entropy(params).mean()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("loss", ["ppo", "ppo-clip-value", "a2c"])
@pytest.mark.parametrize("kind", DISTS)
def test_loss_and_gradient_equal_the_slow_twins(kind: str, loss: str, seed: int) -> None:
    dist, params, value, batch = data(kind, seed)
    before = {k: v.clone() for k, v in batch.items()}, value.clone()
    if loss == "a2c":
        total, terms, (g_params, g_value) = a2c_loss(dist, params, value, batch, GENES)
    else:
        total, terms, (g_params, g_value) = ppo_loss(dist, params, value, batch, GENES, loss != "ppo")
    assert all(torch.equal(before[0][k], batch[k]) for k in batch), "data was written to"
    assert torch.equal(before[1], value), "the values were written to"
    for m in range(M):
        one = {k: v[m : m + 1] for k, v in batch.items()}
        ps = tuple(p[m : m + 1].clone().requires_grad_() for p in params)
        v = value[m : m + 1].clone().requires_grad_()
        genes = [float(GENES[k][m]) for k in ("clip", "critic", "entropy")]
        expected = (slow_a2c if loss == "a2c" else slow_ppo)(dist, ps, v, one, *genes, loss == "ppo-clip-value")
        expected.backward()
        assert total[m].item() == pytest.approx(expected.item(), abs=1e-5)
        assert torch.allclose(g_value[m], v.grad[0], atol=1e-6)
        for g, p in zip(g_params, ps, strict=True):
            assert torch.allclose(g[m], p.grad[0], atol=1e-6)
    if loss == "ppo-clip-value":
        assert (g_value[:2] == 0).any() and (g_value[:2] != 0).any(), "some values must be clipped"


@pytest.mark.parametrize("kind", DISTS)
def test_a_nan_shows_in_its_member_and_in_no_other(kind: str) -> None:
    for clip_value in (False, True):
        for name in ("advantage", "return", "logp", "value"):
            dist, params, value, batch = data(kind)
            clean = ppo_loss(dist, params, value, batch, GENES, clip_value)
            bad = {k: v.clone() for k, v in batch.items()}
            bad[name][1, 7] = torch.nan
            loss, _, (g_params, g_value) = ppo_loss(dist, params, value, bad, GENES, clip_value)
            others = [0, 2]
            assert torch.equal(loss[others], clean[0][others])
            assert torch.equal(g_value[others], clean[2][1][others])
            assert all(torch.equal(a[others], b[others]) for a, b in zip(g_params, clean[2][0], strict=True))
            assert loss.isfinite().tolist() == [True, name == "value" and not clip_value, True]


def test_approximate_kl() -> None:
    """An unbiased estimate of KL(old || new) when actions come from old; never negative."""
    g = torch.Generator().manual_seed(0)
    old, new = (torch.randn(1, 4, generator=g).log_softmax(-1) for _ in range(2))
    actions = torch.multinomial(old.exp(), 20_000, replacement=True, generator=g)
    log_ratio = (new - old)[0, actions[0]][None]
    exact = (old.exp() * (old - new)).sum().item()
    assert approximate_kl(log_ratio).item() == pytest.approx(exact, rel=0.05)
    assert (approximate_kl(torch.randn(5, 3)) >= 0).all()
    assert approximate_kl(torch.zeros(2, 3)).tolist() == [0, 0]
