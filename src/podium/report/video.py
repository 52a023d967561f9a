"""Pictures as a film. imageio is imported here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from podium.core.errors import ArgumentError, MissingExtra, PodiumError

SUFFIXES = (".gif", ".mp4")


def check(path: Path) -> None:
    """Refuse a file that no film can be written to, before anything is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise ArgumentError("out", str(path), f"a file that ends in {' or '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise ArgumentError("out", str(path), "there is no such folder")
    if not os.access(path.absolute().parent, os.W_OK):  # imageio would leave tracebacks behind
        raise ArgumentError("out", str(path), "its folder may not be written to; name another one")
    _imageio()


def write(path: Path, frames: Iterable[np.ndarray[Any, Any]], fps: int = 30) -> int:
    """Write `frames` (`[H, W, 3]` uint8) as they come; returns how many there were."""
    imageio, count = _imageio(), 0
    gif = path.suffix.lower() == ".gif"
    # A GIF counts time in hundredths of a second.
    options: dict[str, Any] = (
        {"duration": round(100 / fps) * 10, "loop": 0} if gif else {"fps": fps, "macro_block_size": 2}
    )
    try:
        with imageio.get_writer(path, **options) as film:
            for frame in frames:
                film.append_data(frame)
                count += 1
    except OSError as error:
        raise PodiumError(f"{path}: cannot be written ({error})") from error
    return count


def _imageio() -> Any:
    try:
        import imageio.v2
    except ImportError as error:
        raise MissingExtra("imageio", "render") from error
    return imageio.v2
