"""`algo.*` of each agent of Stable-Baselines3: its genes, its plan, and the actions it takes.

Defaults are the library's own, but for two: its TD3 and DDPG explore without noise, and its epsilon falls over a share
of the run, whose length a population does not know. `keywords` says what the library calls a plan number, `sb3.LIVE`
how a gene is set in a living model.
"""

from __future__ import annotations

from typing import ClassVar

from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from pydantic import Field

from podium.algos.base import AlgoSettings
from podium.core.errors import ConfigError, PodiumError
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.core.spec import Spec

ANY_ACTIONS = (Box, Discrete, MultiDiscrete, MultiBinary)


class SB3Settings(AlgoSettings):
    """What all agents of Stable-Baselines3 share."""

    actions: ClassVar[tuple[type[Space], ...]] = ANY_ACTIONS  # type: ignore[type-arg]
    keywords: ClassVar[dict[str, str]] = {"steps": "n_steps"}
    """Plan number -> its name in the constructor of the model."""

    lr: GeneValue = gene(3e-4, 1e-6, 1.0, search=(1e-5, 1e-2))
    discount: GeneValue = gene(0.99, 0.5, 0.9999, "one-minus-log", most=1, search=(0.9, 0.999))
    policy: str = "MlpPolicy"

    def check(self, spec: Spec) -> None:
        if not isinstance(spec.action, self.actions):
            takes = " or ".join(kind.__name__ for kind in self.actions)
            raise PodiumError(
                f"algo.name={self.name} takes {takes} actions, but the env has {spec.action}. Choose {_fitting(spec)}."
            )
        if isinstance(spec.action, Box) and not spec.action.is_bounded():
            raise PodiumError(
                f"algo.name={self.name} needs bounded actions, but the env has {spec.action}. Use ppo or a2c."
            )
        source = getattr(spec.obs, "source", spec.obs)
        if isinstance(source, Tuple) or (isinstance(source, Dict) and not self.policy.startswith("MultiInput")):
            raise PodiumError(
                f"algo.policy={self.policy} cannot read {type(source).__name__} observations. "
                "Use an env with Box observations, or MultiInputPolicy for a Dict."
            )


def _fitting(spec: Spec) -> str:
    """Agents of Stable-Baselines3 that take such actions, in words."""
    fits = "sb3-ppo, sb3-a2c or sb3-trpo"
    if isinstance(spec.action, Discrete):
        return f"sb3-dqn, sb3-qrdqn, {fits}"
    return f"sb3-sac, sb3-td3, sb3-tqc, {fits}" if isinstance(spec.action, Box) else fits


class SB3A2CSettings(SB3Settings):
    """`algo.*` for Stable-Baselines3's A2C."""

    name: Importable = "sb3-a2c"
    lr: GeneValue = gene(7e-4, 1e-6, 1.0, search=(1e-5, 1e-2))
    lam: GeneValue = gene(1.0, 0.0, 1.0, "one-minus-log", most=1, search=(0.7, 0.99))
    entropy: GeneValue = gene(0.0, 0.0, 1.0, search=(0.0, 0.03))
    critic: GeneValue = gene(0.5, 0.01, 10.0)
    max_norm: GeneValue = gene(0.5, 0.01, 100.0)

    steps: int = Field(5, ge=1, description="steps of each env in a rollout")


class SB3PPOSettings(SB3A2CSettings):
    """`algo.*` for Stable-Baselines3's PPO."""

    keywords: ClassVar[dict[str, str]] = {"steps": "n_steps", "epochs": "n_epochs", "batch": "batch_size"}

    name: Importable = "sb3-ppo"
    lr: GeneValue = gene(3e-4, 1e-6, 1.0, search=(1e-5, 1e-2))
    lam: GeneValue = gene(0.95, 0.0, 1.0, "one-minus-log", most=1, search=(0.7, 0.99))
    clip: GeneValue = gene(0.2, 0.01, 1.0, search=(0.05, 0.5))

    steps: int = Field(2048, ge=1, description="steps of each env in a rollout")
    epochs: int = Field(10, ge=1)
    batch: int = Field(64, ge=2, description="minibatch; must divide steps * env.num")

    def check(self, spec: Spec) -> None:
        super().check(spec)
        check_batch(self.batch, self.steps * spec.envs)


def check_batch(batch: int, rollout: int) -> None:
    """Refuse minibatches that do not share out a rollout evenly."""
    if rollout % batch:
        raise ConfigError("algo.batch", batch, f"a divisor of the rollout, {rollout}")


class SB3RecurrentPPOSettings(SB3PPOSettings):
    """`algo.*` for sb3-contrib's PPO with an LSTM."""

    name: Importable = "sb3-recurrent-ppo"
    steps: int = Field(128, ge=1, description="steps of each env in a rollout")
    batch: int = Field(128, ge=2, description="minibatch; must divide steps * env.num")
    policy: str = "MlpLstmPolicy"


class SB3TRPOSettings(SB3Settings):
    """`algo.*` for sb3-contrib's TRPO; `lr` is that of its critic."""

    keywords: ClassVar[dict[str, str]] = {
        "steps": "n_steps",
        "batch": "batch_size",
        "critic_updates": "n_critic_updates",
    }

    name: Importable = "sb3-trpo"
    lr: GeneValue = gene(1e-3, 1e-6, 1.0, search=(1e-5, 1e-2))
    lam: GeneValue = gene(0.95, 0.0, 1.0, "one-minus-log", most=1, search=(0.7, 0.99))
    target_kl: GeneValue = gene(0.01, 1e-4, 1.0, search=(1e-3, 0.05))
    damping: GeneValue = gene(0.1, 1e-4, 10.0)

    steps: int = Field(2048, ge=2, description="steps of each env in a rollout")
    batch: int = Field(128, ge=2, description="minibatch of the critic; must divide steps * env.num")
    critic_updates: int = Field(10, ge=1, description="passes of the critic over each rollout")

    def check(self, spec: Spec) -> None:
        super().check(spec)
        check_batch(self.batch, self.steps * spec.envs)


class SB3ReplaySettings(SB3Settings):
    """What all agents of Stable-Baselines3 with a replay share."""

    keywords: ClassVar[dict[str, str]] = {
        "steps": "train_freq",
        "gradient_steps": "gradient_steps",
        "batch": "batch_size",
        "warmup": "learning_starts",
        "capacity": "buffer_size",
        "n_step": "n_steps",
    }
    actions: ClassVar[tuple[type[Space], ...]] = (Box,)  # type: ignore[type-arg]

    steps: int = Field(1, ge=1, description="steps of each env between two rounds of updates")
    gradient_steps: int = Field(1, ge=-1, description="updates in a round; -1: one for each step")
    batch: int = Field(256, ge=1, description="what an update learns from, drawn from the replay")
    warmup: int = Field(100, ge=0, description="steps with random actions before it learns")
    capacity: int = Field(1_000_000, ge=1, description="steps that the replay holds")
    n_step: int = Field(1, ge=1, le=1000, description="rewards that are summed up before the critics take over")

    def rows(self, envs: int) -> int:
        return self.batch

    def check(self, spec: Spec) -> None:
        super().check(spec)
        if self.warmup > self.capacity:
            raise PodiumError(
                f"algo.warmup must be at most algo.capacity ({self.capacity}), got {self.warmup}: "
                "the replay would never hold enough to learn."
            )


class SB3DQNSettings(SB3ReplaySettings):
    """`algo.*` for Stable-Baselines3's DQN."""

    keywords: ClassVar[dict[str, str]] = {**SB3ReplaySettings.keywords, "target_every": "target_update_interval"}
    actions: ClassVar[tuple[type[Space], ...]] = (Discrete,)  # type: ignore[type-arg]

    name: Importable = "sb3-dqn"
    lr: GeneValue = gene(1e-4, 1e-6, 1.0, search=(1e-5, 1e-2))
    tau: GeneValue = gene(1.0, 1e-4, 1.0, most=1)
    max_norm: GeneValue = gene(10.0, 0.01, 100.0, optional=True)
    epsilon: GeneValue = gene(1.0, 0.0, 1.0, "linear", most=1)
    epsilon_end: GeneValue = gene(0.05, 0.0, 1.0, "linear", most=1, search=(0.01, 0.2))
    epsilon_steps: GeneValue = gene(10_000, 1.0, 1e7, least=1)

    steps: int = Field(4, ge=1, description="steps of each env between two rounds of updates")
    batch: int = Field(32, ge=1, description="what an update learns from, drawn from the replay")
    target_every: int = Field(10_000, ge=1, description="steps between two updates of the target")


class SB3QRDQNSettings(SB3DQNSettings):
    """`algo.*` for sb3-contrib's QR-DQN."""

    name: Importable = "sb3-qrdqn"
    lr: GeneValue = gene(5e-5, 1e-6, 1.0, search=(1e-5, 1e-2))
    max_norm: GeneValue = gene(None, 0.01, 100.0, optional=True)
    epsilon_end: GeneValue = gene(0.01, 0.0, 1.0, "linear", most=1, search=(0.01, 0.2))


class SB3DDPGSettings(SB3ReplaySettings):
    """`algo.*` for Stable-Baselines3's DDPG."""

    name: Importable = "sb3-ddpg"
    lr: GeneValue = gene(1e-3, 1e-6, 1.0, search=(1e-5, 1e-2))
    tau: GeneValue = gene(0.005, 1e-4, 1.0, most=1, search=(1e-3, 0.1))
    noise: GeneValue = gene(0.1, 0.0, 2.0, search=(0.02, 0.6))


class SB3TD3Settings(SB3DDPGSettings):
    """`algo.*` for Stable-Baselines3's TD3."""

    name: Importable = "sb3-td3"
    target_noise: GeneValue = gene(0.2, 0.0, 1.0, search=(0.05, 0.5))
    target_clip: GeneValue = gene(0.5, 0.0, 2.0)
    delay: GeneValue = gene(2, 1, 8, "int", least=1)


class SB3SoftSettings(SB3ReplaySettings):
    """What all agents of Stable-Baselines3 that are paid for their entropy share."""

    temperature: GeneValue = gene(0.1, 1e-4, 10.0)
    target_entropy: GeneValue = gene(None, -100.0, 10.0, "linear", least=-1e6, optional=True)
    learn_temperature: bool = Field(True, description="else `temperature` is that of the gene")

    def dead(self, prioritised: bool, styled: bool) -> dict[str, str]:
        name, other = ("temperature", "false") if self.learn_temperature else ("target_entropy", "true")
        return {name: f"algo.learn_temperature={other}"}


class SB3SACSettings(SB3SoftSettings):
    """`algo.*` for Stable-Baselines3's SAC."""

    name: Importable = "sb3-sac"
    tau: GeneValue = gene(0.005, 1e-4, 1.0, most=1, search=(1e-3, 0.1))


class SB3TQCSettings(SB3SACSettings):
    """`algo.*` for sb3-contrib's TQC."""

    name: Importable = "sb3-tqc"
    drop: GeneValue = gene(2, 0, 24, "int", most=24, search=(0, 5))


class SB3CrossQSettings(SB3SoftSettings):
    """`algo.*` for sb3-contrib's CrossQ, which has no targets."""

    name: Importable = "sb3-crossq"
    lr: GeneValue = gene(1e-3, 1e-6, 1.0, search=(1e-5, 1e-2))
    delay: GeneValue = gene(3, 1, 8, "int", least=1)
