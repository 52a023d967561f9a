"""A network of your own: write it for one agent, and Podium stacks it for as many members as you like."""

import sys

from torch import nn

import podium


class Residual(nn.Module):
    """Linear in, one block with a shortcut, linear out: `[batch, n_in]` -> `[batch, n_out]`."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(n_in, 32), nn.Linear(32, n_out)
        self.block = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))

    def forward(self, x):
        h = self.enter(x)
        return self.leave(h + self.block(h))


if __name__ == "__main__":  # this file is imported again, by its name
    # Called as factory(n_in, n_out), once for the policy and once for the critic of every member.
    words = "cartpole", "ppo", "net.module=03_own_network:Residual", "train.members=4", "stop.steps=10000"
    result = podium.train(*words, *sys.argv[1:], out="runs/own_network", fresh=True)
    if result.reason == "interrupted":
        sys.exit(f"not at its end yet; go on with: podium resume {result.path}")
    for row in result.top:
        print(f"{row['rank']}. member {row['id']}: {row['fitness']:.1f}")
