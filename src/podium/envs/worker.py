"""A process that steps some of the envs of `workers.Workers`; what it sees goes into memory that both of them share.

What it is comes on standard input, then two bytes for each thing to do.
It imports no torch, ends when its parent does, and lets nothing that an env raises out of that env.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import math
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.envs.registration import EnvSpec

from podium.core.errors import PodiumError
from podium.core.parts import Row
from podium.core.text import encodable
from podium.envs import contract
from podium.envs.build import build, resolve
from podium.envs.objects import Array, Arrays, Objects, seen

IDLE = -1
"""No env has the word."""
HEARTBEAT = 1.0
"""Seconds between two looks at whether the parent lives."""
_PR_SET_PDEATHSIG = 1
Like = tuple[tuple[int, ...], str]
"""Shape and dtype of an observation, or of an action."""


@dataclass(frozen=True)
class Layout:
    """What the shared memory holds."""

    rows: int
    workers: int
    obs: Like
    action: Like
    objectives: int


@dataclass(frozen=True)
class Job:
    """All that a worker has to know."""

    id: str  # module:Class; not used where there is a
    spec: str | None  # of Gymnasium's, as JSON
    kwargs: dict[str, Any]
    time_limit: int | None
    masked: bool
    measures: tuple[str, ...]
    scalar: bool  # whether an action is an int
    max_failures: int
    layout: Layout
    number: int
    begin: int  # its rows
    end: int
    search: list[str]
    parent: int
    bound: bool  # whether it may ask the kernel to end it with the thread that started it
    memory: int  # file descriptors
    replies: int
    trace: int
    stderr: int


class Board:
    """The arrays in shared memory; the same order of calls gives both sides the same places."""

    def __init__(self, layout: Layout, memory: mmap.mmap | None) -> None:
        self.size, self._memory = 0, memory
        n = layout.rows
        self.at = self._new((layout.workers,), np.int64)  # the row that a worker is busy with
        self.calls = self._new((layout.workers,), np.int64)  # of its envs, but for the steps: those change the row
        self.failures = self._new((n,), np.int64)  # of an env, without a whole episode in between
        self.lives = self._new((n,), np.int64)  # times that an env was built anew since the last reset of all
        self.dropped = self._new((n,), np.int64)  # episodes
        self.seeds = self._new((n,), np.int64)
        self.actions = self._new((n, *layout.action[0]), layout.action[1])
        self.sets = [Arrays.of(n, layout.obs, layout.objectives, self._new) for _ in range(2)]

    def _new(self, shape: tuple[int, ...], dtype: Any) -> Array:
        kind, begin = np.dtype(dtype), self.size
        self.size += -(-math.prod(shape) * kind.itemsize // 64) * 64
        if self._memory is None:  # only to learn the size
            return np.broadcast_to(np.zeros((), kind), shape)
        return np.frombuffer(self._memory, kind, math.prod(shape), begin).reshape(shape)

    def seed(self, row: int) -> int:
        """What an env is to be reset with: its own seed, or after a failure another that follows from it."""
        seed, life = int(self.seeds[row]), int(self.lives[row])
        return int(np.random.default_rng([seed, life]).integers(2**31)) if life else seed


def drop(out: Arrays, before: Arrays, rows: list[int] | slice) -> None:
    """Let the last step of some envs look like the end of an episode that counts nowhere."""
    out.last[rows] = before.obs[rows]
    out.terminated[rows], out.truncated[rows] = False, True
    out.reward[rows] = out.total[rows] = out.length[rows] = out.objectives[rows] = 0


class Guarded:
    """One env that may raise or return no numbers: then its episode is over, and the next is played by a new object."""

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], row: int, job: Job, board: Board) -> None:
        self._make, self._row, self._job, self._board = make, row, job, board
        self._env: gym.Env[Any, Any] | None = None
        self._tried = False  # whether it has shown that it keeps Gymnasium's rules
        self._shape, dtype = job.layout.obs
        self._floats = np.dtype(dtype).kind == "f"
        self._blank = np.zeros(self._shape, dtype)
        self._layout: Row | None = None  # of observations that are no Box
        self._nothing = dict.fromkeys(job.measures, 0.0)
        self.said: list[tuple[int, str]] = []  # tracebacks
        self.failed = False  # in this step

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._board.at[self._job.number] = self._row
        try:
            assert self._env is not None, "it could not be built"
            answer = self._env.step(action)
            if not self._tried:
                _check_numbers(answer)
                contract.check_step(self._env, answer, self._job.measures)
                self._tried = True
            obs, reward, terminated, truncated, info = answer
            if not math.isfinite(reward):
                raise FloatingPointError(f"the reward is {reward}")
            obs = self._seen(obs)
            for name in self._job.measures:
                float(info[name])
        except PodiumError:
            raise
        except Exception:
            self._fail()
            self.failed = True
            return self._blank, 0.0, False, True, self._nothing
        if terminated or truncated:
            self._board.failures[self._row] = 0
        return obs, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self._board.at[self._job.number] = self._row
        while self._board.failures[self._row] < self._job.max_failures:
            try:
                self._call()
                if self._env is None:
                    self._env, seed = self._make(), self._board.seed(self._row)
                    space = seen(self._env.observation_space)
                    self._layout = space if isinstance(space, Row) else None
                    self._call()
                answer = self._env.reset(seed=seed)
                if not self._tried:
                    _check_numbers(answer)
                    contract.check_reset(self._env, answer)
                return self._seen(answer[0]), answer[1]
            except PodiumError:
                raise
            except Exception:
                self._fail()
        return self._blank, {}  # the parent gives it up

    def close(self) -> None:
        self._call()
        if self._env is not None:
            with contextlib.suppress(Exception):
                self._env.close()

    def _seen(self, obs: Any) -> Any:
        """An observation as the parent takes it."""
        if self._layout is not None:
            row = np.empty(self._shape, np.float32)
            self._layout.write(obs, row)
            obs = row
        if np.shape(obs) != self._shape:
            raise ValueError(f"the observation has the shape {np.shape(obs)}, not {self._shape}")
        if self._floats and (square := np.vdot(obs, obs)) != square:
            raise FloatingPointError(f"the observation holds a NaN: {obs}")
        return obs

    def _call(self) -> None:
        """Another call of the same env begins, with time of its own."""
        self._board.calls[self._job.number] += 1

    def _fail(self) -> None:
        self.said.append((self._row, traceback.format_exc()))
        self._board.failures[self._row] += 1
        self._board.lives[self._row] += 1
        self.close()
        self._env = None


def _check_numbers(answer: Any) -> None:
    """A NaN is a failure, whenever it comes: it must not pass for a broken rule, which ends the run."""
    for value in answer[:2] if isinstance(answer, tuple) else ():
        if isinstance(value, float | np.floating | np.ndarray) and np.isnan(value).any():
            raise FloatingPointError(f"the first answer holds a NaN: {value}")


class Worker:
    """The envs of one process and what it does with them."""

    def __init__(self, job: Job, board: Board) -> None:
        target = EnvSpec.from_json(job.spec) if job.spec else resolve(job.id)
        self._job, self._board, self._rows = job, board, range(job.begin, job.end)
        make = partial(build, target, job.kwargs, job.time_limit, job.masked)
        self._guarded = [Guarded(make, row, job, board) for row in self._rows]
        self._objects = Objects(self._guarded, job.measures)
        self._sets = [arrays.rows(job.begin, job.end) for arrays in board.sets]
        self._actions = board.actions[job.begin : job.end]

    def do(self, what: str, turn: int) -> list[tuple[int, str]]:
        """Reset or step all envs into one of the two sets of arrays; what failed on the way."""
        out, before = self._sets[turn], self._sets[1 - turn]
        if what == "r":
            self._objects.reset(map(self._board.seed, self._rows), out)
        else:
            # Copies: an env may keep the action that it got.
            actions = self._actions.tolist() if self._job.scalar else list(self._actions.copy())
            self._objects.step(actions, out)
        said = [text for env in self._guarded if env.said for text in env.said]
        if said:
            failed = [i for i, env in enumerate(self._guarded) if env.failed]
            if what == "s":
                drop(out, before, failed)
                self._board.dropped[[self._job.begin + i for i in failed]] += 1
            for env in self._guarded:
                env.said, env.failed = [], False
        self._board.at[self._job.number] = IDLE
        return said

    def close(self) -> None:
        self._objects.close()


def serve(job: Job, commands: int) -> None:
    """Until the parent lets go."""
    memory = mmap.mmap(job.memory, 0)
    worker: Worker | None = None
    while command := os.read(commands, 2).decode():
        try:
            if worker is None:
                worker = Worker(job, Board(job.layout, memory))
            said = worker.do(command[0], int(command[1]))
            answer = msgspec.json.encode([(row, encodable(text)) for row, text in said]) if said else b""
        except PodiumError as error:
            answer = msgspec.json.encode(encodable(str(error)))
        except Exception:  # not an env's
            answer = msgspec.json.encode(encodable(traceback.format_exc()))
        rest = answer + b"\n"
        while rest:
            rest = rest[os.write(job.replies, rest) :]
    if worker is not None:
        worker.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    commands = os.dup(0)
    with open(os.devnull, "rb") as nothing:  # an env that reads must not read what is not for it
        os.dup2(nothing.fileno(), 0)
    job = msgspec.msgpack.decode(_read(commands, int.from_bytes(_read(commands, 8))), type=Job)
    for descriptor in (job.memory, job.replies, job.trace):
        os.set_inheritable(descriptor, False)  # what an env starts must not hold them open
    _follow(job)
    faulthandler.enable(job.trace, all_threads=False)
    faulthandler.register(signal.SIGUSR1, job.trace, all_threads=False)
    sys.path[:] = job.search
    _speak(job)
    serve(job, commands)


def _speak(job: Job) -> None:
    """What went to the trace so far, and all that follows, goes where the parent's own errors go."""
    sys.stderr.flush()
    os.dup2(job.stderr, 2)
    os.close(job.stderr)
    with contextlib.suppress(OSError):  # nobody may listen
        os.write(2, os.pread(job.trace, 1 << 16, 0))
    os.ftruncate(job.trace, 0)
    os.lseek(job.trace, 0, os.SEEK_SET)


def _read(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            sys.exit()
        data += part
    return data


def _follow(job: Job) -> None:
    """End when the parent does: by the kernel, which needs no help of an env that hangs, and by looking.

    What envs have started is ended by the parent's `Watch`, which outlives this process.
    """
    if sys.platform == "linux" and job.bound:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def look() -> None:
        while os.getppid() == job.parent:
            time.sleep(HEARTBEAT)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()
