"""The settings of a run: one record a section. `podium presets` and `config.yaml` show them with their values."""

from __future__ import annotations

from pydantic import Field, create_model

from podium.algos.base import AlgoSettings
from podium.core.config import Section
from podium.core.streams import LARGEST_SEED
from podium.envs.settings import EnvSettings
from podium.evolve.settings import EvolveSettings
from podium.fleet.settings import FleetSettings
from podium.nets.critics import CriticSettings
from podium.nets.settings import NetSettings
from podium.replay.settings import ReplaySettings


class ScheduleStep(Section):
    """Genes that hold from a step on."""

    step: int = Field(ge=0)
    genes: dict[str, float | None]


class TrainSettings(Section):
    """`train.*`"""

    members: int = Field(1, ge=1, description="independent agents, trained as one stack")
    checkpoint: int = Field(50_000, ge=1, description="steps of each member between two checkpoints")
    max_unsaved: float = Field(
        30.0, gt=0, le=1e6, description="minutes that a run whose folder cannot be written goes on, before it stops"
    )
    start: str | None = Field(None, description="RUN or RUN:ID of a member to start from")
    device: str = "cpu"
    threads: int | None = Field(None, ge=1, le=4096, description="null: one for small stacks, all cores for large ones")
    schedule: tuple[ScheduleStep, ...] = Field((), description="genes over time, as podium lineage prints them")


class EvalSettings(Section):
    """`eval.*`: how fitness is measured."""

    every: int = Field(10_000, ge=1, description="train: steps of each member between two evaluations")
    episodes: int = Field(20, ge=1)
    max_steps: int = Field(
        10_000,
        ge=1,
        description="an episode that lasts longer is cut and counts as it stands; what is left of it may be the next",
    )

    seconds: float | None = Field(
        300.0,
        gt=0,
        description="seconds of one evaluation; then it is cut, and its episodes count as they stand; null: no limit",
    )


class StopSettings(Section):
    """`stop.*`: the first rule that holds ends the run; null disables a rule."""

    steps: int | None = Field(100_000, ge=1, description="steps of each member")
    seconds: float | None = Field(None, gt=0)
    fitness: float | None = Field(
        None, description="mean return of an evaluation: train: every member's; evolve: the champion's"
    )
    generations: int | None = Field(
        None, ge=1, description="evolve; in a tournament as many evaluations as there are members are one"
    )


class Experiment(Section):
    """A complete, replayable run."""

    seed: int = Field(0, ge=0, le=LARGEST_SEED)
    env: EnvSettings
    algo: AlgoSettings
    net: NetSettings = NetSettings()
    critic: CriticSettings = CriticSettings()
    replay: ReplaySettings = ReplaySettings()
    train: TrainSettings = TrainSettings()
    eval: EvalSettings = EvalSettings()
    stop: StopSettings = StopSettings()


class Evolution(Experiment):
    """A complete, replayable run of a population that evolves."""

    evolve: EvolveSettings = EvolveSettings()
    fleet: FleetSettings = FleetSettings()


def experiment(algo: type[AlgoSettings], evolves: bool = False) -> type[Experiment]:
    """The record of an experiment with that algorithm."""
    return create_model("Experiment", __base__=Evolution if evolves else Experiment, algo=(algo, ...))
