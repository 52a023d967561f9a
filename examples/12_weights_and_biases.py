"""A population watched in Weights & Biases (pip install wandb). Offline: `wandb sync runs/wandb/offline-*` sends it."""

import math
import sys
from pathlib import Path

import wandb
import yaml

import podium


def numbers(report):
    """The run's own numbers, and every metric of every member by its row."""
    found = {f"run/{name}": value for name, value in report.items() if isinstance(value, int | float)}
    for name, values in report["members"].items():
        found |= {f"{name}/{row}": value for row, value in enumerate(values)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


words = "cartpole", "ppo", "tournament", "algo.lr=[1e-5,1e-2]", "evolve.members=8", "evolve.interval=1024"
Path("runs").mkdir(exist_ok=True)
tracked = wandb.init(project="podium", name="weights_and_biases", dir="runs", mode="offline")
result = podium.evolve(
    *words,
    *sys.argv[1:],
    out="runs/weights_and_biases",
    fresh=True,
    on_report=lambda report: tracked.log(numbers(report), step=report["steps_total"]),
)
tracked.config.update(yaml.safe_load((result.path / "config.yaml").read_text()))
if result.reason == "interrupted":
    tracked.finish()
    sys.exit(f"not at its end yet; go on with: podium resume {result.path}")

champion = result.top[0]
tracked.summary.update({"champion": champion["id"], "fitness": champion["fitness"], "genes": champion["genes"]})
tracked.finish()
print(f"champion: member {champion['id']}, {champion['fitness']:.1f}; tracked in {tracked.dir}")
