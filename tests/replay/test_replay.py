"""The replay against its slow twin: every sample is looked up in plain lists of steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from podium.core.spec import Spec
from podium.core.tree import flatten, unflatten
from podium.replay import frames
from podium.replay import replay as module
from podium.replay.replay import Replay
from podium.replay.settings import ReplaySettings
from replay.twin import FLOATS, IMAGES, World, decode, dice, encode, replay, spec

ROOMS = {"floats": spec(), "images": spec(obs=IMAGES), "discrete": spec(action=Discrete(5))}


def held(found: dict[str, Tensor], world: World, gamma: Tensor, n: int, keep: int) -> list[set[int]]:
    """Hold each sample to the twin; returns which steps of each member were met."""
    obs, after = decode(found["obs"]), found["next_obs"]
    met: list[set[int]] = []
    for m in range(world.spec.members):
        met.append(set())
        for b in range(obs.shape[1]):
            twin = world.expected(m, int(obs[m, b]), float(gamma[m]), n, keep)
            assert twin is not None, "a step that is not (or no longer) in the replay"
            total, decay, last, action = twin
            assert float(found["reward"][m, b]) == pytest.approx(total, abs=1e-5)
            assert float(found["decay"][m, b]) == pytest.approx(decay, abs=1e-5)
            assert float(found["action"][m, b].flatten()[0]) == action
            if decay > 0:
                assert int(decode(after[m, b])) == last
            met[m].add(int(obs[m, b]))
    return met


GAMMA = torch.tensor([0.9, 0.5])


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
def test_samples_are_steps_as_they_were(room: Spec, n: int, prioritised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first step on, over the seam of the ring, with rollouts of many lengths and restarts of the envs."""
    monkeypatch.setattr(frames, "SHARE", 1)  # no last frame is lost
    world, ring = World(room, seed=n), replay(room, 3 * 11, 64, n, prioritised=prioritised)
    inserted = 0
    for round_, T in enumerate([1, 1, 2, 5, 1, 7, 4, 11, 1, 3, 25]):
        ring.insert(world.rollout(T))
        inserted += T
        if round_ % 3 == 2:
            world.restart()
            ring.cut()
        for _ in range(3):
            met = held(ring.sample(GAMMA), world, GAMMA, n, min(inserted, 11))
        assert ring.size.tolist() == [3 * min(inserted, 11)] * 2
        assert all(len(steps) <= 3 * min(inserted, 11) for steps in met)


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
def test_every_step_that_is_kept_can_be_drawn(room: Spec, prioritised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest and the oldest too, and nothing else."""
    monkeypatch.setattr(frames, "SHARE", 1)
    world, ring = World(room, ends=0.05), replay(room, 3 * 7, 500, prioritised=prioritised)
    for T in (4, 1, 6, 5):
        ring.insert(world.rollout(T))
    met = held(ring.sample(GAMMA), world, GAMMA, 1, 7)
    for m in range(2):
        assert met[m] == {step.obs for steps in world.history[m] for step in steps[-7:]}


def one_env(flags: list[str], n: int, cut: bool = False) -> dict[int, tuple[float, float, float]]:
    """Rewards 1, 2, 4 ... of one env whose steps end as `flags` say; obs -> (return, decay, next obs), discount 0.5."""
    s = spec(1, 1)
    T = len(flags)
    ring = replay(s, 100, 200, n)
    at = torch.arange(T).view(1, T, 1)
    ring.insert(
        {
            "obs": encode(at, s),
            "action": torch.zeros(1, T, 1, 2),
            "reward": 2.0**at,
            "terminated": torch.tensor([f == "t" for f in flags]).view(1, T, 1),
            "truncated": torch.tensor([f == "u" for f in flags]).view(1, T, 1),
            "last": encode(at + 100, s),
        }
    )
    if cut:
        ring.cut()
        more = {name: x[:, :1] for name, x in world_of(s).items()}
        ring.insert(more)
    x = ring.sample(torch.tensor([0.5]))
    seen = zip(decode(x["obs"])[0], x["reward"][0], x["decay"][0], decode(x["next_obs"])[0], strict=True)
    return {int(o): (float(r), float(d), int(a)) for o, r, d, a in seen}


def world_of(s: Spec) -> dict[str, Tensor]:
    return World(s, seed=1, ends=0).rollout(1) | {"obs": encode(torch.full((1, 1, 1), 50), s)}


def test_n_step_by_hand() -> None:
    # r = 1, 2, 4, 8, 16; discount 1/2: every term of a return is 1 at its first step, 2 at the next ...
    assert one_env(["", "", "", "", ""], 3) == {
        0: (3.0, 0.125, 102),
        1: (6.0, 0.125, 103),
        2: (12.0, 0.125, 104),
        3: (16.0, 0.25, 104),  # the newest step is the last that is known
        4: (16.0, 0.5, 104),
    }
    assert one_env(["", "t", "", "u", ""], 3) == {
        0: (2.0, 0.0, 101),
        1: (2.0, 0.0, 101),
        2: (8.0, 0.25, 103),
        3: (8.0, 0.5, 103),
        4: (16.0, 0.5, 104),
    }
    found = one_env(["", ""], 3, cut=True)
    assert found[0] == (2.0, 0.25, 101) and found[1] == (2.0, 0.5, 101)
    assert one_env(["", ""], 1)[0] == (1.0, 0.5, 100)


@pytest.mark.parametrize("n", [1, 3])
def test_an_image_whose_last_frame_is_lost_is_never_bootstrapped_from(n: int) -> None:
    """Every second step is truncated, and only a few of those frames fit beside the others."""
    room = spec(obs=IMAGES)
    world, ring = World(room, seed=3, ends=0.5), replay(room, 3 * 40, 256, n)
    assert ring.ring.frames is not None and ring.ring.frames.lasts == 3
    for T in (10, 20, 1, 1, 40, 13):
        ring.insert(world.rollout(T))
        x = ring.sample(GAMMA)
        obs, after = decode(x["obs"]), decode(x["next_obs"])
        assert (obs[0].unique().numel() > 8) and (obs[1].unique().numel() > 8)
        for m in range(2):
            twin = {s.obs: (steps, t) for steps in world.history[m] for t, s in enumerate(steps)}
            for b in range(256):
                steps, t = twin[int(obs[m, b])]
                assert t >= len(steps) - 40
                if float(x["decay"][m, b]) > 0:  # it leads to a step of its own episode, with the rewards in between
                    k = next(i for i in range(n) if steps[t + i].last == int(after[m, b]))
                    gamma = float(GAMMA[m])
                    assert not any(step.ends for step in steps[t : t + k])
                    assert float(x["decay"][m, b]) == pytest.approx(gamma ** (k + 1))
                    total = sum(gamma**i * steps[t + i].reward for i in range(k + 1))
                    assert float(x["reward"][m, b]) == pytest.approx(total, abs=1e-5)


def test_a_discrete_action_and_the_critics_input() -> None:
    whole, floats = ROOMS["discrete"], ROOMS["floats"]
    ring = replay(whole, 30)
    ring.insert(World(whole).rollout(4))
    x = ring.sample(GAMMA)
    assert x["action"].dtype == torch.int64 and x["action"].shape == (2, 8)
    assert "obs_action" not in x and "weight" not in x
    ring = replay(floats, 30)
    rollout = World(floats).rollout(4)
    ring.insert(rollout | {"unit": rollout["action"] / 8})
    x = ring.sample(GAMMA)
    assert torch.equal(x["obs_action"], torch.cat([x["obs"], x["action"]], -1))
    assert x["obs_action"].data_ptr() == x["obs"].data_ptr(), "a view, not a copy"
    assert x["action"].abs().max() <= 5 / 8, "`unit` stands in the place of the action"


def test_observations_of_several_dimensions_keep_their_shape() -> None:
    room = spec(obs=Box(-9e9, 9e9, (2, 3)))
    ring, flat = replay(room, 30, n_step=2), World(spec()).rollout(4)
    wide = {name: torch.stack([flat[name], flat[name] + 0.5], -2) for name in ("obs", "last")}
    ring.insert(flat | wide)
    x = ring.sample(GAMMA)
    for name in ("obs", "next_obs"):
        assert x[name].shape == (2, 8, 2, 3)
        assert torch.equal(x[name][..., 1, :], x[name][..., 0, :] + 0.5)
        decode(x[name][..., 0, :])
    assert torch.equal(x["obs_action"], torch.cat([x["obs"].flatten(2), x["action"]], -1))


# ---- one member and many


def row(tree: dict[str, Any], m: int) -> dict[str, Tensor]:
    return {name: x[m : m + 1] for name, x in tree.items()}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("obs", [FLOATS, IMAGES], ids=["floats", "images"])
def test_a_population_equals_its_members_apart(
    obs: Any, prioritised: bool, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DRAWN", 20)  # several blocks of numbers
    many = spec(4, obs=obs)
    together = replay(many, 3 * 9, 5, n, prioritised=prioritised)
    settings = ReplaySettings(capacity=3 * 9, prioritised=prioritised)
    alone = [Replay(spec(1, obs=obs), settings, 5, n, [own]) for own in dice(4)]
    world, g = World(many), torch.Generator().manual_seed(0)
    gamma, alpha, beta = torch.rand(3, 4, generator=g)
    for T in (2, 3, 1, 9, 4):
        rollout = world.rollout(T)
        together.insert(rollout)
        for m, one in enumerate(alone):
            one.insert(row(rollout, m))
        if T == 1:
            together.clear([2])
            alone[2].clear([0])
            together.insert(rollout := world.rollout(2))
            for m, one in enumerate(alone):
                one.insert(row(rollout, m))
        for _ in range(3):
            x, error = together.sample(gamma, beta), torch.randn(4, 5, generator=g)
            together.prioritise(error, alpha)
            for m, one in enumerate(alone):
                y = one.sample(gamma[m : m + 1], beta[m : m + 1])
                one.prioritise(error[m : m + 1], alpha[m : m + 1])
                assert x.keys() == y.keys()
                assert all(torch.equal(x[name][m], y[name][0]) for name in x), (T, m)


def test_a_failed_member_begins_again_and_touches_nobody() -> None:
    room = spec(3)
    fine, ill = (replay(room, 60, 8, 2, prioritised=True) for _ in range(2))
    ones, world = torch.ones(3), World(room)
    for step in range(12):
        rollout = world.rollout(2)
        fine.insert(rollout)
        sick = {name: x.clone() for name, x in rollout.items()}
        if step < 6:
            for name in ("obs", "reward", "last", "action"):
                sick[name][1] = torch.nan
        ill.insert(sick)
        if step == 6:
            fine.clear([1]), ill.clear([1])
            assert fine.ready.tolist() == [True, False, True] and not fine.all_ready
            assert fine.size.tolist() == [42, 0, 42]
        x, y, error = fine.sample(ones, ones), ill.sample(ones, ones), torch.rand(3, 8)
        for name in x:
            assert torch.equal(x[name][[0, 2]], y[name][[0, 2]])
        if step >= 6:
            assert all(v.isfinite().all() for v in y.values())
        if step == 6:
            assert not any(v[1].any() for v in y.values()), "a row that holds nothing gives zeros"
        fine.prioritise(error, ones)
        error[1] = torch.nan if step < 6 else error[1]
        ill.prioritise(error, ones)
    assert ill.ready.all() and ill.all_ready


# ---- a shared replay


@pytest.mark.parametrize("prioritised", [False, True])
def test_all_members_draw_from_a_shared_replay(prioritised: bool) -> None:
    room = spec(2)
    world, ring = World(room, ends=0.1), replay(room, 2 * 3 * 4, 300, 2, shared=True, prioritised=prioritised)
    assert ring.ring.steps == 4
    for T in (3, 2, 2):
        ring.insert(world.rollout(T))
    assert ring.size.tolist() == [24, 24]
    x = ring.sample(torch.tensor([0.9, 0.9]))
    everything = {s.obs: (steps, t) for rows in world.history for steps in rows for t, s in enumerate(steps[-4:])}
    for m in range(2):
        assert {int(o) for o in decode(x["obs"])[m]} == set(everything), "every member sees the steps of both"
    assert (x["weight"] == 1).all()
    assert not torch.equal(x["obs"][0], x["obs"][1]), "each with its own numbers"
    both = {s.obs: m for m in range(2) for steps in world.history[m] for s in steps}
    for m in range(2):
        for b in range(300):
            number = int(decode(x["obs"])[m, b])
            twin = world.expected(both[number], number, 0.9, 2, 4)
            assert twin is not None
            assert float(x["reward"][m, b]) == pytest.approx(twin[0], abs=1e-5)
            assert float(x["decay"][m, b]) == pytest.approx(twin[1], abs=1e-5)


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("where", ["obs", "action", "reward", "last"])
def test_what_is_not_finite_never_leaves_a_shared_replay(where: str, n: int, prioritised: bool) -> None:
    room = spec(2)
    world = World(room, ends=0.0 if where == "last" else 0.3)  # what an end shows need not be finite
    ring = replay(room, 60, 100, n, shared=True, prioritised=prioritised)
    rollout = world.rollout(8)
    rollout[where][1] = torch.nan if where != "reward" else torch.inf
    ring.insert(rollout)
    ring.clear([1])
    assert ring.size.tolist() == [48, 48]
    x = ring.sample(torch.full((2,), 0.9), torch.ones(2))
    assert all(v.isfinite().all() for v in x.values() if v.is_floating_point())
    out = x["weight"] == 0
    assert 60 < out.sum() < 140
    assert not any(v[out].any() for v in x.values())
    own = {s.obs for steps in world.history[0] for s in steps}
    assert {int(o) for o in decode(x["obs"])[~out]} <= own


# ---- files


@pytest.mark.parametrize("steps", [3, 30])
@pytest.mark.parametrize(
    "settings", [{}, {"prioritised": True}, {"shared": True}, {"shared": True, "prioritised": True}], ids=str
)
@pytest.mark.parametrize("obs", [FLOATS, IMAGES], ids=["floats", "images"])
def test_a_saved_replay_goes_on_bitwise(obs: Any, settings: dict[str, bool], steps: int) -> None:
    room = spec(obs=obs)
    world, first = World(room), replay(room, 72, 8, 3, **settings)
    ones, g = torch.ones(2), torch.Generator().manual_seed(0)

    def turn(ring: Any, rollout: Any, error: Tensor) -> dict[str, Tensor]:
        ring.insert(rollout)
        x = ring.sample(ones * 0.9, ones * 0.5)
        ring.prioritise(error, ones * 0.7)
        return dict(x)

    for _ in range(steps):
        turn(first, world.rollout(1), torch.randn(2, 8, generator=g))
    first.cut()
    world.restart()
    saved = {name: x.clone() for name, x in flatten(first.state()).items()}
    assert sum(x.nbytes for x in saved.values()) == first.saved_bytes
    assert first.saved_bytes - saved["numbers"].nbytes < first.nbytes * (0.6 if steps == 3 else 1.1), (
        "only what is filled"
    )
    second = replay(room, 72, 8, 3, seed=1, **settings)
    second.insert(World(room, seed=7).rollout(9))  # what it held before is gone
    second.load(unflatten(saved))
    for _ in range(20):  # of the block of numbers that is saved; the generators are saved elsewhere
        rollout, error = world.rollout(1), torch.randn(2, 8, generator=g)
        x, y = turn(first, rollout, error), turn(second, rollout, error)
        assert all(torch.equal(x[name], y[name]) for name in x)
    assert torch.equal(first.size, second.size)
    a, b = flatten(first.state()), flatten(second.state())
    assert all(torch.equal(a[name], b[name]) for name in a if "ring.data" not in name or steps > 3)


def test_a_replay_of_another_shape_is_refused_and_nothing_is_changed() -> None:
    room = spec()
    one = replay(room, 30, prioritised=True)
    one.insert(World(room).rollout(4))
    one.sample(torch.ones(2), torch.ones(2))
    good = flatten(one.state())
    others = {
        "plain": replay(room, 30),
        "members": replay(spec(3), 30, prioritised=True),
        "envs": replay(spec(2, 4), 30, prioritised=True),
        "batch": replay(room, 30, 9, prioritised=True),
        "small": replay(room, 9, prioritised=True),
        "images": replay(spec(obs=IMAGES), 30, prioritised=True),
    }
    for name, other in others.items():
        with pytest.raises(ValueError):
            other.load(unflatten(good))
        assert not other.size.any(), name
    for name in good:
        for damaged in (None, good[name][..., :0], good[name].double().half()):
            tree = unflatten(
                {k: v for k, v in good.items() if k != name} | ({} if damaged is None else {name: damaged})
            )
            fresh = replay(room, 30, prioritised=True)
            if name == "numbers" and damaged is not None and damaged.numel():
                continue  # of any type
            with pytest.raises(ValueError):
                fresh.load(tree)
            assert not fresh.size.any()


def test_an_empty_replay_can_be_saved() -> None:
    room = spec(obs=IMAGES)
    one, other = replay(room, 30, prioritised=True), replay(room, 30, prioritised=True)
    one.cut()
    other.load(one.state())
    assert not other.size.any() and not other.ready.any()


@pytest.mark.parametrize("n", [1, 3])
def test_what_an_end_shows_may_be_nan(n: int) -> None:
    """Gymnasium's Hopper ends because its state is none; no target looks at it."""
    world, ring = World(spec(), seed=1), replay(spec(), 3 * 40, 64, n)
    rollout = world.rollout(40)
    assert rollout["terminated"].any()
    rollout["last"][rollout["terminated"]] = torch.nan
    ring.insert(rollout)
    for _ in range(3):
        assert all(x.isfinite().all() for x in ring.sample(GAMMA).values())
