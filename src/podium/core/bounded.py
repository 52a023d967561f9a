"""Numbers as a file may hold them: finite, and small enough to be counted with."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Step = Annotated[int, Meta(ge=-1, le=1 << 53)]
"""A count, or -1 where nothing has been counted yet."""
Number = Annotated[float, Meta(ge=-1.79e308, le=1.79e308)]
