"""The evaluator: whole episodes with the most likely actions, in envs and with random numbers of their own.

Evaluating draws nothing from a member's streams, so how often it is done never changes training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from podium.core.streams import Streams
from podium.envs.base import VecEnv

Act = Callable[[Tensor], Tensor]
"""`[R, E, *O]` -> actions `[R, E, ...]`"""


class Interrupted(Exception):
    """An evaluation was asked to stop before it was done."""


class Evaluator:
    """Runs a fixed number of episodes in every env, so that short episodes count no more than long ones."""

    def __init__(self, make: Callable[[int, int], VecEnv], seed: int, envs: int, max_steps: int) -> None:
        self._make, self._seed, self._envs, self._max_steps = make, seed, envs, max_steps
        self._built: dict[tuple[int, int], VecEnv] = {}

    @torch.no_grad()
    def evaluate(
        self, act: Act, names: Sequence[str], episodes: int, stop: Callable[[], bool] = lambda: False
    ) -> tuple[Tensor, Tensor]:
        """Returns `[R, episodes]` and objectives `[R, episodes, K]` of R policies; `names` seed their envs.

        Raises Interrupted as soon as `stop` says so.
        """
        envs = max(n for n in range(1, min(self._envs, episodes) + 1) if episodes % n == 0)
        env = self._env(len(names), envs)
        obs = env.reset(Streams(self._seed, [f"evaluate/{name}" for name in names]))
        quota = episodes // envs
        shape = (len(names), envs, quota)
        returns = torch.zeros(shape, device=obs.device)
        objectives = torch.zeros(*shape, len(env.objectives), device=obs.device)
        count, length = torch.zeros(2, *shape[:2], dtype=torch.int64, device=obs.device)
        total = torch.zeros(shape[:2], device=obs.device)  # of the running episode; the env tells only whole ones
        for _ in range(self._max_steps * quota):
            if stop():
                raise Interrupted
            step = env.step(act(obs))
            length += 1
            total += step.reward
            obs, over = step.obs, step.terminated | step.truncated
            done = (over | (length >= self._max_steps)) & (count < quota)
            if done.any():
                row, column = done.nonzero(as_tuple=True)
                which = count[row, column]
                returns[row, column, which] = total[row, column]
                objectives[row, column, which] = step.episode.objectives[row, column]
                length.masked_fill_(done | over, 0)
                total.masked_fill_(done | over, 0)
                count += done
                if bool((count == quota).all()):
                    break
        return returns.flatten(1), objectives.flatten(1, 2)

    def _env(self, members: int, envs: int) -> VecEnv:
        if (members, envs) not in self._built:
            self._built[members, envs] = self._make(members, envs)
        return self._built[members, envs]

    def close(self) -> None:
        for env in self._built.values():
            env.close()
