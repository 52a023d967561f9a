"""Memory that a run takes, estimated before anything is built, so that what cannot fit is refused at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import torch
from gymnasium.spaces import Discrete, MultiDiscrete

from podium import experiment as experiments
from podium.algos.off_policy import AHEAD, OffPolicySettings
from podium.core import machine, tree
from podium.core.errors import PodiumError
from podium.core.parts import parts_of
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.envs import make as envs
from podium.guests.base import is_guest
from podium.lookup import algorithm, spec_of
from podium.nets import conv
from podium.replay import memory
from podium.settings import Evolution, Experiment

SHARE = 0.85
"""How much of the memory a run may use: other programs need some, and this is an estimate."""
LOOK = 0.25
"""From this share of the memory on, one member is built to see what its networks take."""
OBJECT = {"gymnasium": 100 << 10, "workers": 100 << 10, "atari": 1 << 20, "envpool": 1 << 20, "mujoco": 4 << 10}
"""Bytes of one env, by source; simulators have tensors only."""
ENV, MEMBER, WORKER, POD = 256, 24 << 10, 64 << 20, 300 << 20
"""Bytes of an env's totals and flags, of a member's generators and records, and of processes that hold envs or pods."""
SIZES = {
    "members": ("train", "members"),
    "net.hidden": ("net", "hidden"),
    "env.num": ("env", "num"),
    "algo.steps": ("algo", "steps"),
    "eval.episodes": ("eval", "episodes"),
    "algo.epochs": ("algo", "epochs"),
    "algo.batch": ("algo", "batch"),
    "critic.count": ("critic", "count"),
    "replay.capacity": ("replay", "capacity"),
    "algo.atoms": ("algo", "atoms"),
    "net.features": ("net", "features"),
    "net.conv": ("net", "conv"),
    "env.workers": ("env", "workers"),
}
"""Settings that may be to blame where the memory is too small."""


def fit(run: Experiment, kinds: Sequence[Experiment]) -> None:
    """Refuse a run whose members do not fit into memory: all of them where they share this machine, else one pod's.

    Raises PodiumError with the setting that is to blame and the largest value that fits.
    """
    room, members = int(memory.memory(torch.device(run.train.device)) * SHARE), "train.members"
    loads = [Load(kind, spec_of(kind, 1), kept=2 * isinstance(run, Evolution)) for kind in kinds]
    if isinstance(run, Evolution):
        members, fleet, pods = "evolve.members", run.fleet, run.fleet.pods if run.fleet.pods != "auto" else 1
        room *= max(1, len(fleet.devices))
        if fleet.kind == "processes" and pods * POD > room:
            raise PodiumError(_needs("fleet.pods", pods, pods * POD, room, f"at most fleet.pods={room // POD} fits"))
        if fleet.kind in ("ray", "mpi"):
            loads = [load.having("members", -(-load.kind.train.members // pods)) for load in loads]
    loads = [load.measured() if load.own and load.kind.train.members > 1 else load for load in loads]
    if sum(map(Load.total, loads)) > room * LOOK / SHARE:
        loads = [load.measured() if load.acting() < room // 2 else load for load in loads]
    _refuse_more(Load.total, loads, room, members)


def fit_one(kind: Experiment) -> None:
    """Refuse a member that is to act, by itself, where it does not fit into memory."""
    if not is_guest(algorithm(kind.algo.name)):
        _refuse_more(Load.acting, [Load(kind, spec_of(kind, 1))], int(machine.memory() * SHARE), "train.members")


@dataclass(frozen=True)
class Load:
    """What the members of one kind take of the memory.

    `kept` are snapshots for each member that a leaderboard holds, `known` bytes of what one has learnt, once measured.
    """

    kind: Experiment
    spec: Spec
    kept: int = 0
    known: int | None = None

    def total(self) -> int:
        """Bytes of all members, at their peak."""
        kind, spec, obs, row = self.kind, self.spec, self.obs, self.row
        members, num, episodes = kind.train.members, kind.env.num, kind.eval.episodes
        rollout, source = num * kind.algo.steps, envs.source_of(kind.env, members * num)
        env, batch, replay = 6 * obs + ENV + OBJECT.get(source, 0), getattr(kind.algo, "batch", rollout), 0
        if self.replays:
            replay, learning = memory.needed(replace(spec, members=members, envs=num), kind.replay), 3 * batch * row
        else:  # images went through their network as they came
            learning = ((num if self.images else rollout) + 2 * batch) * row + 2 * rollout * obs
            learning += 8 * rollout * getattr(kind.algo, "epochs", 0)
        stored = rollout * (2 * obs + 8 * self.numbers + 32)
        width = min(episodes, 8) if source in envs.OBJECTS else episodes
        evaluating = self.learnt + width * (env + row) + 16 * episodes + _starts(width)
        one = self.acting() + num * env + _starts(num) + stored + max(learning, evaluating)
        one += self.kept * self.learnt
        processes = min(kind.env.workers or machine.cores(), members * num) if source == "workers" else 0
        return members * one + replay + processes * WORKER

    def acting(self) -> int:
        """Bytes of one member that only acts."""
        num = self.kind.env.num * self.numbers
        noise = max(AHEAD, num) if self.replays else self.kind.algo.steps * num
        return 5 * self.learnt // 4 + MEMBER + 4 * (noise + num)

    @property
    def learnt(self) -> int:
        """Bytes of weights, their two moments and, with a replay, targets of one member."""
        if self.known is not None:
            return self.known
        sides = [self.seen + self.replays * self.numbers, *self.kind.net.hidden, self.outputs]
        weights = sum((a + 1) * b for a, b in pairwise(sides)) * self.towers
        for layers, planes in self.images:
            weights += sum(f * k * k * plane[0] for (f, k, _), plane in zip(layers, planes, strict=False))
            weights += prod(planes[-1]) * self.kind.net.features
        weights *= 2 if getattr(self.kind.algo, "noisy", False) else 1  # and how noisy each is
        return 4 * weights * (4 if self.replays else 3)

    @property
    def row(self) -> int:
        """Bytes that pass through the networks of a member for one observation."""
        pixels = sum(prod(plane) for _, planes in self.images for plane in planes)
        return 4 * (self.towers * (sum(self.kind.net.hidden) + self.outputs) + 3 * (self.seen + pixels))

    @property
    def images(self) -> list[tuple[conv.Layers, list[tuple[int, int, int]]]]:
        """Layers of convolutions and what they make of an image, for each that an observation has."""
        net, shapes = self.kind.net, [part.shape for part in parts_of(self.spec.obs) if part.image]
        layers = [conv.layers_of(shape, net.conv) for shape in shapes if net.module is None]
        return [(each, conv.planes(shape, each)) for shape, each in zip(shapes, layers, strict=False)]

    @property
    def seen(self) -> int:
        """Numbers that the first layer takes."""
        plain = sum(part.size for part in parts_of(self.spec.obs) if not (part.image and self.images))
        return plain + len(self.images) * self.kind.net.features

    @property
    def obs(self) -> int:
        """Bytes of one observation."""
        return prod(self.spec.obs.shape or ()) * (1 if self.spec.obs.dtype == "uint8" else 4)

    @property
    def numbers(self) -> int:
        """Numbers of an action's distribution."""
        action = self.spec.action
        if isinstance(action, Discrete):
            return int(action.n)
        return int(action.nvec.sum()) if isinstance(action, MultiDiscrete) else prod(action.shape or (1,))

    @property
    def replays(self) -> bool:
        return isinstance(self.kind.algo, OffPolicySettings)

    @property
    def towers(self) -> int:
        """Networks of a member: critics, and a policy unless actions are chosen by value."""
        by_value = hasattr(self.kind.algo, "distribution")
        return self.kind.critic.count + (not by_value) if self.replays else 2

    @property
    def outputs(self) -> int:
        spread = getattr(self.kind.algo, "distribution", None) in ("c51", "qr")
        return (self.numbers + 1) * (getattr(self.kind.algo, "atoms", 1) if spread else 1)

    @property
    def own(self) -> bool:
        """Whether its networks are the user's, so that only a look can tell how large they are."""
        return ":" in self.kind.algo.name or self.kind.net.module is not None

    def measured(self) -> Load:
        """The same with what one member has learnt, which is built for this."""
        if self.known is not None or is_guest(algorithm(self.kind.algo.name)):
            return self
        one = self.having("env.num", 1).kind
        built = experiments.build_algorithm(one, 1, Streams(one.seed, [0]), [0])
        return replace(self, known=sum(int(leaf.nbytes) for leaf in tree.flatten(built.learnt()).values()))

    def values(self, name: str) -> list[int]:
        """A setting, or the sizes in it, where the kind has it."""
        section, field = SIZES[name]
        if (section == "net" and self.kind.net.module is not None) or (section == "critic" and not self.replays):
            return []
        found = getattr(getattr(self.kind, section), field, None)
        if name == "net.conv":
            return [filters for filters, _, _ in found or ()]
        return [found] if isinstance(found, int) else list(found or ())

    def at_most(self, name: str, value: int) -> Load:
        """The same with no part of a setting larger than `value`."""
        found, conv = [min(n, value) for n in self.values(name)], self.kind.net.conv or ()
        if name == "net.conv":
            return self.having(name, tuple((n, *rest) for n, (_, *rest) in zip(found, conv, strict=True)) or None)
        return self.having(name, tuple(found) if name == "net.hidden" else found[0]) if found else self

    def having(self, name: str, value: Any) -> Load:
        """The same with another size; one of the networks makes what was measured void."""
        section, field = SIZES[name]
        part = getattr(self.kind, section).model_copy(update={field: value})
        known = None if section in ("net", "critic") and self.kind.net.module is None else self.known
        return replace(self, kind=self.kind.model_copy(update={section: part}), known=known)


def _starts(num: int) -> int:
    """Bytes of the starts that a simulator draws ahead for so many envs."""
    return 16 * min(1 << 14, 512 * num)


def _refuse_more(size: Callable[[Load], int], loads: Sequence[Load], room: int, members: str) -> None:
    """Raise PodiumError where loads take more than `room`: blames the setting that, at its least, leaves the least."""
    need = sum(map(size, loads))
    if need <= room:
        return

    def with_at_most(name: str, value: int) -> int:
        return sum(size(load.at_most(name, value)) for load in loads)

    values = {name: max(found) for name in SIZES if (found := [n for load in loads for n in load.values(name)])}
    blamed = min(values, key=lambda name: with_at_most(name, 1))
    most = bisect_right(range(1, values[blamed] + 1), room, key=lambda n: with_at_most(blamed, n))
    called, scale = (members, len(loads)) if blamed == "members" else (blamed, 1)
    shown = getattr(loads[0].kind.net, blamed[4:]) if blamed in ("net.hidden", "net.conv") else values[blamed] * scale
    fits = f"at most {called}={_down(most * scale)} fits" if most else "other settings have to be smaller, too"
    if isinstance(shown, tuple) and most:
        fits = f"layers of at most {_down(most)} fit"
    raise PodiumError(_needs(called, list(shown) if isinstance(shown, tuple) else shown, need, room, fits))


def _needs(name: str, value: Any, need: int, room: int, fits: str) -> str:
    has = f"this machine has {machine.brief(room)} for it"
    return f"{name}={value} needs about {machine.brief(need)} of memory, and {has}; {fits}."


def _down(number: int) -> int:
    """Two digits of an estimate, rounded down."""
    ten = int("1" + "0" * (len(str(number)) - 2))
    return number // ten * ten
