"""The last line of defence: an error that nobody foresaw is one line, and its traceback a file."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import traceback
from datetime import datetime
from pathlib import Path

from podium import __version__
from podium.core.home import state_folder


def tell(error: Exception) -> None:
    """Say in one line what happened, and where the traceback is; on stderr itself, if no file can be written."""
    trace = "".join(traceback.format_exception(error))
    text = " ".join(f"unexpected {type(error).__name__}: {error}".split())
    try:
        where = f"the traceback is in {_write(trace)}, please report it"
    except OSError as failure:
        where = f"please report this traceback, which could not be written to a file ({failure}):\n{trace}"
    print(f"podium: error: {text}; {where}", file=sys.stderr)


def _write(trace: str) -> Path:
    now = datetime.now()
    path = state_folder() / f"error-{now:%Y%m%d-%H%M%S}-{os.getpid()}.txt"
    about = f"podium {__version__}, Python {platform.python_version()}, {platform.platform()}"
    path.write_text(f"{about}\n{shlex.join(sys.argv)}\n\n{trace}", encoding="utf-8")
    return path
