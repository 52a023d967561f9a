import pytest
import torch
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from torch import Tensor

from podium.core import tree
from podium.nets.optim import Adam, RMSProp

M, SHAPES = 3, [(4, 5), (6,), ()]
LR = torch.tensor([1e-4, 1e-2, 0.3])


def params(seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(M, *shape, generator=g).requires_grad_() for shape in SHAPES]


def gradients(step: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(1000 + step)
    size = torch.tensor([1e-6, 1.0, 1e3])
    return [torch.randn(M, *s, generator=g) * size.view(M, *(1,) * len(s)) for s in SHAPES]


def run(optimiser, ps: list[Tensor], steps: int, active: Tensor | None = None) -> None:
    for t in range(steps):
        for p, g in zip(ps, gradients(t), strict=True):
            p.grad = g
        optimiser.step(LR, active) if active is not None else optimiser.step(LR)


def apart(make, steps: int) -> list[list[Tensor]]:
    """The same steps by a torch optimiser for each member alone, with its own learning rate."""
    out = []
    for m in range(M):
        ps = [p.detach()[m].clone().requires_grad_() for p in params()]
        optimiser = make(ps, float(LR[m]))
        for t in range(steps):
            for p, g in zip(ps, gradients(t), strict=True):
                p.grad = g[m]
            optimiser.step()
        out.append(ps)
    return out


@pytest.mark.parametrize("eps", [1e-8, 1e-5])
def test_adam_is_torchs_for_each_member(eps: float) -> None:
    ps = params()
    run(Adam(ps, eps=eps), ps, 50)
    for m, expected in enumerate(apart(lambda p, lr: torch.optim.Adam(p, lr, eps=eps), 50)):
        for p, e in zip(ps, expected, strict=True):
            assert (p.detach()[m] - e.detach()).abs().max() <= 1e-6 * max(1.0, e.detach().abs().max().item())


def test_adam_takes_gradients_that_are_transposed_in_memory() -> None:
    plain, turned = params(), params()
    one, other = Adam(plain), Adam(turned)
    for t in range(3):
        for p, q, g in zip(plain, turned, gradients(t), strict=True):
            p.grad, q.grad = g, g.mT.contiguous().mT if g.ndim == 3 else g
        assert not turned[0].grad.is_contiguous()
        one.step(LR), other.step(LR)
    assert all(torch.equal(p, q) for p, q in zip(plain, turned, strict=True))


@pytest.mark.parametrize("eps", [1e-5, 0.1])  # the larger shows where it stands: inside the root
def test_rmsprop_is_sb3s_for_each_member(eps: float) -> None:
    ps = params()
    run(RMSProp(ps, eps=eps), ps, 50)
    for m, expected in enumerate(apart(lambda p, lr: RMSpropTFLike(p, lr, alpha=0.99, eps=eps), 50)):
        for p, e in zip(ps, expected, strict=True):
            assert (p.detach()[m] - e.detach()).abs().max() <= 2e-6 * max(1.0, e.detach().abs().max().item())


@pytest.mark.parametrize("active", [None, torch.tensor([True, False, True])], ids=["all", "some"])
def test_the_fused_kernel_and_the_plain_operations_agree(active: Tensor | None, monkeypatch) -> None:
    """Other devices than the CPU take the plain ones."""
    ps, qs = params(), params()
    run(Adam(ps), ps, 20, active)
    monkeypatch.setattr(Adam, "_fused", Adam._plain)
    run(Adam(qs), qs, 20, active)
    for p, q in zip(ps, qs, strict=True):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-7)


def state(optimiser, ps: list[Tensor]) -> tree.Tree:
    return tree.clone({"params": {str(i): p for i, p in enumerate(ps)}, "optimiser": optimiser.state()})


def test_members_that_are_not_active_stay_bit_for_bit() -> None:
    ps, qs = params(), params()
    some, everyone = Adam(ps), Adam(qs)
    run(some, ps, 3)
    run(everyone, qs, 3)
    before = tree.flatten(state(some, ps))
    run(some, ps, 4, torch.tensor([True, False, True]))
    run(everyone, qs, 4)
    after, full = tree.flatten(state(some, ps)), tree.flatten(state(everyone, qs))
    for name in before:
        assert torch.equal(after[name][1], before[name][1]), name
        assert torch.equal(after[name][[0, 2]], full[name][[0, 2]]), name
        assert not torch.equal(after[name][0], before[name][0]), name


def test_a_nan_gradient_stays_at_home() -> None:
    for make in (Adam, RMSProp):
        ps, qs = params(), params()
        one, two = make(ps), make(qs)
        for p, q, g in zip(ps, qs, gradients(0), strict=True):
            p.grad, q.grad = g.clone(), g.clone()
            q.grad[1] = torch.nan
        one.step(LR)
        two.step(LR)
        for p, q in zip(ps, qs, strict=True):
            assert torch.equal(p[[0, 2]], q[[0, 2]])
            assert q[1].isnan().all()


def test_a_copied_member_brings_its_age_along() -> None:
    """Row 0 takes over row 1 after 5 steps; from then on the same gradients move both alike."""
    ps = params()
    optimiser = Adam(ps)
    run(optimiser, ps, 5, torch.tensor([False, True, True]))
    live = {"params": {str(i): p.detach() for i, p in enumerate(ps)}, "optimiser": optimiser.state()}
    tree.put(live, torch.tensor([0]), tree.take(live, torch.tensor([1])))
    for p, g in zip(ps, gradients(9), strict=True):
        p.grad = g.clone()
        p.grad[0] = g[1]
    optimiser.step(LR[[1, 1, 2]])
    for x in tree.flatten(live).values():
        assert torch.equal(x[0], x[1])


def test_every_member_is_corrected_by_its_own_age() -> None:
    """Member 0 joins after 5 steps: from there on it is torch's Adam at its first step."""
    ps = params()
    optimiser = Adam(ps)
    run(optimiser, ps, 5, torch.tensor([False, True, True]))
    run(optimiser, ps, 3)
    twin = [p.detach()[0].clone().requires_grad_() for p in params()]
    theirs = torch.optim.Adam(twin, float(LR[0]))
    for t in range(3):
        for p, g in zip(twin, gradients(t), strict=True):
            p.grad = g[0]
        theirs.step()
    for p, e in zip(ps, twin, strict=True):
        assert torch.allclose(p[0], e, rtol=1e-6, atol=1e-7)
    assert (ps[0][0] - params()[0][0]).abs().max() > 1e-5


def test_gradients_are_left_as_they_were() -> None:
    for make in (Adam, RMSProp):
        ps = params()
        run(make(ps), ps, 2)
        assert all(torch.equal(p.grad, g) for p, g in zip(ps, gradients(1), strict=True))
