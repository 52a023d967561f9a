"""What the checks of a run's folder cost: `podium top` and `podium eval` with them and without, in turn.

    python bench/checks.py [--rounds 15]

Each is a whole command in a process of its own, as a user runs it; without checks, what looks at the folder's files
looks away. Prints one JSON document: seconds of both, and by how much the checks make a command slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WITHOUT = """
import sys
from podium.core import trust
from podium.store import ledger, run_config, tensors
ledger.Ledger.verify = lambda self: None
trust.check = lambda *a, **k: None
tensors.has_nan = lambda tree: None
run_config.checked = lambda path, config: config
class Same:
    def __init__(self, data): self.data = data
    def hexdigest(self): return __import__("re").findall("[0-9a-f]{64}", open(sys.argv[2] + "/config.yaml").read())[-1]
run_config.hashlib = type("hashlib", (), {"sha256": Same})
from podium.cli import main
main()
"""
WITH = "from podium.cli import main\nmain()\n"
RUN = (
    *("evolve", "CartPole-v1", "ppo", "tournament", "evolve.members=16", "evolve.interval=256", "stop.steps=8192"),
    *("env.num=4", "algo.steps=32", "algo.batch=64", "eval.episodes=4", "algo.lr=[1e-4,1e-2]", "-q"),
)


def timed(code: str, *words: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-P", "-c", code, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        run = str(Path(folder) / "run")
        timed(WITH, *RUN, "-o", run)
        for name, words in {"top": ("top", run), "eval": ("eval", run, "--episodes", "20")}.items():
            pairs = [(timed(WITH, *words), timed(WITHOUT, *words)) for _ in range(rounds)]
            seconds = [statistics.median(side) for side in zip(*pairs, strict=True)]
            ratio = statistics.median(with_ / without for with_, without in pairs)
            found[name] = {"with": seconds[0], "without": seconds[1], "more": ratio - 1}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
