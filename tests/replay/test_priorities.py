"""Prioritised replay by the formulas of Schaul et al. 2016."""

from __future__ import annotations

import torch
from torch import Tensor

from replay.twin import IMAGES, World, decode, replay, spec

ROOM = spec(2, 4)
ONES = torch.ones(2)


def prepared(batch: int = 16, rollouts: int = 5, **settings: bool):
    world, ring = World(ROOM), replay(ROOM, 40, batch, prioritised=True, **settings)
    for _ in range(rollouts):
        ring.insert(world.rollout(2))
    return world, ring


def leaves(ring) -> Tensor:
    assert ring.priorities is not None
    return ring.priorities.tree.leaves[:, : ring.ring.length]


def test_weights_are_those_of_the_formula() -> None:
    """(N P)^-β over its maximum in the batch."""
    _, ring = prepared(16)
    beta = torch.tensor([0.4, 1.0])
    for _ in range(3):
        ring.sample(ONES, beta)
        ring.prioritise(torch.randn(2, 16) * 3, torch.tensor([0.6, 1.0]))
    p = leaves(ring).double().clone()
    x = ring.sample(ONES, beta)
    slot = ring.priorities.slot
    for m in range(2):
        P, N = p[m] / p[m].sum(), 40
        w = (N * P[slot[m]]) ** -float(beta[m])
        assert torch.allclose(x["weight"][m].double(), w / w.max(), rtol=1e-5)
        assert x["weight"][m].max() == 1 and x["weight"][m].min() < 0.9


def test_priorities_are_those_of_the_formula_and_stay_until_drawn_again() -> None:
    _, ring = prepared()
    alpha, error = torch.tensor([0.6, 0.9]), torch.randn(2, 16)
    before = leaves(ring).clone()
    ring.sample(ONES, ONES)
    slot = ring.priorities.slot.clone()
    ring.prioritise(error, alpha)
    for m in range(2):
        drawn = set(slot[m].tolist())
        for i in range(40):
            if i not in drawn:
                assert leaves(ring)[m, i] == before[m, i]
            else:  # of a step that was drawn twice the last error
                mine = error[m][slot[m] == i].abs()[-1]
                assert torch.isclose(leaves(ring)[m, i], (mine + 1e-6) ** alpha[m])


def test_a_new_step_has_the_largest_error_to_the_power_of_alpha_once() -> None:
    """Not to α², and with the α of now, when evolution has changed it."""
    world, ring = prepared(rollouts=2)
    assert set(leaves(ring)[:, :16].flatten().tolist()) == {1.0}, "before any error is known"
    error = torch.full((2, 16), 0.5)
    error[0, 3], error[1, 5] = -9.0, 0.25
    ring.sample(ONES, ONES)
    ring.prioritise(error, torch.tensor([0.5, 0.5]))
    ring.insert(world.rollout(1))
    assert torch.allclose(leaves(ring)[:, 16:20], torch.tensor([[3.0], [1.0]]), rtol=1e-5)
    ring.sample(ONES, ONES)
    ring.prioritise(error / 100, torch.tensor([1.0, 0.0]))
    ring.insert(world.rollout(1))
    assert torch.allclose(leaves(ring)[:, 20:24], torch.tensor([[9.0], [1.0]]), rtol=1e-5)


def test_alpha_0_is_uniform_with_weights_of_1() -> None:
    _, ring = prepared(40)
    for _ in range(20):
        x = ring.sample(ONES, ONES)
        ring.prioritise(torch.randn(2, 40) * 100, torch.zeros(2))
        assert (x["weight"] == 1).all()
        for m in range(2):  # 40 strata over 40 steps: each once
            assert sorted(ring.priorities.slot[m].tolist()) == list(range(40))


def test_steps_come_in_proportion_to_their_priorities() -> None:
    _, ring = prepared(40)
    for _ in range(30):
        ring.sample(ONES, ONES)
        error = decode(ring.ring.batch(ring.priorities.slot, ONES, 1)["obs"]).float() % 7
        ring.prioritise(error, ONES)
    p = leaves(ring).double()
    counts = torch.zeros(2, 40)
    for _ in range(1000):
        ring.sample(ONES, ONES)
        counts += torch.stack([row.bincount(minlength=40) for row in ring.priorities.slot])
    assert torch.allclose(counts.double() / 40_000, p / p.sum(1, keepdim=True), atol=2e-3)


def test_what_is_written_over_or_cleared_keeps_no_priority() -> None:
    world, ring = prepared(16)
    ring.sample(ONES, ONES)
    ring.clear([0])
    ring.prioritise(torch.full((2, 16), 7.0), ONES)  # of steps that member 0 no longer has
    assert not leaves(ring)[0].any() and not ring.priorities.tree.sums[0].any()
    assert ring.priorities.top.tolist() == [[1.0], [7.000000953674316]]
    ring.insert(world.rollout(1))
    assert (leaves(ring)[0] > 0).sum() == 4
    assert set(decode(ring.sample(ONES, ONES)["obs"])[0].tolist()) == {s[-1].obs for s in world.history[0]}


def test_errors_that_are_not_finite_stay_with_their_member() -> None:
    _, ill = prepared(16)
    _, well = prepared(16)
    for bad in (torch.nan, torch.inf, -torch.inf, 3e38):
        error = torch.rand(2, 16)
        for ring, value in ((well, 1.0), (ill, bad)):
            error[0] = value
            x = ring.sample(ONES, ONES)
            ring.prioritise(error, ONES)
            assert leaves(ring).isfinite().all() and (leaves(ring) > 0).all()
        assert torch.equal(leaves(ill)[1], leaves(well)[1])
        assert x["weight"].isfinite().all()


def test_the_time_of_the_frame_ahead_is_never_drawn() -> None:
    room = spec(2, 4, IMAGES)
    world, ring = World(room, ends=0.1), replay(room, 20, 64, prioritised=True)
    for _ in range(17):
        ring.insert(world.rollout(1))
        ring.sample(ONES, ONES)
        ahead = ring.ring.position * 4
        assert not ((ring.priorities.slot >= ahead) & (ring.priorities.slot < ahead + 4)).any()
        ring.prioritise(torch.rand(2, 64), ONES)
        assert (leaves(ring) > 0).sum() == ring.size.sum()


def test_members_have_priorities_of_their_own_in_a_shared_replay() -> None:
    world, ring = World(ROOM), replay(ROOM, 80, 16, shared=True, prioritised=True)
    ring.insert(world.rollout(10))
    assert leaves(ring).shape == (2, 80)
    ring.sample(ONES, ONES)
    error = torch.tensor([[1.0], [100.0]]).expand(2, 16)
    ring.prioritise(error, ONES)
    assert leaves(ring)[0].max() < 2 and leaves(ring)[1].max() > 99
    ring.clear([1])
    assert (leaves(ring)[1] == 1).all() and ring.priorities.top[1] == 1
