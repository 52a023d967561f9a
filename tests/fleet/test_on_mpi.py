"""MPI: the contract of all engines, under a real mpiexec; and what ends a job."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpi

pytest.importorskip("mpi4py")
TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_contract():
    done = mpi.run(8, str(TESTS / "under_mpi.py"), str(TESTS / "fleet" / "test_groups.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "26 passed, 5 skipped" in done.stdout, done.stdout


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
    done = mpi.run(3, "-c", FAILS, timeout=60)
    assert done.returncode != 0 and "ValueError: rank two has had enough" in done.stderr, done.stderr
    assert "rank 2 failed" in done.stderr and time.monotonic() - start < 30


CREW = """
import numpy as np
from podium.fleet import on_mpi

class Rank:
    def __init__(self, peers, base, own):
        self.peers, self.value = peers, base + own

    def add(self, x):
        return self.value + x

    def mine(self, x):
        return x * 2

    def swap(self, how, moves):
        me, got, buffers = self.peers.rank, {}, []
        for number, (source, to) in enumerate(moves):
            buffer = np.full(7 + number, 10 * source + number, np.uint8) if source == me else None
            if to == me:
                buffer = got[number] = np.zeros(7 + number, np.uint8)
            buffers.append((source, to, buffer))
        getattr(self.peers, how)(buffers)
        return {str(number): buffer.tolist() for number, buffer in got.items()}

    def close(self):
        pass

if __name__ == "__main__":
    import crew_script
    with on_mpi.job():
        crew = on_mpi.crew_of(crew_script.Rank, 3, 100, each=[[0], [1], [2]])
        assert crew.call("add", 5) == [105, 106, 107]
        *plain, array = crew.call("mine", each=[[1], [2], [np.ones(3)]])
        assert plain == [2, 4] and array.tolist() == [2.0] * 3
        moves = [[2, 0], [0, 1], [0, 2], [0, 1], [1, 2]]
        for how in ("p2p", "collective"):
            expected = [{}, {}, {}]
            for number, (source, to) in enumerate(moves):
                expected[to][str(number)] = [10 * source + number] * (7 + number)
            assert crew.call("swap", how, moves) == expected
            assert crew.call("swap", how, []) == [{}, {}, {}]
        crew.close()
        on_mpi.crew_of(crew_script.Rank, 2, 0, each=[[0], [1]]).close()  # ranks are free again
        print("all held")
"""


def test_a_crew_works_in_step_and_swaps_buffers(tmp_path):
    script = tmp_path / "crew_script.py"
    script.write_text(CREW)
    done = mpi.run(4, str(script), timeout=60)
    assert done.returncode == 0 and "all held" in done.stdout, done.stdout + done.stderr


def test_every_rank_that_makes_a_group_is_told_how():
    code = "from podium.fleet import on_mpi; on_mpi.group('fleet_nodes:Counter', 1)"
    done = mpi.run(2, "-c", code, timeout=60)
    assert done.returncode != 0 and "put `with podium.fleet.on_mpi.job():` around it" in done.stderr, done.stderr


def test_without_mpiexec_it_says_how():
    code = "from podium.fleet import on_mpi; on_mpi.group('fleet_nodes:Counter', 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "under mpiexec only, for example: mpiexec -n 4 podium evolve" in done.stderr, done.stderr
