"""Ensembles of networks: each tower is a network of its own, with the gradients of autograd; ours or a user's."""

import pytest
import torch
from torch import Tensor, nn

from podium.core import tree
from podium.core.errors import ConfigError
from podium.core.streams import Streams
from podium.nets.settings import NetSettings
from podium.nets.towers import Towers

M, N, B, IN, OUT = 2, 3, 5, 4, 2
NETS = {
    "relu": NetSettings(hidden=(8, 6), activation="relu"),
    "tanh": NetSettings(hidden=(8,)),
    "norm": NetSettings(hidden=(8, 6), activation="elu", layer_norm=True),
    "user": NetSettings(module="nets.test_towers:factory"),
}
EACH = pytest.mark.parametrize("name", NETS)


def factory(n_in: int, n_out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_in, 7), nn.Tanh(), nn.Linear(7, n_out))


def make(name: str, towers: int = N, members: int = M) -> Towers:
    return Towers(Streams(0, range(members)).agent, NETS[name], IN, OUT, towers)


def inputs() -> Tensor:
    return torch.randn(M, B, IN, generator=torch.Generator().manual_seed(1))


def plain(towers: Towers, x: Tensor) -> Tensor:
    """The same under autograd."""
    if towers.autograd:
        return towers._net(x)
    return torch.stack(towers._net(x), 1)


@EACH
def test_gradients_are_autograds(name: str) -> None:
    towers, x = make(name), inputs().requires_grad_()
    out, pull = towers.vjp(x.detach())
    assert out.shape == (M, N, B, OUT) and torch.allclose(out, towers(x.detach()))
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    expected = torch.autograd.grad(plain(towers, x), [*towers.params, x], g)
    pull(g)
    for p, e in zip(towers.params, expected, strict=False):
        assert torch.allclose(p.grad, e, atol=1e-5)
    before = [p.grad.clone() for p in towers.params]
    same, pull_input = towers.input_vjp(x.detach())
    assert torch.allclose(pull_input(g), expected[-1], atol=1e-5) and torch.equal(same, out)
    first, pull_input = towers.input_vjp(x.detach(), first=True)
    (alone,) = torch.autograd.grad(plain(towers, x)[:, :1], x, g[:, :1])
    assert torch.allclose(pull_input(g[:, :1]), alone, atol=1e-5) and torch.allclose(first, out[:, :1], atol=1e-6)
    assert all(torch.equal(p.grad, b) for p, b in zip(towers.params, before, strict=True))


@EACH
def test_some_of_the_towers(name: str) -> None:
    towers, x = make(name), inputs()
    which = torch.tensor([[2, 0], [1, 2]])
    every = towers(x)
    expected = torch.stack([every[m, which[m]] for m in range(M)])
    assert torch.allclose(towers.some(x, which), expected, atol=1e-6)


@EACH
def test_a_twin_is_a_network_of_its_own(name: str) -> None:
    towers, x = make(name), inputs()
    target = towers.twin()
    before = target(x)
    assert torch.equal(before, towers(x))
    with torch.no_grad():
        for p in towers.params:
            p.add_(1)
    assert torch.equal(target(x), before) and not torch.allclose(towers(x), before)
    tree.copy(target.state(), towers.state())
    assert torch.equal(target(x), towers(x))


@EACH
def test_towers_and_members_differ_and_do_not_depend_on_neighbours(name: str) -> None:
    towers, x = make(name), inputs()[:1].expand(M, B, IN)
    out = towers(x).flatten(0, 1)
    assert all(not torch.allclose(out[i], out[j]) for i in range(M * N) for j in range(i))
    alone = make(name, members=1)
    assert torch.allclose(alone(x[:1])[0], towers(x)[0], atol=1e-6)


@EACH
def test_whose_weights_are_finite(name: str) -> None:
    towers = make(name)
    assert towers.finite().tolist() == [True, True]
    with torch.no_grad():
        towers.params[0][1].fill_(float("nan"))
    assert towers.finite().tolist() == [True, False]


def test_the_first_weights_are_those_of_torchs_own_layers() -> None:
    """Even numbers within ±1 / √n, biases too."""
    towers = Towers(Streams(0, [0]).agent, NetSettings(hidden=(256,), activation="relu"), 100, 4, 2)
    first, head = towers._net._layers(towers.params[0].detach()[:, 0])
    for layer, bound in ((first, 0.1), (head, 1 / 16)):
        for numbers in (layer.weight, layer.bias):
            assert numbers.abs().max() <= bound and numbers.abs().max() > 0.8 * bound
        assert abs(float(layer.weight.std()) - bound / 3**0.5) < 0.05 * bound


def wrong(n_in: int, n_out: int) -> nn.Module:
    return nn.Linear(n_in, n_out + 1)


def test_a_module_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match="it must make"):
        Towers(Streams(0, [0]).agent, NetSettings(module="nets.test_towers:wrong"), IN, OUT, 2)
