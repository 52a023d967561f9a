"""Where Podium keeps what belongs to the user and to no run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def state_folder() -> Path:
    """A folder of the user's own: $XDG_STATE_HOME/podium, else ~/.local/state/podium, else one for temporary files."""
    said = os.environ.get("XDG_STATE_HOME", "")
    named = f"podium-{os.getuid()}" if hasattr(os, "getuid") else "podium"
    choices = [Path(said) / "podium"] if os.path.isabs(said) else []  # a relative one is to be ignored, says XDG
    choices += [Path(os.path.expanduser("~")) / ".local" / "state" / "podium", Path(tempfile.gettempdir()) / named]
    for folder in choices:
        if folder.is_absolute() and _mine(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="podium-"))


def _mine(folder: Path) -> bool:
    """Whether a folder is there, or could be made, that only this user can have put files into."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = not hasattr(os, "getuid") or folder.lstat().st_uid == os.getuid()
        return own and not folder.is_symlink() and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False
