"""Noisy layers against a slow twin written like the paper, and their gradient against autograd's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from podium.core.streams import generator
from podium.nets.noisy import NoisyMlp, factors

SIZES, HEAD, TOWERS = (3, 5, 4), 6, 2


def generators(*ids: int) -> list[torch.Generator]:
    return [generator(0, i, "agent") for i in ids]


def make(*ids: int, **more: object) -> NoisyMlp:
    made = NoisyMlp(generators(*ids), SIZES, [HEAD] * TOWERS, sigma=0.5, activation="relu", **more)
    with torch.no_grad():  # so that deviations differ
        made.sigma.mul_(torch.rand(made.sigma.shape, generator=generator(1)) + 0.5)
    return made


def parts(made: NoisyMlp, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases of one tower's row, by hand."""
    out = []
    for n_in, n_out in zip(SIZES, (*SIZES[1:], HEAD), strict=True):
        weight, bias, rows = rows.split([n_in * n_out, n_out, len(rows) - n_in * n_out - n_out])
        out.append((weight.view(n_out, n_in), bias))
    assert not len(rows)
    return out


def slow(made: NoisyMlp, m: int, n: int, x: Tensor, noise: Tensor | None) -> Tensor:
    """One tower of one member, layer by layer, as the paper has it; `noise` are its factors f(ε)."""
    layers = zip(parts(made, made.weight[m, n]), parts(made, made.sigma[m, n]), strict=True)
    for i, ((weight, bias), (weight_sigma, bias_sigma)) in enumerate(layers):
        if noise is not None:
            n_out, n_in = weight.shape
            before, after, noise = noise.split([n_in, n_out, len(noise) - n_in - n_out])
            weight = weight + weight_sigma * torch.outer(after, before)
            bias = bias + bias_sigma * after
        x = x @ weight.T + bias
        x = x.relu() if i < len(SIZES) - 1 else x
    return x


def test_noise_is_of_the_papers_form() -> None:
    made, drawn = make(0), factors(generators(7), 100_000)
    x = torch.empty(100_000).normal_(generator=generators(7)[0])
    assert torch.allclose(drawn[0], x.sign() * x.abs().sqrt())
    assert made.numbers == 3 + 5 + 5 + 4 + 4 + 6
    fresh = NoisyMlp(generators(0), SIZES, [HEAD], sigma=0.5)
    for (weight, bias), n_in in zip(parts(fresh, fresh.sigma[0, 0]), SIZES, strict=True):
        assert torch.allclose(weight, torch.tensor(0.5 / math.sqrt(n_in))) and torch.equal(bias, weight[:, 0])


def test_it_is_the_formula_with_noise_and_without() -> None:
    made, x = make(0, 1, 2), torch.randn(3, 7, 3, generator=generator(2))
    noise = factors(generators(3, 4, 5), TOWERS, made.numbers)
    for given in (noise, None):
        made.perturb(given)
        with torch.no_grad():
            out = made.together(x)
            some = made.together(x, torch.ones(3, 1, dtype=torch.long))
        for m in range(3):
            for n in range(TOWERS):
                wanted = slow(made, m, n, x[m], None if given is None else given[m, n])
                assert torch.allclose(out[m, n], wanted, atol=1e-5)
            assert torch.allclose(some[m, 0], out[m, 1], atol=1e-6)


@pytest.mark.parametrize("by_hand", [True, False], ids=["by-hand", "under-autograd"])
@pytest.mark.parametrize("noisy", [True, False], ids=["noisy", "means"])
def test_the_gradient_is_autograds(by_hand: bool, noisy: bool) -> None:
    made, x = make(0, 1), torch.randn(2, 7, 3, generator=generator(2))
    noise = factors(generators(3, 4), TOWERS, made.numbers) if noisy else None
    made.perturb(noise)
    g = torch.randn(2, TOWERS, 7, HEAD, generator=generator(5))
    each = [[slow(made, m, n, x[m], noise[m, n] if noisy else None) for n in range(TOWERS)] for m in range(2)]
    loss = (torch.stack([torch.stack(row) for row in each]) * g).sum()
    wanted = torch.autograd.grad(loss, [made.weight, made.sigma], allow_unused=True)
    if by_hand:
        _, pull = made.together_vjp(x)
        pull(g)
        found = [made.weight.grad, made.sigma.grad]
    else:
        loss = (torch.stack(made(x), 1) * g).sum()
        found = list(torch.autograd.grad(loss, [made.weight, made.sigma], allow_unused=True))
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a if a is not None else torch.zeros(1), b if b is not None else torch.zeros(1), atol=1e-5)


def test_layer_norm_and_free_numbers_are_not_noisy() -> None:
    made = NoisyMlp(generators(0), SIZES, [HEAD], sigma=0.5, layer_norm=True, extra=[0.3])
    made.perturb(factors(generators(3), 1, made.numbers))
    named = made._parts(made.sigma[0])
    quiet = [name for name in named if name.endswith(("gain", "shift", "extra"))]
    assert len(quiet) == 5 and not any(named[name].any() for name in quiet)
    assert all(named[name].all() for name in named if name not in quiet)
    noisy = made._parts(made._noise[0])
    assert not any(noisy[name].any() for name in quiet)


def test_a_twin_has_its_own_deviations() -> None:
    made = make(0)
    other = made.twin()
    assert torch.equal(other.sigma, made.sigma) and len(other.params) == 2
    with torch.no_grad():
        made.sigma.zero_()
    noise = factors(generators(3), TOWERS, made.numbers)
    x = torch.randn(1, 4, 3)
    made.perturb(noise)
    other.perturb(noise)
    assert not torch.allclose(made.together(x), other.together(x))
    other.perturb(None)
    assert torch.allclose(made.together(x), other.together(x))  # without deviations noise is nothing
