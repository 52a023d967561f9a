"""Where Podium keeps what belongs to a user and to no run."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """The folder for records and logs, `$XDG_STATE_HOME/podium` or `~/.local/state/podium`; it may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "podium"
