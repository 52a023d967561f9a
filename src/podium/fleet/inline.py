"""The fleet of this process: every call is run at once, by the caller. What the other fleets do, without any of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podium.fleet import wire
from podium.fleet.group import Group
from podium.fleet.link import Link
from podium.fleet.node import Node, make, path_of


def group(target: Any, size: int, *args: Any, each: Sequence[Sequence[Any]] = (), **named: Any) -> Group:
    """`size` nodes of a class; `each` are more arguments, a list a node."""
    path = path_of(target)
    return Group(lambda node, own: Here(node, path, [*args, *own], named), size, each)


class Here(Link):
    """A node in this process; it is its own place. Arguments and answers are copied, as on any wire."""

    def __init__(self, node: int, path: str, args: Sequence[Any], named: dict[str, Any]) -> None:
        super().__init__(f"node {node}")
        args, named = wire.copy([list(args), named])
        self._node = Node(lambda: make(path, args, named), ends=KeyboardInterrupt)  # Ctrl-C is this process's own

    def up(self) -> Link:
        return self

    def transmit(self, number: int, frames: list[wire.Frame], copy: bool) -> None:
        answer = self._node.answer(b"", number, [bytes(frame) for frame in frames])
        if answer is not None:
            self.arrived(number, answer)

    def stop(self, grace: float) -> None:
        self._node.close()
