"""How the members of a front play Vector Pong: `python bench/behaviour.py RUN`, as JSON.

Each plays 200 episodes that selection never saw: fitness, the share of its actions that are stop, and of steps in
which its bat moved.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import podium
from podium.core.streams import Streams
from podium.envs.native.pong import Pong

EPISODES = 200


def played(agent: podium.Agent) -> dict[str, float]:
    """The first episode of each of so many envs."""
    env = Pong(1, EPISODES)
    obs, waiting = env.reset(Streams(12345, ["behaviour"])), torch.ones(1, EPISODES, dtype=torch.bool)
    found = torch.zeros(EPISODES, 1 + len(env.objectives))
    while waiting.any():
        step = env.step(torch.as_tensor(agent.act(obs[0].numpy()))[None])
        done = (step.terminated | step.truncated) & waiting
        seen = torch.cat((step.episode.reward[..., None], step.episode.objectives), -1)
        found[done[0]] = seen[done]
        waiting &= ~done
        obs = step.obs
    return dict(zip(("fitness", *env.objectives), found.mean(0).tolist(), strict=True))


def main(run: Path) -> None:
    print(json.dumps({row["id"]: played(podium.load(run, row["id"])) for row in podium.front(run)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
