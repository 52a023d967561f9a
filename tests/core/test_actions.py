"""Actions of any space: what policies see of it, and what the env gets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces

from podium.core.actions import Actions
from podium.ops.actions import ToEnv

CASES: list[tuple[Space, Space, list, list]] = [
    (spaces.Discrete(3, start=-1), spaces.Discrete(3, start=-1), [0, 2], [-1, 1]),
    (spaces.MultiDiscrete([2, 5], start=[0, 3]), spaces.MultiDiscrete([2, 5], start=[0, 3]), [[1, 4]], [[1, 7]]),
    (spaces.MultiDiscrete([[2], [3]]), spaces.MultiDiscrete([2, 3]), [[1, 2]], [[[1], [2]]]),
    (spaces.MultiBinary(3), spaces.MultiDiscrete([2, 2, 2]), [[1, 0, 1]], [[1, 0, 1]]),
    (spaces.MultiBinary([2, 1]), spaces.MultiDiscrete([2, 2]), [[1, 0]], [[[1], [0]]]),
    (spaces.Box(-1, 1, (2, 1)), spaces.Box(-1, 1, (2,)), [[0.5, -3.0]], [[[0.5], [-1.0]]]),
    (spaces.Box(-1, 1, (), np.float64), spaces.Box(-1, 1, (1,), np.float64), [[0.25]], [0.25]),
    (spaces.Box(1, 2, (1,)), spaces.Box(1, 2, (1,)), [[np.nan], [1.5]], [[1.0], [1.5]]),
]


@pytest.mark.parametrize(("source", "seen", "chosen", "expected"), CASES, ids=[str(c[0]) for c in CASES])
def test_a_space(source: Space, seen: Space, chosen: list, expected: list) -> None:
    actions = Actions(source)
    assert actions.space == seen
    out = actions.to_env(np.array(chosen))
    assert out.tolist() == expected and out.shape[1:] == (source.shape or ())
    assert all(source.contains(a if a.shape else a[()]) for a in out if np.isfinite(a).all())
    tensors = ToEnv(source)(torch.tensor(chosen))
    np.testing.assert_array_equal(tensors.numpy(), out)
    assert tensors.dtype == torch.from_numpy(out).dtype
    assert torch.equal(ToEnv(source)(torch.tensor([chosen, chosen]))[1], tensors), "with any axes before"


@pytest.mark.parametrize(
    "source", [spaces.Text(3), spaces.Box(0, 5, (2,), np.int32), spaces.Dict(a=spaces.Discrete(2))]
)
def test_what_nobody_supports_is_named(source: Space) -> None:
    with pytest.raises(TypeError, match="Discrete, MultiDiscrete, MultiBinary or Box of floats"):
        Actions(source)
