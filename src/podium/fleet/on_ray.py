"""The fleet on Ray: Ray places the nodes and watches over them, ZeroMQ moves the data.

A node on the driver's machine is bound to a path that only the user may enter, any other to TCP with CURVE keys that
are made anew for every group and reach the node through Ray.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket as sockets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.core import machine
from podium.core.errors import ConfigError, MissingExtra
from podium.fleet import guard, wire
from podium.fleet.errors import NodeLost
from podium.fleet.folder import LONGEST, private
from podium.fleet.group import Group
from podium.fleet.keys import Keys, bind
from podium.fleet.link import Handle, Wired
from podium.fleet.node import Node, make, path_of, router, serve

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

try:
    import ray
    from ray._private import ray_constants
    from ray._private.worker import global_worker
    from ray.exceptions import RayError
except ImportError as missing:
    raise MissingExtra("Ray, which fleet=ray needs,", "ray") from missing


SESSION = 80
"""Bytes of the path of Ray's sockets below its folder for temporary files, and some to spare."""


def group(
    target: Any,
    size: int,
    *args: Any,
    each: Sequence[Sequence[Any]] = (),
    threads: int | None = None,
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    patient: bool = False,
    **named: Any,
) -> Group:
    """`size` nodes of a class as Ray actors, with so many CPUs and GPUs each; `each` are more arguments, a list a node.

    `address` is that of a cluster that runs already ("auto" finds one on this machine); without it one is started here,
    for as long as the group lives. Nodes for which there is no room are an error, unless one is up and `patient` says
    that the others may come later.
    """
    path, keys = path_of(target), Keys.new()
    ours = connect(address, size, cpus) or _open[0]
    _open[0] = False
    folder = private()
    for one in _guards:
        _tell(one, folder)
    share = threads or max(1, machine.cores() // size)

    def launch(node: int, own: Sequence[Any]) -> Actor:
        home = {"machine": machine.identity(), "pid": os.getpid(), "folder": str(folder), "keys": keys.plain()}
        what = {"path": path, "args": [*args, *own], "named": named, "search": sys.path, "here": _here()}
        variables = {"OMP_NUM_THREADS": str(share)}
        options = {"num_cpus": cpus, "num_gpus": gpus, "runtime_env": {"env_vars": variables}}
        actor = ray.remote(Host).options(**options).remote()
        return Actor(f"node {node}", actor, [bytes(frame) for frame in wire.pack(what | home)], keys)

    def closed() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if ours:
            disconnect()

    made = Group(launch, size, each, closed)
    try:
        made.settle()
    except BaseException as error:
        if patient and isinstance(error, NodeLost) and len(made.coming()) < size:
            return made
        free = ray.available_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
        made.close(grace=0.0)
        if isinstance(error, NodeLost):
            raise NodeLost(f"{error}; Ray has {free:g} CPUs free") from error
        raise
    return made


def room(address: str | None, cpus: float) -> int:
    """As many nodes as the cluster has free CPUs for; of one that is still to be started, this machine's cores."""
    if address is None and not ray.is_initialized():
        return max(1, int(machine.bound() / cpus))
    _open[0] |= connect(address, 1, cpus)  # the next group leaves it
    return max(1, int(ray.available_resources().get("CPU", 0) / cpus))  # type: ignore[no-untyped-call]


def spare(cpus: float, gpus: float) -> bool:
    """Whether the cluster has room for one more node now."""
    free = ray.available_resources()  # type: ignore[no-untyped-call]
    return bool(free.get("CPU", 0) >= cpus and free.get("GPU", 0) >= gpus)


def connect(address: str | None, size: int, cpus: float) -> bool:
    """Join a cluster, or start one on this machine; whether it was started here."""
    if ray.is_initialized():
        return False
    logging.getLogger("ray").setLevel(logging.ERROR)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address is None:
        room = max(machine.bound(), -(-int(1000 * size * cpus) // 1000))
        home: dict[str, Any] = {"address": "local", "num_cpus": room, "_node_ip_address": "127.0.0.1"}
        if len(os.fsencode(tempfile.gettempdir())) > LONGEST - SESSION:
            home["_temp_dir"] = "/tmp/ray"  # as Ray has it by default
        with _alone(), _elsewhere():
            ray.init(include_dashboard=False, **home, **quiet)  # "local": whatever other cluster runs here
        _guards.append(_guard())
        return True
    try:
        _reach(address)
        with _elsewhere():
            ray.init(address=address, **quiet)
    except (OSError, RayError, RuntimeError, ValueError) as error:
        raise ConfigError("fleet.address", address, f"that of a Ray cluster that runs ({error})") from error
    return True


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Away from the current folder, which Ray would search for packages in all its processes; a node comes back."""
    here = _here()
    os.chdir("/")
    try:
        yield
    finally:
        os.chdir(here)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return "/"


def disconnect() -> None:
    """Leave the cluster; one that was started here ends."""
    while _guards:
        last = _guards.pop()
        last.kill()
        last.communicate()
    ray.shutdown()


_guards: list[subprocess.Popen[bytes]] = []
_open = [False]
"""Whether a cluster was joined that no group belongs to yet."""


def _guard() -> subprocess.Popen[bytes]:
    """A process that ends what Ray has started here if this one is killed."""
    node: Any = global_worker.node
    started = [info.process.pid for infos in node.all_processes.values() for info in infos]
    command = [sys.executable, "-S", "-E", guard.__file__, *map(str, started)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _tell(guard: subprocess.Popen[bytes], folder: Path) -> None:
    """Let it delete a folder, too."""
    if guard.stdin is not None:
        guard.stdin.write(f"{folder}\n".encode())
        guard.stdin.flush()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Ray puts an address that other machines reach in the place of a loopback address, unless it knows no clusters."""
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _reach(address: str) -> None:
    """See that somebody listens there, before Ray waits for long."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        sockets.create_connection((host, int(port)), timeout=3).close()


class Actor:
    """A node in a Ray actor, which waits in Ray's queue until the cluster has room for it."""

    def __init__(self, name: str, actor: Any, spec: list[bytes], keys: Keys) -> None:
        self._name, self._actor, self._keys = name, actor, keys
        self._bound, self._life = actor.bind.remote(spec), actor.serve.remote()

    def up(self) -> Wired | None:
        if not ray.wait([self._bound], timeout=0)[0]:
            return None
        try:
            address = ray.get(self._bound)
        except RayError as error:
            raise NodeLost(f"did not start ({_first(error)})") from error
        return Wired(Handle(self._name, address), self._keys if address.startswith("tcp") else None, self._died)

    def _died(self) -> str | None:
        if not ray.wait([self._life], timeout=0)[0]:
            return None
        try:
            ray.get(self._life)
            return "has ended"
        except RayError as error:
            return f"was lost ({_first(error)})"

    def stop(self, grace: float) -> None:
        with contextlib.suppress(RayError):
            ray.wait([self._life], timeout=grace)
            ray.kill(self._actor)


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class Host:
    """What runs in the actor: first `bind`, then `serve`, until the end."""

    def bind(self, frames: list[bytes]) -> str:
        """Where the node will be."""
        self._spec: Mapping[str, Any] = wire.unpack(frames)
        sys.path[:] = [*self._spec["search"], *(p for p in sys.path if p not in self._spec["search"])]
        with contextlib.suppress(OSError):  # another machine need not have it
            os.chdir(self._spec["here"])
        self._socket = router()
        self._here = self._spec["machine"] == machine.identity()
        if self._here:
            return bind(self._socket, f"ipc://{self._spec['folder']}/{os.getpid()}", None)
        ip = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return bind(self._socket, f"tcp://{ip}:*", Keys.of(self._spec["keys"]))

    def serve(self) -> None:
        """Answer calls; on the driver's own machine no longer than the driver lives."""
        spec = self._spec
        if self._here:
            threading.Thread(target=self._follow, daemon=True).start()
        serve(Node(lambda: make(spec["path"], spec["args"], spec["named"])), self._socket)

    def _follow(self) -> None:
        while machine.alive(self._spec["pid"]):
            time.sleep(0.2)
        shutil.rmtree(self._spec["folder"], ignore_errors=True)
        os._exit(1)
