"""Nodes that are started by hand: `podium serve` where they run, `group` where they are called.

They belong to whoever started them. A group that is closed only hangs up, and a node that was lost is not started anew:
to restart it is to connect again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from podium.core.errors import PodiumError
from podium.fleet.group import TIMEOUT, Group
from podium.fleet.keys import Keys, bind, private, read
from podium.fleet.link import REFUSALS, Handle, Wired
from podium.fleet.node import Node, locate, router
from podium.fleet.node import serve as answer

START = 10.0
"""Seconds to reach a node; one that is there answers in milliseconds."""


def group(addresses: Sequence[str], keys: Keys | str | Path | None = None, timeout: float = TIMEOUT) -> Group:
    """The nodes at some addresses, in that order. `keys` are those that they were started with, or their file."""
    held = read(Path(keys)) if isinstance(keys, str | Path) else keys
    for address in addresses:
        if held is None and not private(address):
            raise PodiumError(f"{address}: a node there asks for keys; give those that it was started with")

    def launch(node: int, own: Sequence[Any]) -> Place:
        return Place(Handle(f"node {node}", addresses[node]), held)

    made = Group(launch, len(addresses))
    made.timeout = timeout
    return made


class Place:
    """A node that somebody else started."""

    def __init__(self, handle: Handle, keys: Keys | None) -> None:
        try:
            self._link = Visited(handle, keys)
        except zmq.ZMQError as error:
            raise PodiumError(f"{handle.address}: not an address to call, such as tcp://HOST:7000 ({error})") from error

    def up(self) -> Visited:
        """At once: what is said before it is reached gets there then."""
        return self._link

    def stop(self, grace: float) -> None:
        """It is not ours to end."""


class Visited(Wired):
    """A link to a node that nobody here watches: whether it is there the connection itself has to tell."""

    EVENTS, BEAT = REFUSALS | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED, 3000

    def __init__(self, handle: Handle, keys: Keys | None) -> None:
        super().__init__(handle, keys)
        self._keyed, self._met, self._since = keys is not None, False, time.monotonic()

    def _heard(self) -> str | None:
        address = self.handle.address
        while self._monitor is not None and self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.Event.DISCONNECTED and self._met:
                return f"{address} has hung up"
            if event & REFUSALS:
                return f"{address} refused {'the keys' if self._keyed else 'a caller without keys'}"
            self._met = True
        if not self._met and time.monotonic() - self._since > START:
            return f"nobody answers at {address}"
        return None

    def say_close(self) -> None:
        """It goes on without us."""


def serve(
    path: str,
    address: str,
    keys: Keys | None,
    args: Sequence[Any],
    stop: Callable[[], bool],
    ready: Callable[[str], None],
) -> None:
    """Be a node, until `stop`: what is at `package.module:name`, made of the arguments. `ready` is told where it is."""
    if "://" not in address:
        raise PodiumError(f"{address}: not an address, such as tcp://127.0.0.1:7000 or ipc:///path")
    if keys is None and not private(address):
        raise PodiumError(f"{address}: others can reach it; give --keys FILE, or bind to tcp://127.0.0.1:PORT")
    target = _found(path)
    with router() as socket:
        try:
            where = bind(socket, address, keys)
        except zmq.ZMQError as error:
            raise PodiumError(f"{address}: cannot be bound ({error})") from error
        try:
            made = target(*args)
        except (Exception, SystemExit) as error:
            raise PodiumError(f"{path}: cannot be made ({type(error).__name__}: {error})") from error
        ready(where)
        answer(Node(lambda: made), socket, lambda: not stop())


def _found(path: str) -> Any:
    module, _, name = path.partition(":")
    if not module or not name:
        raise PodiumError(f"{path}: not a class as it is named here, package.module:Class")
    try:
        return locate(path)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise PodiumError(f"{path}: cannot be found ({type(error).__name__}: {error})") from error
