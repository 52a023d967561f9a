"""What replays take of the machine's memory, known before any is allocated."""

from __future__ import annotations

from bisect import bisect_right

import torch
from gymnasium.spaces import Box, Discrete

from podium.core import machine
from podium.core.errors import ConfigError
from podium.core.spec import Spec
from podium.replay import frames
from podium.replay.ring import Layout
from podium.replay.settings import ReplaySettings
from podium.replay.sum_tree import SumTree


def needed(spec: Spec, settings: ReplaySettings) -> int:
    """Bytes of the replay of a stack once it is full."""
    layout, (rows, envs) = Layout(spec), _shape(spec, settings)
    steps = settings.capacity // envs
    slots = (steps + layout.images) * envs
    total = rows * slots * layout.width * 4
    if layout.images:
        total += frames.needed(rows, envs, steps, layout.obs)
    return total + (SumTree.needed(spec.members, slots) if settings.prioritised else 0)


def check(spec: Spec, settings: ReplaySettings, batch: int) -> None:
    """Refuse settings that cannot work, whatever the memory."""
    if not isinstance(spec.action, Box | Discrete):
        raise ConfigError("env.id", spec.action, "a replay takes Discrete and Box actions")
    capacity, (_, envs) = settings.capacity, _shape(spec, settings)
    if capacity < envs:
        what = f"the envs of all {spec.members} members" if settings.shared else "env.num"
        raise ConfigError("replay.capacity", capacity, f"at least one step of each env; {what}: {envs}")
    if batch > capacity // envs * envs:
        raise ConfigError("algo.batch", batch, f"at most what the replay holds, {capacity // envs * envs} steps")


def fit(spec: Spec, settings: ReplaySettings, others: int = 0) -> None:
    """Refuse a replay that does not fit into memory beside the `others` bytes of the run's other replays."""
    whole, need = memory(spec.device), others + needed(spec, settings)
    if settings.bytes is None and need > whole // 2:
        limit = f"half of the memory is {machine.in_units(whole // 2)}, and "
        raise _too_large(spec, settings, others, whole // 2, "replay.capacity", limit)
    if settings.bytes is not None and need > settings.bytes:
        raise _too_large(spec, settings, others, settings.bytes, "replay.bytes")
    if need > whole:
        limit = f"the memory is {machine.in_units(whole)}, and "
        raise _too_large(spec, settings, others, whole, "replay.capacity", limit)


def _too_large(spec: Spec, settings: ReplaySettings, others: int, limit: int, field: str, why: str = "") -> ConfigError:
    _, envs = _shape(spec, settings)

    def total(steps: int) -> int:
        return others + needed(spec, settings.model_copy(update={"capacity": steps * envs}))

    largest = bisect_right(range(settings.capacity // envs + 1), limit, lo=1, key=total) - 1
    fits = f"replay.capacity={largest * envs} is the largest that fits" if largest else f"{total(1)} are the least"
    beside = f", and {machine.in_units(others)} for other members" if others else ""
    need = machine.in_units(needed(spec, settings))
    allowed = f"{why}{need} are needed for replay.capacity={settings.capacity}{beside}; {fits}"
    return ConfigError(field, getattr(settings, field.removeprefix("replay.")), allowed)


def memory(device: torch.device) -> int:
    """Bytes of the device's memory, used or not."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return machine.memory()


def _shape(spec: Spec, settings: ReplaySettings) -> tuple[int, int]:
    """Rows of the ring, and envs of a row."""
    return (1, spec.members * spec.envs) if settings.shared else (spec.members, spec.envs)
