"""Pictures as a film. imageio is imported here and nowhere else, and only for an MP4."""

from __future__ import annotations

import importlib.util
import itertools
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from podium.core.errors import ArgumentError, MissingExtra, PodiumError

SUFFIXES = (".gif", ".mp4")
Array = np.ndarray[Any, Any]


def check(path: Path) -> None:
    """Refuse a file that no film can be written to, before anything is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise ArgumentError("out", str(path), f"a file that ends in {' or '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise ArgumentError("out", str(path), "there is no such folder")
    if not os.access(path.absolute().parent, os.W_OK):  # imageio would leave tracebacks behind
        raise ArgumentError("out", str(path), "its folder may not be written to; name another one")
    if path.suffix.lower() == ".mp4":
        _imageio()


def write(path: Path, frames: Iterable[Array], fps: int = 30) -> int:
    """Write `frames` (`[H, W, 3]` uint8) as they come; returns how many there were, which are those in the file."""
    coming, count = iter(frames), 0
    first = list(itertools.islice(coming, 1))  # whatever cannot be drawn raises here, and no file is touched
    try:
        with _writer(path, fps) as film:
            for frame in itertools.chain(first, coming):
                film.append_data(frame)
                count += 1
    except OSError as error:
        raise PodiumError(f"{path}: cannot be written ({error})") from error
    return count


def _writer(path: Path, fps: int) -> Any:
    if path.suffix.lower() == ".gif":
        return _Gif(path, fps)
    return _imageio().get_writer(path, fps=fps, macro_block_size=2)


class _Gif:
    """A GIF with one picture per frame, written as they come.

    Pillow's own writer, and imageio's on top of it, keeps every frame in memory and merges those that look alike.
    """

    def __init__(self, path: Path, fps: int) -> None:
        self._file, self._fps, self._count = path.open("wb"), fps, 0
        self._last: Array | None = None

    def append_data(self, frame: Array) -> None:
        """Write what changed since the last frame; of a frame that did not, one pixel."""
        from PIL import GifImagePlugin, Image

        if self._last is None:
            loop_forever = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
            height, width = frame.shape[:2]
            self._file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + loop_forever)
        left, top, right, bottom = _changed(self._last, frame)
        part = Image.fromarray(np.ascontiguousarray(frame[top:bottom, left:right])).quantize(256)
        # A GIF counts time in hundredths of a second: at 30 fps these are 3, 4, 3, 3, 4, 3, ...
        begins, ends = (round(100 * i / self._fps) * 10 for i in (self._count, self._count + 1))
        data = GifImagePlugin.getdata(part, (left, top), duration=ends - begins, include_color_table=True)
        self._file.writelines(data)
        self._last, self._count = frame.copy(), self._count + 1  # an env may draw into the same array again

    def __enter__(self) -> _Gif:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        with self._file:
            if self._count:
                self._file.write(b";")


def _changed(last: Array | None, frame: Array) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the part of `frame` that differs from `last`; one pixel where nothing does."""
    if last is None:
        return 0, 0, frame.shape[1], frame.shape[0]
    differs = (last != frame).any(-1)
    if not differs.any():
        return 0, 0, 1, 1
    rows, columns = (np.flatnonzero(differs.any(axis)) for axis in (1, 0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _imageio() -> Any:
    try:
        import imageio.v2
    except ImportError as error:
        raise MissingExtra("imageio", "render") from error
    if importlib.util.find_spec("imageio_ffmpeg") is None:  # imageio looks for it only once a film is written
        raise MissingExtra("imageio-ffmpeg", "render")
    return imageio.v2
