"""Gymnasium's MuJoCo tasks, stepped as one batch: MuJoCo by a few threads, the rest on arrays of all envs.

An env is a row of numbers (time, positions, velocities, the solver's warm start, controls), which a thread puts into
its own MjData, moves, and takes out again. That is what Gymnasium's object does, so both agree to the last bit of the
physics; it costs 2 us an env where a step of HalfCheetah takes 40. MuJoCo's `rollout` does the same in C++ but neither
returns the warm start nor goes on after a warning as an env must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any
from weakref import finalize

import gymnasium as gym
import mujoco
import numpy as np
import torch
from torch import Tensor

from podium.core import machine
from podium.core.errors import CheckpointError
from podium.core.spec import Step
from podium.core.streams import Block, Streams
from podium.core.tree import Tree
from podium.envs.build import time_limit
from podium.envs.from_gymnasium import Out
from podium.envs.mujoco_tasks import Array, State, Task
from podium.envs.objects import Arrays, spaces_of

Job = tuple[Callable[[], None], "SimpleQueue[BaseException | None]"]
"""Work, and where to say that it is done, or what went wrong."""

SPEC = int(mujoco.mjtState.mjSTATE_FULLPHYSICS) | int(mujoco.mjtState.mjSTATE_WARMSTART)
SPEC |= int(mujoco.mjtState.mjSTATE_CTRL)
WORTH = 400  # microseconds of work for each thread at least: with less, waking it takes longer than it saves


class FromMujoco:
    """A VecEnv of M x E rows. `made` is one env of Gymnasium's: its model, time limit and weights are those of all.

    Box actions are clipped to their bounds; a NaN in them becomes 0. A simulation that diverges is put back to the
    model's first position by MuJoCo itself, as in Gymnasium, and no other env notices.
    """

    objectives: tuple[str, ...] = ()

    def __init__(
        self,
        made: gym.Env[Any, Any],
        task: type[Task],
        members: int,
        envs: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.members, self.envs, self.device = members, envs, torch.device(device)
        self.obs_space, self.action_space = spaces_of(made)
        self.time_limit = time_limit(made)
        inner: Any = made.unwrapped
        self.task, self.model, self.frames = task(inner), inner.model, int(inner.frame_skip)
        self._made = made
        count = members * envs
        self.table: Array = np.zeros((count, mujoco.mj_stateSize(self.model, SPEC)))
        self.rows = list(self.table)
        self.ctrl = self._columns(mujoco.mjtState.mjSTATE_CTRL)
        self.qpos = self._columns(mujoco.mjtState.mjSTATE_QPOS)
        self.qvel = self._columns(mujoco.mjtState.mjSTATE_QVEL)
        self.read: State = {n: np.zeros((count, *getattr(inner.data, n).shape)) for n in self.task.reads}
        self.s: State = {"qpos": self.qpos, "qvel": self.qvel, "ctrl": self.ctrl, **self.read}
        self._total, self._length = np.zeros(count), np.zeros(count)  # of the running episodes
        seen = self.obs_space.shape or (), self.obs_space.dtype
        self._out, self._spare = (Out(Arrays.of(count, seen, 0), members, envs) for _ in range(2))
        self._hands = [_Hand(self) for _ in range(self._threads())]
        self._crew = _Crew(len(self._hands) - 1)
        self._streams: Streams | None = None
        self._fresh = Block(self._draw)

    def reset(self, streams: Streams) -> Tensor:
        self._streams = streams
        self._fresh.drop()
        self._start(range(len(self.rows)), self._fresh.next())
        self._total.fill(0)
        self._length.fill(0)
        self._out.arrays.obs[:] = self.task.observe(self.s)
        return self._out.step.obs.to(self.device)

    def step(self, action: Tensor) -> Step:
        self._out, self._spare = self._spare, self._out
        out = self._out.arrays
        fresh = self._fresh.next()  # taken at every step, used or not: no member's numbers depend on another's
        self.ctrl[:] = taken = self._actions(action)
        place = self.task.place(self.s).copy()
        self._share(_Hand.step, range(len(self.rows)))
        out.reward[:], terminated = reward, _ = self.task.judge(self.s, place, taken)
        self._total += reward
        self._length += 1
        late = self._length >= self.time_limit
        done = late | terminated
        out.terminated[:], out.truncated[:] = terminated, late & ~terminated
        out.total[:], out.length[:] = self._total, self._length
        out.last[:] = out.obs[:] = self.task.observe(self.s)
        if done.any():
            ended = np.flatnonzero(done)
            self._start(ended.tolist(), fresh)
            self._total[ended] = self._length[ended] = 0
            out.obs[ended] = self.task.observe({name: x[ended] for name, x in self.s.items()})
        return self._out.on(self.device)

    def state(self) -> Tree:
        rest = self._fresh.rest()
        if rest is None:
            rest = torch.empty(self.members, 0, self.envs, self.model.nq + self.model.nv, dtype=torch.float64)
        now = {"physics": self.table, **self.read}
        return {
            "now": {name: self._tensor(x) for name, x in now.items()},
            "reward": self._tensor(self._total),
            "length": self._tensor(self._length),
            "fresh": rest,
        }

    def load(self, tree: Tree) -> Tensor:
        now = {"physics": self.table, **self.read}
        pairs = [(x, tree["now"].get(name)) for name, x in now.items()]
        pairs += [(self._total, tree["reward"]), (self._length, tree["length"])]
        for x, leaf in pairs:
            if leaf is None or leaf.shape != (self.members, self.envs, *x.shape[1:]):
                raise CheckpointError(f"env: not the state of {self.members} x {self.envs} {self._made}")
        for x, leaf in pairs:
            x[:] = leaf.numpy(force=True).reshape(x.shape)
        fresh = tree["fresh"].cpu()
        self._fresh.refill(fresh if fresh.shape[1] else None)
        self._out.arrays.obs[:] = self.task.observe(self.s)
        return self._out.step.obs.to(self.device)

    def close(self) -> None:
        self._crew.close()
        self._made.close()

    def _share(self, work: Callable[[_Hand, Iterator[int]], None], rows: Iterable[int]) -> None:
        """Have all hands work: each takes the next row that no other has taken."""
        turns = iter(rows)
        self._crew.run([partial(work, hand, turns) for hand in self._hands])

    def _threads(self) -> int:
        stages = 4 if self.model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4 else 1
        cost = int(self.frames * stages * self.model.nv)  # near the microseconds of an env's step: Reacher 32, Ant 280
        return max(1, min(machine.cores(), len(self.rows) * cost // WORTH))

    def _start(self, rows: Iterable[int], fresh: Tensor) -> None:
        """New episodes in these envs."""
        starts = fresh.numpy()
        nq = self.model.nq
        for i in rows:
            start = starts[divmod(i, self.envs)]
            self._hands[0].start(i, start[:nq], start[nq:])

    def _draw(self) -> Tensor:
        """Starts for the coming steps, `[M, T, E, nq + nv]`."""
        if self._streams is None:
            raise RuntimeError("call reset before step")
        # T may depend on what a member has, never on how many members there are; at most 16k numbers a member.
        steps = max(1, min(128, 2**14 // (self.envs * (self.model.nq + self.model.nv))))
        return self.task.start(self._streams.env, steps, self.envs)

    def _actions(self, action: Tensor) -> Array:
        space: Any = self.action_space
        taken = action.numpy(force=True).reshape(len(self.rows), -1).astype(np.float64)
        taken[np.isnan(taken)] = 0  # of a failed member
        return taken.clip(space.low, space.high, out=taken)

    def _columns(self, field: Any) -> Array:
        """Where a field stands in the rows, which have their fields in the order of the bits."""
        begin = mujoco.mj_stateSize(self.model, SPEC & (int(field) - 1))
        return self.table[:, begin : begin + mujoco.mj_stateSize(self.model, int(field))]

    def _tensor(self, x: Array) -> Tensor:
        return torch.from_numpy(x.copy()).reshape(self.members, self.envs, *x.shape[1:])


class _Crew:
    """Threads that wait for work. An executor and its futures take 5 % of HalfCheetah's steps, this next to nothing."""

    def __init__(self, size: int) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        for _ in range(size):
            Thread(target=_serve, args=(self._jobs,), daemon=True).start()
        # They know the queue alone, so that an env that nobody closed can go, and they with it.
        self.close = finalize(self, _dismiss, self._jobs, size)

    def run(self, works: list[Callable[[], None]]) -> None:
        """All of these, the first in this thread; there must be a thread for each other."""
        done: SimpleQueue[BaseException | None] = SimpleQueue()
        for work in works[1:]:
            self._jobs.put((work, done))
        try:
            works[0]()
        finally:
            errors = [done.get() for _ in works[1:]]
        for error in filter(None, errors):
            raise error


def _serve(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        work, done = job
        try:
            work()
        except BaseException as error:  # it is raised in the thread that waits
            done.put(error)
        else:
            done.put(None)
        del job, work, done  # which hold an env


def _dismiss(jobs: SimpleQueue[Job | None], size: int) -> None:
    for _ in range(size):
        jobs.put(None)


class _Hand:
    """What one thread works with: an MjData, which holds one env at a time."""

    def __init__(self, env: FromMujoco) -> None:
        self.model, self.data = env.model, mujoco.MjData(env.model)
        self.rows, self.frames, self.forces = env.rows, env.frames, env.task.forces
        self.fields = [(kept, getattr(self.data, name)) for name, kept in env.read.items()]

    def step(self, turns: Iterator[int]) -> None:
        model, data, rows, frames, forces = self.model, self.data, self.rows, self.frames, self.forces
        put, step, get, fields = mujoco.mj_setState, mujoco.mj_step, mujoco.mj_getState, self.fields
        for i in turns:
            row = rows[i]
            put(model, data, row, SPEC)
            step(model, data, frames)  # the GIL is free meanwhile
            if forces:
                mujoco.mj_rnePostConstraint(model, data)
            get(model, data, row, SPEC)
            for kept, field in fields:
                kept[i] = field

    def start(self, i: int, qpos: Array, qvel: Array) -> None:
        """As Gymnasium's `reset` and `set_state`."""
        data = self.data
        mujoco.mj_resetData(self.model, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, data)
        mujoco.mj_getState(self.model, data, self.rows[i], SPEC)
        for kept, field in self.fields:
            kept[i] = field
