"""TensorBoard event files, written by hand.

Podium needs scalars only. Importing tensorboard's own writer costs 0.4 s, torch's more, and neither can continue a file
at the byte where a checkpoint stood. The format is small: TFRecord frames around `Event` messages.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from podium.store import files

NAME = "events.out.tfevents.0.podium"


class Events:
    """The event file of a run folder. `truncate_at` is the `offset` a checkpoint recorded; 0 begins the file anew."""

    def __init__(self, folder: Path, truncate_at: int = 0) -> None:
        self._file = files.open_file(folder / NAME, os.O_RDWR | os.O_CREAT, linked=True)
        self._offset = _boundary(self._file, truncate_at)
        os.ftruncate(self._file, self._offset)
        if self._offset == 0:
            self._append(_double(1, time.time()) + _bytes(3, b"brain.Event:2"))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Append one event that holds all of `values`; it is in the file when this returns."""
        summary = b"".join(_bytes(1, _tag(tag) + b"\x15" + _float32(value)) for tag, value in values.items())
        self._append(_double(1, time.time()) + b"\x10" + _varint(step) + _bytes(5, summary))

    def offset(self) -> int:
        """Bytes written so far: where a resume from a checkpoint taken now has to go on."""
        return self._offset

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, event: bytes) -> None:
        record = memoryview(_frame(event))
        try:
            written = 0
            while written < len(record):
                written += os.pwrite(self._file, record[written:], self._offset + written)
        except BaseException:
            os.ftruncate(self._file, self._offset)  # half a record would end every reader's view of the file
            raise
        self._offset += len(record)


def _boundary(file: int, limit: int) -> int:
    """The end of the last whole record within the first `limit` bytes."""
    limit, end = min(limit, os.fstat(file).st_size), 0
    while end + 12 <= limit:
        length = int.from_bytes(os.pread(file, 8, end), "little")
        if end + length + 16 > limit:
            break
        end += length + 16
    return end


def _frame(event: bytes) -> bytes:
    """TFRecord: length, its masked CRC, the bytes, their masked CRC."""
    length = struct.pack("<Q", len(event))
    return length + struct.pack("<I", _masked(length)) + event + struct.pack("<I", _masked(event))


@lru_cache(4096)
def _tag(tag: str) -> bytes:
    return _bytes(1, tag.encode())


def _bytes(field: int, value: bytes) -> bytes:
    """A protobuf field of wire type 2."""
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reversed
    return byte


_TABLE = [_remainder(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720)."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
