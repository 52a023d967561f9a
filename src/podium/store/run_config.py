"""A run's config.yaml: all settings, and a checksum of them in its last line.

Settings are changed by `podium resume RUN key=value`. An edited file cannot be told from a damaged one, so both are
refused; the last checkpoint holds the settings, too.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from podium.core.bounded import Count, Number
from podium.core.errors import CheckpointError
from podium.store import files

LIMIT = 16 << 20
"""Bytes of the longest file that is read: a schedule may be long."""

_ADVICE = "podium resume {0} restores it from the last checkpoint (and takes changes: podium resume {0} key=value)"
_SEAL = re.compile(rb"# sha256 ([0-9a-f]{64})\n")


class _Entry(msgspec.Struct, frozen=True):
    step: Count
    genes: dict[str, Number | None]


class _Train(msgspec.Struct, frozen=True):
    schedule: list[_Entry] = []
    members: Count = 1


class _Stop(msgspec.Struct, frozen=True):
    steps: Count | None = None
    seconds: Number | None = None
    fitness: Number | None = None
    generations: Count | None = None


class _Algo(msgspec.Struct, frozen=True):
    name: str = ""
    steps: Count = 1


class _Env(msgspec.Struct, frozen=True):
    id: str = ""
    num: Count = 1


class _Kind(msgspec.Struct, frozen=True):
    algo: _Algo
    net: dict[str, Any] = {}


class _Evolve(msgspec.Struct, frozen=True):
    entrants: list[_Kind] = []
    objectives: list[str] = []
    strategy: str = ""
    interval: Count | None = None
    seconds: Number | None = None


class _Fleet(msgspec.Struct, frozen=True):
    kind: str = ""
    address: str | None = None


class Config(msgspec.Struct, frozen=True):
    """What commands that only read a run use of its settings; all else is checked when something is built of them."""

    env: _Env = _Env()
    algo: _Algo = _Algo()
    train: _Train = _Train()
    stop: _Stop = _Stop()
    evolve: _Evolve = _Evolve()
    fleet: _Fleet = _Fleet()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Whatever stands twice is written twice."""
        return True


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):  # a few of them can stand for terabytes
            raise yaml.YAMLError("an alias, which Podium never writes")
        return super().compose_node(parent, index)


def text(config: dict[str, Any]) -> bytes:
    """The file that holds these settings."""
    body = yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True).encode()
    return body + b"# sha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n"


def of_a_run(path: Path) -> bool:
    """Tells whether a file is the config.yaml of a run: by its name and the files beside it."""
    beside = ("ledger.sqlite", "log.txt", "lock", "members", "checkpoint")
    return path.name == "config.yaml" and any(os.path.lexists(path.with_name(name)) for name in beside)


def read(path: Path) -> dict[str, Any]:
    """The settings in a file that `text` made; anything else is refused with its reason."""
    try:
        data = files.read(path, LIMIT, linked=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: missing, so this folder is not a run") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    body, seal = data[:-74], _SEAL.fullmatch(data[-74:])
    if seal is None or hashlib.sha256(body).hexdigest().encode() != seal[1]:
        raise CheckpointError(f"{path}: damaged or edited, its checksum does not match; {_ADVICE.format(path.parent)}")
    return checked(path, _parsed(path, body))


def checked(path: Path, config: Any) -> dict[str, Any]:
    """Settings that come from a file: a mapping, whose values are of the types that readers count on."""
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: not a mapping of settings")
    try:
        msgspec.convert(config, Config)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CheckpointError(f"{path}: not the settings of a run ({error})") from error
    return config


def _parsed(path: Path, body: bytes) -> Any:
    try:
        return _Loader(body).get_single_data()
    except RecursionError as error:
        raise CheckpointError(f"{path}: not YAML (nested too deeply)") from error
    except (yaml.YAMLError, ValueError) as error:
        raise CheckpointError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
