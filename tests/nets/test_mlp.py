"""The stacked perceptron, whose gradient is written by hand, against a slow twin of plain layers under autograd."""

import math

import pytest
import torch
from torch import Tensor, nn

from podium.core.streams import Streams
from podium.nets.layers import LayerNorm, Linear, orthogonal
from podium.nets.mlp import Mlp
from stacks import extra, layers

M, B, IN = 3, 7, 4
ACT = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}


def make(
    hidden: tuple[int, ...] = (8, 6),
    heads: tuple[int, ...] = (3, 1),
    activation: str = "tanh",
    layer_norm: bool = False,
    extra: tuple[float, ...] = (),
    members: int = M,
) -> Mlp:
    generators = Streams(0, range(members)).agent
    gains = [1.0 + n for n in range(len(heads))]
    mlp = Mlp(generators, (IN, *hidden), heads, gains=gains, activation=activation, layer_norm=layer_norm, extra=extra)
    noise = torch.randn(mlp.weight.shape, generator=torch.Generator().manual_seed(1))
    mlp.weight.data.add_(noise, alpha=0.3)  # biases, gains and shifts away from 0 and 1
    return mlp


def twin(mlp: Mlp, tower: int, activation: str, layer_norm: bool) -> nn.Sequential:
    """A tower as plain layers with copies of its weights."""
    *hidden, head = layers(mlp, mlp.weight, tower)
    generators, members = Streams(9, range(len(mlp.weight))).agent, len(mlp.weight)
    net = nn.Sequential()
    for layer in hidden:
        linear = Linear(generators, layer.weight.shape[2], layer.weight.shape[1])
        linear.weight.data, linear.bias.data = layer.weight.clone(), layer.bias[:, 0].clone()
        net.append(linear)
        if layer_norm:
            norm = LayerNorm(members, layer.weight.shape[1])
            norm.gain.data, norm.shift.data = layer.gain[:, 0].clone(), layer.shift[:, 0].clone()
            net.append(norm)
        net.append(ACT[activation]())
    size = mlp.heads[tower]
    linear = Linear(generators, head.weight.shape[2], size)
    linear.weight.data, linear.bias.data = head.weight[:, :size].clone(), head.bias[:, 0, :size].clone()
    return net.append(linear)


def grads_of(mlp: Mlp, tower: int) -> list[Tensor]:
    """Our gradient of a tower's parts, in the twin's order; what the head does not use must be zero."""
    *hidden, head = layers(mlp, mlp.weight.grad, tower)
    out = []
    for layer in hidden:
        out += [x if x is layer.weight else x[:, 0] for x in layer if x is not None]
    size = mlp.heads[tower]
    assert not head.weight[:, size:].any() and not head.bias[:, 0, size:].any()
    return [*out, head.weight[:, :size], head.bias[:, 0, :size]]


def objective(outputs: tuple[Tensor, ...]) -> Tensor:
    """A loss in which every number counts differently and towers meet."""
    total = torch.zeros(())
    for i, out in enumerate(outputs):
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(50 + i))
        total = total + (out * weight).sum() + (out**2 * weight.flip(0)).sum()
    return total + outputs[0].sum() * outputs[-1].mean()


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-4 * max(1.0, b.abs().max().item()))


SHAPES = [((8, 6), (3, 1)), ((8,), (5,)), ((6, 6, 6), (1, 4, 2)), ((), (3, 1)), ((), (2,))]


@pytest.mark.parametrize("free", [(), (0.5, -1.0)], ids=["", "extra"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("activation", ACT)
@pytest.mark.parametrize(("hidden", "heads"), SHAPES)
def test_outputs_and_gradients_equal_the_slow_twins(hidden, heads, activation, layer_norm, free) -> None:
    mlp = make(hidden, heads, activation, layer_norm, free)
    twins = [twin(mlp, n, activation, layer_norm) for n in range(len(heads))]
    free_twin = mlp.extra.clone().requires_grad_()
    x, y = (torch.randn(M, B, IN, generator=torch.Generator().manual_seed(2)).requires_grad_() for _ in range(2))
    out = mlp(x)
    expected = (*(net(y) for net in twins), *([free_twin] if free else []))
    assert len(out) == len(expected)
    for a, b in zip(out, expected, strict=True):
        assert a.shape == b.shape
        assert torch.allclose(a, b, atol=2e-5)
    objective(out).backward()
    objective(expected).backward()
    for n, net in enumerate(twins):
        for a, p in zip(grads_of(mlp, n), net.parameters(), strict=True):
            assert close(a, p.grad)
    assert close(x.grad, y.grad)
    if free:
        assert close(extra(mlp, mlp.weight.grad), free_twin.grad)
        assert not mlp.weight.grad[:, 1:, -len(free) :].any()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_several_uses_in_one_graph(layer_norm: bool) -> None:
    """The net of its own output, and of another batch size: gradients add up."""
    mlp = make(heads=(IN, 1), activation="elu", layer_norm=layer_norm)
    policy, critic = (twin(mlp, n, "elu", layer_norm) for n in range(2))
    x, z = torch.randn(M, B, IN), torch.randn(M, 2, IN)
    objective((mlp(mlp(x)[0])[1], mlp(z)[0])).backward()
    objective((critic(policy(x)), policy(z))).backward()
    for n, net in enumerate((policy, critic)):
        for a, p in zip(grads_of(mlp, n), net.parameters(), strict=True):
            assert close(a, p.grad)


@pytest.mark.parametrize("free", [(), (0.5, -1.0)], ids=["", "extra"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "norm"])
@pytest.mark.parametrize("activation", ACT)
@pytest.mark.parametrize(("hidden", "heads"), SHAPES)
def test_the_gradient_without_autograd_is_the_same(hidden, heads, activation, layer_norm, free) -> None:
    mlp, x = make(hidden, heads, activation, layer_norm, free), torch.randn(M, B, IN)
    expected = mlp(x)
    objective(expected).backward()
    gradient = mlp.weight.grad.clone()
    leaves = [out.detach().clone().requires_grad_() for out in expected]
    objective(tuple(leaves)).backward()
    mlp.weight.grad = torch.full_like(mlp.weight, 7)  # is set, not added to
    outputs, pull = mlp.vjp(x)
    pull(*(leaf.grad for leaf in leaves))
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))
    assert not any(out.requires_grad for out in outputs)
    assert close(mlp.weight.grad, gradient)


def test_an_output_that_is_not_used_gets_no_gradient() -> None:
    mlp = make(extra=(1.0,))
    mlp(torch.randn(M, B, IN))[1].sum().backward()
    assert not mlp.weight.grad[:, 0].any()
    assert mlp.weight.grad[:, 1].any()


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ACT)
def test_gradient_against_finite_differences(activation: str, layer_norm: bool) -> None:
    mlp = make((5,), (2, 1), activation, layer_norm, (0.1,), members=1)
    x = torch.randn(1, B, IN, generator=torch.Generator().manual_seed(3))
    objective(mlp(x)).backward()
    direction = torch.randn(mlp.weight.shape, generator=torch.Generator().manual_seed(4))
    here, h, ends = mlp.weight.detach().clone(), 1e-3, []
    for sign in (1, -1):
        mlp.weight.data.copy_(here + sign * h * direction)
        ends.append(objective(mlp(x)).double().item())
    slope = (mlp.weight.grad * direction).sum().item()
    assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(slope, rel=2e-2, abs=0.1)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ACT)
def test_a_tower_alone_equals_the_full_call(activation: str, layer_norm: bool) -> None:
    mlp, x = make((8, 6), (3, 1, 2), activation, layer_norm), torch.randn(M, B, IN)
    full = mlp(x)
    with torch.no_grad():
        quiet = mlp(x)
    for n in range(3):
        assert torch.allclose(mlp.tower(n, x), full[n], atol=1e-6)
        assert torch.equal(quiet[n], full[n])
        assert not quiet[n].requires_grad


def test_the_input_is_left_alone() -> None:
    for hidden, heads in SHAPES:
        mlp, x = make(hidden, heads), torch.randn(M, B, IN)
        before = x.clone()
        objective(mlp(x)).backward()
        mlp.tower(0, x)
        assert torch.equal(x, before)


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    mlp, x = make(), torch.randn(M, B, IN, requires_grad=True)
    (slope,) = torch.autograd.grad(mlp(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.square().sum().backward()


def test_members_do_not_meet_not_even_through_nan() -> None:
    x = torch.randn(M, B, IN)
    clean, poisoned = make(layer_norm=True, extra=(0.0,)), make(layer_norm=True, extra=(0.0,))
    poisoned.weight.data[1] = torch.nan
    bad = x.clone()
    bad[1] = torch.inf
    a, b = clean(x), poisoned(bad)
    others = torch.tensor([0, 2])
    for one, two in zip(a, b, strict=True):
        assert torch.equal(one[others], two[others])
    sum(o.square().sum() for o in a).backward()
    sum(o.square().sum() for o in b).backward()
    assert torch.equal(clean.weight.grad[others], poisoned.weight.grad[others])


def test_weights_can_be_written_from_outside() -> None:
    """The layers are views: what is put into the weights is what the next call uses."""
    mlp, other, x = make(), make(), torch.randn(M, B, IN)
    other.weight.data.mul_(0.5)
    mlp.weight.detach().index_copy_(0, torch.tensor([1]), other.weight.detach()[2:])
    assert torch.allclose(mlp(x[[0, 2, 1]])[0][1], other(x)[0][2], atol=1e-6)
    assert torch.allclose(mlp.tower(1, x[[0, 2, 1]])[1], other.tower(1, x)[2], atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (1, 6), (6, 1)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    w = orthogonal(shape, 1.7, Streams(0, [0]).agent[0])
    assert w.shape == shape
    product = w @ w.T if shape[0] <= shape[1] else w.T @ w
    assert torch.allclose(product, 1.7**2 * torch.eye(min(shape)), atol=1e-5)


def test_orthogonal_matrices_are_uniform() -> None:
    """Without the sign of R the first entry of Q would always be of one sign."""
    generator = Streams(0, [0]).agent[0]
    signs = torch.stack([orthogonal((3, 3), 1.0, generator).diagonal().sign() for _ in range(200)])
    assert (signs.mean(0).abs() < 0.25).all()


def test_a_fresh_net() -> None:
    mlp = Mlp(Streams(0, range(2)).agent, (IN, 8, 6), (3, 1), gains=(0.01, 1.0), layer_norm=True, extra=(0.5, -0.5))
    for n, gain in enumerate((0.01, 1.0)):
        *hidden, head = layers(mlp, mlp.weight, n)
        for w, length in [(layer.weight[m], math.sqrt(2)) for layer in hidden for m in range(2)]:
            product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
            assert torch.allclose(product, length**2 * torch.eye(len(product)), atol=1e-5)
        w = head.weight[:, : mlp.heads[n]]
        assert torch.allclose(w @ w.mT, gain**2 * torch.eye(w.shape[1]).expand(2, -1, -1), atol=1e-5)
        assert not head.weight[:, mlp.heads[n] :].any()
        for layer in (*hidden, head):
            assert not layer.bias.any()
        for layer in hidden:
            assert (layer.gain == 1).all() and not layer.shift.any()
    assert mlp.extra.tolist() == [[0.5, -0.5]] * 2


def test_first_weights_come_from_the_members_own_stream() -> None:
    def weights(ids: list[int]) -> Tensor:
        return Mlp(Streams(3, ids).agent, (IN, 8), (3, 1), gains=(1, 1)).weight.detach()

    together = weights([5, 2, 9])
    assert torch.equal(together[1], weights([2])[0])
    assert torch.equal(together[2], weights([9, 5])[0])
    assert not torch.equal(together[0], together[1])
    assert not torch.equal(together[0, 0, :10], together[0, 1, :10])
