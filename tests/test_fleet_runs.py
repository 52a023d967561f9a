"""Evolution over a fleet: the same results wherever a pod is, and what happens when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import podium
from podium.core import machine
from podium.core.errors import PodiumError
from podium.store.ledger import Ledger
from podium.store.run import Run

TINY = ("cartpole", "ppo", "evolve.members=4", "evolve.interval=256", "stop.fitness=null", "eval.episodes=4")
SHORT = (*TINY, "stop.steps=1024")


def books(run: Path) -> list[object]:
    """All that was decided, without the time it took."""
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        scores = [{k: v for k, v in s.items() if k != "seconds"} for s in ledger.scores()]
        top = [{k: v for k, v in r.items() if k != "seconds"} for r in ledger.top()]
        return [ledger.members(), scores, top]


def children() -> list[int]:
    """Processes of nodes that this process started."""
    mine = str(os.getpid())
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent == mine and b"podium.fleet.processes" in words:
                found.append(int(folder.name))
    return found


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    runs = {}
    for strategy in ("tournament", "truncation"):
        runs[strategy] = tmp_path_factory.mktemp("inline") / strategy
        podium.evolve(*SHORT, strategy, out=runs[strategy])
    return runs


@pytest.mark.parametrize("fleet", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", ["tournament", "truncation"])
def test_results_do_not_depend_on_the_engine(
    fleet: str, strategy: str, inline: dict[str, Path], tmp_path: Path
) -> None:
    podium.evolve(*SHORT, strategy, f"fleet={fleet}", "fleet.pods=1", out=tmp_path / "run")
    assert books(tmp_path / "run") == books(inline[strategy])
    for member in (inline[strategy] / "members").iterdir():
        assert member.read_bytes() == (tmp_path / "run" / "members" / member.name).read_bytes()


def test_members_begin_with_what_another_run_has_learnt(inline: dict[str, Path], tmp_path: Path) -> None:
    words = (*TINY, "truncation", "stop.steps=256", f"train.start={inline['truncation']}")
    podium.evolve(*words, out=tmp_path / "inline")
    podium.evolve(*words, "fleet=processes", "fleet.pods=1", out=tmp_path / "processes")
    assert books(tmp_path / "processes") == books(tmp_path / "inline")
    podium.evolve(*words[:-1], out=tmp_path / "anew")
    assert books(tmp_path / "anew")[1] != books(tmp_path / "inline")[1]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tournament", "truncation", "nsga2"])
def test_several_pods(strategy: str, tmp_path: Path) -> None:
    more = ("evolve.objectives=[return,-switching]",) if strategy == "nsga2" else ()
    result = podium.evolve(*SHORT, strategy, "fleet=processes", "fleet.pods=2", *more, out=tmp_path / "run")
    assert result.reason == "steps" and result.top[0]["fitness"] is not None
    with Ledger(tmp_path / "run" / "ledger.sqlite", readonly=True) as ledger:
        assert {m["pod"] for m in ledger.members()} == {0, 1}
    go_on = podium.resume(tmp_path / "run", "stop.steps=1536")
    assert go_on.reason == "steps" and go_on.step >= 1536
    assert children() == []


def test_the_number_of_pods_is_that_of_cores_and_is_kept(tmp_path: Path) -> None:
    podium.evolve(*TINY, "stop.steps=256", "fleet=processes", out=tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        assert run.config["fleet"]["pods"] == min(4, machine.bound())


def test_a_pod_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """Its members failed, the run ends as it should, and the books are right."""
    run, killed = tmp_path / "run", []

    def kill() -> None:
        while not killed:
            time.sleep(0.05)
            if (run / "ledger.sqlite").exists() and (run / "checkpoint").exists() and any((run / "members").iterdir()):
                killed.append(children()[0])
                os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    result = podium.evolve(*TINY, "tournament", "stop.steps=8192", "fleet=processes", "fleet.pods=2", out=run)
    thread.join(5)
    assert killed and result.reason == "steps" and children() == []
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        members = ledger.members()
        failed = [m for m in members if m["status"] == "failed"]
        assert len(failed) == 2 and all("was killed by signal 9" in m["reason"] for m in failed)
        assert sum(m["status"] == "finished" for m in members) == 4 and not ledger.training()
        assert not {m["id"] for m in failed} & {row["id"] for row in ledger.top() if row["status"] == "training"}
    assert "pod" in (run / "log.txt").read_text()


@pytest.mark.slow
def test_when_the_driver_is_killed_nothing_is_left(tmp_path: Path) -> None:
    words = [*TINY, "tournament", "stop.steps=null", "stop.seconds=60", "fleet=processes", "fleet.pods=2"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "podium", "evolve", *words, "-o", str(tmp_path / "run"), "-q"]
    driver = subprocess.Popen(command, env=env)
    deadline = time.monotonic() + 60
    while not any((tmp_path / "run" / "members").glob("*.safetensors")):
        assert time.monotonic() < deadline and driver.poll() is None
        time.sleep(0.1)
    nodes = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _parent(p) == driver.pid]
    assert len([p for p in nodes if b"podium.fleet.processes" in (p / "cmdline").read_bytes()]) == 2  # and who watches
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 5
    while any(p.exists() for p in nodes) or list(tmp_path.glob("podium-*")):
        assert time.monotonic() < deadline, [p for p in nodes if p.exists()]
        time.sleep(0.05)
    assert podium.resume(tmp_path / "run", "stop.seconds=null", "stop.steps=2048").reason == "steps"


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


REFUSED = {
    "fleet=cluster": "fleet.kind: 'cluster' is not allowed; one of inline, processes, ray, mpi",
    "fleet.pods=5": "fleet.pods: 5 is not allowed; at least 1, at most one for each of 4 members",
    "fleet.pods=0": "fleet.pods: 0 is not allowed; at least 1, at most one for each of 4 members",
    "fleet.address=auto": "fleet.address: 'auto' is not allowed; nothing: it is for fleet=ray only",
    "fleet=mpi": "fleet: 'mpi' is not allowed; under mpiexec only, for example: mpiexec -n 4 podium evolve",
}


@pytest.mark.parametrize("word", REFUSED)
def test_bad_input_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(PodiumError) as caught:
        podium.evolve(*SHORT, "tournament", word, out=tmp_path / "run")
    assert REFUSED[word] in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_ray_address_where_nobody_listens(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(PodiumError, match=r"fleet.address: '127.0.0.1:1' is not allowed; that of a Ray cluster"):
        podium.evolve(*SHORT, "tournament", "fleet=ray", "fleet.address=127.0.0.1:1", out=tmp_path / "run")
    assert time.monotonic() - start < 20


@pytest.mark.slow
def test_start_and_stop_leave_nothing_behind() -> None:
    from podium.fleet.processes import group

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def shared() -> int:
        """Shared memory of Python or torch; that of MPI and Ray may be other tests'."""
        return sum(name.startswith(("psm_", "torch_", "sem.", "mp-")) for name in os.listdir("/dev/shm"))

    before = None
    for cycle in range(10):
        with group("fleet_nodes:Counter", 2) as made:
            made.all("add")
        if cycle == 1:
            before = open_files(), threading.active_count(), shared()
    after = open_files(), threading.active_count(), shared()
    assert before is not None and all(new <= old for new, old in zip(after, before, strict=True)) and children() == []


@pytest.mark.parametrize("fleet", ["inline", "processes"])
def test_the_pace_of_each_pod_is_reported(fleet: str, tmp_path: Path) -> None:
    reports: list[dict[str, object]] = []
    words = (*TINY, "stop.steps=null", "stop.seconds=3", f"fleet={fleet}", "fleet.pods=2", "tournament")
    podium.evolve(*words, out=tmp_path / "run", on_report=reports.append)
    pods = [pod for report in reports[1:] for pod in report["pods"]]  # type: ignore[attr-defined]
    assert all(len(report["pods"]) == 2 for report in reports)  # type: ignore[arg-type]
    assert pods and all(0 <= pod["busy"] <= 1 for pod in pods) and max(pod["steps_per_second"] for pod in pods) > 0
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    assert {"pods/busy/0", "pods/busy/1", "pods/steps_per_second/1"} <= set(events.Tags()["scalars"])
    if fleet == "processes":
        assert sum(pod["busy"] for pod in pods) / len(pods) > 0.5  # neither waits for the other


def test_devices_are_given_to_pods_in_turn(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match=r"train.device: 'nowhere' is not allowed"):
        podium.evolve(*SHORT, "fleet=processes", "fleet.pods=2", "fleet.devices=[cpu,nowhere]", out=tmp_path / "run")
    assert children() == [] and not (tmp_path / "run").exists()
