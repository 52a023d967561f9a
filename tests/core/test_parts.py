"""Observations of any space as rows of numbers, and what the rows consist of."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from podium.core.parts import Part, Row, parts_of

NESTED = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=5))),
        "camera": spaces.Box(0, 255, (8, 9, 3), np.uint8),
        "keys": spaces.MultiBinary(2),
        "modes": spaces.MultiDiscrete([2, 3], start=[0, 4]),
        "bytes": spaces.Box(0, 255, (2,), np.uint8),
        "action_mask": spaces.Box(0, 1, (4,), np.int8),
    }
)


def test_leaves_stand_one_after_another() -> None:
    row = Row(NESTED)
    found = {part.name: (part.shape, part.first, part.image, part.mask) for part in row.parts}
    assert found.keys() == {"action_mask", "arm.0", "arm.1", "bytes", "camera", "keys", "modes"}
    assert found["arm.1"][0] == (3,) and found["modes"][0] == (5,) and found["camera"][0] == (8, 9, 3)
    assert [name for name in found if found[name][2]] == ["camera"]
    assert [name for name in found if found[name][3]] == ["action_mask"]
    ends = [part.first + part.size for part in row.parts]
    assert [part.first for part in row.parts] == [0, *ends[:-1]] and row.shape == (ends[-1],)
    assert row.dtype == np.float32


def test_what_is_written() -> None:
    row = Row(NESTED)
    image = np.arange(8 * 9 * 3, dtype=np.uint8).reshape(8, 9, 3)
    obs = {
        "arm": (np.array([0.5, -0.5], np.float32), np.int64(6)),
        "camera": image,
        "keys": np.array([1, 0], np.int8),
        "modes": np.array([1, 6]),
        "bytes": np.array([0, 255], np.uint8),
        "action_mask": np.array([1, 0, 1, 1], np.int8),
    }
    out = np.full(row.shape, np.nan, np.float32)
    row.write(obs, out)
    told = {part.name: out[part.first : part.first + part.size].reshape(part.shape) for part in row.parts}
    assert told["arm.0"].tolist() == [0.5, -0.5] and told["arm.1"].tolist() == [0, 1, 0]
    assert (told["camera"] == image).all() and told["keys"].tolist() == [1, 0]
    assert told["modes"].tolist() == [0, 1, 0, 0, 1] and told["bytes"].tolist() == [0, 1]
    assert told["action_mask"].tolist() == [1, 0, 1, 1]


def test_every_observation_lies_within_the_bounds_of_its_row() -> None:
    row = Row(NESTED)
    NESTED.seed(0)
    for _ in range(20):
        out = np.empty(row.shape, np.float32)
        row.write(NESTED.sample(), out)
        assert row.contains(out)


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), True),
        (spaces.Box(0, 255, (84, 84), np.uint8), True),
        (spaces.Box(0, 255, (2, 2), np.uint8), False),
        (spaces.Box(0, 255, (128,), np.uint8), False),
        (spaces.Box(0, 1, (84, 84, 3)), False),
    ],
)
def test_a_box_is_one_part(space: spaces.Box, image: bool) -> None:
    assert parts_of(space) == (Part("", space.shape, 0, image),)


def test_what_nobody_supports_is_named() -> None:
    with pytest.raises(TypeError, match=r"Text \(inside.note\): Box, Discrete"):
        Row(spaces.Dict(inside=spaces.Dict(note=spaces.Text(3))))
