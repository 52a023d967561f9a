"""Sixteen agents as one tensor program, each with a learning rate of its own. Which is best?"""

import sys

import podium

words = "cartpole", "ppo", "train.members=16", "algo.lr=[1e-5,1e-2]", "stop.steps=10000"
result = podium.train(*words, *sys.argv[1:], out="runs/a_population", fresh=True)
if result.reason == "interrupted":
    sys.exit(f"not at its end yet; go on with: podium resume {result.path}")

for row in result.top:
    print(
        f"{row['rank']:2}. member {row['id']:2}  {row['fitness']:5.1f} ± {row['std']:5.1f}  lr {row['genes']['lr']:.1e}"
    )
print("more: podium top runs/a_population")
