"""A loop of your own: you step the envs, the stack acts, stores and learns. Two members, eight envs each."""

import sys

import gymnasium as gym
import numpy as np

import podium

words = "cartpole", "ppo", "train.members=2", "env.num=8", "algo.lr={each: [1e-3, 2e-3]}", "algo.anneal=[]"
stack = podium.Stack(*words, "stop.steps=15000", *sys.argv[1:])
same_step = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
envs = gym.make_vec("CartPole-v1", stack.members * stack.envs, "sync", vector_kwargs=same_step)

obs, _ = envs.reset(seed=0)
running, returns = np.zeros(len(obs)), [[], []]
while stack.steps < stack.experiment.stop.steps:
    obs, reward, terminated, truncated, info = envs.step(stack.act(obs))
    last, done = obs.copy(), terminated | truncated  # where an episode ended, `obs` is the start of the next
    if done.any():
        last[done] = np.stack(info["final_obs"][done])
    stack.store(reward, terminated, truncated, last)
    if stack.ready:
        stack.learn()
    running += reward
    for i in done.nonzero()[0]:
        returns[i // stack.envs].append(running[i])
        running[i] = 0

for member, each in enumerate(returns):
    print(f"member {member}: {len(each)} episodes, mean return of the last 20: {np.mean(each[-20:]):.1f}")
stack.save("own_loop.safetensors")
