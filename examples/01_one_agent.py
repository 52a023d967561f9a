"""Train one agent, load it, and watch it act in a Gymnasium env."""

import sys

import gymnasium as gym

import podium

# The words are those of the command: podium train cartpole ppo -o runs/one_agent -D
result = podium.train("cartpole", "ppo", *sys.argv[1:], out="runs/one_agent", fresh=True)
if result.reason == "interrupted":
    sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
print(f"stopped at step {result.step}: stop.{result.reason} reached")

agent = podium.load("runs/one_agent")
env = gym.make("CartPole-v1")
obs, _ = env.reset(seed=0)
total, done = 0.0, False
while not done:
    obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
    total, done = total + float(reward), terminated or truncated
print(f"return of one episode: {total:.0f}")
