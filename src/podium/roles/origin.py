"""Where a number that is not finite came from: the env, the step and what it was; asked only once there is one."""

from __future__ import annotations

from podium.algos.base import Batch

WITHIN = "a loss or gradient was nan or infinite, and all observations and rewards were finite"
"""Why a member failed whose envs gave no such number."""


def origin(rollout: Batch, row: int) -> str | None:
    """The first observation or reward of a member in a rollout `[M, T, E, ...]` that is not finite; None: all are."""
    found = []
    for name, later in (("obs", 0), ("reward", 1), ("last", 1)):  # what step t acts on, and what comes of it
        numbers = rollout[name][row].flatten(2) if rollout[name].ndim > 3 else rollout[name][row].unsqueeze(-1)
        places = (~numbers.isfinite()).nonzero()
        if len(places):
            step, env, which = places[0].tolist()
            found.append((step + later, name, env, float(numbers[step, env, which])))
    if not found:
        return None
    step, name, env, value = min(found)
    when = f"step {step} of the rollout" if step else "at the start of the rollout"
    return f"the {'reward' if name == 'reward' else 'observation'} of env {env} was {value} ({when})"
