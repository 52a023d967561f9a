"""A link to one node: sends calls, takes in answers. It belongs to the thread that uses it, and starts none."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from podium.fleet import wire
from podium.fleet.errors import FleetError, Late, NodeLost, RemoteError
from podium.fleet.keys import Keys, unlock
from podium.fleet.node import CLOSE, RESULT

LOOK = 0.1
"""Seconds of silence after which to see whether a node is still alive."""


REFUSALS = zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
REFUSALS |= zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
"""What a node does to a caller whose keys are wrong."""


@dataclass(frozen=True)
class Handle:
    """Where a node is. Plain data: hand it to another node, and that one can call it, too."""

    name: str
    address: str


class Call:
    """An answer that is on its way. `wait` takes in what comes, for so many seconds at most."""

    __slots__ = ("_answer", "_error", "deadline", "done", "frames", "link", "number", "timeout", "wait")

    def __init__(self, frames: list[wire.Frame], timeout: float, wait: Callable[[float], None]) -> None:
        self.frames, self.timeout, self.wait = frames, timeout, wait
        self.deadline, self.done = time.monotonic() + timeout, False
        self.link: Link | None = None  # the node that it was given to
        self.number = -1
        self._answer: Any = None
        self._error: FleetError | None = None

    def result(self) -> Any:
        """The answer; waits for it until the deadline. Raises what went wrong."""
        while not self.done:
            left = self.deadline - time.monotonic()
            if left <= 0:
                who = self.link.name if self.link is not None else "no node was free"
                self.settle(error=Late(f"{who}: no answer within {self.timeout:g} s"))
            else:
                self.wait(left)
        if self._error is not None:
            raise self._error
        return self._answer

    def settle(self, answer: Any = None, error: FleetError | None = None) -> None:
        """It is answered, or never will be; what comes after its deadline is nobody's."""
        if not self.done:
            self._answer, self._error, self.done = answer, error, True

    def again(self, timeout: float | None = None) -> Call:
        """Ask again, under the same number: a node that has run the call answers from memory, and does not repeat it.

        A node remembers its last answer only.
        """
        if self.link is None:
            raise FleetError("a call that no node was given cannot be asked again")
        fresh = Call(self.frames, self.timeout if timeout is None else timeout, self.wait)
        self.link.post(fresh, self.number)
        return fresh


def request(method: str, args: Sequence[Any], named: Mapping[str, Any]) -> list[wire.Frame]:
    """The frames of a call."""
    return wire.pack([method, list(args), dict(named)])


def results(calls: Iterable[Call]) -> list[Any]:
    """The answers of some calls, in order. All are waited for before the first error is raised."""
    answers, errors = [], []
    for call in calls:
        try:
            answers.append(call.result())
        except FleetError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return answers


class Link:
    """One node, as a caller sees it: what is the same for all, however they are reached."""

    socket: zmq.Socket[bytes] | None = None  # to poll for answers

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: dict[int, Call] = {}
        self.lost: str | None = None
        self._count = 0

    def call(self, method: str, *args: Any, timeout: float, **named: Any) -> Call:
        """Send a call; its arguments may change as soon as this returns."""
        return self.send(request(method, args, named), timeout)

    def send(self, frames: list[wire.Frame], timeout: float, copy: bool = True) -> Call:
        """Send the frames of a call. Without `copy` they must not change before it is answered."""
        call = Call(frames, timeout, self.wait)
        self.post(call, copy=copy)
        return call

    def post(self, call: Call, number: int | None = None, copy: bool = True) -> None:
        """Send a call, as a new one or under the number of one before."""
        if number is None:
            number, self._count = self._count, self._count + 1
        call.link, call.number = self, number
        if self.lost is not None:
            call.settle(error=NodeLost(self.lost))
            return
        self.pending[number] = call
        self.transmit(number, call.frames, copy)

    def transmit(self, number: int, frames: list[wire.Frame], copy: bool) -> None:
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Wait until something comes, and take in all that has; look now and then whether the node is still there."""

    def take_in(self) -> None:
        """Take in the answers that have come."""

    def look(self) -> None:
        """See whether the node is still there."""

    def arrived(self, number: int, answer: Sequence[wire.Frame]) -> None:
        """Settle the call of an answer, whose first frame begins with what it is."""
        call = self.pending.pop(number, None)
        if call is None or call.done:
            return
        try:
            found = wire.unpack([memoryview(answer[0])[1:], *answer[1:]])
            if answer[0][:1] == RESULT:
                call.settle(found)
            else:
                call.settle(error=RemoteError(self.name, found["kind"], found["text"], found["trace"]))
        except (wire.WireError, LookupError, TypeError) as error:
            call.settle(error=FleetError(f"{self.name}: an answer that cannot be read ({error})"))

    def lose(self, why: str) -> None:
        """The node is gone: what it has not answered it never will."""
        self.take_in()
        self.lost = f"{self.name}: {why}"
        for call in self.pending.values():
            call.settle(error=NodeLost(self.lost))
        self.pending.clear()

    def say_close(self) -> None:
        """Ask the node to end after what it is doing."""

    def close(self) -> None:
        """Let go of the node."""


class Wired(Link):
    """A node behind a socket. `died` says why it is gone, or None."""

    EVENTS, BEAT, SILENCE = 0, 0, 30_000
    """What else to hear of the connection; milliseconds from beat to beat, or 0, and of silence until it is given up.

    A large message holds up the beats behind it.
    """

    def __init__(self, handle: Handle, keys: Keys | None = None, died: Callable[[], str | None] = lambda: None) -> None:
        super().__init__(handle.name)
        self.handle, self._died = handle, died
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.IDENTITY, uuid.uuid4().bytes)
        for option in (zmq.SNDHWM, zmq.RCVHWM):
            self.socket.setsockopt(option, 0)  # as many as there are calls in flight: the caller bounds them
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self.socket.setsockopt(zmq.RCVTIMEO, round(1000 * LOOK))
        wire.limit(self.socket)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, self.BEAT)
        self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, self.SILENCE)
        unlock(self.socket, keys)
        self._monitor: zmq.Socket[bytes] | None = None
        if events := self.EVENTS | (0 if keys is None else REFUSALS):
            self._monitor = self.socket.get_monitor_socket(events)
        self.socket.connect(handle.address)

    def transmit(self, number: int, frames: list[wire.Frame], copy: bool) -> None:
        head = number.to_bytes(8) + bytes(frames[0])
        if len(frames) == 1:
            self.socket.send(head)
        else:
            self.socket.send_multipart([head, *frames[1:]], copy=copy)

    def wait(self, seconds: float) -> None:
        if seconds < LOOK and not self.socket.poll(round(1000 * max(0.0, seconds))):
            self.look()
            return
        try:
            self._take(self.socket.recv_multipart(copy=False))  # quicker than to poll first
        except zmq.Again:
            self.look()

    def take_in(self) -> None:
        while True:
            try:
                self._take(self.socket.recv_multipart(zmq.NOBLOCK, copy=False))
            except zmq.Again:
                return

    def _take(self, frames: Sequence[zmq.Frame]) -> None:
        head, *bodies = (frame.buffer for frame in frames)
        self.arrived(int.from_bytes(head[:8]), [head[8:], *bodies])

    def look(self) -> None:
        if self.lost is not None:
            return
        why = self._died() or self._heard()
        if why is not None:
            self.lose(why)

    def _heard(self) -> str | None:
        """What the connection tells of the node, if that is its end."""
        if self._monitor is not None and self._monitor.poll(0):
            return f"{self.handle.address} refused the keys"
        return None

    def say_close(self) -> None:
        if self.lost is None:
            self.socket.send_multipart([CLOSE])

    def close(self) -> None:
        if self._monitor is not None:
            self.socket.disable_monitor()
        self.socket.close(0)
