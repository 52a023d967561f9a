"""The fleet of processes: each node a fresh interpreter on this machine, supervised, and gone when its parent is."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from podium.core import machine
from podium.core.watch import Watch
from podium.fleet import wire
from podium.fleet.folder import private
from podium.fleet.group import Group
from podium.fleet.keys import Keys, bind
from podium.fleet.link import Handle, Wired
from podium.fleet.node import Node, make, path_of, router, serve

LAST = 2000
"""Characters of what a node printed last."""


def group(
    target: Any,
    size: int,
    *args: Any,
    each: Sequence[Sequence[Any]] = (),
    threads: int | None = None,
    environ: Sequence[Mapping[str, str]] = (),
    tcp: bool = False,
    keys: Keys | None = None,
    **named: Any,
) -> Group:
    """`size` nodes of a class, made of the arguments; `each` are more of them, a list a node.

    Cores are shared evenly, unless `threads` says how many each node may use. `environ` are variables, a mapping a
    node. What a node prints is shown where it dies. Nodes are bound to paths that only the user may enter; with `tcp`
    to ports of the loopback address, and with `keys` they ask who calls.
    """
    path, folder = path_of(target), private()
    share, count = threads or max(1, machine.cores() // size), iter(range(1 << 62))

    def launch(node: int, own: Sequence[Any]) -> Process:
        spec = {"path": path, "args": [*args, *own], "named": named, "search": sys.path}
        variables = {"OMP_NUM_THREADS": str(share), **(environ[node] if environ else {})}
        file = folder / str(next(count))
        address = f"tcp://127.0.0.1:{_port()}" if tcp else f"ipc://{file}"
        return Process(Handle(f"node {node}", address), spec, variables, file, keys)

    return Group(launch, size, each, closed=lambda: shutil.rmtree(folder, ignore_errors=True))


class Process:
    """A node in a process of its own."""

    def __init__(
        self, handle: Handle, spec: dict[str, Any], variables: Mapping[str, str], file: Path, keys: Keys | None
    ) -> None:
        self._printed = file.with_suffix(".log")
        self._watch = Watch([file, self._printed], file.parent)
        with self._printed.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "podium.fleet.processes"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **variables},
                start_new_session=True,  # so that all that it starts can be ended with it
            )
        self._watch.over(self._process.pid)
        self._link = Wired(handle, keys, self._died)
        spec |= {"address": handle.address, "file": str(file), "keys": keys and keys.plain()}
        with contextlib.suppress(BrokenPipeError):  # it has died: the first call says so
            _write(self._process.stdin, wire.pack(spec))

    def up(self) -> Wired:
        """At once: what is said before it is bound reaches it then."""
        return self._link

    def _died(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        printed = self._printed.read_text(errors="replace").strip() if self._printed.exists() else ""
        return f"{how}; it last said: {printed[-LAST:]}" if printed else how

    def stop(self, grace: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        _end(self._process.pid)  # with all that it started
        self._watch.end()
        self._process.wait()
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()


def _port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _end(session: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def _write(stream: IO[bytes] | None, frames: Sequence[wire.Frame]) -> None:
    assert stream is not None
    stream.write(len(frames).to_bytes(8))
    for frame in frames:
        stream.write(memoryview(frame).nbytes.to_bytes(8))
        stream.write(frame)
    stream.flush()


def _read(stream: IO[bytes]) -> list[bytes]:
    def number() -> int:
        return int.from_bytes(stream.read(8))

    return [stream.read(number()) for _ in range(number())]


def main() -> None:
    """The life of a node's process: what it is comes from its parent, on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    lifeline = sys.stdin.buffer
    spec = wire.unpack(_read(lifeline))
    file = Path(spec["file"])
    threading.Thread(target=_follow, args=(lifeline.fileno(), os.getppid(), file), daemon=True).start()
    sys.path[:] = spec["search"]
    bound = router()
    bind(bound, spec["address"], Keys.of(spec["keys"]) if spec["keys"] else None)
    serve(Node(lambda: make(spec["path"], spec["args"], spec["named"])), bound)


def _follow(lifeline: int, parent: int, file: Path) -> None:
    """Ends when the parent has ended, or has let go, even where another process still holds the lifeline open.

    Where this process is stopped, its parent's `Watch` ends it.
    """
    while os.getppid() == parent:
        if select.select([lifeline], [], [], 0.5)[0] and not os.read(lifeline, 1024):
            break
    for mine in (file, file.with_suffix(".log")):
        mine.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        file.parent.rmdir()  # by the last of them
    _end(os.getpid())


if __name__ == "__main__":
    main()
