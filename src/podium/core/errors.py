"""What Podium raises when it refuses something. The command line turns each into one message and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MANY = 20
"""More names than these are not listed."""


NEAR = 0.7
"""How alike two names must be for the one to be proposed in place of the other."""


class PodiumError(Exception):
    """Base of every error a user can cause. It speaks Python; `typed` is what the command line says instead."""

    def __init__(self, message: str, typed: str | None = None) -> None:
        self.typed = message if typed is None else typed
        super().__init__(message)


class Stop(Exception):
    """Raised by `on_report` to end a run: it saves a checkpoint and returns, with the reason "stopped"."""


class ConfigError(PodiumError):
    """A setting that cannot be used: names the field, the value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field}: {value!r} is not allowed; {allowed}")


class ArgumentError(ConfigError):
    """An argument of a call that cannot be used, which is an option of the command line.

    `typed` is `allowed` in the words of the command line, where these differ.
    """

    def __init__(self, name: str, value: object, allowed: str, typed: str | None = None) -> None:
        super().__init__(name, value, allowed)
        option = "-o" if name == "out" else f"--{name}"
        self.typed = f"{option}: {value!r} is not allowed; {typed or allowed}"
        self.args = (f"{name}={value!r} is not allowed; {allowed}",)


class UnknownName(PodiumError):
    """A name (setting, preset, algorithm, environment) that does not exist; suggests its nearest neighbour."""

    def __init__(self, what: str, name: str, known: Iterable[str], otherwise: str | None = None) -> None:
        folded = {k.casefold(): k for k in sorted(known)}
        near = [folded[k] for k in difflib.get_close_matches(name.casefold(), folded, 1, NEAR)]
        names = list(folded.values())
        rest = f" and {len(names) - MANY} more" if len(names) > MANY else ""
        allowed = otherwise or f"allowed: {', '.join(names[:MANY])}{rest}"
        super().__init__(f"{what}: there is no {name!r}; {f'did you mean {near[0]!r}?' if near else allowed}")


class CheckpointError(PodiumError):
    """A file of a run that is damaged, of another version or of another shape. Nothing of it was loaded."""


class MissingExtra(PodiumError):
    """An optional package is not installed; names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        command = f"pip install -c constraints.txt 'podium-rl[{extra}]'"
        where = "constraints.txt, the versions that were tested, is in the root of Podium's repository"
        super().__init__(f"{package} is not installed; install it with: {command} ({where})")


class EnvRaised(PodiumError):
    """An env in this process raised; names it and carries the end of the traceback, which is the env's own."""

    def __init__(self, id: str, trace: str) -> None:
        self.id, self.trace = id, trace
        super().__init__(f"{id}: {trace}\nWith env.source=workers it would cost one episode, and the run would go on.")


class EnvFailed(PodiumError):
    """An env failed too often in a row; names it and carries its last traceback."""

    def __init__(self, id: str, which: str, failures: int, trace: str) -> None:
        self.id, self.failures, self.trace = id, failures, trace
        super().__init__(f"{id}: {which} failed {failures} times without a whole episode in between; at last:\n{trace}")
