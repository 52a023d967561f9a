"""A run is a folder: config.yaml, ledger.sqlite, members/, checkpoint/, events*, log.txt."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from podium.core.errors import CheckpointError, ConfigError
from podium.core.tree import Tree
from podium.store import files, tensors
from podium.store.ledger import Ledger
from podium.store.lock import Lock

_OURS = (
    "config.yaml",
    "ledger.sqlite*",
    "log.txt",
    "events.out.tfevents.*.podium",
    "members/*.safetensors",
    "checkpoint/*.safetensors",
    ".*.tmp",
    "*/.*.tmp",
)


class Run:
    """One run's folder. A writer (`create`, or `open` with `write`) holds its lock; readers need none."""

    def __init__(self, path: Path, config: dict[str, Any], lock: Lock | None) -> None:
        self.path, self.config, self._lock = path, config, lock
        self._unsynced: set[Path] = set()
        self.ledger = Ledger(path / "ledger.sqlite", readonly=lock is None)

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], fresh: bool = False) -> Run:
        """A new run in `path`. A folder with anything in it is refused, or with `fresh` emptied if it is a run's."""
        text = _text(config)
        admit(path, fresh)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError("-o", str(path), f"the folder cannot be made ({error.strerror})") from error
        lock = Lock(path / "lock")
        try:
            admit(path, fresh)
            _clear(path)
            files.write_atomic(path / "config.yaml", text)
            for folder in ("members", "checkpoint"):
                (path / folder).mkdir(exist_ok=True)
            return cls(path, config, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path, write: bool = False) -> Run:
        """An existing run, for reading, or with `write` for going on with it."""
        config = config_of(path)
        if not write:
            return cls(path, config, None)
        lock = Lock(path / "lock")
        try:
            for folder in (path, path / "members", path / "checkpoint"):
                folder.mkdir(exist_ok=True)
                files.clean(folder)
            return cls(path, config, lock)
        except BaseException:
            lock.release()
            raise

    def configure(self, config: dict[str, Any]) -> None:
        """Put another config in the place of the run's own."""
        files.write_atomic(self.path / "config.yaml", _text(config))
        self.config = config

    def champion(self) -> int:
        """The id of rank 1 of the leaderboard."""
        top = self.ledger.top(1)
        if not top or top[0]["fitness"] is None:
            raise CheckpointError(f"{self.path}: no member has been evaluated yet, so there is no champion")
        return int(top[0]["id"])

    @property
    def log_path(self) -> Path:
        """Where `log` writes."""
        return self.path / "log.txt"

    def log(self, line: str) -> None:
        """Append a line with its time to log.txt; a full disk loses the line and not the run."""
        with suppress(OSError), self.log_path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now().isoformat(' ', 'seconds')}  {line}\n")

    def snapshot(self, member: int, tree: Tree, info: dict[str, Any], durable: bool = True) -> Path:
        """Keep a member's weights, in place of its earlier ones. What is not `durable` is so after `sync`."""
        path = self.snapshot_path(member)
        tensors.save(path, tree, info, "member", durable)
        if not durable:
            self._unsynced.add(path)
        return path

    def sync(self) -> None:
        """Make snapshots and ledger outlast a power failure: they come often, so that happens at checkpoints only."""
        for path in self._unsynced:
            with suppress(FileNotFoundError):
                files.sync(path)
        if self._unsynced:
            files.sync(self.path / "members")
            self._unsynced.clear()
        self.ledger.sync()

    def read_snapshot(self, member: int) -> tuple[Tree, dict[str, Any]]:
        """A member's kept weights and their info."""
        return tensors.load(self.snapshot_path(member), "member")

    def kept(self) -> list[int]:
        """The members whose weights are kept."""
        return sorted(int(path.stem) for path in (self.path / "members").glob("*.safetensors"))

    def forget(self, member: int) -> None:
        """Drop a member's kept weights, if there are any."""
        self.snapshot_path(member).unlink(missing_ok=True)

    def forget_all(self, keep: Collection[int]) -> None:
        """Drop all kept weights but those of some members."""
        for path in (self.path / "members").glob("*.safetensors"):
            if not path.stem.isdigit() or int(path.stem) not in keep:
                path.unlink(missing_ok=True)

    def snapshot_path(self, member: int) -> Path:
        """Where a member's weights are kept, if they are."""
        return self.path / "members" / f"{member}.safetensors"

    def close(self) -> None:
        """Close the ledger, then let another writer in."""
        self.ledger.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def next_name(stem: str, base: Path = Path("runs")) -> Path:
    """`base/<stem>-N`, N one above the highest there is; what a folder's name cannot hold becomes a dash."""
    stem = re.sub(r"[^\w.-]+", "-", stem)
    names = [p.name for p in base.iterdir()] if base.is_dir() else []
    taken = [int(found[1]) for name in names if (found := re.fullmatch(re.escape(stem) + "-([0-9]+)", name))]
    return base / f"{stem}-{max(taken, default=0) + 1}"


def admit(path: Path, fresh: bool) -> None:
    """Refuse a path that a new run may not use, before anything is touched."""
    if path.exists() and not path.is_dir():
        raise ConfigError("-o", str(path), "it is a file; name a folder")
    if not path.is_dir() or not any(p.name != "lock" and p.suffix != ".tmp" for p in path.iterdir()):
        return
    if not fresh:
        raise ConfigError("-o", str(path), "it is not empty; name another folder, or pass -D to start it afresh")
    if not any((path / name).is_file() for name in ("config.yaml", "ledger.sqlite")):
        raise ConfigError("-o", str(path), "it holds files but no run, so -D will not touch it; name another folder")


def _text(config: dict[str, Any]) -> bytes:
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode()


def _clear(path: Path) -> None:
    """Delete the files that Podium writes, by name: what a user put beside them stays."""
    for pattern in _OURS:
        for file in path.glob(pattern):
            file.unlink()


def config_of(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such run")
    file = path / "config.yaml"
    try:
        config = yaml.safe_load(file.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing, so this folder is not a run") from error
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror})") from error
    except RecursionError as error:
        raise CheckpointError(f"{file}: not YAML: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise CheckpointError(f"{file}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file}: not a mapping of settings")
    return config
