"""What a node of the rpc benchmark does: nearly nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Echo:
    """Takes and gives."""

    def echo(self, value: Any) -> Any:
        return value

    def take(self, value: Tensor) -> int:
        """As much as a learner's weights; what counts is that it has come."""
        return len(value)

    def give(self, size: int) -> Tensor:
        """As much as a trajectory."""
        return torch.ones(size)
