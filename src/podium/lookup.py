"""What an experiment names: its algorithm's class, the spaces of its env, and the genes that live with its plan."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch

from podium.algos.a2c import A2C
from podium.algos.base import AlgoSettings
from podium.algos.ddpg import DDPG
from podium.algos.dqn import DQN
from podium.algos.off_policy import OffPolicySettings
from podium.algos.ppo import PPO
from podium.algos.redq import REDQ
from podium.algos.sac import SAC
from podium.algos.sac_discrete import DiscreteSAC
from podium.algos.td3 import TD3
from podium.core.errors import ConfigError, PodiumError, UnknownName
from podium.core.imports import named
from podium.core.spec import Spec
from podium.envs import make as envs
from podium.envs.settings import EnvSettings
from podium.settings import Experiment

ALGORITHMS: dict[str, type[Any]] = {
    "ppo": PPO,
    "a2c": A2C,
    "dqn": DQN,
    "ddpg": DDPG,
    "td3": TD3,
    "sac": SAC,
    "sac-discrete": DiscreteSAC,
    "redq": REDQ,
}
MASKED = ("ppo", "a2c", "dqn", "sac-discrete")
"""Those that obey an action mask; algorithms of a user's see to it themselves."""
GUESTS = {
    "sb3-ppo": "podium.guests.sb3:SB3PPO",
    "sb3-a2c": "podium.guests.sb3:SB3A2C",
    "sb3-dqn": "podium.guests.sb3:SB3DQN",
    "sb3-ddpg": "podium.guests.sb3:SB3DDPG",
    "sb3-td3": "podium.guests.sb3:SB3TD3",
    "sb3-sac": "podium.guests.sb3:SB3SAC",
    "sb3-tqc": "podium.guests.contrib:SB3TQC",
    "sb3-qrdqn": "podium.guests.contrib:SB3QRDQN",
    "sb3-crossq": "podium.guests.contrib:SB3CrossQ",
    "sb3-trpo": "podium.guests.contrib:SB3TRPO",
    "sb3-recurrent-ppo": "podium.guests.contrib:SB3RecurrentPPO",
}
"""Agents of other libraries, imported only when they are asked for."""


def algorithm(name: object) -> type[Any]:
    if isinstance(name, str) and (":" in name or name in GUESTS):
        found: type[Any] = named("algo.name", GUESTS.get(name, name))
        settings = getattr(found, "Settings", None)
        if not (isinstance(settings, type) and issubclass(settings, AlgoSettings)):
            raise ConfigError(
                "algo.name", name, "the class needs `Settings`, a subclass of podium.algos.base.AlgoSettings"
            )
        if (getattr(found, "needs", None) == "replay") != issubclass(settings, OffPolicySettings):
            needs = "`needs` is replay where `Settings` is a subclass of podium.algos.off_policy.OffPolicySettings"
            raise ConfigError("algo.name", name, f"{needs}, and nowhere else")
        return found
    if not isinstance(name, str):
        raise ConfigError("algo.name", name, f"one of {', '.join([*ALGORITHMS, *GUESTS])}, or module:Class")
    if name not in ALGORITHMS:
        raise UnknownName("algo.name", name, [*ALGORITHMS, *GUESTS])
    return ALGORITHMS[name]


def has_replay(name: object) -> bool:
    """Whether an algorithm learns from a replay."""
    return getattr(algorithm(name), "needs", None) == "replay"


def spec_of(experiment: Experiment, members: int) -> Spec:
    env, (obs, action) = experiment.env, spaces(experiment.env)
    return Spec(
        obs, action, members, env.num, env.normalise_obs, env.normalise_reward, torch.device(experiment.train.device)
    )


def spaces(env: EnvSettings) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Of the observations and actions of an env, or why it cannot be made."""
    try:
        return envs.describe(env)
    except PodiumError:
        raise
    except Exception as error:  # a user's env, or keywords that it does not take
        reason = f"{type(error).__name__}: {error}"
        if env.kwargs:
            raise ConfigError("env.kwargs", env.kwargs, f"{env.id} cannot be made with them ({reason})") from error
        raise ConfigError("env.id", env.id, f"it cannot be made ({reason})") from error


def dead(experiment: Experiment) -> dict[str, str]:
    """Genes that mean nothing with the plan, and what would bring them to life."""
    return experiment.algo.dead(experiment.replay.prioritised, envs.styled(experiment.env))
