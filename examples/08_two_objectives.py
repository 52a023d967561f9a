"""Balance the pole, and do not fidget: NSGA-II over the return and how often the action changes. Draws the front."""

import sys
from pathlib import Path

import podium
from podium.report import plots

objectives = "evolve.objectives=[return,-switching]"
words = "cartpole", "ppo", "nsga2", objectives, "evolve.members=8", "stop.steps=40000"
result = podium.evolve(*words, *sys.argv[1:], out="runs/two_objectives", fresh=True)

print("the front:")
for row in result.top:
    if row["front"] == 0:
        wanted = row["objectives"]
        print(f"  member {row['id']:3}  return {wanted['return']:5.1f}  switching {wanted['switching']:.2f}")
plots.front(result.top, ["return", "switching"], Path("front.png"))
