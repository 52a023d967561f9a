"""Signals at random moments of short runs: what they leave behind, and whether the run's folder can still be used.

    python bench/signals.py [--quick] [--cases N] [--seed N]

Each case starts `podium train`, `podium evolve` or `podium evolve fleet=processes`, and sends SIGKILL, SIGTERM, SIGHUP
or SIGSTOP to the driver, or to one of its nodes, at some moment from the first import to the end. A driver that is
stopped, or that has a stopped node, is killed a moment later. Then:

- five seconds after the driver has ended, no process may be left that it started, nor a file in the temporary folder;
- `podium top` shows the run, or says in one line that there is none;
- `podium resume` brings it to its end, where there is a run to go on with (one case in four, and all with a node hurt).

Prints one JSON document: {"cases": n, "orphans": n, "unreadable": n, "details": [...]}, the details being those of the
cases in which something went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TINY = ("cartpole", "ppo", "stop.fitness=null", "stop.steps=2048", "env.num=2", "algo.steps=32", "eval.episodes=2")
POPULATION = ("tournament", "evolve.members=4", "evolve.interval=256")
COMMANDS = {
    "train": ("train", *TINY, "train.members=2", "train.checkpoint=256"),
    "evolve": ("evolve", *TINY, *POPULATION, "train.checkpoint=256"),
    "processes": ("evolve", *TINY, *POPULATION, "train.checkpoint=256", "fleet=processes", "fleet.pods=2"),
}
SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGSTOP")
MARK = "PODIUM_SIGNALS_CASE"
"""A variable that every process of a case inherits, by which it is found whoever its parent is by then."""
NOBODY = ("no such run", "there is no run in it", "missing, so this folder is not a run")
"""What may be said of a folder in which no run has begun."""
LATE, ENDS, PAUSE = 5.0, 90.0, 0.3
"""Seconds that processes may outlive the driver, that a run may take, and from a SIGSTOP to the driver's SIGKILL."""
CASES, QUICK, SAMPLE = 200, 6, 4


@dataclass(frozen=True)
class Case:
    command: str
    signal: str
    target: str  # "driver" or "node"
    moment: float  # as a share of the run's length


def cases(number: int, seed: int) -> list[Case]:
    """Commands, signals and targets in turn, at random moments."""
    dice, kinds = random.Random(seed), [("train", "driver"), ("evolve", "driver"), ("processes", "driver")]
    kinds.append(("processes", "node"))
    dealt = [(*kind, name) for name in SIGNALS for kind in kinds]
    dice.shuffle(dealt)
    return [Case(command, name, target, dice.random()) for command, target, name in (dealt * number)[:number]]


# ---- processes


def marked(mark: str) -> list[int]:
    """All processes of a case that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not ended and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def says(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "ended meanwhile"


def nodes(mark: str) -> list[int]:
    return sorted(pid for pid in marked(mark) if "-m podium.fleet.processes" in says(pid))


class Started:
    """A command of a case, in a session and a folder of its own."""

    def __init__(self, folder: Path, words: tuple[str, ...]) -> None:
        self.mark, self.run, self.tmp, self.began = uuid.uuid4().hex, folder / "run", folder / "tmp", time.monotonic()
        self.tmp.mkdir(exist_ok=True)
        self._said = folder / f"{self.mark}.txt"
        env = {**os.environ, MARK: self.mark, "TMPDIR": str(self.tmp), "OMP_NUM_THREADS": "1"}
        with self._said.open("wb") as said:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "podium", *words],
                **{"env": env, "stdin": subprocess.DEVNULL, "stdout": said, "stderr": said, "start_new_session": True},
            )

    def said(self) -> str:
        return self._said.read_text(errors="replace").strip()[-2000:]

    def wait(self) -> int | None:
        """The exit code; None if it had to be killed, since it did not end."""
        try:
            return self.driver.wait(ENDS)
        except subprocess.TimeoutExpired:
            self.driver.kill()
            self.driver.wait()
            return None

    def left(self) -> list[str]:
        """What outlives the driver by more than it may: processes, and files; they are ended now."""
        ends = time.monotonic() + LATE
        while (found := marked(self.mark)) and time.monotonic() < ends:
            time.sleep(0.05)
        names = [says(pid) for pid in found] + [path.name for path in self.tmp.glob("podium-*")]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return names


# ---- what is measured


def measured(case: Case, length: float, resumes: bool) -> dict[str, Any]:
    """What went wrong in a case: orphans, what made it unreadable, or another fault; empty if nothing."""
    with tempfile.TemporaryDirectory(prefix="signals-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        started = Started(folder, (*COMMANDS[case.command], "-o", str(folder / "run"), "-q"))
        try:
            fault = hurt(started, case, length)
            orphans = started.left()
        finally:
            started.driver.kill()
            started.driver.wait()
            started.left()
        unreadable = unusable(folder, resumes or case.target == "node")
        found = {"orphans": orphans, "unreadable": unreadable, "fault": fault}
        found = {key: value for key, value in found.items() if value}
        return {**asdict(case), **found, "said": started.said()} if found else {}


def hurt(started: Started, case: Case, length: float) -> str:
    """Send the signal, and wait for the driver's end; what is wrong with that end, if anything."""
    number, driver, begun = signal.Signals[case.signal], started.driver, False
    time.sleep(max(0.0, started.began + case.moment * length - time.monotonic()))
    if case.target == "driver":
        begun = (started.run / "checkpoint").exists() and number in (signal.SIGTERM, signal.SIGHUP)
        driver.send_signal(number)
    else:
        while driver.poll() is None and not (found := nodes(started.mark)):
            time.sleep(0.01)
        if driver.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(found[0], number)
    if number == signal.SIGSTOP:
        time.sleep(PAUSE)
        driver.kill()
    code = started.wait()
    if code is None:
        return f"did not end within {ENDS:g} s"
    if begun and "stopped at step" not in (log := started.run / "log.txt").read_text():
        return f"was not saved: exit code {code}, {log.read_text()}"
    killed = case.target == "driver" or number == signal.SIGSTOP
    allowed = {0, -number, -signal.SIGKILL} if killed else {0}
    return "" if code in allowed else f"exit code {code}"


def unusable(folder: Path, resumes: bool) -> str:
    """Why a run's folder cannot be read, or gone on with; empty if it can."""
    text = podium(folder, "top", str(folder / "run"))
    if text is not None:
        return "" if nobody(text) else f"podium top: {text}"
    if resumes:
        text = podium(folder, "resume", str(folder / "run"), "-q")
        return "" if text is None or nobody(text) else f"podium resume: {text}"
    return ""


def nobody(text: str) -> bool:
    return len(text.splitlines()) == 1 and any(said in text for said in NOBODY)


def podium(folder: Path, *words: str) -> str | None:
    """What a command says where it fails; None where it does not."""
    started = Started(folder, words)
    code = started.wait()
    return None if code == 0 else started.said() or f"exit code {code}"


def length_of(command: str) -> float:
    """Seconds that a run takes which nobody hurts."""
    with tempfile.TemporaryDirectory(prefix="signals-", ignore_cleanup_errors=True) as name:
        started = Started(Path(name), (*COMMANDS[command], "-o", str(Path(name) / "run"), "-q"))
        if (code := started.wait()) != 0:
            raise RuntimeError(f"{command}: exit code {code}: {started.said()}")
        return time.monotonic() - started.began


def main(number: int = CASES, seed: int = 0) -> dict[str, Any]:
    lengths: dict[str, float] = {}
    details = []
    for i, case in enumerate(cases(number, seed)):
        if case.command not in lengths:
            lengths[case.command] = length_of(case.command)
        found = measured(case, lengths[case.command], resumes=i % SAMPLE == 0)
        print(f"{i + 1} of {number}: {case} {found or ''}", file=sys.stderr, flush=True)
        if found:
            details.append(found)
    orphans = sum(len(found.get("orphans", ())) for found in details)
    unreadable = sum("unreadable" in found for found in details)
    return {"cases": number, "orphans": orphans, "unreadable": unreadable, "details": details}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} cases")
    parser.add_argument("--cases", type=int, help=f"how many (default: {CASES})")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    asked = parser.parse_args()
    print(json.dumps(main(asked.cases or (QUICK if asked.quick else CASES), asked.seed)))
