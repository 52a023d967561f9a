"""Runs every wrong command of tests/bad_inputs.py as a process of its own: python bench/inputs.py

Prints JSON: how many there are, those that were not refused as they should be, and how long the slowest took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import bad_inputs


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bad_inputs.write_files(folder)
        train = [sys.executable, "-m", "podium", "train", *bad_inputs.TINY, "-o", "RUN", "-q"]
        subprocess.run(train, cwd=folder, check=True)
        found = [bad_inputs.as_a_process(command, folder) for command in bad_inputs.cases()]
    wrong, slowest = [text for text, _ in found if text], max(seconds for _, seconds in found)
    print(json.dumps({"cases": len(found), "wrong": wrong, "slowest_seconds": round(slowest, 2)}, indent=2))


if __name__ == "__main__":
    main()
