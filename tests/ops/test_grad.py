import pytest
import torch

from podium.ops.grad import clip_by_norm, polyak

SHAPES = [(3, 4, 5), (3, 7), (3, 1, 2, 2)]


def params(shapes: list[tuple[int, ...]], seed: int = 0) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    out = [torch.randn(shape, generator=g).requires_grad_() for shape in shapes]
    for p in out:
        p.grad = torch.randn(p.shape, generator=g) * torch.tensor([0.01, 1.0, 50.0]).view(3, *(1,) * (p.ndim - 1))
    return out


@pytest.mark.parametrize("shapes", [SHAPES, SHAPES[:1]])
def test_clip_is_torchs_for_each_member_apart(shapes) -> None:
    ps, limit = params(shapes), torch.tensor([0.5, 0.7, 3.0])
    expected, norms = [], []
    for m in range(3):
        rows = [p.detach()[m].clone().requires_grad_() for p in ps]
        for row, p in zip(rows, ps, strict=True):
            row.grad = p.grad[m].clone()
        norms.append(torch.nn.utils.clip_grad_norm_(rows, float(limit[m])))
        expected.append([row.grad for row in rows])
    assert torch.allclose(clip_by_norm(ps, limit), torch.stack(norms), rtol=1e-6)
    for m in range(3):
        for p, grad in zip(ps, expected[m], strict=True):
            assert torch.allclose(p.grad[m], grad, rtol=1e-6)


def test_gradients_that_are_transposed_in_memory_are_clipped_too() -> None:
    plain, turned = params(SHAPES[:1]), params(SHAPES[:1])
    turned[0].grad = turned[0].grad.mT.contiguous().mT
    assert not turned[0].grad.is_contiguous()
    for ps in (plain, turned):
        clip_by_norm(ps, torch.tensor([0.5, 0.7, 3.0]))
    assert torch.equal(plain[0].grad, turned[0].grad)


def test_a_small_gradient_is_left_bit_for_bit_and_a_nan_stays_at_home() -> None:
    ps, clean = params(SHAPES), params(SHAPES)
    ps[1].grad[2, 0] = torch.nan
    norm = clip_by_norm(ps, torch.full((3,), 0.5))
    clip_by_norm(clean, torch.full((3,), 0.5))
    assert norm.isfinite().tolist() == [True, True, False]
    for p, q, raw in zip(ps, clean, params(SHAPES), strict=True):
        assert torch.equal(p.grad[:2], q.grad[:2])
        assert torch.equal(p.grad[0], raw.grad[0])


def test_parameters_without_a_gradient_are_passed_over() -> None:
    ps = [*params(SHAPES), torch.zeros(3, 2)]
    clip_by_norm(ps, torch.ones(3))
    assert ps[-1].grad is None


def test_polyak() -> None:
    g = torch.Generator().manual_seed(0)
    targets, sources = ([torch.randn(s, generator=g) for s in SHAPES] for _ in range(2))
    before, tau = [t.clone() for t in targets], torch.tensor([0.0, 0.005, 1.0])
    polyak(targets, sources, tau)
    for new, old, source in zip(targets, before, sources, strict=True):
        assert torch.equal(new[0], old[0])
        assert torch.allclose(new[1], 0.995 * old[1] + 0.005 * source[1], atol=1e-6)
        assert torch.equal(new[2], source[2])
