"""The `podium` command. Torch is imported only by the commands that need it, so that help and tables are quick."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line. The commands are imported here, so that Ctrl-C meanwhile is no traceback either."""
    try:
        from podium.cli import commands

        commands.main()
    except KeyboardInterrupt:
        sys.exit(130)
