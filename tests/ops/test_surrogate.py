import pytest
import torch
from torch import Tensor

from podium.ops.surrogate import clipped_surrogate

M, B = 3, 50


def data(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logp, old, advantage = torch.randn(3, M, B, generator=g)
    return 0.3 * logp, 0.3 * old, advantage, torch.tensor([0.2, 0.05, 0.5])


def slow(logp: Tensor, old: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Eq. 7 of Schulman et al. 2017, of one member."""
    ratio = (logp - old).exp()
    return torch.min(ratio * advantage, torch.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()


@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_equal_the_slow_twins(seed: int) -> None:
    logp, old, advantage, clip = data(seed)
    ours = logp.clone().requires_grad_()
    gain, log_ratio = clipped_surrogate(ours, old, advantage, clip)
    weight = torch.tensor([1.0, -2.0, 0.5])
    (gain * weight).sum().backward()
    assert torch.allclose(log_ratio, logp - old) and not log_ratio.requires_grad
    for m in range(M):
        theirs = logp[m].clone().requires_grad_()
        expected = slow(theirs, old[m], advantage[m], float(clip[m]))
        (expected * weight[m]).backward()
        assert gain[m].item() == pytest.approx(expected.item(), abs=1e-6)
        assert torch.allclose(ours.grad[m], theirs.grad, atol=1e-7)
        clipped = ours.grad[m] == 0
        assert clipped.any() and not clipped.all()


def test_where_nothing_has_changed_it_is_the_policy_gradient() -> None:
    logp, _, advantage, clip = data(0)
    logp.requires_grad_()
    gain, _ = clipped_surrogate(logp, logp.detach(), advantage, clip)
    gain.sum().backward()
    assert torch.allclose(gain, advantage.mean(1), atol=1e-6)
    assert torch.allclose(logp.grad, advantage / B, atol=1e-7)


def test_a_nan_shows_in_its_member_and_in_no_other() -> None:
    logp, old, advantage, clip = data(0)
    bad = advantage.clone()
    bad[1, 7] = torch.nan
    grads, gains = [], []
    for a in (advantage, bad):
        x = logp.clone().requires_grad_()
        gain, _ = clipped_surrogate(x, old, a, clip)
        gain.sum().backward()
        grads.append(x.grad)
        gains.append(gain.detach())
    assert gains[1].isfinite().tolist() == [True, False, True]
    assert grads[1][1].isnan().any()
    assert torch.equal(grads[0][[0, 2]], grads[1][[0, 2]]) and torch.equal(gains[0][[0, 2]], gains[1][[0, 2]])
