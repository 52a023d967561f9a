"""A run that is killed again and again, and resumed each time: in the end it must be as if nothing had happened."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import whole

TIMES = 4
"""That a run is killed; some of them may come after its end."""


def wait(ready: Callable[[], Any], child: ForkServerProcess) -> None:
    """Until `ready`, or until the process has ended."""
    end = time.monotonic() + 60
    while not ready() and child.is_alive():
        assert time.monotonic() < end, "nothing happened for a minute"
        time.sleep(0.005)


def killed_and_resumed(folder: Path, seed: int | str, length: float, *words: object) -> Path:
    """The run of `podium WORDS`, killed at random moments of the `length` seconds it takes, and resumed to its end."""
    run, said, dice, kills = folder / "killed", folder / "out.txt", random.Random(seed), 0
    child = whole.process(said, *words, "-o", run)
    for _ in range(TIMES):
        wait(lambda: (run / "config.yaml").exists() and (run / "ledger.sqlite").exists(), child)
        time.sleep(dice.uniform(0, 0.4 * length))
        child.kill()
        child.join()
        kills += child.exitcode == -signal.SIGKILL
        child = whole.process(said, "resume", run)
    child.join(60)
    assert child.exitcode == 0, said.read_text()
    assert kills >= 2
    assert not list(run.rglob(".*.tmp"))
    return run
