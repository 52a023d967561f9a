"""A population watched in MLflow (pip install mlflow): `mlflow ui --backend-store-uri sqlite:///runs/mlflow.db`"""

import math
import sys
from pathlib import Path

import mlflow
import yaml

import podium


def numbers(report):
    """The run's own numbers, and every metric of every member by its row."""
    found = {f"run/{name}": value for name, value in report.items() if isinstance(value, int | float)}
    for name, values in report["members"].items():
        found |= {f"{name}/{row}": value for row, value in enumerate(values)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def settings(tree, prefix=""):
    """A tree of settings as `algo.lr: value`."""
    for name, value in tree.items():
        yield from settings(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]


words = "cartpole", "ppo", "tournament", "algo.lr=[1e-5,1e-2]", "evolve.members=8", "evolve.interval=1024"
Path("runs").mkdir(exist_ok=True)
mlflow.set_tracking_uri("sqlite:///runs/mlflow.db")
with mlflow.start_run(run_name="mlflow"):
    result = podium.evolve(
        *words,
        *sys.argv[1:],
        out="runs/mlflow",
        fresh=True,
        on_report=lambda report: mlflow.log_metrics(numbers(report), step=report["steps_total"]),
    )
    mlflow.log_params(dict(settings(yaml.safe_load((result.path / "config.yaml").read_text()))))
    if result.reason == "interrupted":
        sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
    champion = result.top[0]
    mlflow.log_params({f"champion.{name}": value for name, value in champion["genes"].items()})
print(f"champion: member {champion['id']}, {champion['fitness']:.1f}; tracked in runs/mlflow.db")
