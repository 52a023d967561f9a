"""A simulator of your own: 4096 environments as one tensor program, a few operations a step, on any device."""

import sys

import torch
from gymnasium.spaces import Box

import podium
from podium.envs.native.base import Simulator


class Docking(Simulator):
    """A ship in the plane, two engines: be at the dock and be slow. 100 steps; a ship that drifts off is lost."""

    obs_space = Box(-float("inf"), float("inf"), (4,))
    action_space = Box(-1.0, 1.0, (2,))
    names = ("x", "y", "vx", "vy")  # the state: each is a tensor [members, envs]
    numbers = 2  # uniform random numbers that a start needs
    time_limit = 100
    dtype = torch.float32

    def start(self, u):
        """An episode begins anywhere in a square, at rest."""
        rest = torch.zeros_like(u[0])
        return {"x": 4 * u[0] - 2, "y": 4 * u[1] - 2, "vx": rest, "vy": rest}

    def advance(self, s, action):
        """All environments one step on, in place: their rewards, and which of them have ended."""
        for i, axis in enumerate("xy"):
            s["v" + axis].add_(action[..., i].clamp(-1, 1), alpha=0.1)
            s[axis].add_(s["v" + axis], alpha=0.1)
        distance, speed = torch.hypot(s["x"], s["y"]), torch.hypot(s["vx"], s["vy"])
        lost = distance > 4
        return torch.exp(-2 * distance - speed) - 10.0 * lost, lost


if __name__ == "__main__":  # this file is imported again, by its name
    words = "11_own_simulator:Docking", "ppo", "env.num=4096", "algo.steps=25", "algo.batch=12800", "algo.epochs=4"
    more = "algo.lr=1e-3", "algo.discount=0.97", "stop.steps=2e6", "eval.every=1e6", "eval.episodes=200"
    result = podium.train(*words, *more, *sys.argv[1:], out="runs/own_simulator", fresh=True)
    if result.reason == "interrupted":
        sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
    print(f"mean return {result.top[0]['fitness']:.1f}; with engines off it is about 4")
