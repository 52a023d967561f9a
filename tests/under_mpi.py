"""Runs pytest on rank 0 of an MPI job whose other ranks serve: mpiexec -n 8 python tests/under_mpi.py FILE ..."""

import sys

import pytest

from podium.fleet import on_mpi

if __name__ == "__main__":
    if on_mpi.rank() == 0:
        code = pytest.main(["-v", "--color=no", "-p", "no:xdist", "-p", "no:cacheprovider", *sys.argv[1:]])
        on_mpi.end()
        sys.exit(code)
    on_mpi.serve_rank()
