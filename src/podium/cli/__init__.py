"""The `podium` command. Torch is imported only by the commands that need it, so that help and tables are quick."""

from podium.cli import running, reading, using, serving, about  # isort: skip  # the order of the commands in the help
from podium.cli.base import app, main

__all__ = ["about", "app", "main", "reading", "running", "serving", "using"]
