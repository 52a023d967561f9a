"""Runs the command of the README and makes a picture of what it prints: python docs/picture.py"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

OUT = Path(__file__).parent / "images" / "leaderboard.svg"
COMMAND = 'podium train cartpole ppo train.members=8 "algo.lr=[1e-5,1e-2]" stop.steps=20000 -o runs/eight'


def main() -> None:
    words = [str(Path(sys.executable).parent / "podium"), *shlex.split(COMMAND)[1:]]
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    heading, *rest = out.splitlines()
    table = rest[next(i for i, line in enumerate(rest) if line.startswith("runs/eight: ")) :]
    console = Console(record=True, width=100, file=io.StringIO(), highlight=False)
    console.print(Text(f"$ {COMMAND}", "bold"))
    for line in (heading, "...", *table):
        console.print(Text(line.rstrip(), "bold" if re.match(r" *1 ", line) else ""))
    svg = console.export_svg(title="podium")
    # Without the fonts that it would fetch from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, ", "")
    OUT.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
