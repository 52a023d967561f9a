import numpy as np
import torch

from podium.core import tree
from podium.ops.norm import Running


def batches(seed: int = 0) -> list[torch.Tensor]:
    """Observations `[2, N, 3]` of several sizes, of members far apart."""
    g = torch.Generator().manual_seed(seed)
    scale, shift = torch.tensor([[[1.0, 5, 0.1]], [[30.0, 1, 2]]]), torch.tensor([[[0.0, 100, -3]], [[7.0, 0, 50]]])
    return [torch.randn(2, n, 3, generator=g) * scale + shift * (1 + i / 3) for i, n in enumerate((64, 1, 7, 200, 33))]


def test_mean_and_variance_of_all_that_was_seen() -> None:
    stats, data = Running(2, (3,)), batches()
    for x in data:
        stats.update(x)
    everything = torch.cat(data, 1).double().numpy()
    assert np.allclose(stats.mean, everything.mean(1), rtol=1e-4)
    assert np.allclose(stats.var, everything.var(1), rtol=1e-3)
    assert np.allclose(stats.count, everything.shape[1] + 1e-4)


def test_statistics_stay_exact_over_many_updates() -> None:
    g = torch.Generator().manual_seed(0)
    stats, data = Running(1, ()), torch.randn(1, 400, 50, generator=g) * 2 + 30
    for x in data.unbind(1):
        stats.update(x)
    assert np.allclose(stats.mean, data.double().mean(), rtol=1e-5)
    assert np.allclose(stats.var, data.double().var(correction=0), rtol=1e-4)


def test_members_are_independent_bit_for_bit() -> None:
    a, b = Running(2, (3,)), Running(2, (3,))
    for x in batches():
        poisoned = x.clone()
        poisoned[1] = torch.nan
        a.update(x)
        b.update(poisoned)
    for name in ("mean", "var", "count"):
        assert torch.equal(a.state()[name][0], b.state()[name][0])
    x = torch.randn(2, 5, 3)
    assert torch.equal(a.normalise(x)[0], b.normalise(x)[0])


def test_normalise_and_scale_any_lead() -> None:
    stats, returns, data = Running(2, (3,)), Running(2, ()), batches()
    for x in data:
        stats.update(x)
        returns.update(x[..., 0])
    x = data[3].view(2, 10, 20, 3)
    mean, std = stats.mean[:, None, None], (stats.var[:, None, None] + 1e-8).sqrt()
    before = x.clone()
    assert torch.allclose(stats.normalise(x), ((x - mean) / std).clamp(-10, 10), atol=1e-5)
    std = (returns.var[:, None, None] + 1e-8).sqrt()
    assert torch.allclose(returns.scale(x[..., 1]), (x[..., 1] / std).clamp(-10, 10), atol=1e-5)
    assert torch.equal(x, before), "the observations themselves were changed"
    assert stats.normalise(torch.full((2, 1, 3), 1e9)).max() == 10
    assert not returns.scale(torch.zeros(2, 4)).any()


def test_untouched_statistics_leave_numbers_as_they_are() -> None:
    x = torch.randn(2, 4, 3)
    assert torch.allclose(Running(2, (3,)).normalise(x), x, atol=1e-6)


def test_state_is_live() -> None:
    stats, other = Running(2, (3,)), Running(2, (3,))
    for x in batches():
        stats.update(x)
    live = other.state()
    tree.copy(live, stats.state())
    stats.update(batches(1)[0])
    other.update(batches(1)[0])
    assert torch.equal(stats.mean, other.mean) and torch.equal(stats.var, other.var)
    assert torch.equal(live["mean"], other.mean) and torch.equal(live["count"], other.count)
