"""What a value learner predicts: each head against the paper's formula, written slowly, and autograd."""

import pytest
import torch
from torch import Tensor

from podium.ops.value_heads import Atoms, Head, Quantiles, Scalar

M, K, B, Z = 2, 3, 4, 11
HEADS: dict[str, Head] = {"scalar": Scalar(), "c51": Atoms(Z, -2.0, 3.0), "qr": Quantiles(Z)}
EACH = pytest.mark.parametrize("name", HEADS)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def target_of(name: str) -> Tensor:
    raw = draw(M, B, HEADS[name].atoms, seed=1)
    return raw.softmax(-1) if name == "c51" else raw


@EACH
def test_the_gradient_is_autograds(name: str) -> None:
    head, target = HEADS[name], target_of(name)
    x = draw(M, K, B, head.atoms).requires_grad_()
    loss, g = head.loss(x, target)
    assert loss.shape == (M, K, B) and (loss >= 0).all()
    (expected,) = torch.autograd.grad(loss.sum(), x)
    assert torch.allclose(g, expected, atol=1e-6)


def test_the_loss_of_a_number() -> None:
    x, target = draw(M, K, B, 1) * 3, draw(M, B, 1, seed=1)
    loss, _ = Scalar().loss(x, target)
    for m, k, b in torch.cartesian_prod(torch.arange(M), torch.arange(K), torch.arange(B)).tolist():
        d = abs(float(x[m, k, b, 0] - target[m, b, 0]))
        assert float(loss[m, k, b]) == pytest.approx(0.5 * d * d if d < 1 else d - 0.5, abs=1e-6)


def test_the_loss_of_atoms_is_the_divergence() -> None:
    x, target = draw(M, K, B, Z), target_of("c51")
    loss, _ = HEADS["c51"].loss(x, target)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Categorical(target[:, None].expand(M, K, B, Z)),
        torch.distributions.Categorical(logits=x),
    )
    assert torch.allclose(loss, expected, atol=1e-6)


def test_the_loss_of_quantiles() -> None:
    x, target = draw(M, K, B, Z) * 2, target_of("qr")
    loss, _ = HEADS["qr"].loss(x, target)
    for m, k, b in ((0, 0, 0), (1, 2, 3)):
        total = 0.0
        for i in range(Z):
            for j in range(Z):
                u = float(target[m, b, j] - x[m, k, b, i])
                huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                total += abs((i + 0.5) / Z - (u < 0)) * huber / Z
        assert float(loss[m, k, b]) == pytest.approx(total, rel=1e-5)


def test_atoms_move_to_their_neighbours() -> None:
    """Algorithm 1 of the C51 paper, atom by atom; below and above the support, onto an atom, and in between."""
    head = Atoms(Z, -2.0, 3.0)
    p = target_of("c51")
    reward = torch.tensor([[-9.0, 9.0, 0.5, 0.13], [0.0, -0.7, 1.0, 2.2]])
    decay = torch.tensor([[0.9, 0.9, 1.0, 0.9], [0.0, 0.5, 1.0, 0.99]])
    found = head.backup(p, reward, decay)
    support, step = torch.linspace(-2, 3, Z), 5 / (Z - 1)
    for m in range(M):
        for b in range(B):
            out = [0.0] * Z
            for j in range(Z):
                z = min(3.0, max(-2.0, float(reward[m, b] + decay[m, b] * support[j])))
                place = min(Z - 1.0, max(0.0, (z + 2) / step))
                low = min(Z - 2, int(place))
                out[low] += float(p[m, b, j]) * (low + 1 - place)
                out[low + 1] += float(p[m, b, j]) * (place - low)
            assert found[m, b].tolist() == pytest.approx(out, abs=1e-5)
    assert torch.allclose(found.sum(-1), torch.ones(M, B))


@EACH
def test_the_mean_of_what_is_backed_up(name: str) -> None:
    """E[r + γ x] = r + γ E[x], as long as no atom leaves the support."""
    head, x = HEADS[name], target_of(name)
    reward, decay = torch.full((M, B), 0.2), torch.full((M, B), 0.5)
    mean = x @ torch.linspace(-2, 3, Z) if name == "c51" else head.mean(x)
    after = head.backup(x, reward, decay)
    found = after @ torch.linspace(-2, 3, Z) if name == "c51" else head.mean(after)
    assert torch.allclose(found, 0.2 + 0.5 * mean, atol=1e-5)


@EACH
@pytest.mark.parametrize("how", ["min", "mean"])
def test_ensembles(name: str, how: str) -> None:
    head, x = HEADS[name], draw(M, K, B, HEADS[name].atoms)
    found, means = head.combine(x, how), head.mean(x)
    mean = found @ torch.linspace(-2, 3, Z) if name == "c51" else head.mean(found)
    assert torch.allclose(mean, means.amin(1) if how == "min" else means.mean(1), atol=1e-5)
    if name == "c51":
        assert torch.allclose(found.sum(-1), torch.ones(M, B))


@EACH
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_stays_in_its_member(name: str, bad: float) -> None:
    head, x, reward, decay = HEADS[name], target_of(name), torch.full((M, B), 0.2), torch.full((M, B), 0.5)
    clean = head.backup(x, reward, decay)
    reward[1, 2] = bad
    found = head.backup(x, reward, decay)
    assert torch.equal(found[0], clean[0]) and torch.equal(found[1, :2], clean[1, :2])
    if name != "c51" or bad != bad:  # an infinite reward is the last atom
        assert not found[1, 2].isfinite().all()
