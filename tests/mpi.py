"""Jobs of MPI, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start(ranks: int, *words: str) -> subprocess.Popen[str]:
    """A job of `ranks` ranks of Python."""
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    command = [mpiexec, "--oversubscribe", "-n", str(ranks), sys.executable, *words]
    env = {**os.environ, **AS_ROOT, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(ranks: int, *words: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """The same; what it printed, and how it ended."""
    job = start(ranks, *words)
    try:
        out, err = job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        job.kill()
        raise
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)
