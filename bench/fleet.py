"""Measure what a fleet does when it is hurt, and what it leaves behind; prints JSON on its last line.

    python bench/fleet.py kills processes|ray      a pod is killed every five seconds of a minute
    python bench/fleet.py recovery                 how soon after that the run is as fast as before
    python bench/fleet.py orphans processes|ray    what is left of a run whose driver was killed, and for how long
    python bench/fleet.py cycles processes|ray     what many groups leave behind, one after another
    python bench/fleet.py mpi p2p|collective       32 members on 4 ranks
    python bench/fleet.py fuzz                     100,000 frames of rubbish at a node's socket

`recovery`: before a kill the run has a pace, the median over seconds of the ten before it. The time to recover is from
the SIGKILL to the end of the first second, begun after the kill, in which the whole run trained 90 % of that.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import podium
from podium import training
from podium.bench._echo import Echo
from podium.bench.fleet import under_mpi
from podium.fleet import engines
from podium.store.ledger import Ledger

ROOT = Path(__file__).resolve().parents[1]
MEMBERS, PODS, EVERY, MINUTE = 16, 2, 5.0, 60.0
CYCLES = {"processes": 100, "ray": 10}
REPEATS, WINDOW, BEFORE, PAUSE, SHARE = 5, 1.0, 10.0, 15.0, 0.9
LATE, GONE = 5.0, 30.0
"""Seconds after which what is left of a run is named, and after which it is ended by force."""

TOURNAMENT = ("cartpole", "ppo", "tournament", f"evolve.members={MEMBERS}", "stop.steps=null", "stop.fitness=null")

Result = dict[str, Any]


# ---- processes


def stat(pid: int) -> tuple[int, int] | None:
    """Parent of a process and when it started; None if it has ended, a zombie included."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else (int(words[1]), int(words[19]))


def says(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def below(pid: int) -> list[int]:
    """All processes that a process has started, and those that they have."""
    parents = {int(p.name): found[0] for p in Path("/proc").glob("[0-9]*") if (found := stat(int(p.name)))}
    found, fresh = [], [pid]
    while fresh:
        fresh = [child for child, parent in parents.items() if parent in fresh]
        found += fresh
    return found


def pods_of(pid: int) -> list[int]:
    """The processes of a run's pods, whichever engine started them."""
    return sorted(
        p for p in below(pid) if "podium.fleet.processes" in (said := says(p)) or said.startswith("ray::Host")
    )


def listening(pids: list[int]) -> set[str]:
    """Sockets on which some processes wait for callers, by inode."""
    return {inode for pid in pids for inode in sockets_of(pid)} & open_sockets()


def open_sockets() -> set[str]:
    found = set()
    for name in ("tcp", "tcp6"):
        lines = [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
        found |= {words[9] for words in lines if words[3] == "0A"}
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return found | {words[6] for words in lines if words[3] == "00010000"}


def shared_memory(pids: list[int]) -> set[str]:
    """Files in /dev/shm that some processes have mapped."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            words = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
            found |= {w[5] for w in words if len(w) == 6 and w[5].startswith("/dev/shm/")}
    return found


def tcp_sockets() -> int:
    """Of this process, open or not quite closed; a group on this machine has none of its own, Ray's client has."""
    paths = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    return len({name for name in sockets_of(os.getpid()) if name.isdigit()} - paths)


def sockets_of(pid: int) -> set[str]:
    """Inodes of the sockets that a process holds, and what else it has open."""
    found = set()
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
    return found


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that holds all temporary files meanwhile."""
    with tempfile.TemporaryDirectory(prefix="fleet-", ignore_cleanup_errors=True) as folder:
        tmp = Path(folder) / "tmp"
        tmp.mkdir()
        with patch.dict(os.environ, {"TMPDIR": str(tmp)}), patch.object(tempfile, "tempdir", str(tmp)):
            yield Path(folder)


# ---- what is measured


def kills(engine: str) -> Result:
    """A run whose pods are killed, each time the oldest: how it ends, what it has learnt, and its books."""
    killed: list[int] = []
    begun, ended = threading.Event(), threading.Event()

    def kill() -> None:
        begun.wait()
        last = time.monotonic() + MINUTE
        while not ended.wait(EVERY) and time.monotonic() < last:
            alive = {pid: found[1] for pid in pods_of(os.getpid()) if (found := stat(pid))}
            if alive:
                with suppress(ProcessLookupError):
                    os.kill(min(alive, key=alive.__getitem__), signal.SIGKILL)
                    killed.append(len(alive))

    with own_folder() as folder:
        thread, run = threading.Thread(target=kill), folder / "run"
        thread.start()
        try:
            words = (*TOURNAMENT, f"stop.seconds={MINUTE + 10}", f"fleet={engine}", f"fleet.pods={PODS}")
            result = podium.evolve(*words, out=run, on_report=lambda report: begun.set())
        finally:
            begun.set(), ended.set()
            thread.join()
        champion = float(podium.load(run).evaluate(100, "CartPole-v1", 0).mean())
        lost = (run / "log.txt").read_text().count(" was lost: ")
        found = {"reason": result.reason, "kills": len(killed), "lost": lost, "champion": champion, **books(run)}
        return found | {"left": len(pods_of(os.getpid())) + len(list((folder / "tmp").glob("podium-*")))}


def books(run: Path) -> Result:
    """How many members and scores the ledger has, and what is wrong with them, if anything."""
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        members, scores = ledger.members(), ledger.scores()
    of = {status: [m for m in members if m["status"] == status] for status in ("finished", "failed")}
    lost = sum("its pod was lost" in (m["reason"] or "") for m in of["failed"])
    counts = {"members": len(members), "lost_members": lost, **{status: len(found) for status, found in of.items()}}
    return {**counts, "scores": len(scores), "wrong": [*wrong_members(members), *wrong_scores(members, scores)]}


def wrong_members(members: list[Result]) -> Iterator[str]:
    """Each has a number, a parent before it and an end; those that finished fill the rows of all pods."""
    ids = [m["id"] for m in members]
    if ids != list(range(len(ids))):
        yield f"members are numbered {ids}"
    seats = [(m["pod"], m["row"]) for m in members if m["status"] == "finished"]
    if not len(seats) == len(set(seats)) == MEMBERS:
        yield f"{len(seats)} finished, in {len(set(seats))} rows"
    for m in members:
        if m["status"] == "training" or m["ended_step"] is None:
            yield f"member {m['id']} still trains"
        if m["status"] == "failed" and not m["reason"]:
            yield f"member {m['id']} failed without a reason"
        if m["parent"] is not None and not 0 <= m["parent"] < m["id"]:
            yield f"member {m['id']} has no parent {m['parent']}"


def wrong_scores(members: list[Result], scores: list[Result]) -> Iterator[str]:
    """Each is of a member that lived then, one after another."""
    lives = {m["id"]: (m["born_step"], math.inf if m["ended_step"] is None else m["ended_step"]) for m in members}
    last = {m["id"]: m["born_step"] for m in members}
    for member, step in ((score["member"], score["step"]) for score in scores):
        born, ended = lives.get(member, (math.inf, -math.inf))
        if not born <= step <= ended:
            yield f"a score of member {member} at step {step}, when it did not live"
        elif step < last[member]:
            yield f"the scores of member {member} are out of order"
        last[member] = step


def recovery() -> Result:
    """From a kill until the run trains as fast as before; what it trained is noted ten times a second."""
    seen: list[tuple[float, float]] = []
    killed: list[float] = []
    ended = threading.Event()

    def kill() -> None:
        while not seen and not ended.wait(0.1):
            pass
        for i in range(REPEATS):
            if ended.wait(PAUSE):
                return
            os.kill(pods_of(os.getpid())[i % PODS], signal.SIGKILL)
            killed.append(time.monotonic())

    def often(experiment: Any) -> Any:
        return replace(plan(experiment), report_seconds=0.1)

    plan, length = training.plan, (REPEATS + 1) * PAUSE
    words = (*TOURNAMENT, "evolve.interval=65536", "evolve.slice=1", "eval.episodes=2")
    with own_folder() as folder, patch.object(training, "plan", often):
        thread = threading.Thread(target=kill)
        thread.start()
        try:
            podium.evolve(
                *(*words, f"stop.seconds={length + 5}", "fleet=processes", f"fleet.pods={PODS}"),
                out=folder / "run",
                on_report=lambda report: seen.append((time.monotonic(), report["steps_total"])),
            )
        finally:
            ended.set()
            thread.join()
    each = [recovered(seen, at, until) for at, until in pairwise([*killed, killed[-1] + PAUSE])]
    return {"seconds": each, "before": [pace_before(seen, at) for at in killed]}


def trained(seen: list[tuple[float, float]], at: float) -> float:
    """Steps up to a moment, between two that were noted."""
    for (a, before), (b, after) in pairwise(seen):
        if a <= at <= b:
            return before + (after - before) * (at - a) / max(b - a, 1e-9)
    raise ValueError("nothing was noted at that time")


def pace_before(seen: list[tuple[float, float]], at: float) -> float:
    ends = [at - i * WINDOW for i in range(int(BEFORE / WINDOW))]
    return median((trained(seen, end) - trained(seen, end - WINDOW)) / WINDOW for end in ends)


def recovered(seen: list[tuple[float, float]], at: float, until: float) -> float:
    """Infinite if it did not happen until then."""
    wanted, end = SHARE * pace_before(seen, at), at + WINDOW
    while end < min(until, seen[-1][0]):
        if (trained(seen, end) - trained(seen, end - WINDOW)) / WINDOW >= wanted:
            return end - at
        end += 0.05
    return math.inf


def orphans(engine: str) -> Result:
    """A driver is killed: seconds until its pods are gone, and until every process, port and file of it is."""
    results = [orphaned(engine) for _ in range(3)]
    late = sorted({name for found in results for name in found["late"]})
    return {key: [found[key] for found in results] for key in ("pods", "all")} | {"late": late}


def orphaned(engine: str) -> Result:
    with own_folder() as folder:
        driver = started(folder / "run", engine)
        try:
            born, pods = {pid: stat(pid) for pid in below(driver.pid)}, pods_of(driver.pid)
            names = {pid: says(pid).partition(" ")[0].rpartition("/")[2] for pid in born}
            ports, shared = listening(list(born)), shared_memory([driver.pid, *born])
        finally:
            start = time.monotonic()
            driver.kill()
            driver.wait()

        def alive(pids: Iterable[int]) -> list[int]:
            return [pid for pid in pids if (now := stat(pid)) and (then := born[pid]) and now[1] == then[1]]

        def traces() -> set[str]:
            files = {path for path in shared if Path(path).exists()}
            files |= {str(path) for path in (folder / "tmp").glob("podium-*")}
            return {names[pid] for pid in alive(born)} | files | {f"socket {i}" for i in ports & open_sockets()}

        found: Result = {"pods": math.inf, "all": math.inf, "late": []}
        while (now := time.monotonic() - start) < GONE and math.isinf(found["all"]):
            left = traces()
            if not alive(pods):
                found["pods"] = min(now, found["pods"])
            if not left:
                found["all"] = now
            if now >= LATE and not found["late"]:
                found["late"] = sorted(left)
            time.sleep(0.02)
        for pid in alive(born):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found


def started(run: Path, engine: str) -> subprocess.Popen[bytes]:
    """A driver whose pods are at work."""
    words = (*TOURNAMENT, "stop.seconds=600", f"fleet={engine}", f"fleet.pods={PODS}", "-o", str(run), "-q")
    driver, ends = subprocess.Popen([sys.executable, "-m", "podium", "evolve", *words]), time.monotonic() + 120
    while not any((run / "members").glob("*.safetensors")):
        if driver.poll() is not None or time.monotonic() > ends:
            driver.kill()
            raise RuntimeError(f"the run did not begin (exit code {driver.wait()})")
        time.sleep(0.1)
    return driver


def cycles(engine: str) -> Result:
    """Groups of two nodes, started, called and closed one after another: what this process holds after each."""
    start = engines.engine(engine)
    held: list[Result] = []
    with own_folder() as folder:
        for _ in range(CYCLES[engine]):
            began = time.monotonic()
            with start(Echo, PODS, threads=1) as group:
                group.all("echo", 1)
            took = time.monotonic() - began
            time.sleep(0.2)  # ZeroMQ closes its sockets in a thread of its own
            sockets = tcp_sockets()
            here = {"files": len(os.listdir("/proc/self/fd")) - sockets, "sockets": sockets}
            here["threads"] = len(os.listdir("/proc/self/task"))
            here |= {"shared": len(os.listdir("/dev/shm")), "folders": len(list((folder / "tmp").glob("podium-*")))}
            held.append(here | {"processes": len(below(os.getpid())), "memory": memory(os.getpid()), "seconds": took})
    keys = held[0].keys()
    return {"cycles": len(held), **{key: [held[1][key], held[-1][key]] for key in keys}}


def memory(pid: int) -> float:
    """Resident, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def mpi(exchange: str, seed: str = "0") -> Result:
    """Generations of 8 members on each of 4 ranks, to the end; the champion in Gymnasium's env."""
    words = ("cartpole", "ppo", "truncation", "evolve.members=32", "fleet=mpi", f"evolve.exchange={exchange}")
    with own_folder() as folder:
        start = time.perf_counter()
        under_mpi(4, "evolve", *words, f"seed={seed}", "-o", str(folder / "run"), "-q")
        seconds = time.perf_counter() - start
        champion = float(podium.load(folder / "run").evaluate(100, "CartPole-v1", 0).mean())
    return {"seed": int(seed), "seconds": seconds, "champion": champion}


def fuzz(number: str = "100000") -> Result:
    """As tests/fleet/test_fuzz.py does it, which raises if the node does not live on."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/fleet")]
    test: Any = importlib.import_module("test_fuzz")
    start = time.perf_counter()
    before, after = test.bombarded(int(number))
    return {"frames": int(number), "before": before, "after": after, "seconds": time.perf_counter() - start}


MEASURES = {f.__name__: f for f in (kills, recovery, orphans, cycles, mpi, fuzz)}

if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](*sys.argv[2:])))
