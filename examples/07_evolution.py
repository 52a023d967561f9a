"""A tournament: eight agents search their learning rate, discount and clip while they learn. How did the best do it?"""

import sys

import podium

ranges = "algo.lr=[1e-6,1e-1]", "algo.discount=[0.8,0.999]", "algo.clip=[0.02,0.8]"
words = "cartpole", "ppo", "tournament", *ranges, "evolve.members=8", "evolve.interval=1024"
result = podium.evolve(*words, *sys.argv[1:], out="runs/evolution", fresh=True)
if result.reason == "interrupted":
    sys.exit(f"not at its end yet; go on with: podium resume {result.path}")

champion = result.top[0]
print(f"champion: member {champion['id']}, {champion['fitness']:.1f} after {champion['steps']:,} steps")
for part in podium.lineage(result.path)["schedule"]:
    genes = "  ".join(f"{name} {part['genes'][name]:.3g}" for name in ("lr", "discount", "clip"))
    print(f"  from step {part['step']:6,} ({part['event']}):  {genes}")
print(f"act: {podium.load(result.path).act([0.0, 0.1, 0.0, -0.1])}")
