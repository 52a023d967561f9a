"""Train in an environment of your own: any gymnasium.Env, named as `module:Class`.

Such envs are stepped one after another. To step thousands at once, write the task on tensors instead, as a Simulator:
podium/envs/native/cartpole.py is the example, and `module:Class` takes it as well.
"""

import sys

import gymnasium as gym
import numpy as np

import podium


class Corridor(gym.Env):
    """Ten cells in a row; the goal is at the right end. Actions: 0 left, 1 right."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.time = int(self.np_random.integers(5)), 0
        return np.float32([self.cell / 9]), {}

    def step(self, action):
        self.cell, self.time = int(np.clip(self.cell + 2 * action - 1, 0, 9)), self.time + 1
        goal = self.cell == 9
        return np.float32([self.cell / 9]), 1.0 if goal else -0.1, goal, self.time == 50 and not goal, {}


if __name__ == "__main__":  # this file is imported again, by its name
    words = "02_own_environment:Corridor", "ppo", "stop.steps=10000", "eval.every=5000", "algo.lr=1e-3"
    result = podium.train(*words, *sys.argv[1:], out="runs/own_environment", fresh=True)
    if result.reason == "interrupted":
        sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
    print(f"mean return {result.top[0]['fitness']:.2f}; the best way from a cell in the middle gives about 0.4")
