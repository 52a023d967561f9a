"""A run is a folder: config.yaml, ledger.sqlite, members/, checkpoint/, events*, log.txt."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from podium.core.errors import ArgumentError, CheckpointError, PodiumError
from podium.core.tree import Tree, clone
from podium.store import files, run_config, tensors
from podium.store.ledger import Ledger
from podium.store.lock import Lock

FOLDERS = ("members", "checkpoint")
_OURS = re.compile(r"config\.yaml|ledger\.sqlite.*|log\.txt|events\.out\.tfevents\..*\.podium|\..*\.tmp")
_THEIRS = re.compile(r".*\.safetensors|\..*\.tmp")
"""Files that Podium writes: into the folder itself, and into those inside it."""


class Run:
    """One run's folder. A writer (`create`, or `open` with `write`) holds its lock; readers need none."""

    def __init__(self, path: Path, config: dict[str, Any], lock: Lock | None) -> None:
        self.path, self.config, self._lock = path, config, lock
        self._unsynced: set[Path] = set()
        self._unwritten: dict[Path, tuple[Tree, dict[str, Any]]] = {}
        if lock is not None:
            self.ledger  # noqa: B018  a writer makes it

    @cached_property
    def ledger(self) -> Ledger:
        """A reader opens it, and checks it, when it is asked for."""
        return Ledger(self.path / "ledger.sqlite", readonly=self._lock is None)

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], fresh: bool = False) -> Run:
        """A new run in `path`. A folder with anything in it is refused, or with `fresh` emptied if it is a run's."""
        text = run_config.text(config)
        admit(path, fresh)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError("out", str(path), f"the folder cannot be made ({error.strerror})") from error
        with _locked(path) as lock:
            admit(path, fresh)
            _clear(path)
            files.write_atomic(path / "config.yaml", text, linked=True)
            _make_folders(path)
            return cls(path, config, lock)

    @classmethod
    def open(cls, path: Path, write: bool = False, config: dict[str, Any] | None = None, afresh: bool = False) -> Run:
        """An existing run, for reading, or with `write` for going on with it.

        `config` stands for a config.yaml that is damaged. `afresh` puts a damaged ledger aside and begins another.
        """
        config = config_of(path) if config is None else config
        if not write:
            return cls(path, config, None)
        with _locked(path) as lock:
            _make_folders(path)
            files.clean(path, linked=True)
            for folder in FOLDERS:
                files.clean(path / folder)
            if afresh:
                _put_aside(path)
            return cls(path, config, lock)

    def configure(self, config: dict[str, Any]) -> None:
        """Put another config in the place of the run's own."""
        files.write_atomic(self.path / "config.yaml", run_config.text(config), linked=True)
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
        text = f"{datetime.now().isoformat(' ', 'seconds')}  {line}\n"
        with suppress(OSError):
            if self.lost():
                return
            file = files.open_file(self.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, linked=True)
            try:
                os.write(file, text.encode(errors="backslashreplace"))
            finally:
                os.close(file)

    def lost(self) -> str | None:
        """A message if the folder that this run writes to was deleted or moved, else None."""
        if self._lock is None or self._lock.in_place():
            return None
        return f"{self.path} was deleted or moved while the run wrote to it"

    def remake(self) -> None:
        """A new folder in the place of one that was deleted; OSError where something else stands there by now."""
        self.path.mkdir(parents=True, exist_ok=True)
        if os.listdir(self.path):
            raise FileExistsError(errno.EEXIST, "another folder stands there now", str(self.path))
        files.write_atomic(self.path / "config.yaml", run_config.text(self.config), linked=True)
        _make_folders(self.path)
        if self._lock is not None:
            self._lock.release()
        self._lock = Lock(self.path / "lock")

    def snapshot(self, member: int, tree: Tree, info: dict[str, Any], durable: bool = True) -> Path:
        """Keep a member's weights, in place of its earlier ones. What is not `durable` is so after `sync`.

        What cannot be written now is kept in memory, and written at the next `sync`.
        """
        path = self.snapshot_path(member)
        self._unwritten.pop(path, None)
        try:
            tensors.save(path, tree, info, "member", durable)
        except OSError:
            self._unwritten[path] = clone(tree), info
        if not durable:
            self._unsynced.add(path)
        return path

    def sync(self) -> None:
        """Make snapshots and ledger outlast a power failure: they come often, so that happens at checkpoints only."""
        for path, (tree, info) in list(self._unwritten.items()):
            tensors.save(path, tree, info, "member")
            del self._unwritten[path]
        for path in self._unsynced:
            with suppress(FileNotFoundError):
                files.sync(path)
        if self._unsynced:
            files.sync_folder(self.path / "members")
            self._unsynced.clear()
        self.ledger.sync()

    def read_snapshot(self, member: int) -> tuple[Tree, dict[str, Any]]:
        """A member's kept weights and their info."""
        return tensors.load(self.snapshot_path(member), "member")

    def kept(self) -> list[int]:
        """The members whose weights are kept."""
        names = [name.removesuffix(".safetensors") for name in files.names(self.path / "members")]
        return sorted(int(name) for name in names if re.fullmatch("[0-9]{1,18}", name))

    def forget(self, member: int) -> None:
        """Drop a member's kept weights, if there are any."""
        self._unwritten.pop(self.snapshot_path(member), None)
        files.unlink(self.snapshot_path(member))

    def forget_all(self, keep: Collection[int]) -> None:
        """Drop all kept weights but those of some members."""
        kept = {f"{member}.safetensors" for member in keep}
        for name in files.names(self.path / "members"):
            if name.endswith(".safetensors") and name not in kept:
                files.unlink(self.path / "members" / name)

    def snapshot_path(self, member: int) -> Path:
        """Where a member's weights are kept, if they are."""
        return self.path / "members" / f"{member}.safetensors"

    def close(self) -> None:
        """Close the ledger, then let another writer in."""
        if "ledger" in vars(self):
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


@contextmanager
def _locked(path: Path) -> Iterator[Lock]:
    """A run's lock, given back if its first files cannot be written."""
    lock = None
    try:
        lock = Lock(path / "lock")
        yield lock
    except BaseException as error:
        if lock is not None:
            lock.release()
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def _unwritable(path: Path, error: OSError) -> PodiumError:
    return PodiumError(
        f"{path}: the run's folder cannot be written ({error.strerror or error}); make it writable, or name another one"
    )


def admit(path: Path, fresh: bool) -> None:
    """Refuse a path that a new run may not use, before anything is touched."""
    try:
        _admit(path, fresh)
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise _unwritable(path, error) from error


def _admit(path: Path, fresh: bool) -> None:
    if path.exists() and not path.is_dir():
        raise ArgumentError("out", str(path), "it is a file; name a folder")
    if not path.is_dir():
        above = next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(above, os.W_OK):
            raise PermissionError(errno.EACCES, f"no permission to write to {above}")
        return
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if not any(p.name != "lock" and p.suffix != ".tmp" for p in path.iterdir()):
        return
    if not fresh:
        allowed = "it is not empty; name another folder, or pass {} to start it afresh"
        raise ArgumentError("out", str(path), allowed.format("fresh=True"), allowed.format("-D"))
    if not any((path / name).is_file() for name in ("config.yaml", "ledger.sqlite")):
        allowed = "it holds files but no run, so {} will not touch it; name another folder"
        raise ArgumentError("out", str(path), allowed.format("fresh=True"), allowed.format("-D"))


def _make_folders(path: Path) -> None:
    for name in FOLDERS:
        with suppress(FileExistsError):
            (path / name).mkdir()


def _put_aside(path: Path) -> None:
    """Keep a damaged ledger beside the new one, for whoever may get something out of it."""
    with files.folder(path, linked=True) as here:
        for end in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                names = f"ledger.sqlite{end}", f"ledger.sqlite.damaged{end}"
                os.replace(*names, src_dir_fd=here, dst_dir_fd=here)


def _clear(path: Path) -> None:
    """Delete the files that Podium writes, by name: what a user put beside them stays."""
    for folder, ours in ((path, _OURS), *((path / name, _THEIRS) for name in FOLDERS)):
        with suppress(FileNotFoundError), files.folder(folder, linked=folder == path) as here:
            for name in filter(ours.fullmatch, os.listdir(here)):
                os.unlink(name, dir_fd=here)


def config_of(path: Path) -> dict[str, Any]:
    """The settings of a run; refuses a file that is damaged, or that does not hold the settings of a run."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such run")
    return run_config.read(path / "config.yaml")
