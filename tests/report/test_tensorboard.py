"""Event files, read back with tensorboard's own reader."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from podium.report.tensorboard import NAME, Events, crc32c


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(folder / NAME), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    found: dict[str, list[tuple[int, float]]] = {}
    for tag in accumulator.Tags()["scalars"]:
        found[tag] = [(event.step, event.value) for event in accumulator.Scalars(tag)]
    return found


def test_crc32c_of_the_rfc() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_tensorboard_reads_it_back(tmp_path: Path) -> None:
    events = Events(tmp_path)
    long = "member/" + "ä" * 100  # a length of two varint bytes
    events.scalars(0, {"loss": 0.5, long: -2.0})
    events.scalars(3_000_000_000, {"loss": 0.25})
    events.scalars(3_000_000_001, {})
    events.close()
    events.close()
    assert read(tmp_path) == {"loss": [(0, 0.5), (3_000_000_000, 0.25)], long: [(0, -2.0)]}


def test_numbers_beyond_float32(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.scalars(1, {"big": 1e300, "small": -1e300, "none": float("nan")})
    found = read(tmp_path)
    assert found["big"] == [(1, float("inf"))] and found["small"] == [(1, float("-inf"))]
    assert found["none"][0][1] != found["none"][0][1]


def test_a_resumed_run_goes_on_where_its_checkpoint_stood(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.scalars(1, {"x": 1.0})
    offset = events.offset()
    assert offset == (tmp_path / NAME).stat().st_size
    events.scalars(2, {"x": 99.0})
    events.close()
    again = Events(tmp_path, truncate_at=offset)
    assert again.offset() == offset
    again.scalars(2, {"x": 2.0})
    again.close()
    assert read(tmp_path) == {"x": [(1, 1.0), (2, 2.0)]}
    Events(tmp_path).close()
    assert read(tmp_path) == {}


def test_a_file_shorter_than_the_checkpoint_says_is_cut_at_a_whole_record(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.scalars(1, {"x": 1.0})
    first = events.offset()
    events.scalars(2, {"x": 2.0})
    end = events.offset()
    events.close()
    for length in (first, first + 5, first + 13, end - 1):
        copy = tmp_path / str(length)
        copy.mkdir()
        (copy / NAME).write_bytes((tmp_path / NAME).read_bytes()[:length])
        again = Events(copy, truncate_at=end)
        assert again.offset() == first
        again.scalars(3, {"x": 3.0})
        again.close()
        assert read(copy) == {"x": [(1, 1.0), (3, 3.0)]}


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = Events(tmp_path)
    events.scalars(1, {"x": 1.0})
    pwrite = os.pwrite

    def full(file: int, data: Any, offset: int) -> int:
        pwrite(file, bytes(data)[:7], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            events.scalars(2, {"x": 2.0})
    assert (tmp_path / NAME).stat().st_size == events.offset()
    events.scalars(3, {"x": 3.0})
    assert read(tmp_path) == {"x": [(1, 1.0), (3, 3.0)]}


def test_a_hundred_tags_take_less_than_a_millisecond(tmp_path: Path) -> None:
    events, values = Events(tmp_path), {f"member/{i:03d}/return": float(i) for i in range(100)}
    took = []
    for step in range(20):
        began = time.perf_counter()
        events.scalars(step, values)
        took.append(time.perf_counter() - began)
    assert min(took) < 1e-3
