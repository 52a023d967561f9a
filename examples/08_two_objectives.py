"""Swing up, and spare the motor: NSGA-II over the return and the mean square of the torque. Draws the front."""

import sys
from pathlib import Path

import podium
from podium.report import plots

objectives = "evolve.objectives=[return,-effort]"
words = "pendulum", "ppo", "nsga2", objectives, "algo.batch=128", "evolve.burn_in=60000", "stop.steps=120000"
result = podium.evolve(*words, *sys.argv[1:], out="runs/two_objectives", fresh=True, quiet=False)
if result.reason == "interrupted":
    sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
print("the front:")
for row in result.top:
    if row.get("front") == 0:
        wanted = row["objectives"]
        print(f"  member {row['id']:3}  return {wanted['return']:7.1f}  effort {wanted['effort']:.3f}")
plots.front(result.top, ["return", "-effort"], Path("front.png"))
