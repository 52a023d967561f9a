"""Generations on MPI: every rank a pod, members from rank to rank, and the same results as in one process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import mpi
import podium
from podium.core.errors import PodiumError
from podium.evolve.turn import Refill, Task
from podium.topologies.ranks import Ranks
from test_fleet_runs import SHORT, TINY, books

pytest.importorskip("mpi4py")


def evolved(ranks: int, run: Path, *words: str) -> list[object]:
    """The books of a run under mpiexec."""
    done = mpi.run(ranks, "-m", "podium", "evolve", *words, "fleet=mpi", "-o", str(run), "-q")
    assert done.returncode == 0, done.stderr
    return books(run)


def same_members(a: Path, b: Path) -> bool:
    names = sorted(file.name for file in (a / "members").iterdir())
    assert names and names == sorted(file.name for file in (b / "members").iterdir())
    return all((a / "members" / name).read_bytes() == (b / "members" / name).read_bytes() for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["truncation", "wta", "nsga2"])
def test_every_exchange_has_the_same_results(strategy: str, tmp_path: Path) -> None:
    """Three pods of 2, 2 and 1 members in one process, and on three ranks of which the first is one."""
    words = (*SHORT, strategy, "evolve.members=5")
    words += ("evolve.objectives=[return,-switching]",) if strategy == "nsga2" else ()
    podium.evolve(*words, "fleet.pods=3", out=tmp_path / "inline")
    for how in ("p2p", "collective"):
        assert evolved(3, tmp_path / how, *words, f"evolve.exchange={how}") == books(tmp_path / "inline")
        assert same_members(tmp_path / how, tmp_path / "inline")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("tournament",), ("truncation", "evolve.exchange=inline")])
def test_one_pod_has_the_same_results(words: tuple[str, ...], tmp_path: Path) -> None:
    podium.evolve(*SHORT, words[0], out=tmp_path / "inline")
    assert evolved(2, tmp_path / "mpi", *SHORT, *words, "fleet.pods=1") == books(tmp_path / "inline")
    assert same_members(tmp_path / "mpi", tmp_path / "inline")


FAILS = """
import sys
import podium
from podium import pod_node
from podium.fleet import mpi

turn, turns = pod_node.RankNode.turn, []

def fails(self, *args):
    turns.append(1)
    if mpi.rank() == 2 and len(turns) > 8:
        raise ValueError("rank two has had enough")
    return turn(self, *args)

pod_node.RankNode.turn = fails
podium.evolve(*sys.argv[2:], out=sys.argv[1])
"""


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_job_and_the_run_can_go_on(tmp_path: Path) -> None:
    words = (*TINY, "truncation", "stop.steps=2048", "train.checkpoint=512", "fleet=mpi")
    start = time.monotonic()
    done = mpi.run(3, "-c", FAILS, str(tmp_path / "run"), *words, timeout=60)
    assert done.returncode != 0 and time.monotonic() - start < 40
    assert "ValueError: rank two has had enough" in done.stderr and "rank 2 failed" in done.stderr
    resumed = mpi.run(3, "-m", "podium", "resume", str(tmp_path / "run"), "-q")
    assert resumed.returncode == 0, resumed.stderr
    podium.evolve(*words[:-1], "fleet.pods=3", out=tmp_path / "whole")
    assert books(tmp_path / "run") == books(tmp_path / "whole")  # in step, a resume is exact


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_job(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = (*TINY, "truncation", "stop.steps=null", "stop.seconds=120", "fleet=mpi", "-o", str(run), "-q")
    job = mpi.start(3, "-m", "podium", "evolve", *words)
    try:
        deadline = time.monotonic() + 60
        while not any((run / "members").glob("*.safetensors")):
            assert time.monotonic() < deadline and job.poll() is None
            time.sleep(0.1)
        ranks = {rank: pid for pid in _children(job.pid) if (rank := _rank(pid)) is not None}
        os.kill(ranks[1], signal.SIGKILL)
        deadline = time.monotonic() + 10
        assert job.wait(10) != 0
        while any(Path(f"/proc/{pid}").exists() for pid in ranks.values()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        job.kill()


def _children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _rank(pid: int) -> int | None:
    for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if line.startswith(b"OMPI_COMM_WORLD_RANK="):
            return int(line.partition(b"=")[2])
    return None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evolve.exchange=p2p",), "evolve.exchange: 'p2p' is not allowed; auto or inline, since fleet is inline"),
        (("evolve=tournament", "evolve.exchange=collective"), "evolve.exchange: 'collective' is not allowed"),
    ],
)
def test_an_exchange_that_cannot_be_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(PodiumError) as caught:
        podium.evolve(*TINY, "truncation", *words, out=tmp_path / "run")
    assert said in str(caught.value) and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_mpiexec_without_fleet(tmp_path: Path) -> None:
    done = mpi.run(2, "-m", "podium", "evolve", *TINY, "truncation", "-o", str(tmp_path / "run"))
    assert done.returncode != 0 and "mpiexec started 2 ranks of this command: add fleet=mpi" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_more_pods_than_ranks(tmp_path: Path) -> None:
    done = mpi.run(
        2, "-m", "podium", "evolve", *TINY, "truncation", "fleet=mpi", "fleet.pods=3", "-o", str(tmp_path / "run")
    )
    assert done.returncode != 0 and "fleet.pods: 3 is not allowed; at most 2" in done.stderr, done.stderr


class Told:
    """A crew that only notes what it is asked."""

    def __init__(self, size: int) -> None:
        self.size, self.calls = size, []  # type: ignore[var-annotated]

    def __len__(self) -> int:
        return self.size

    def call(self, method: str, *args: Any, each: Any = None) -> list[Any]:
        self.calls.append((method, args, each))
        if method == "about":
            return [{"exact": True}] * self.size
        if method == "turn":
            answer = {"steps": 8, "seconds": 1.0, "evaluation": None, "took": 0.5}
            return [dict(answer) if task else None for task, _ in each]
        return [None] * self.size

    def close(self) -> None: ...


def test_only_members_that_move_are_moved_and_each_once() -> None:
    crew = Told(3)
    pool, snapshot = Ranks(crew), {"w": torch.ones(1, 2)}
    genes = {"lr": 0.1}
    pool.exchange(1, [Refill(0, 10, 1, genes, (1, 1)), Refill(1, 11, None, genes, (0, 2))])
    pool.exchange(2, [Refill(r, 20 + r, snapshot, genes, (0, 2)) for r in (0, 1)])
    pool.exchange(0, [Refill(0, 30, snapshot, genes), Refill(1, 31, None, genes)])
    assert [method for method, *_ in crew.calls] == ["about"]  # one swap for all
    pool.start(0, Task(1))
    pool.next()
    assert [method for method, *_ in crew.calls] == ["about", "swapped", "turn"]
    _, (plan, moves), given = crew.calls[1]
    assert moves == [[0, 2, 1], [0, 2, 2], [0, -1, 0]]  # from pod, row, to pod; the last one stays where it is
    assert [[refill.get("move") for refill in refills] for refills in plan] == [[2, None], [None, 0], [1, 1]]
    assert plan[1][0]["source"] == 1 and given == [[[snapshot]], [[]], [[]]]
