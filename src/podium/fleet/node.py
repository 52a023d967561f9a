"""A node: an object with plain methods that answers calls, one at a time, in the order in which they come.

    request   [number + header, tensors ...]                  number: 8 bytes, counted up by each caller
    answer    [number + b"=" or b"!" + header, tensors ...]   a result, or an error

A caller that has lost an answer sends its request again, under the same number: the node answers from its memory of the
last answer and does not run it twice. What is not a request is dropped.
"""

from __future__ import annotations

import importlib
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq

from podium.core.errors import PodiumError
from podium.core.interrupt import Interrupted
from podium.core.text import encodable
from podium.fleet import wire

CALLERS = 256
"""Callers whose last answer is remembered."""
CLOSE = b"\xff" * 8
"""The number of the request to end."""
RESULT, ERROR = b"=", b"!"
LONGEST = 1 << 20
"""Characters of an error's text or traceback that are passed on, the last ones."""
LOOK = 1000
"""Milliseconds between two looks at whether to go on."""


class Node:
    """Answers calls to an object. If the object could not be made, every call is answered with the reason.

    Whatever a method raises is an answer, SystemExit too; only `ends` goes on its way, and ends the node.
    """

    def __init__(self, make: Callable[[], object], ends: type[BaseException] = Interrupted) -> None:
        self._ends = ends
        self._last: OrderedDict[bytes, tuple[int, list[bytes]]] = OrderedDict()
        self._broken: list[wire.Frame] | None = None
        try:
            self._target = make()
        except ends:
            raise
        except BaseException as error:
            self._broken = _error(error)

    def answer(self, caller: bytes, number: int, frames: Sequence[wire.Frame]) -> list[bytes] | None:
        """The answer to a request; None where it is older than the last."""
        last, answer = self._last.get(caller, (-1, []))
        if number < last:
            return None
        if number > last:
            status, header, *bodies = self._run(frames)
            # Copies: the next call may change what they show.
            answer = [bytes(status) + bytes(header), *map(bytes, bodies)]
            self._last[caller] = number, answer
            self._last.move_to_end(caller)
            while len(self._last) > CALLERS:
                self._last.popitem(last=False)
        return answer

    def _run(self, frames: Sequence[wire.Frame]) -> list[wire.Frame]:
        if self._broken is not None:
            return self._broken
        try:
            match wire.unpack(frames):
                case [str(method), list(args), dict(named)]:
                    return [RESULT, *wire.pack(find(self._target, method)(*args, **named))]
            raise wire.WireError("a request is a method, a list of arguments and a dict of named ones")
        except self._ends:
            raise
        except BaseException as error:
            return _error(error)

    def close(self) -> None:
        """End the object, if it knows how."""
        if self._broken is None and callable(end := getattr(self._target, "close", None)):
            end()


def serve(node: Node, socket: zmq.Socket[bytes], go_on: Callable[[], bool] = lambda: True) -> None:
    """Answer what comes in on a ROUTER socket, until a caller says CLOSE or `go_on` says no."""
    try:
        while go_on() and _take(node, socket):
            pass
    finally:
        node.close()


def _take(node: Node, socket: zmq.Socket[bytes]) -> bool:
    """Answers the next request; False where it was the last. A function, so that nobody holds a request afterwards."""
    try:
        caller, head, *bodies = (frame.buffer for frame in socket.recv_multipart(copy=False))
    except zmq.Again:  # nothing came within LOOK
        return True
    except ValueError:  # nothing but the caller's name
        return True
    number = bytes(head[:8])
    if number == CLOSE:
        return False
    if len(head) > 8:
        answer = node.answer(bytes(caller), int.from_bytes(number), [head[8:], *bodies])
        if answer is not None:
            socket.send_multipart([caller, number + answer[0], *answer[1:]], copy=False)
    return True


def router() -> zmq.Socket[bytes]:
    """A socket for `serve`."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)  # an answer is never dropped: there are no more of them than calls
    wire.limit(socket)
    socket.setsockopt(zmq.RCVTIMEO, LOOK)
    return socket


def find(target: object, method: str) -> Callable[..., Any]:
    """A public method of an object's class."""
    found = None if method.startswith("_") else getattr(type(target), method, None)
    if not callable(found):
        names = [n for n in dir(type(target)) if not n.startswith("_") and callable(getattr(type(target), n))]
        raise PodiumError(f"{type(target).__name__} has no method {method!r}; it has {', '.join(names)}")
    return getattr(target, method)  # type: ignore[no-any-return]


def make(path: str, args: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> object:
    """What the class or function at `package.module:name` makes of the arguments."""
    return locate(path)(*args, **(named or {}))


def locate(path: str) -> Any:
    """What is at `package.module:name`."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def path_of(target: Any) -> str:
    """Where another process finds a class or function: `package.module:name`."""
    if isinstance(target, str):
        return target
    module, name = target.__module__, target.__qualname__
    if module == "__main__" or "<" in name:
        raise PodiumError(f"{module}:{name}: a node's class has to be in a module that other processes can import")
    return f"{module}:{name}"


def _error(error: BaseException) -> list[wire.Frame]:
    try:
        text = str(error)
    except Exception:  # of a type whose own __str__ raises
        text = "its message cannot be shown"
    said = {"kind": type(error).__name__, "text": text, "trace": traceback.format_exc()}
    return [ERROR, *wire.pack({key: encodable(value)[-LONGEST:] for key, value in said.items()})]
