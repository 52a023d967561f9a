"""`replay.*`: how much an off-policy learner remembers, and how it draws from that."""

from __future__ import annotations

from pydantic import Field

from podium.core.config import Section


class ReplaySettings(Section):
    """`replay.*`."""

    capacity: int = Field(1_000_000, ge=1, description="steps of each member that are kept, of all its envs together")
    bytes: int | None = Field(
        None, ge=1, description="memory that all replays of the run may take; null: half of the machine's memory"
    )
    save_bytes: int = Field(2**30, ge=0, description="a replay that is larger than this is left out of checkpoints")
    shared: bool = Field(False, description="one replay for all members of a stack, of `capacity` steps together")
    prioritised: bool = Field(False, description="draw in proportion to the last error (Schaul et al. 2016)")
    ratio: float | None = Field(
        None, gt=0, le=1e6, description="samples drawn for each step that is stored; null: as algo.updates says"
    )
