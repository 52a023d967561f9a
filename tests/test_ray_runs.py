"""Runs on a Ray cluster whose machines come and go: real clusters of several nodes, on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

import podium  # noqa: E402
from podium.fleet import on_ray  # noqa: E402
from podium.store.ledger import Ledger  # noqa: E402
from podium.topologies.driver import Driver  # noqa: E402

TINY = ("cartpole", "ppo", "evolve.members=4", "evolve.interval=256", "stop.fitness=null", "eval.episodes=4")
TINY = (*TINY, "stop.steps=null", "stop.seconds=120", "fleet=ray", "train.checkpoint=2048")
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
"""How Ray sees that a machine is gone."""


@contextmanager
def machines(cpus: int) -> Iterator[Cluster]:
    cluster = Cluster(
        initialize_head=True, shutdown_at_exit=False, head_node_args={"num_cpus": cpus, "_system_config": QUICK}
    )
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


class Story:
    """Runs beside a run, in a thread; the run ends when it does."""

    def __init__(self, tell: Callable[[Story], None], patch: pytest.MonkeyPatch) -> None:
        self.reports: list[dict[str, Any]] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(tell,), daemon=True)
        stop = Driver._stop
        patch.setattr(Driver, "_stop", lambda driver: stop(driver) or (None if self._thread.is_alive() else "steps"))
        self._thread.start()

    def _run(self, tell: Callable[[Story], None]) -> None:
        try:
            tell(self)
        except BaseException as error:
            self._error = error

    def until(self, what: Callable[[], Any]) -> None:
        ends = time.monotonic() + 40
        while not what():
            assert time.monotonic() < ends, "it does not happen"
            time.sleep(0.1)

    def end(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tournament", "truncation"])
def test_pods_leave_and_return_with_machines(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"

    def said(text: str) -> bool:
        return (run / "log.txt").exists() and text in (run / "log.txt").read_text()

    with machines(cpus=1) as cluster:
        goes = cluster.add_node(num_cpus=1)

        def tell(story: Story) -> None:
            story.until(lambda: len(story.reports) > 1 and all(pod["busy"] for pod in story.reports[-1]["pods"]))
            cluster.remove_node(goes, allow_graceful=False)
            story.until(lambda: said("was lost"))
            story.left = story.reports[-1]
            story.until(lambda: story.reports[-1]["generation"] > story.left["generation"] + 2)
            story.until(lambda: min(pod["busy"] for pod in story.reports[-1]["pods"]) == 0)  # one is away
            cluster.add_node(num_cpus=1)
            story.until(lambda: said("is back") and all(pod["busy"] for pod in story.reports[-1]["pods"]))

        story = Story(tell, monkeypatch)
        words = (*TINY, strategy, "fleet.pods=2", f"fleet.address={cluster.address}")
        result = podium.evolve(*words, out=run, on_report=story.reports.append)
        story.end()
    assert result.reason == "steps"
    assert all(0 <= pod["busy"] <= 1 for report in story.reports for pod in report["pods"])
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        members = ledger.members()
        failed = [m for m in members if m["status"] == "failed"]
        assert len(failed) == 2 and all("its pod was lost" in m["reason"] for m in failed)
        assert len({m["pod"] for m in failed}) == 1
        finished = [(m["pod"], m["row"]) for m in members if m["status"] == "finished"]
        assert sorted(finished) == [(0, 0), (0, 1), (1, 0), (1, 1)] and not ledger.training()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tournament", "truncation"])
def test_pods_join_with_machines(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    with machines(cpus=1) as cluster:

        def tell(story: Story) -> None:
            story.until(lambda: len(story.reports) > 1)
            assert [len(report["pods"]) for report in story.reports] == [1] * len(story.reports)
            cluster.add_node(num_cpus=1)
            story.until(lambda: story.reports[-1]["step"] and len(story.reports[-1]["pods"]) == 2)
            story.until(lambda: all(pod["steps_per_second"] for pod in story.reports[-1]["pods"]))

        story = Story(tell, monkeypatch)
        words = (*TINY, strategy, f"fleet.address={cluster.address}")
        result = podium.evolve(*words, out=run, on_report=story.reports.append)
        story.end()
        assert result.reason == "steps" and sorted(story.reports[-1]["ids"]) == sorted(set(story.reports[-1]["ids"]))
        monkeypatch.undo()
        more = podium.resume(
            run, "stop.seconds=null", f"stop.steps={result.step + 2048}", on_report=story.reports.append
        )
    assert more.reason == "steps" and len(story.reports[-1]["pods"]) == 2
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        members = ledger.members()
        assert not [m for m in members if m["status"] == "failed"] and not ledger.training()
        finished = [(m["pod"], m["row"]) for m in members if m["status"] == "finished"]
        assert sorted(finished) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def below(parent: int) -> dict[int, str]:
    """All processes that a process has started, and those that they have: the command of each."""
    found: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                ancestor = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(folder.name)] = ancestor, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    mine = {pid: command for pid, (ancestor, command) in found.items() if ancestor == parent}
    return mine | {pid: command for child in mine for pid, command in below(child).items()}


@pytest.mark.slow
def test_when_the_driver_is_killed_nothing_is_left(tmp_path: Path) -> None:
    words = [*TINY[:-2], "fleet=ray", "tournament", "fleet.pods=2", "fleet.address=null"]
    command = [sys.executable, "-m", "podium", "evolve", *words, "-o", str(tmp_path / "run"), "-q"]
    short = Path(tempfile.mkdtemp())  # where there is room for the names of sockets
    environ = {"TMPDIR": str(short), "RAY_TMPDIR": "/tmp"}
    driver = subprocess.Popen(command, env={**os.environ, **environ})
    try:
        deadline = time.monotonic() + 60
        while not any((tmp_path / "run" / "members").glob("*.safetensors")):
            assert time.monotonic() < deadline and driver.poll() is None
            time.sleep(0.1)
        started = below(driver.pid)
        assert len([c for c in started.values() if "Host" in c]) == 2 and list(short.glob("podium-*"))
    finally:
        driver.kill()
        driver.wait()
    assert any("Agent" in command for command in started.values())  # which would stay for a minute
    deadline = time.monotonic() + 5
    while [p for p in started if Path(f"/proc/{p}").exists()] or list(short.glob("podium-*")):
        assert time.monotonic() < deadline, {p: c for p, c in started.items() if Path(f"/proc/{p}").exists()}
        time.sleep(0.05)


@pytest.mark.slow
def test_a_ray_of_its_own_listens_to_this_machine_only() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_way:
        any_way.connect(("192.0.2.1", 9))  # nothing is sent
        mine = any_way.getsockname()[0]
    with on_ray.group("fleet_nodes:Counter", 1) as group:
        assert group.all("add") == [1]
        (node,) = ray.nodes()
        assert node["NodeManagerAddress"] == "127.0.0.1"
        socket.create_connection(("127.0.0.1", node["NodeManagerPort"]), timeout=3).close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((mine, node["NodeManagerPort"]), timeout=3).close()
