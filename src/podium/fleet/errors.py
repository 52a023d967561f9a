"""What can go wrong between a caller and a node."""

from __future__ import annotations

from podium.core.errors import PodiumError


class FleetError(PodiumError):
    """A call that was not answered, and why."""


class RemoteError(FleetError):
    """The method raised. `kind` is the name of the exception's type, `trace` where it was raised."""

    def __init__(self, node: str, kind: str, text: str, trace: str) -> None:
        super().__init__(f"{node}: {kind}: {text}")
        self.node, self.kind, self.text, self.trace = node, kind, text, trace
        self.add_note(f"On {node}:\n{trace.rstrip()}")


class NodeLost(FleetError):
    """The node died, or was never there: whether the method ran to its end nobody knows."""


class Late(FleetError):
    """No answer before the deadline. The node may still be at work on it."""
