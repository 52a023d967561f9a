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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

import zmq

from podium.fleet.errors import FleetError, NodeLost
from podium.fleet.link import LOOK, Call, Link, request, results

TIMEOUT = 60.0
"""Seconds until an answer, where a call does not say."""
START = 60.0
"""Seconds that nodes have to start, where they are waited for."""
PAUSE = 0.02
"""Seconds between two looks at whether a node is up."""


class Place(Protocol):
    """A node that an engine has launched."""

    def up(self) -> Link | None:
        """The link to the node; None while it starts. NodeLost where it never will."""
        ...

    def stop(self, grace: float) -> None:
        """End the node, by force once `grace` seconds have passed."""
        ...


Launch = Callable[[int, Sequence[Any]], Place]
"""Launches the node of a number, again if need be, with arguments of its own; does not wait until it is up."""


class Group:
    """Nodes of one kind, numbered from 0. `each` are arguments that only one of them has, a list a node."""

    def __init__(
        self, launch: Launch, size: int, each: Sequence[Sequence[Any]] = (), closed: Callable[[], None] = lambda: None
    ) -> None:
        self._launch, self._closed, self.timeout = launch, closed, TIMEOUT
        self._each: list[Sequence[Any]] = []
        self._places: list[Place | None] = []  # None: to be launched
        self._links: list[Link] = []
        self._pauses: list[Pause] = []
        self._due: dict[int, float] = {}  # of nodes that are not up yet: when they may be launched
        self._waiting: deque[Call] = deque()  # calls for whoever is free
        self._poller = zmq.Poller()
        try:
            for node in range(size):
                self.add(*(each[node] if each else ()))
        except BaseException:
            self.close(grace=0.0)
            raise

    def __len__(self) -> int:
        return len(self._links)

    def one(self, node: int, method: str, *args: Any, timeout: float | None = None, **named: Any) -> Call:
        """Call a node."""
        return self._link(node).send(request(method, args, named), self._seconds(timeout))

    def all(self, method: str, *args: Any, timeout: float | None = None, **named: Any) -> list[Any]:
        """Call every node; their answers in order. If some fail, all are waited for and the first error is raised."""
        frames, seconds = request(method, args, named), self._seconds(timeout)
        calls = [link.send(frames, seconds, copy=False) for link in self._links]
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
        for link in self._links:
            if link.socket in sockets:
                link.take_in()
            elif not came:
                link.look()
        self._bring_up()
        self._dispatch()

    def _dispatch(self) -> None:
        """Give calls that wait to nodes that are free."""
        while self._waiting:
            if self._waiting[0].done:  # its deadline has passed
                self._waiting.popleft()
                continue
            links = [link for link in self._links if link.lost is None]
            if not links and not self._due:
                for call in self._waiting:
                    call.settle(error=NodeLost("no node is left"))
                self._waiting.clear()
                return
            free = [link for link in links if not link.pending]
            if not free:
                return
            free[0].post(self._waiting.popleft())

    def lost(self) -> dict[int, str]:
        """The nodes that are gone, and why; not those that are on their way."""
        self._bring_up()
        for link in self._links:
            link.look()
        links = enumerate(self._links)
        return {node: link.lost for node, link in links if link.lost is not None and node not in self._due}

    def coming(self) -> set[int]:
        """The nodes that are on their way: launched, or to be launched, and not up yet. Calls to them fail."""
        self._bring_up()
        return set(self._due)

    def settle(self, seconds: float = START, nodes: Collection[int] | None = None) -> None:
        """Waits until no node, or none of `nodes`, is on its way. Some may be lost then: calls to them say so."""
        ends = time.monotonic() + seconds
        while late := self.coming() if nodes is None else self.coming().intersection(nodes):
            if time.monotonic() > ends:
                raise NodeLost(f"node {min(late)}: did not start within {seconds:g} s")
            time.sleep(PAUSE)

    def whole(self, seconds: float = START) -> None:
        """Waits until all nodes are up. NodeLost if one never will be."""
        self.settle(seconds)
        if gone := self.lost():
            raise NodeLost(next(iter(gone.values())))

    def add(self, *each: Any) -> int:
        """One more node, with arguments of its own; its number. It is on its way when this returns."""
        node = len(self._links)
        self._each.append(each)
        self._places.append(None)
        self._pauses.append(Pause())
        self._links.append(_nobody(node))
        self._due[node] = time.monotonic()
        self._bring_up()
        return node

    def restart(self, node: int) -> None:
        """A new node in the place of one that is gone; the more often lately, the later. Does not wait for it."""
        self._let_go(node, "was replaced", 0.0)
        self._places[node], self._links[node] = None, _nobody(node)
        self._due[node] = time.monotonic() + self._pauses[node].next()
        self._bring_up()

    def change(self, node: int, *each: Any) -> None:
        """The arguments of a node, from when it is next launched."""
        self._each[node] = each

    def _bring_up(self) -> None:
        """Launch the nodes that are due, and see who is up."""
        for node, due in list(self._due.items()):
            if due > time.monotonic():
                continue
            place = self._places[node] = self._places[node] or self._launch(node, self._each[node])
            try:
                link = place.up()
            except NodeLost as error:
                self._links[node].lost = f"node {node}: {error}"
                del self._due[node]
                continue
            if link is not None:
                self._links[node] = link
                del self._due[node]
                if link.socket is not None:
                    self._poller.register(link.socket, zmq.POLLIN)

    def _let_go(self, node: int, why: str, grace: float) -> None:
        link, place = self._links[node], self._places[node]
        if link.socket is not None:
            self._poller.unregister(link.socket)
        if place is not None:
            place.stop(0.0 if node in self._due else grace)
        link.lose(why)
        link.close()

    def close(self, grace: float = 2.0) -> None:
        """End all nodes; those that are at work have `grace` seconds to come to an end."""
        for link in self._links:
            link.say_close()
        ends = time.monotonic() + grace
        for node in range(len(self)):
            self._let_go(node, "the group was closed", max(0.0, ends - time.monotonic()))
        self._links, self._places = [], []
        self._due.clear()
        self._closed()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _link(self, node: int) -> Link:
        if not 0 <= node < len(self):
            raise FleetError(f"node {node}: there are {len(self)}, numbered from 0")
        return self._links[node]

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout


class Pause:
    """What to wait before a node is launched again: nothing at first, twice as long each time, forgotten in time."""

    SHORTEST, LONGEST, FORGET = 0.1, 10.0, 60.0

    def __init__(self) -> None:
        self._seconds, self._last = 0.0, -math.inf

    def next(self) -> float:
        """Seconds to wait this time."""
        now, seconds = time.monotonic(), self._seconds
        if now - self._last > self.FORGET:
            seconds = 0.0
        self._seconds, self._last = min(self.LONGEST, max(self.SHORTEST, 2 * seconds)), now
        return seconds


def _nobody(node: int) -> Link:
    """Where a node will be."""
    link = Link(f"node {node}")
    link.lost = f"node {node}: is not up yet"
    return link
