"""A sample of the attacks that `bench/attack.py` makes by the thousand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "bench" / "attack.py"


@pytest.mark.slow
@pytest.mark.parametrize(("what", "cases"), [("folders", "52"), ("bits", "15")])
def test_strangers_and_disks_do_no_harm(what: str, cases: str) -> None:
    """With a minute for each command: the machine may be busy."""
    words = [sys.executable, str(SCRIPT), what, "--cases", cases, "--at-once", "1", "--seconds", "60"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert not found["details"], found["details"]
