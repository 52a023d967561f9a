"""One action of many opinions, against slow twins: one observation, member and choice at a time."""

from __future__ import annotations

import math

import gymnasium as gym
import pytest
import torch
from torch import Tensor

from podium.ops import combine

N, B = 5, 40
SIZES = ([3], [2, 4, 1])
sized = pytest.mark.parametrize("sizes", SIZES, ids=str)


def logits(sizes: list[int], seed: int = 0) -> Tensor:
    return torch.randn(N, B, sum(sizes), generator=torch.Generator().manual_seed(seed)) * 2


def parts(row: Tensor, sizes: list[int]) -> list[list[float]]:
    """The scores of each choice by themselves."""
    numbers, out = [float(x) for x in row], []
    for n in sizes:
        out.append(numbers[:n])
        numbers = numbers[n:]
    return out


def softmax(x: list[float]) -> list[float]:
    total = sum(math.exp(v) for v in x)
    return [math.exp(v) / total for v in x]


def first_best(x: list[float]) -> int:
    return max(range(len(x)), key=lambda i: (x[i], -i))


@sized
def test_the_mean_of_log_probabilities(sizes: list[int]) -> None:
    x = logits(sizes)
    found = combine.choose(combine.log_softmax(x, sizes).mean(0), sizes)
    for b in range(B):
        for c in range(len(sizes)):
            each = [softmax(parts(x[m, b], sizes)[c]) for m in range(N)]
            means = [sum(math.log(p[i]) for p in each) / N for i in range(sizes[c])]
            assert found[b, c] == first_best(means)
    shifted = combine.log_softmax(x + torch.randn(N, B, 1), sizes)  # logits are normalised: a member's level is nothing
    torch.testing.assert_close(shifted, combine.log_softmax(x, sizes))


@sized
def test_the_mean_of_probabilities(sizes: list[int]) -> None:
    x = logits(sizes, 1)
    likely = combine.softmax(x, sizes).mean(0)
    found = combine.choose(likely, sizes)
    for b in range(B):
        for c in range(len(sizes)):
            each = [softmax(parts(x[m, b], sizes)[c]) for m in range(N)]
            means = [sum(p[i] for p in each) / N for i in range(sizes[c])]
            assert found[b, c] == first_best(means)
            assert parts(likely[b], sizes)[c] == pytest.approx(means, abs=1e-6)


@sized
def test_the_mean_of_standardised_values(sizes: list[int]) -> None:
    x = logits(sizes, 2)
    found = combine.standardise(x, sizes)
    for b in range(B):
        for m in range(N):
            for c, values in enumerate(parts(x[m, b], sizes)):
                mean = sum(values) / len(values)
                std = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
                wanted = [(v - mean) / std if std else 0.0 for v in values]
                assert parts(found[m, b], sizes)[c] == pytest.approx(wanted, abs=1e-4)
    scaled = x * torch.tensor([0.3, 1.0, 10.0, 1e3, 0.5])[:, None, None] + 7  # a member's scale and level are nothing
    torch.testing.assert_close(combine.standardise(scaled, sizes), found, atol=1e-3, rtol=0)


def test_forbidden_values_are_left_out_and_stay_forbidden() -> None:
    x, no = logits([4, 3], 4), combine.FORBIDDEN
    masked = x.clone()
    masked[..., [1, 3, 6]] = no
    found = combine.standardise(masked, [4, 3])
    assert combine.forbidden(found)[..., [1, 3, 6]].all()
    alone = combine.standardise(x[..., [0, 2, 4, 5]], [2, 2])
    torch.testing.assert_close(found[..., [0, 2, 4, 5]], alone)
    all_but_one = combine.standardise(torch.tensor([[no, 3.0, no]]), [3])
    assert combine.choose(all_but_one, [3]).tolist() == [[1]]


@sized
def test_a_vote(sizes: list[int]) -> None:
    x = logits(sizes, 3)
    action, p = combine.choose(x, sizes), combine.softmax(x, sizes)
    found, ties = combine.vote(action, p, sizes), 0
    for b in range(B):
        for c, n in enumerate(sizes):
            votes = [sum(int(action[m, b, c]) == i for m in range(N)) for i in range(n)]
            likely = [sum(parts(p[m, b], sizes)[c][i] for m in range(N)) for i in range(n)]
            leaders = [i for i in range(n) if votes[i] == max(votes)]
            assert found[b, c] == max(leaders, key=lambda i: likely[i])
            ties += len(leaders) > 1
    assert ties


def test_a_tied_vote_without_probabilities_goes_to_the_lowest() -> None:
    action = torch.tensor([[2], [1], [2], [1], [0]])[..., None]
    assert combine.vote(action, combine.one_hot(action, [4]), [4]).tolist() == [[1]]


@sized
def test_one_hot(sizes: list[int]) -> None:
    action = combine.choose(logits(sizes), sizes)
    hot = combine.one_hot(action, sizes)
    assert (combine.choose(hot, sizes) == action).all() and hot.sum(-1).eq(len(sizes)).all()


def test_the_densest_mode() -> None:
    g = torch.Generator().manual_seed(0)
    mean, std = torch.randn(N, B, 2, generator=g), torch.rand(N, B, 2, generator=g) + 0.2
    found, chosen = combine.densest(mean, std), set()
    for b in range(B):
        densities = []
        for i in range(N):
            normals = [torch.distributions.Normal(mean[j, b], std[j, b]) for j in range(N)]
            densities.append(sum(float(n.log_prob(mean[i, b]).sum().exp()) for n in normals))
        assert found[b] == first_best(densities)
        chosen.add(int(found[b]))
    assert len(chosen) == N


def test_a_draw_has_the_frequencies_of_its_probabilities() -> None:
    p = torch.tensor([0.2, 0.8, 0.5, 0.0, 0.5]).expand(4000, 5)
    found = combine.draw(p, [2, 3], torch.Generator().manual_seed(0))
    assert found.shape == (4000, 2)
    assert (found[:, 0] == 1).float().mean() == pytest.approx(0.8, abs=0.03)
    assert set(found[:, 1].tolist()) == {0, 2}


def test_sizes() -> None:
    assert combine.sizes_of(gym.spaces.Discrete(3, start=5)) == [3]
    assert combine.sizes_of(gym.spaces.MultiDiscrete([3, 2])) == [3, 2]
    assert combine.sizes_of(gym.spaces.Box(-1, 1, (2,))) == []
