"""One number from K: against loops, and its share against autograd."""

import pytest
import torch

from podium.ops import ensemble


@pytest.mark.parametrize("how", ["min", "mean", "first"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_combine_and_its_gradient(how: str, count: int) -> None:
    q = torch.randn(3, count, 7, generator=torch.Generator().manual_seed(count)).requires_grad_()
    value = ensemble.combine(q, how)
    plain = {"min": lambda row: min(row), "mean": lambda row: sum(row) / len(row), "first": lambda row: row[0]}[how]
    for m in range(3):
        for b in range(7):
            assert float(value[m, b]) == pytest.approx(plain(q[m, :, b].tolist()), abs=1e-6)
    (expected,) = torch.autograd.grad(value.sum(), q)
    assert torch.allclose(ensemble.share(q.detach(), how), expected)


def test_some_are_different_and_all_choices_alike_likely() -> None:
    u = torch.rand(20_000, 5, generator=torch.Generator().manual_seed(0))
    chosen = ensemble.some(u, 2).sort(1).values
    assert (chosen[:, 0] < chosen[:, 1]).all()
    counts = torch.bincount(chosen[:, 0] * 5 + chosen[:, 1])
    counts = counts[counts > 0]
    assert len(counts) == 10 and (counts / 2000 - 1).abs().max() < 0.1
