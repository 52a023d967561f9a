"""Helpers of the tests that run whole commands: a clean process for each, and what a run leaves on disk."""

from __future__ import annotations

import contextlib
import io
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import yaml
from torch import Tensor

from podium import cli
from podium.core.config import merge
from podium.core.spec import Step
from podium.core.tree import flatten
from podium.envs.native.cartpole import CartPole
from podium.store import run_config, tensors
from podium.store.ledger import Ledger

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["podium.training", "podium.cli"])  # torch is imported once, not once a process


def command(*words: object) -> tuple[int, str, str]:
    """`podium WORDS` in this process: exit code, stdout and stderr."""
    out, err, before = io.StringIO(), io.StringIO(), (sys.argv, list(sys.path))
    sys.argv = ["podium", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv, sys.path[:] = before
    return code, out.getvalue(), err.getvalue()


def process(output: Path, *words: object) -> ForkServerProcess:
    """`podium WORDS` in a process of its own, to be killed or interrupted."""
    child = _SERVER.Process(target=_child, args=(str(output), [str(w) for w in words]), daemon=True)
    child.start()
    return child


def _child(output: str, words: list[str]) -> None:
    with open(output, "a") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["podium", *words]
    cli.main()


def configure(run: Path, change: Mapping[str, Any]) -> None:
    """Other settings for a run, with the right checksum, as a stranger may give them."""
    config = merge(yaml.safe_load((run / "config.yaml").read_text()), change)
    (run / "config.yaml").write_bytes(run_config.text(config))


def files(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; None for a folder."""
    found = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in found}


def learnt(run: Path) -> dict[str, dict[str, bytes]]:
    """Every tensor of every file of a run, bit by bit, by file and name."""
    kinds = {"members": "member", "checkpoint": "checkpoint"}
    paths = {f"{folder}/{p.name}": (p, kind) for folder, kind in kinds.items() for p in (run / folder).iterdir()}
    trees = {name: tensors.load(*found)[0] for name, found in sorted(paths.items())}
    return {name: {k: _bits(t) for k, t in flatten(tree).items()} for name, tree in trees.items()}


def _bits(tensor: Tensor) -> bytes:
    return str((tensor.dtype, tensor.shape)).encode() + tensor.numpy().tobytes()


def scores(run: Path) -> list[tuple[Any, ...]]:
    """What the ledger says of every evaluation, but for its time."""
    names = ("member", "step", "fitness", "std", "episodes", "returns", "objectives", "cost")
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return [tuple(repr(score[name]) for name in names) for score in ledger.scores()]


def decided(run: Path) -> dict[str, Any]:
    """What the files of a run say beside their tensors, but for what depends on the clock."""
    kinds = {"members": "member", "checkpoint": "checkpoint"}
    return {
        f"{folder}/{path.name}": _timeless(tensors.load(path, kind)[1])
        for folder, kind in kinds.items()
        for path in sorted((run / folder).iterdir())
    }


def _timeless(info: Any) -> Any:
    """Without seconds, the size of the event file, and turns, of which an evaluation that is made up for takes one."""
    if isinstance(info, dict):
        left_out = ("seconds", "events", "turn", "config")  # which a run that was extended had otherwise before
        return {key: _timeless(value) for key, value in info.items() if key not in left_out}
    return info


def members(run: Path) -> list[dict[str, Any]]:
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return ledger.members()


class Faulty(CartPole):
    """CartPole that from its 40th step on shows one member (by row) a NaN (or `value`), as `what` it gets."""

    def __init__(
        self, members: int, envs: int, device: Any = "cpu", row: int = -1, what: str = "obs", value: float = math.nan
    ) -> None:
        super().__init__(members, envs, device)
        self.row, self.what, self.value, self.count = row, what, value, 0

    def step(self, action: Tensor) -> Step:
        step = super().step(action)
        self.count += 1
        if self.count >= 40 and 0 <= self.row < self.members:
            (step.obs if self.what == "obs" else step.reward)[self.row] = self.value
        return step


class Thermometer(gym.Env[Any, Any]):
    """Its observation is one number without a shape; the reward is the action."""

    observation_space = gym.spaces.Box(-1, 1, ())
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.float32(self.np_random.random()), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.float32(self.np_random.random()), float(action), self.np_random.random() < 0.1, False, {}


class Note(gym.Env[Any, Any]):
    """Its observations are texts."""

    observation_space = gym.spaces.Text(3)
    action_space = gym.spaces.Discrete(2)


class Broken(CartPole):
    """An env that cannot be made."""

    def __init__(self, *_: Any) -> None:
        raise RuntimeError("no licence")


class Bytes(gym.Env[Any, Any]):
    """Observations of bytes; the reward is the action."""

    observation_space = gym.spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.full((2, 2), 200, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full((2, 2), 50 * self.t, np.uint8), float(action), False, self.t == 4, {}


def refused(folder: Path, *words: object) -> str:
    """The one line that `podium WORDS` is refused with; nothing in `folder` may change."""
    before, started = files(folder), time.monotonic()
    code, out, err = command(*words)
    assert time.monotonic() - started < 5
    assert code == 2, (code, out, err)
    assert out == ""
    assert len(err.splitlines()) == 1 and err.startswith("podium: error: ")
    assert files(folder) == before
    return err
