"""A group of nodes, and the four ways to call it.

    one(node, method, ...)  -> Call        a node's answer, later
    all(method, ...)        -> answers     of every node, in order: a broadcast
    any(method, ...)        -> Call        of whichever node is free
    gather(method, ...)     -> (node, answer), (node, answer), ...    as they come, for ever; nodes do not run ahead

Every call has a deadline. A group belongs to the thread that uses it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import zmq

from podium.fleet.errors import FleetError, NodeLost
from podium.fleet.link import LOOK, Call, Link, request, results

TIMEOUT = 60.0
"""Seconds until an answer, where a call does not say."""


class Place(Protocol):
    """A node that an engine has launched."""

    @property
    def link(self) -> Link: ...

    def stop(self, grace: float) -> None:
        """End the node, by force once `grace` seconds have passed."""
        ...


Launch = Callable[[int], Place]
"""Launches the node of a number, again if need be."""


class Group:
    """Nodes of one kind, numbered from 0."""

    def __init__(
        self, launch: Launch, size: int, timeout: float = TIMEOUT, closed: Callable[[], None] = lambda: None
    ) -> None:
        self._launch, self.timeout, self._closed = launch, timeout, closed
        self._places: list[Place] = []
        self._waiting: deque[Call] = deque()  # calls for whoever is free
        self._poller = zmq.Poller()
        self._pauses = [Pause() for _ in range(size)]
        try:
            for node in range(size):
                self._places.append(launch(node))
                self._watch(node)
        except BaseException:
            self.close(grace=0.0)
            raise

    def __len__(self) -> int:
        return len(self._places)

    def one(self, node: int, method: str, *args: Any, timeout: float | None = None, **named: Any) -> Call:
        """Call a node."""
        return self._link(node).send(request(method, args, named), self._seconds(timeout))

    def all(self, method: str, *args: Any, timeout: float | None = None, **named: Any) -> list[Any]:
        """Call every node; their answers in order. If some fail, all are waited for and the first error is raised."""
        frames, seconds = request(method, args, named), self._seconds(timeout)
        calls = [place.link.send(frames, seconds, copy=False) for place in self._places]
        return results(calls)

    def any(self, method: str, *args: Any, timeout: float | None = None, **named: Any) -> Call:
        """Call whichever node is free, or will be first. The deadline counts from now."""
        call = Call(request(method, args, named), self._seconds(timeout), self.pump)
        self._waiting.append(call)
        self._dispatch()
        return call

    def map(self, method: str, each: Iterable[Sequence[Any]], timeout: float | None = None) -> list[Any]:
        """The answers to many calls, in order; nodes take the next as they get free."""
        return results([self.any(method, *args, timeout=timeout) for args in each])

    def gather(self, method: str, *args: Any, timeout: float | None = None, **named: Any) -> Iterator[tuple[int, Any]]:
        """Call every node again and again; (node, answer) as they come.

        A node works on its next answer while the last is looked at, and waits then: one answer a node is kept, no more.
        """
        calls = {node: self.one(node, method, *args, timeout=timeout, **named) for node in range(len(self))}
        while True:
            for node, call in self.ready(calls):
                answer = call.result()
                calls[node] = self.one(node, method, *args, timeout=timeout, **named)
                yield node, answer

    def ready(self, calls: dict[int, Call]) -> list[tuple[int, Call]]:
        """Wait for the first of some calls to be answered, lost or late; all that are."""
        while True:
            now = time.monotonic()
            found = [(key, call) for key, call in calls.items() if call.done or call.deadline <= now]
            if found or not calls:
                return found
            self.pump(min(call.deadline for call in calls.values()) - now)

    def pump(self, seconds: float) -> None:
        """Wait until something happens, for so long at most; take in what comes, and see who has died."""
        came = self._poller.poll(round(1000 * min(LOOK, max(0.0, seconds))))
        sockets = {socket for socket, _ in came}
        for place in self._places:
            if place.link.socket in sockets:
                place.link.take_in()
            elif not came:
                place.link.look()
        self._dispatch()

    def _dispatch(self) -> None:
        """Give calls that wait to nodes that are free."""
        while self._waiting:
            if self._waiting[0].done:  # its deadline has passed
                self._waiting.popleft()
                continue
            links = [place.link for place in self._places if place.link.lost is None]
            if not links:
                for call in self._waiting:
                    call.settle(error=NodeLost("no node is left"))
                self._waiting.clear()
                return
            free = [link for link in links if not link.pending]
            if not free:
                return
            free[0].post(self._waiting.popleft())

    def lost(self) -> dict[int, str]:
        """The nodes that are gone, and why."""
        for place in self._places:
            place.link.look()
        return {i: place.link.lost for i, place in enumerate(self._places) if place.link.lost is not None}

    def restart(self, node: int) -> None:
        """A new node in the place of one that is gone; the more often lately, the later."""
        old = self._places[node]
        if old.link.socket is not None:
            self._poller.unregister(old.link.socket)
        old.stop(0.0)
        old.link.lose("was replaced")
        old.link.close()
        self._pauses[node].take()
        self._places[node] = self._launch(node)
        self._watch(node)

    def close(self, grace: float = 2.0) -> None:
        """End all nodes; those that are at work have `grace` seconds to come to an end."""
        for place in self._places:
            place.link.say_close()
        ends = time.monotonic() + grace
        for place in self._places:
            place.stop(max(0.0, ends - time.monotonic()))
            place.link.lose("the group was closed")
            place.link.close()
        self._places, self._poller = [], zmq.Poller()
        self._closed()

    def _watch(self, node: int) -> None:
        socket = self._places[node].link.socket
        if socket is not None:
            self._poller.register(socket, zmq.POLLIN)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _link(self, node: int) -> Link:
        if not 0 <= node < len(self._places):
            raise FleetError(f"node {node}: there are {len(self._places)}, numbered from 0")
        return self._places[node].link

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout


class Pause:
    """What to wait before a node is launched again: nothing at first, twice as long each time, forgotten in time."""

    SHORTEST, LONGEST, FORGET = 0.1, 10.0, 60.0

    def __init__(self) -> None:
        self._seconds, self._last = 0.0, -math.inf

    def take(self) -> None:
        now = time.monotonic()
        if now - self._last > self.FORGET:
            self._seconds = 0.0
        time.sleep(self._seconds)
        self._seconds, self._last = min(self.LONGEST, max(self.SHORTEST, 2 * self._seconds)), now
