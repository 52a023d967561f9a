"""`net.*`: the shape of the networks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from podium.core.config import Section
from podium.core.imports import Importable


class NetSettings(Section):
    """`net.*`: the shape of the networks; a plan, shared by a stack."""

    hidden: tuple[PositiveInt, ...] = Field((64, 64), description="widths of the hidden layers")
    activation: Literal["tanh", "relu", "elu"] = "tanh"
    layer_norm: bool = False
    conv: tuple[tuple[PositiveInt, PositiveInt, PositiveInt], ...] | None = Field(
        None, description="layers for images: [filters, kernel, stride] of each; null: Nature's, or two small ones"
    )
    features: PositiveInt = Field(512, description="numbers that an image comes to")
    module: Importable | None = Field(None, description="`module:factory` of your own nn.Module, factory(n_in, n_out)")
