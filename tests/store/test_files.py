"""Atomic files: whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from podium.store.files import clean, write_atomic


def full(*_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_writes_all_parts_and_leaves_only_the_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"one", bytearray(b"two"), memoryview(b"three"), b"")
    assert (tmp_path / "a").read_bytes() == b"onetwothree"
    assert os.listdir(tmp_path) == ["a"]


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    write_atomic(tmp_path / "a", bytes(range(100)))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    write_atomic(tmp_path / "a", b"old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_the_file_is_synced_before_it_gets_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(file: int) -> None:
        calls.append("fsync")
        fsync(file)

    def noted_replace(old: str, new: str, **where: int) -> None:
        calls.append("replace")
        replace(old, new, **where)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomic(tmp_path / "a", b"x")
    assert calls == ["fsync", "replace", "fsync"]


def test_clean_removes_leftovers_only(tmp_path: Path) -> None:
    for name in (".a.123-0.tmp", "a", "b.tmp", ".hidden"):
        (tmp_path / name).touch()
    clean(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "a", "b.tmp"]
