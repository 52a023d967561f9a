"""Signals: SIGHUP saves and stops, and of a driver that is killed nothing is left, even where it was stopped."""

from __future__ import annotations

import importlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from podium.core.interrupt import SAME, Interrupt, Interrupted
from podium.fleet import processes
from podium.store import checkpoint

ROOT = Path(__file__).parents[1]
TINY = ("cartpole", "ppo", "evolve.members=4", "evolve.interval=256", "stop.fitness=null", "eval.episodes=4")
LONG = ("tournament", "stop.steps=null", "stop.seconds=120")
ENVS = ("Acrobot-v1", "ppo", "env.source=workers", "env.workers=1", "stop.steps=null", "stop.seconds=120")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_asks_and_the_second_ends(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        assert not interrupt.happened()
        os.kill(os.getpid(), number)
        assert interrupt.happened()
        os.kill(os.getpid(), number)  # one that a launcher passed on, too
        time.sleep(SAME + 0.1)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), number)
            time.sleep(1)
    assert signal.getsignal(number) is before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.happened()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_terminal_that_closes_lets_the_run_save(tmp_path: Path) -> None:
    """Nothing can be printed any more; pods in processes of their own have not heard of it."""
    run = tmp_path / "run"
    words = ["evolve", *TINY, *LONG, "fleet=processes", "fleet.pods=2", "-o", str(run)]
    driver, terminal = pty.fork()
    if driver == 0:
        os.execv(sys.executable, [sys.executable, "-m", "podium", *words])
    threading.Thread(target=_read, args=(terminal,), daemon=True).start()
    _until(lambda: any((run / "members").glob("*.safetensors")))
    before = checkpoint.found(run)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1]) == 0
    said = (run / "log.txt").read_text()
    assert "interrupted" in said.splitlines()[-1] and "was lost" not in said
    assert checkpoint.found(run) != before


def _read(terminal: int) -> None:
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass


def _until(ready: Any, seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < ends, "nothing happened"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def bench() -> Any:
    """bench/signals.py"""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        return importlib.import_module("signals")
    finally:
        sys.path.pop(0)


HELD = """
import time
from podium.fleet.processes import group
with group("fleet_nodes:Counter", 2) as made:
    if {waits}:
        made.all("where")
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("stopped", ["starting", "at rest", "driver"])
def test_nothing_outlives_a_driver_that_is_killed(stopped: str, bench: Any, tmp_path: Path) -> None:
    """Nodes that are stopped, at their start or later, and a driver that is itself."""
    env = {**os.environ, bench.MARK: str(tmp_path), "TMPDIR": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), env.get("PYTHONPATH", "")])
    script = HELD.format(waits=stopped != "starting")
    driver = subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE)
    try:
        assert driver.stdout is not None and driver.stdout.readline() == b"up\n"
        nodes = bench.nodes(str(tmp_path))
        assert len(nodes) == 2
        for pid in [driver.pid] if stopped == "driver" else nodes:
            os.kill(pid, signal.SIGSTOP)
    finally:
        driver.kill()
        driver.communicate()
    _until(lambda: not bench.marked(str(tmp_path)), 5)
    _until(lambda: not list(tmp_path.iterdir()), 5)


@pytest.mark.slow
def test_env_workers_of_nodes_end_with_the_driver(bench: Any, tmp_path: Path) -> None:
    """All are stopped, nodes and workers, but for those that watch over them."""
    words = ("evolve", *ENVS, "tournament", "evolve.members=2", "fleet=processes", "fleet.pods=2")
    started = bench.Started(tmp_path, (*words, "-o", str(tmp_path / "run"), "-q"))
    try:
        _until(lambda: len(_workers(bench, started.mark)) >= 2)
        for pid in bench.marked(started.mark):
            if pid != started.driver.pid and "read pid" not in bench.says(pid):
                os.kill(pid, signal.SIGSTOP)
    finally:
        started.driver.kill()
        started.driver.wait()
    assert started.left() == []


def _workers(bench: Any, mark: str) -> list[int]:
    return [pid for pid in bench.marked(mark) if "podium.envs.worker" in bench.says(pid)]


@pytest.mark.slow
def test_a_node_that_is_killed_while_it_starts_is_replaced(bench: Any, tmp_path: Path) -> None:
    """On the first start, and when the run is resumed."""
    run = tmp_path / "run"
    for words in (("evolve", *TINY, "fleet=processes", "fleet.pods=2", "stop.steps=512", "-o", run), ("resume", run)):
        started = bench.Started(tmp_path, tuple(map(str, [*words, "-q"])))
        _until(lambda started=started: bench.nodes(started.mark))
        time.sleep(0.3)  # it imports
        os.kill(bench.nodes(started.mark)[0], signal.SIGKILL)
        assert started.wait() == 0, started.said()
        assert started.left() == []


def test_the_moments_are_drawn_from_a_seed(bench: Any) -> None:
    drawn = bench.cases(200, 0)
    assert drawn == bench.cases(200, 0) != bench.cases(200, 1)
    assert {(case.command, case.signal, case.target) for case in drawn[:16]} == {
        (command, name, target)
        for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGSTOP")
        for command, target in (*((c, "driver") for c in bench.COMMANDS), ("processes", "node"))
    }


@pytest.mark.slow
def test_signals_in_the_midst_of_runs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [bench.Case("train", "SIGHUP", "driver", 0.8), bench.Case("processes", "SIGSTOP", "node", 0.6)]
    monkeypatch.setattr(bench, "cases", lambda number, seed: few[:number])
    monkeypatch.setattr(bench, "length_of", lambda command: 5.0)
    assert bench.main(2) == {"cases": 2, "orphans": 0, "unreadable": 0, "details": []}


def test_a_long_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's path has at most 107 bytes; the folder is then elsewhere, and still the user's alone."""
    long = tmp_path / ("x" * 100) / ("y" * 100)
    long.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with processes.group("fleet_nodes:Counter", 1) as made:
        assert made.one(0, "echo", 1).result() == 1
        folder = Path(made._links[0].handle.address.removeprefix("ipc://")).parent  # type: ignore[attr-defined]
        assert folder.stat().st_mode & 0o777 == 0o700 and folder.name.startswith("podium-")
    assert not folder.exists() and not list(long.iterdir())
