"""What a replay needs is known, and refused, before any of it is allocated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Discrete, MultiDiscrete

from podium.core.config import build
from podium.core.errors import ConfigError, PodiumError
from podium.core.spec import Spec
from podium.replay import memory
from podium.replay.memory import check, fit, needed
from podium.replay.settings import ReplaySettings
from replay.twin import FLOATS, IMAGES, replay, spec

SPECS = {"floats": spec(), "images": spec(obs=IMAGES), "discrete": spec(action=Discrete(3))}


@pytest.mark.parametrize("room", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("capacity", [6, 100, 1000])
def test_what_is_needed_is_what_is_taken(room: Spec, capacity: int, prioritised: bool, shared: bool) -> None:
    settings = ReplaySettings(capacity=capacity, prioritised=prioritised, shared=shared)
    assert needed(room, settings) == replay(room, capacity, prioritised=prioritised, shared=shared).nbytes


def test_memory_that_is_not_used_costs_nothing() -> None:
    """A replay as large as the machine can be made; only what is written takes memory."""
    ring = replay(spec(1, 1), 10**9 // 20)
    assert ring.nbytes > 10**9
    assert ring.saved_bytes < 10**6


def refused(room: Spec, batch: int = 8, others: int = 0, **settings: Any) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        accept(room, batch, others, **settings)
    return error.value


def accept(room: Spec, batch: int = 8, others: int = 0, **settings: Any) -> None:
    check(room, ReplaySettings(**settings), batch)
    fit(room, ReplaySettings(**settings), others)


def test_refusals_name_the_field_and_what_is_allowed() -> None:
    room = spec(2, 3)
    assert refused(room, capacity=2).field == "replay.capacity"
    assert "3" in refused(room, capacity=2).allowed
    assert refused(room, capacity=5, shared=True).field == "replay.capacity"
    accept(room, 3, capacity=5)
    wrong = refused(room, 101, capacity=100)
    assert (wrong.field, wrong.value) == ("algo.batch", 101) and "99" in wrong.allowed  # 33 steps of 3 envs
    assert refused(room, 100, capacity=100).field == "algo.batch", "what the envs do not fill evenly is not there"
    many = Spec(FLOATS, MultiDiscrete([2, 3]), 2, 3)
    assert refused(many).field == "env.id"


@pytest.mark.parametrize("room", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("prioritised", [False, True])
def test_too_little_memory_names_the_largest_capacity_that_fits(room: Spec, prioritised: bool) -> None:
    wrong = refused(room, capacity=10**6, bytes=10**6, others=123_456, prioritised=prioritised)
    assert (wrong.field, wrong.value) == ("replay.bytes", 10**6)
    fits = int(wrong.allowed.split("replay.capacity=")[2].split()[0])
    accept(room, others=123_456, capacity=fits, bytes=10**6, prioritised=prioritised)
    assert (
        refused(room, capacity=fits + 3, bytes=10**6, others=123_456, prioritised=prioritised).field == "replay.bytes"
    )
    assert "least" in refused(room, 2, capacity=100, bytes=1).allowed


def test_half_of_the_machine_is_the_limit_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.memory(torch.device("cpu")) > 2**28
    monkeypatch.setattr(memory, "memory", lambda device: 10**6)
    wrong = refused(spec(), capacity=10**6)
    assert wrong.field == "replay.capacity" and "500000 bytes" in wrong.allowed
    accept(spec(), capacity=1000)


@pytest.mark.parametrize("wrong", ["capacity: 0", "bytes: 0", "save_bytes: -1", "ratio: 0", "shared: 3", "size: 5"])
def test_settings_out_of_range_are_refused(wrong: str) -> None:
    name, value = wrong.split(": ")
    with pytest.raises(PodiumError, match=f"replay.{name}"):
        build(ReplaySettings, {name: int(value)}, "replay")


def test_every_setting_is_described() -> None:
    assert all(field.description for field in ReplaySettings.model_fields.values())


def test_a_replay_smaller_than_its_envs_cannot_be_made() -> None:
    with pytest.raises(ValueError):
        replay(spec(), 2)
