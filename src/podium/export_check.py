"""Whether onnxruntime acts as Podium does, on observations of a member's own episodes and on others far beyond them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from podium import experiment as experiments
from podium.agent import Player
from podium.core.errors import PodiumError
from podium.core.streams import Streams
from podium.ops.combine import forbidden, sizes_of

Array = np.ndarray[Any, Any]
Outputs = Callable[[Tensor], dict[str, Tensor]]
"""Observations `[B, *O]` -> `action` as the env takes it, `[B, ...]`, and what else the graph tells, by name."""

TOLERANCE = 1e-5
"""How far onnxruntime may be from Podium; where the largest number is beyond 1, as a share of it."""
ENVS, STEPS, WIDE = 4, 64, 10
"""Observations to check: of so many envs and steps, and as many from up to so many deviations beyond those."""


def check(onnxruntime: Any, data: bytes, outputs: Outputs, player: Player) -> tuple[int, float]:
    """Refuse a graph that acts otherwise than `player`; the observations it was given, and the largest difference."""
    rows = observations(player)
    return len(rows), compare(_run(onnxruntime, data, rows), _expected(outputs, player, rows), player.action_space)


@torch.no_grad()
def observations(player: Player) -> Array:
    """Half from episodes of the player's own, half from anywhere in the space up to far beyond those, `[B, *O]`."""
    env, seen = experiments.build_env(player._experiment, 1, ENVS), []
    try:
        obs = env.reset(Streams(0, ["export"]))
        for _ in range(STEPS):
            seen.append(obs[0].cpu().numpy().copy())
            obs = env.step(player._choose(obs)).obs
    finally:
        env.close()
    space: Any = player.obs_space
    real = np.concatenate(seen).astype(space.dtype, copy=False)
    margin = WIDE * (real.std(0, dtype=np.float64) + 1)
    low, high = np.maximum(space.low, real.min(0) - margin), np.minimum(space.high, real.max(0) + margin)
    drawn = np.random.default_rng(0).uniform(low, np.maximum(low, high), real.shape)
    return np.concatenate([real, drawn.astype(space.dtype)])


def _run(onnxruntime: Any, data: bytes, rows: Array) -> dict[str, Array]:
    """What onnxruntime makes of observations, in batches of several sizes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        parts = [session.run(None, {"obs": part}) for part in np.split(rows, [1, 8, 72])]
    except Exception as error:  # each of its errors has a class of its own
        raise PodiumError(f"onnxruntime cannot run this network ({reason(error)}); nothing was written") from error
    names = [output.name for output in session.get_outputs()]
    return {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}


@torch.no_grad()
def _expected(outputs: Outputs, player: Player, rows: Array) -> dict[str, Array]:
    """The same by torch, and the actions by `act`."""
    expected = {name: x.numpy() for name, x in outputs(torch.from_numpy(rows)).items()}
    return expected | {"action": player.act(rows)}


def compare(found: dict[str, Array], expected: dict[str, Array], space: gym.Space[Any]) -> float:
    """The largest difference of any number; refuses one beyond TOLERANCE, and another choice where there is no tie."""
    largest = 0.0
    for name, wanted in expected.items():
        answer = found[name]
        if (answer.shape, answer.dtype) != (wanted.shape, wanted.dtype):
            kinds = f"{answer.dtype} {list(answer.shape)}, not {wanted.dtype} {list(wanted.shape)}"
            raise PodiumError(f"onnxruntime's {name} is {kinds}; nothing was written")
        if wanted.dtype.kind == "f":
            difference = float(np.abs(answer - wanted).max())
            limit = _limit(wanted, expected["mean"]) if name == "action" and "mean" in expected else _limit(wanted)
            if not difference <= limit:
                raise PodiumError(
                    f"onnxruntime's {name} differs from Podium's by {difference:.2g}; nothing was written"
                )
            largest = max(largest, difference)
        elif wrong := int(((answer != wanted) & ~_tied(expected, space)).sum()):
            raise PodiumError(f"onnxruntime took {wrong} of {wanted.size} actions otherwise; nothing was written")
    return largest


def _limit(*numbers: Array) -> float:
    """By the largest number that there is; what an action mask forbids is none."""
    return TOLERANCE * max(1.0, *(float(np.abs(x).max(where=~forbidden(x), initial=0)) for x in numbers))


def _tied(expected: dict[str, Array], space: gym.Space[Any]) -> Array:
    """Where the two best scores are so near that either may be taken; of the shape of the action."""
    scores = next((expected[name] for name in ("logits", "probabilities") if name in expected), None)
    if scores is None:
        return np.zeros(expected["action"].shape, np.bool_)
    ordered = [np.sort(part, -1) for part in np.split(scores, np.cumsum(sizes_of(space))[:-1], -1)]
    gaps = [part[:, -1] - part[:, -2] if part.shape[1] > 1 else np.zeros(len(part)) for part in ordered]
    return np.stack(gaps, -1).reshape(expected["action"].shape) < _limit(scores)


def reason(error: BaseException) -> str:
    """The first line of what began it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
