"""MPI: the contract of all engines, under a real mpiexec; and what ends a job."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
TESTS = Path(__file__).parents[1]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpiexec(ranks, *words, timeout=240):
    """A job of `ranks` ranks; what it printed, and how it ended."""
    command = [Path(sys.executable).with_name("mpiexec"), "--oversubscribe", "-n", str(ranks), sys.executable, *words]
    env = {**os.environ, **AS_ROOT, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.slow
def test_the_contract():
    done = mpiexec(8, str(TESTS / "under_mpi.py"), str(TESTS / "fleet" / "test_groups.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "22 passed, 5 skipped" in done.stdout, done.stdout


FAILS = """
from podium.fleet import on_mpi
try:
    if on_mpi.rank() == 0:
        with on_mpi.group("fleet_nodes:Counter", 2) as made:
            made.all("where")
            made.one(0, "sleep", 60, timeout=120).result()
    elif on_mpi.rank() == 2:
        raise ValueError("rank two has had enough")
    else:
        on_mpi.serve_rank()
except Exception:
    on_mpi.abort()
"""


def test_a_rank_that_fails_ends_the_job_with_its_traceback():
    start = time.monotonic()
    done = mpiexec(3, "-c", FAILS, timeout=60)
    assert done.returncode != 0 and "ValueError: rank two has had enough" in done.stderr, done.stderr
    assert "rank 2 failed" in done.stderr and time.monotonic() - start < 30


def test_without_mpiexec_it_says_how():
    code = "from podium.fleet import on_mpi; on_mpi.group('fleet_nodes:Counter', 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "under mpiexec only, for example: mpiexec -n 4 podium evolve" in done.stderr, done.stderr
