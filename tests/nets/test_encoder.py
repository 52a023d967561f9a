"""Images through convolutions: each member's as if alone, on any device's path, and beside torch's own layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from podium.core.errors import ConfigError
from podium.core.parts import Row
from podium.core.streams import Streams
from podium.nets.conv import NATURE, Conv
from podium.nets.encoder import Encoder, Mask
from podium.nets.settings import NetSettings
from podium.ops.combine import FORBIDDEN
from stacks import channels_last


def images(members: int, count: int, *shape: int) -> Tensor:
    g = torch.Generator().manual_seed(1)
    return torch.randint(256, (members, count, *shape), dtype=torch.uint8, generator=g)


def conv(members: int, shape: tuple[int, ...], layers: tuple[tuple[int, int, int], ...] | None = None) -> Conv:
    return Conv(Streams(0, range(members)).agent, shape, layers, 32)


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 4), (40, 44)])
def test_it_is_natures_network(shape: tuple[int, ...]) -> None:
    made = conv(1, shape)
    x = images(1, 3, *shape)
    first = x[0] if len(shape) == 3 and shape[0] == 4 else x[0].unsqueeze(1) if len(shape) == 2 else x[0].movedim(-1, 1)
    layers: list[nn.Module] = []
    channels = first.shape[1]
    for filters, kernel, stride in NATURE:
        layers += [nn.Conv2d(channels, filters, kernel, stride), nn.ReLU()]
        channels = filters
    wide = nn.Sequential(*layers, nn.Flatten())(torch.zeros(1, *first.shape[1:])).shape[1]
    theirs = nn.Sequential(*layers, nn.Flatten(), nn.Linear(wide, 32), nn.ReLU())
    with torch.no_grad():
        for mine, other in zip(made.params, theirs.parameters(), strict=True):
            mine[0] = channels_last(other)
    torch.testing.assert_close(made(x)[0], theirs(first.float() / 255), rtol=1e-5, atol=1e-5)


def test_each_member_sees_through_its_own() -> None:
    together, x = conv(3, (12, 12, 3)), images(3, 5, 12, 12, 3)
    out = together(x)
    for m in range(3):
        alone = Conv(Streams(0, [m]).agent, (12, 12, 3), None, 32)
        torch.testing.assert_close(alone(x[m : m + 1])[0], out[m], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(out[0], together(x[[1, 0, 2]])[1])


def test_one_grouped_convolution_gives_the_same() -> None:
    made, x = conv(3, (3, 16, 16)), images(3, 4, 3, 16, 16)
    torch.testing.assert_close(made._grouped(x), made._one_by_one(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 36, 40), (3, 10, 10), (10, 10, 3), (12, 12), (3, 2, 9)])
def test_packed_images_are_seen_alike(shape: tuple[int, ...]) -> None:
    made, x = conv(2, shape, None if min(shape) > 2 or len(shape) == 2 else ((4, 2, 1),)), images(2, 4, *shape)
    packed = made.packed(x)
    assert packed.is_contiguous()
    torch.testing.assert_close(made(packed), made(x))


def test_a_step_from_packed_images_is_the_same() -> None:
    made, x = conv(2, (4, 36, 36)), images(2, 4, 4, 36, 36)
    grads = []
    for seen in (x, made.packed(x)):
        made(seen).square().sum().backward()
        grads.append([p.grad for p in made.params])
        for p in made.params:
            p.grad = None
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_nothing_is_reordered_on_the_way() -> None:
    made, x = conv(1, (4, 36, 36)), images(1, 4, 4, 36, 36)
    grads = torch.autograd.grad(made(x).square().sum(), made.params)
    assert all(g.is_contiguous() for g in grads), "else every step would copy them"


def test_numbers_of_0_to_255_are_as_good_as_bytes() -> None:
    made, x = conv(2, (10, 10, 3)), images(2, 4, 10, 10, 3)
    torch.testing.assert_close(made(x.float()), made(x))


def test_gradients_reach_every_weight() -> None:
    made = conv(2, (10, 10, 3))
    made(images(2, 4, 10, 10, 3)).square().sum().backward()
    assert all(p.grad is not None and p.grad.flatten(1).abs().sum(1).min() > 0 for p in made.params)


def test_a_kernel_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"net.conv: \[\[8, 11, 1\]\].*10 x 10"):
        conv(1, (10, 10, 3), ((8, 11, 1),))


SPACE = spaces.Dict(
    {
        "action_mask": spaces.Box(0, 1, (3,), np.int8),
        "camera": spaces.Box(0, 255, (9, 9, 3), np.uint8),
        "speed": spaces.Box(-1, 1, (2,)),
    }
)


def rows(count: int) -> Tensor:
    row, out = Row(SPACE), np.empty((2, count, *Row(SPACE).shape), np.float32)
    SPACE.seed(3)
    for place in out.reshape(-1, out.shape[-1]):
        row.write(SPACE.sample(), place)
    return torch.from_numpy(out)


def test_parts_come_side_by_side_and_the_mask_is_none_of_them() -> None:
    settings = NetSettings(features=16)
    made, x = Encoder(Streams(0, range(2)).agent, Row(SPACE), settings), rows(4)
    out = made(x)
    assert made.size == 18 and out.shape == (2, 4, 18)
    speed = next(part for part in Row(SPACE).parts if part.name == "speed")
    torch.testing.assert_close(out[..., :2], x[..., speed.first : speed.first + 2])
    other = x.clone()
    mask = next(part for part in Row(SPACE).parts if part.mask)
    other[..., mask.first : mask.first + mask.size] = 7
    torch.testing.assert_close(made(other), out)


def test_forbidden_actions_are_never_chosen() -> None:
    mask = Mask(Row(SPACE))
    x, logits = rows(2), torch.zeros(2, 2, 3)
    first = next(part for part in Row(SPACE).parts if part.mask).first
    x[..., first : first + 3] = torch.tensor([0.0, 1.0, 1.0])
    x[1, 1, first : first + 3] = 0
    out = mask(logits, x)
    assert out[0, 0].tolist() == [pytest.approx(FORBIDDEN), 0, 0] and out[1, 1].tolist() == [0, 0, 0]
    assert out.softmax(-1)[0, 0, 0] == 0
    assert mask.choose(torch.tensor([[0.0, 0.49], [0.5, 0.99]]), 3, x).tolist() == [[1, 1], [2, 2]]
    torch.testing.assert_close(mask.most(3, x), torch.tensor([math.log(2), (math.log(2) + math.log(3)) / 2]))
    torch.testing.assert_close(Mask(Row(SPACE).source["speed"]).most(3, x), torch.full((2,), math.log(3)))
    assert Mask(Row(SPACE).source["speed"]).choose(torch.tensor([[0.0, 0.99]]), 3, x).tolist() == [[0, 2]]
