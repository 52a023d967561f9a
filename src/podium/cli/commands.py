"""All commands, in the order of the help."""

from podium.cli import running, reading, using, serving, about  # isort: skip  # noqa: F401
from podium.cli.base import app, main

__all__ = ["app", "main"]
