"""The prioritised replay against tianshou's and torchrl's: one member, a million steps of 17 numbers, one thread.

Each side is full, has random priorities, and keeps and gives its data in its own way: NumPy arrays (tianshou),
tensordicts (torchrl), one record (Podium). A row is against the faster of the peers that are installed and work, found
in a short race before.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box

from podium.bench._side_by_side import Row, Side, Work, compare, effort, race
from podium.core.errors import PodiumError
from podium.core.spec import Spec
from podium.core.streams import generator
from podium.replay.replay import Replay
from podium.replay.settings import ReplaySettings

ITEMS, ENVS, BATCH = 1_000_000, 8, 512
OBS, ACTION = 6, 2  # twice the first, the second, reward, terminated, truncated: 17 numbers
ALPHA, BETA, DISCOUNT = 0.6, 0.4, 0.99
DRAWN = 64  # steps and errors of so many turns, used over and over

Make = Callable[[int], tuple[Callable[[int], Any], Callable[[int], Any]]]
"""A full replay of so many items: its turn of inserting, and its turn of sampling and new priorities."""


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    peers = _usable({"tianshou": tianshou, "torchrl": torchrl})
    turns, seconds = effort(rounds, quick)
    items = ITEMS // 50 if quick else ITEMS
    rows = []
    for which, key, unit, size in (
        (0, "insert", "items/s", ENVS),
        (1, "sample", "samples/s", BATCH),
    ):
        ours = Side("podium", partial(_work, podium, items, which, size))
        theirs = _fastest([Side(n, partial(_work, make, items, which, size)) for n, make in peers.items()], seconds)
        name = f"{key} {size}, {items} items, prioritised; {theirs.name}"
        more = {"key": f"replay/{key}", "peer_name": theirs.name, "items": items, "tried": list(peers)}
        rows.append(compare(name, unit, ours, [theirs], turns, seconds, **more))
    return rows


def _usable(peers: dict[str, Make]) -> dict[str, Make]:
    """Those that are installed and can be built: torchrl's tree is compiled for one release of torch."""
    found: dict[str, Make] = {}
    for package, make in peers.items():
        try:
            make(4 * BATCH)
            found[package] = make
        except ModuleNotFoundError:
            continue
        except (RuntimeError, OSError, AttributeError) as error:
            warnings.warn(f"{package} does not work here ({error})", stacklevel=2)
    if not found:
        raise PodiumError("tianshou or torchrl is needed: pip install --no-deps -r bench/replay-peers.txt")
    return found


def _fastest(sides: Sequence[Side], seconds: float) -> Side:
    timings = race(sides, 3, seconds / 4)
    return max(zip(timings, sides, strict=True), key=lambda pair: median(pair[0].rates))[1]


def _work(make: Make, items: int, which: int, size: int) -> Work:
    turn = make(items)[which]

    def work(turns: int) -> float:
        with torch.no_grad():
            for i in range(turns):
                turn(i % DRAWN)
        return float(turns * size)

    return work


def podium(items: int) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    spec = Spec(Box(-1.0, 1.0, (OBS,)), Box(-1.0, 1.0, (ACTION,)), 1, ENVS)
    replay = Replay(spec, ReplaySettings(capacity=items, prioritised=True), BATCH, 1, [generator(0, "bench")])
    replay.insert({name: torch.from_numpy(x)[None] for name, x in _steps(items // ENVS).items()})
    if replay.priorities is not None:
        replay.priorities.tree.load(torch.from_numpy(_priorities(items))[None])
    drawn = {name: torch.from_numpy(x)[None] for name, x in _steps(DRAWN).items()}
    rollouts = [{name: x[:, i : i + 1] for name, x in drawn.items()} for i in range(DRAWN)]
    errors = [torch.from_numpy(x)[None] for x in _errors()]
    alpha, beta, discount = torch.tensor([ALPHA]), torch.tensor([BETA]), torch.tensor([DISCOUNT])

    def sample(i: int) -> None:
        replay.sample(discount, beta)
        replay.prioritise(errors[i], alpha)

    return lambda i: replay.insert(rollouts[i]), sample


def tianshou(items: int) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    """A buffer for each env and one tree for all of them."""
    data = _peer("tianshou")
    names = {"obs": "obs", "action": "act", "reward": "rew", "last": "obs_next"}
    buffer = data.PrioritizedVectorReplayBuffer(items, ENVS, alpha=ALPHA, beta=BETA)
    batches = []
    for i in range(DRAWN):
        step = {names.get(name, name): x[i] for name, x in _steps(DRAWN).items()}
        batches.append(data.Batch(**step, info=data.Batch()))
    buffer.add(batches[0])  # makes the arrays
    for name, x in _steps(items // ENVS).items():  # filled at once: adding a million steps takes a minute
        array = buffer._meta[names.get(name, name)]
        array[:] = x.swapaxes(0, 1).reshape(array.shape)
    for part in buffer.buffers:
        part._size = part.maxsize
    buffer._lengths[:] = items // ENVS
    buffer.weight[np.arange(items)] = _priorities(items)
    errors = list(_errors())

    def sample(i: int) -> None:
        _, index = buffer.sample(BATCH)
        buffer.update_weight(index, errors[i])

    return lambda i: buffer.add(batches[i]), sample


def torchrl(items: int) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    data, tensordict = _peer("torchrl"), _peer("tensordict")
    buffer = data.TensorDictPrioritizedReplayBuffer(
        alpha=ALPHA, beta=BETA, storage=data.LazyTensorStorage(items), batch_size=BATCH
    )

    def made(T: int) -> Any:
        steps = {name: torch.from_numpy(x) for name, x in _steps(T).items()}
        return tensordict.TensorDict(steps, [T, ENVS])

    buffer.extend(made(items // ENVS).flatten(0, 1))
    buffer.update_priority(torch.arange(items), torch.from_numpy(_priorities(items)))
    batches = list(made(DRAWN).unbind(0))
    errors = [torch.from_numpy(x) for x in _errors()]

    def sample(i: int) -> None:
        found = buffer.sample()
        buffer.update_priority(found["index"], errors[i])

    return lambda i: buffer.extend(batches[i]), sample


def _steps(T: int) -> dict[str, Any]:
    """Random steps `[T, E, ...]`."""
    rng = np.random.default_rng(T)
    wide = {"obs": OBS, "action": ACTION, "last": OBS}
    steps: dict[str, Any] = {name: rng.random((T, ENVS, n), np.float32) for name, n in wide.items()}
    steps["reward"] = rng.random((T, ENVS), np.float32)
    ends = rng.random((2, T, ENVS)) < 0.01
    return steps | {"terminated": ends[0], "truncated": ends[1]}


def _priorities(items: int) -> Any:
    return np.random.default_rng(0).random(items, np.float32) + np.float32(0.01)


def _errors() -> Any:
    return np.random.default_rng(1).random((DRAWN, BATCH), np.float32)


def _peer(package: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(package if package == "tensordict" else f"{package}.data")
