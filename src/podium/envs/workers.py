"""Gymnasium's env objects in worker processes: slow ones gain cores, and one that crashes costs no more than itself."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from podium.core import machine
from podium.core.actions import Actions
from podium.core.errors import ConfigError, EnvFailed, PodiumError
from podium.core.spec import Step
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.core.watch import Watch
from podium.envs.build import build, portable, resolve
from podium.envs.from_gymnasium import Out, flat, seeds
from podium.envs.objects import spaces_of
from podium.envs.worker import IDLE, Board, Job, Layout, drop

START = 60.0
"""Seconds that a process may take to begin with its first env."""
GRACE = 3.0
"""Seconds that workers are given to close their envs."""
LOOK = 0.5
"""Seconds between two looks at a worker that does not answer, at most."""
TRACE = 8000
"""Characters of a traceback that are kept, the last ones."""
KEPT = 100
"""Notes that wait for somebody to ask."""
BEGIN = "import sys; sys.path.insert(0, sys.argv.pop()); import podium; del sys.path[0]; " + (
    "from podium.envs.worker import main; main()"
)
"""What a worker runs: this very Podium, wherever it lies, which must not bring other modules of its folder with it."""


@dataclass(frozen=True)
class Limits:
    """How many processes there are, and how much an env may fail."""

    workers: int | None = None  # None: as many as there are cores
    timeout: float = 60.0  # seconds of one call of one env
    max_failures: int = 5  # of one env, without a whole episode in between


class Workers:
    """A VecEnv of M x E env objects, shared out among processes. Given the same seeds it equals FromGymnasium bitwise.

    An env that raises, returns a NaN, hangs or kills its process costs itself: its running episode is dropped, a new
    object takes its place, and the traceback is in `notes`. When a process died or hung, its other envs lose their
    running episodes, too. The step at which that happens shows `truncated` with reward 0 and `last` the observation
    that was acted on; `episode.length` is 0 there, by which collectors and evaluators know that no episode ended
    that counts. `dropped` counts them. After `max_failures` of one env in a row, EnvFailed is raised.

    Processes start at the first `reset`. They have no names in /dev/shm to be left behind: the memory is a file without
    one, and ends with the last process that holds it.
    """

    def __init__(
        self,
        id: str,
        members: int,
        envs: int,
        device: torch.device | str = "cpu",
        kwargs: Mapping[str, Any] | None = None,
        measures: Sequence[str] = (),
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        time_limit: int | None = None,
        masked: bool = False,
    ) -> None:
        self.members, self.envs, self.device, self.objectives = members, envs, torch.device(device), tuple(measures)
        self._id, self._limits, rows = id, limits, members * envs
        one = build(resolve(id), dict(kwargs or {}), time_limit, masked)
        self.obs_space, self.action_space = spaces_of(one)
        count = min(limits.workers or machine.cores(), rows)
        self._actions = Actions(one.action_space)
        layout = Layout(rows, count, _like(self.obs_space), _like(one.action_space), len(self.objectives))
        self._memory = scratch()
        os.truncate(self._memory, Board(layout, None).size)
        self._board = Board(layout, mmap.mmap(self._memory, 0))
        self._turn, self._outs = 0, [Out(arrays, members, envs) for arrays in self._board.sets]
        name, spec = portable(id)
        self._job = Job(
            id=name,
            spec=spec,
            kwargs=dict(kwargs or {}),
            time_limit=time_limit,
            masked=masked,
            measures=self.objectives,
            scalar=isinstance(self.action_space, Discrete),
            max_failures=limits.max_failures,
            layout=layout,
            number=0,
            begin=0,
            end=0,
            search=sys.path,
            parent=os.getpid(),
            bound=False,
            memory=self._memory,
            replies=0,
            trace=0,
            stderr=0,
        )
        one.close()
        _check_plain(self._job.kwargs)
        self._slices = [(rows * i // count, rows * (i + 1) // count) for i in range(count)]
        self._workers: list[Process | None] = [None] * count
        self._notes: deque[str] = deque(maxlen=KEPT)
        self._told: deque[str] = deque(maxlen=KEPT)
        self._finalizer = weakref.finalize(self, _end, self._workers, self._memory)

    @property
    def dropped(self) -> int:
        """Episodes that were lost to failures."""
        return int(self._board.dropped.sum())

    def notes(self) -> list[str]:
        """What failed since this was last asked, for the log."""
        notes = [*self._notes]
        self._notes.clear()
        return notes

    def reset(self, streams: Streams) -> Tensor:
        if not self._finalizer.alive:
            raise PodiumError("the envs are closed")
        for number, worker in enumerate(self._workers):
            if worker is not None and worker.busy:  # an exception came between a command and its answer
                worker.end()
                self._workers[number] = None
        self._board.seeds[:] = seeds(streams, self.envs)
        self._board.lives.fill(0)
        for number, worker in enumerate(self._workers):
            self._workers[number] = worker or self._start(number)
        for number, why in self._all("r").items():
            self._revive(number, why)
        return self._outs[self._turn].step.obs.to(self.device)

    def step(self, action: Tensor) -> Step:
        self._board.actions[:] = self._actions.to_env(flat(action))
        self._turn = 1 - self._turn
        out, before = self._outs[self._turn], self._outs[1 - self._turn]
        for number, why in self._all("s").items():
            rows = slice(*self._slices[number])
            self._board.lives[rows] += 1
            self._board.dropped[rows] += 1
            self._revive(number, why)
            drop(out.arrays, before.arrays, rows)
        return out.on(self.device)

    def state(self) -> Tree | None:
        return None

    def load(self, tree: Tree) -> Tensor:
        raise PodiumError("Gymnasium's envs cannot be put back into a state; reset them")

    def close(self) -> None:
        self._finalizer()

    def _all(self, what: str) -> dict[int, str]:
        """Have every worker do something; which of them died or hung over it, and how."""
        command, lost = f"{what}{self._turn}".encode(), {}
        for worker in self._workers:
            if worker is None or worker.busy:
                raise PodiumError("the envs are not running, or were interrupted; reset them")
            worker.send(command)
        for number in range(len(self._workers)):
            if why := self._hear(number):
                lost[number] = why
        return lost

    def _hear(self, number: int) -> str | None:
        """Wait for the answer of a worker and note what failed; or how it was lost."""
        worker = self._workers[number]
        assert worker is not None
        try:
            said = worker.answer(self._board, number, self._limits.timeout)
        except Lost as lost:
            worker.end()
            self._workers[number] = None
            return str(lost)
        if isinstance(said, str):  # it breaks the rules, or its settings do
            raise PodiumError(said)
        self._failed(said)
        return None

    def _revive(self, number: int, why: str) -> None:
        """A new process in place of one that was lost, with all its envs reset; the env that it was busy with failed.

        Where it was busy with none, nobody knows which of them it was.
        """
        while True:
            at = int(self._board.at[number])
            rows = [*range(*self._slices[number])] if at == IDLE else [at]
            self._board.failures[rows] += 1
            self._board.lives[rows] += 1
            self._board.at[number] = IDLE
            self._failed([(row, why) for row in rows])
            worker = self._workers[number] = self._start(number)
            worker.send(f"r{self._turn}".encode())
            again = self._hear(number)
            if again is None:
                return
            why = again

    def _failed(self, said: list[tuple[int, str]]) -> None:
        """Note what rows said; EnvFailed where one of them did it too often. A traceback is told once, then its end."""
        for row, text in said:
            text, name = text.strip()[-TRACE:], f"env {row % self.envs} of row {row // self.envs}"
            short = text if text not in self._told else text.splitlines()[-1]
            self._told.append(text)
            self._notes.append(f"{self._id}, {name} failed; {self.dropped} episodes dropped so far\n{short}")
        for row, text in reversed(said):
            if (failures := int(self._board.failures[row])) >= self._limits.max_failures:
                raise EnvFailed(self._id, f"env {row % self.envs} of row {row // self.envs}", failures, text.strip())

    def _start(self, number: int) -> Process:
        begin, end = self._slices[number]
        main = threading.current_thread() is threading.main_thread()
        return Process(replace(self._job, number=number, begin=begin, end=end, bound=main))


class Lost(Exception):
    """A worker died or did not answer in time; says how, with its last traceback."""


class Process:
    """A worker as its parent sees it."""

    def __init__(self, job: Job) -> None:
        self.busy = False
        self._said, self._trace = b"", scratch()
        self._replies, theirs = os.pipe()
        stderr, self._watch = os.dup(2), Watch()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", BEGIN, str(Path(__file__).parents[2])],  # -P: nothing of this folder
            stdin=subprocess.PIPE,
            stderr=self._trace,  # until it has begun: what it dies of before is told there only
            pass_fds=(job.memory, theirs, self._trace, stderr),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # so that all that an env starts can be ended with it
        )
        self._watch.over(self._process.pid)
        os.close(theirs)
        os.close(stderr)
        assert self._process.stdin is not None
        self._commands = self._process.stdin
        data = msgspec.msgpack.encode(replace(job, replies=theirs, trace=self._trace, stderr=stderr))
        with contextlib.suppress(BrokenPipeError):  # it has died: the first answer says so
            self._commands.write(len(data).to_bytes(8) + data)
            self._commands.flush()
        self._ready = select.poll()
        self._ready.register(self._replies, select.POLLIN)

    def send(self, command: bytes) -> None:
        self.busy = True
        with contextlib.suppress(BrokenPipeError):
            os.write(self._commands.fileno(), command)

    def answer(self, board: Board, number: int, timeout: float) -> str | list[tuple[int, str]]:
        """What failed, or why it cannot be used at all. `timeout` is for each call of an env that it is busy with."""
        now, since, look = None, time.monotonic(), int(1000 * min(LOOK, timeout / 4)) + 1
        while not self._said.endswith(b"\n"):
            if self._ready.poll(look):
                part = os.read(self._replies, 4096)
                if not part:
                    raise Lost(self._died())
                self._said += part
                continue
            if self._process.poll() is not None:
                raise Lost(self._died())
            if now != (now := (int(board.at[number]), int(board.calls[number]))):
                since = time.monotonic()
            limit = max(timeout, START) if now[0] == IDLE else timeout
            if time.monotonic() - since > limit:
                raise Lost(self._hung(limit))
        said, self._said, self.busy = self._said, b"", False
        return [] if said == b"\n" else msgspec.json.decode(said, type=str | list[tuple[int, str]])

    def _died(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.poll()
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
        return f"{self._traceback()}its process died: {how}"

    def _hung(self, seconds: float) -> str:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)  # faulthandler tells where it is
        time.sleep(0.1)
        return f"{self._traceback()}no answer in {seconds:g} s"

    def _traceback(self) -> str:
        text = os.pread(self._trace, 1 << 16, 0).decode(errors="replace").strip()
        return f"{text}\n" if text else ""

    def let_go(self) -> None:
        """It ends by itself, once its env lets it."""
        with contextlib.suppress(OSError):
            self._commands.close()

    def end(self, grace: float = 0.0) -> None:
        """With all that it started."""
        self.let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._watch.end()
        self._process.wait()
        for descriptor in (self._replies, self._trace):
            os.close(descriptor)


def scratch() -> int:
    """A file in memory, without a name that could be left behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("podium")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _end(workers: list[Process | None], memory: int) -> None:
    running = [worker for worker in workers if worker is not None]
    for worker in running:
        worker.let_go()
    end = time.monotonic() + GRACE
    for worker in running:
        worker.end(max(0.0, end - time.monotonic()))
    workers[:] = [None] * len(workers)
    os.close(memory)


def _like(space: Any) -> tuple[tuple[int, ...], str]:
    return tuple(space.shape or ()), str(space.dtype)


def _check_plain(kwargs: dict[str, Any]) -> None:
    try:
        msgspec.msgpack.encode(kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError("env.kwargs", kwargs, f"workers take plain data, such as YAML holds ({error})") from error
