"""Agents of Stable-Baselines3 as the members of a population: they search their genes, on two processes."""

import sys

import podium

words = "CartPole-v1", "sb3-ppo", "truncation", "algo.lr=[1e-5,1e-2]", "algo.discount=[0.9,0.999]", "algo.steps=256"
plan = "evolve.members=4", "evolve.interval=2048", "stop.steps=10240", "eval.episodes=20", "fleet=processes"

if __name__ == "__main__":
    result = podium.evolve(*words, *plan, *sys.argv[1:], out="runs/sb3", fresh=True, quiet=False)
    if result.reason == "interrupted":
        sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
    champion = podium.load(result.path)
    print(
        f"member {champion.member}: {champion.evaluate(20).mean():.1f}, a {type(champion.guest.model).__name__} of SB3"
    )
