"""`fleet.*`: where pods run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from podium.core.config import Section
from podium.core.errors import ConfigError


class FleetSettings(Section):
    """`fleet.*`"""

    kind: Literal["inline", "processes", "ray", "mpi"] = Field("inline", description="where pods run")
    pods: int | Literal["auto"] = Field(
        "auto",
        description="how many share the members; auto: inline one a kind, else one a core, rank of MPI or CPU of Ray; "
        "there more join when machines do",
    )
    threads: int | None = Field(
        None, ge=1, le=4096, description="of each pod; null: the machine's cores, shared evenly"
    )
    address: str | None = Field(None, description="ray: of a running cluster (auto: on this machine); null: a new one")
    cpus: float = Field(1.0, gt=0, description="ray: CPUs that a pod asks for")
    gpus: float = Field(0.0, ge=0, description="ray: GPUs that a pod asks for")
    devices: tuple[str, ...] = Field((), description="processes: of the pods in turn, e.g. [cuda:0, cuda:1]")
    timeout: float = Field(
        600.0, gt=0, le=1e6, description="seconds that a turn of a pod may take before it counts as hung"
    )

    def check(self, members: int, kinds: int) -> None:
        """What the fields cannot say by themselves."""
        if self.pods != "auto" and not kinds <= self.pods <= members:
            least = "at least one for each kind of members" if kinds > 1 else "at least 1"
            raise ConfigError("fleet.pods", self.pods, f"{least}, at most one for each of {members} members")
        for name in ("address", "cpus", "gpus"):
            if self.kind != "ray" and getattr(self, name) != type(self).model_fields[name].default:
                raise ConfigError(f"fleet.{name}", getattr(self, name), "nothing: it is for fleet=ray only")
        if self.devices and self.kind != "processes":
            raise ConfigError("fleet.devices", list(self.devices), "nothing: it is for fleet=processes only")
