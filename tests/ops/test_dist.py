"""Distributions against torch.distributions: the same numbers, gradients, frequencies and moments."""

import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as td

from podium.core.errors import ConfigError
from podium.core.streams import Streams
from podium.ops.dist import Categorical, MultiCategorical, Normal, TanhNormal, of_space

M, B = 2, 6


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Multi:
    def __init__(self, logits: Tensor, nvec: tuple[int, ...]) -> None:
        self.parts = [td.Categorical(logits=x) for x in logits.split(nvec, -1)]

    def log_prob(self, a: Tensor) -> Tensor:
        return sum(d.log_prob(a[..., i]) for i, d in enumerate(self.parts))

    def entropy(self) -> Tensor:
        return sum(d.entropy() for d in self.parts)


def normal(mean: Tensor, log_std: Tensor) -> td.Distribution:
    return td.Independent(td.Normal(mean, log_std[:, None].exp()), 1)


CASES = {
    "categorical": (Categorical(5), (2 * randn(M, B, 5),), lambda x: td.Categorical(logits=x), randn(M, B) > 0),
    "multi": (
        MultiCategorical((3, 2, 4)),
        (2 * randn(M, B, 9),),
        lambda x: Multi(x, (3, 2, 4)),
        randn(M, B, 3, seed=1) > 0,
    ),
    "normal": (Normal(3), (randn(M, B, 3), randn(M, 3, seed=2)), normal, randn(M, B, 3, seed=3)),
}


@pytest.mark.parametrize("name", CASES)
def test_log_prob_and_entropy_and_their_gradients(name: str) -> None:
    ours, params, theirs, action = CASES[name]
    action = action if name == "normal" else action.long()
    mine, other = (tuple(p.clone().requires_grad_() for p in params) for _ in range(2))
    twin = theirs(*other)
    found, expected = (ours.log_prob(mine, action), ours.entropy(mine)), (twin.log_prob(action), twin.entropy())
    for x, y in zip(found, expected, strict=True):
        assert x.shape == (M, B)
        assert torch.allclose(x, y, atol=1e-5)
        weight = randn(M, B, seed=9)
        grads = [
            torch.autograd.grad((v * weight).sum(), ps, retain_graph=True, allow_unused=True)
            for v, ps in ((x, mine), (y, other))
        ]
        for g, e in zip(*grads, strict=True):
            assert (g is None and e is None) or torch.allclose(torch.zeros(()) if g is None else g, e, atol=1e-5)


@pytest.mark.parametrize("strided", [False, True], ids=["", "as heads put it out"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_by_hand_equal_autograds(name: str, strided: bool) -> None:
    ours, params, theirs, action = CASES[name]
    action = action if name == "normal" else action.long()
    other = tuple(p.clone().requires_grad_() for p in params)
    twin = theirs(*other)
    logp, entropy = twin.log_prob(action), twin.entropy().mean(1)
    mine = (params[0].mT.contiguous().mT if strided else params[0].clone(), *(p.clone() for p in params[1:]))
    got_logp, got_entropy, pull = ours.vjp(mine, action)
    assert torch.allclose(got_logp, logp, atol=1e-5)
    assert got_entropy.shape == (M,) and torch.allclose(got_entropy, entropy, atol=1e-5)
    g_logp, g_entropy = randn(M, B, seed=9), randn(M, seed=10)
    torch.autograd.backward([logp, entropy], [g_logp, g_entropy])
    before = g_logp.clone(), g_entropy.clone(), tuple(p.clone() for p in mine)
    found = pull(g_logp, g_entropy)
    assert len(found) == len(other)
    for x, p in zip(found, other, strict=True):
        assert x.shape == p.shape
        assert torch.allclose(x, p.grad, atol=1e-5)
    assert torch.equal(g_logp, before[0]) and torch.equal(g_entropy, before[1])
    assert all(torch.equal(x, y) for x, y in zip(mine, before[2], strict=True)), "a parameter was written to"


@pytest.mark.parametrize("name", CASES)
def test_any_number_of_axes_between_member_and_action(name: str) -> None:
    ours, params, _, action = CASES[name]
    action = action if name == "normal" else action.long()
    wide = (params[0].unflatten(1, (2, 3)), *params[1:])
    logp, entropy = ours.log_prob(wide, action.unflatten(1, (2, 3))), ours.entropy(wide)
    assert torch.allclose(logp.flatten(1), ours.log_prob(params, action), atol=1e-6)
    assert torch.allclose(entropy.flatten(1), ours.entropy(params), atol=1e-6)
    noise = ours.noise(Streams(0, range(M)).agent, B)
    assert torch.equal(ours.sample(wide, noise.unflatten(1, (2, 3))).flatten(1, 2), ours.sample(params, noise))


def test_categorical_gradient_far_out() -> None:
    """Where one action is all but certain nothing becomes NaN."""
    logits = torch.tensor([[[80.0, 0.0, -80.0]]])
    logp, entropy, pull = Categorical(3).vjp((logits,), torch.tensor([[2]]))
    assert torch.allclose(logp, torch.tensor([[-160.0]])) and entropy.abs().max() < 1e-6
    (grad,) = pull(torch.tensor([[2.0]]), torch.tensor([1.0]))
    assert torch.allclose(grad, torch.tensor([[[-2.0, 0.0, 2.0]]]), atol=1e-6)


def test_categorical_frequencies() -> None:
    n, logits = 40_000, torch.tensor([[0.1, -1.0, 2.0], [0.0, 0.0, -3.0]])
    dist = Categorical(3)
    a = dist.sample((logits[:, None],), dist.noise(Streams(0, range(2)).agent, n))
    for m in range(2):
        assert torch.allclose(a[m].bincount(minlength=3) / n, logits[m].softmax(0), atol=0.01)
    assert dist.mode((logits,)).tolist() == [2, 0]


def test_multi_categorical_frequencies_and_independence() -> None:
    n, dist = 40_000, MultiCategorical((2, 3))
    logits = torch.tensor([[1.0, 0.0, 0.5, -0.5, 1.5]])
    a = dist.sample((logits[:, None],), dist.noise(Streams(1, [0]).agent, n))[0]
    joint = (a[:, 0] * 3 + a[:, 1]).bincount(minlength=6).view(2, 3) / n
    assert torch.allclose(joint, torch.outer(logits[0, :2].softmax(0), logits[0, 2:].softmax(0)), atol=0.01)
    assert dist.mode((logits,)).tolist() == [[0, 2]]


def test_normal_moments() -> None:
    mean, log_std = torch.tensor([[[1.0, -2.0]], [[0.0, 30.0]]]), torch.tensor([[0.0, -1.0], [1.0, -5.0]])
    dist = Normal(2)
    a = dist.sample((mean, log_std), dist.noise(Streams(0, range(2)).agent, 40_000))
    assert torch.allclose(a.mean(1), mean[:, 0], atol=0.04)
    assert torch.allclose(a.std(1), log_std.exp(), rtol=0.02)
    assert torch.equal(dist.mode((mean, log_std)), mean)


def tanh_twin(params: Tensor) -> td.Distribution:
    mean, log_std = params.chunk(2, -1)
    squashed = td.TransformedDistribution(td.Normal(mean, log_std.exp()), [td.TanhTransform(cache_size=1)])
    return td.Independent(squashed, 1)


def test_tanh_normal_log_prob_and_gradients() -> None:
    dist, noise, weight = TanhNormal(3), randn(M, B, 3, seed=4), randn(M, B, seed=5)
    mine = randn(M, B, 6).mul(0.7).requires_grad_()
    other = mine.detach().double().requires_grad_()  # the twin loses digits where tanh is near 1
    action, logp = dist.sample_log_prob((mine,), noise)
    mean, log_std = other.chunk(2, -1)
    u = mean + log_std.exp() * noise
    expected = (td.Normal(mean, log_std.exp()).log_prob(u) - torch.log1p(-(u.tanh() ** 2))).sum(-1)
    assert torch.allclose(action.double(), u.tanh(), atol=1e-6)
    assert torch.allclose(logp.double(), expected, atol=1e-4)
    (g1,) = torch.autograd.grad((logp * weight).sum(), mine)
    (g2,) = torch.autograd.grad((expected * weight).sum(), other)
    assert torch.allclose(g1.double(), g2, atol=1e-4)


def test_tanh_normal_log_prob_of_given_actions() -> None:
    dist, params, action = TanhNormal(3), randn(M, B, 6).mul(0.7), randn(M, B, 3, seed=6).tanh() * 0.99
    mine, other = params.clone().requires_grad_(), params.double().requires_grad_()
    logp, expected = dist.log_prob((mine,), action), tanh_twin(other).log_prob(action.double())
    assert torch.allclose(logp.double(), expected, rtol=1e-4, atol=1e-4)
    (g1,), (g2,) = (torch.autograd.grad(x.sum(), p) for x, p in ((logp, mine), (expected, other)))
    assert torch.allclose(g1.double(), g2, rtol=1e-3, atol=1e-3)


def test_tanh_normal_stays_finite_far_out() -> None:
    dist = TanhNormal(1)
    params = torch.tensor([[[40.0, 50.0]], [[-40.0, -90.0]]], requires_grad=True)
    action, logp = dist.sample_log_prob((params,), torch.tensor([[[3.0]], [[-3.0]]]))
    logp.sum().backward()
    assert action.abs().max() <= 1
    assert logp.isfinite().all() and params.grad.isfinite().all()
    assert dist.log_prob((params,), torch.tensor([[[1.0]], [[-1.0]]])).isfinite().all()


def test_tanh_normal_moments() -> None:
    dist, params = TanhNormal(1), torch.tensor([[[0.5, -0.5]]])
    noise = dist.noise(Streams(0, [0]).agent, 40_000)
    a, logp = dist.sample_log_prob((params,), noise)
    grid = torch.linspace(-0.999, 0.999, 4001)[None, :, None]
    p = dist.log_prob((params.expand(1, 4001, 2),), grid).exp()[0]
    assert torch.trapezoid(p, grid[0, :, 0]).item() == pytest.approx(1, abs=0.01)
    assert torch.trapezoid(p * grid[0, :, 0], grid[0, :, 0]).item() == pytest.approx(a.mean().item(), abs=0.01)
    assert torch.equal(dist.mode((params,)), params[..., :1].tanh())


def test_of_space() -> None:
    assert isinstance(of_space(spaces.Discrete(4)), Categorical)
    assert of_space(spaces.MultiDiscrete([3, 2])).size == 5
    box = of_space(spaces.Box(-1, 1, (2,)), log_std=-0.5)
    assert isinstance(box, Normal) and box.extra == (-0.5, -0.5)
    for space in (spaces.Box(-1, 1, (2, 2)), spaces.MultiBinary(3), spaces.Tuple([spaces.Discrete(2)])):
        with pytest.raises(ConfigError):
            of_space(space)


@pytest.mark.parametrize("name", CASES)
def test_a_nan_in_one_member_stays_there(name: str) -> None:
    ours, params, _, action = CASES[name]
    action = action if name == "normal" else action.long()
    poisoned = tuple(p.clone() for p in params)
    poisoned[0][1] = torch.nan
    noise = ours.noise(Streams(0, range(M)).agent, B)
    assert torch.equal(ours.sample(poisoned, noise)[0], ours.sample(params, noise)[0])
    assert torch.equal(ours.log_prob(poisoned, action)[0], ours.log_prob(params, action)[0])
    assert torch.equal(ours.entropy(poisoned)[0], ours.entropy(params)[0])
    clean, bad = (ours.vjp(ps, action)[2](torch.ones(M, B), torch.ones(M)) for ps in (params, poisoned))
    assert all(torch.equal(x[0], y[0]) for x, y in zip(clean, bad, strict=True))
    assert bad[0][1].isnan().any()


def test_a_squashed_normals_gradients_are_autograds() -> None:
    """With log σ below, within and above its limits, and actions close to their bounds."""
    dist, g = TanhNormal(3), torch.Generator().manual_seed(5)
    params = torch.randn(2, 6, 6, generator=g)
    params[:, 0, 3:], params[:, 1, 3:], params[:, 2, :3] = -25.0, 3.0, 5.0
    params.requires_grad_()
    noise, g_action, g_logp = (torch.randn(*shape, generator=g) for shape in ((2, 6, 3), (2, 6, 3), (2, 6)))
    action, logp = dist.sample_log_prob((params,), noise)
    (expected,) = torch.autograd.grad([action, logp], params, [g_action, g_logp])
    ours, our_logp, pull = dist.sample_vjp((params.detach(),), noise)
    assert torch.equal(ours, action.detach()) and torch.allclose(our_logp, logp.detach())
    assert torch.allclose(pull(g_action, g_logp)[0], expected, rtol=1e-4, atol=1e-5)
