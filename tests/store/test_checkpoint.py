"""Checkpoints: the newest two, and always one that loads."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import podium.core
from podium.core.errors import CheckpointError
from podium.store import checkpoint, tensors

SOURCE = Path(podium.core.__file__).parents[2]
WRITER = """
import sys, torch
from pathlib import Path
from podium.store import checkpoint
torch.set_num_threads(1)
for step in range(1, 10**9):
    checkpoint.write(Path(sys.argv[1]), step, {"x": torch.full((200_000,), step)}, {})
    print(step, flush=True)
"""


def names(run: Path) -> list[str]:
    return sorted(os.listdir(run / "checkpoint"))


def test_keeps_the_newest_two(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    for step in (5, 100, 99_000):
        checkpoint.write(tmp_path, step, {"x": torch.tensor(step)}, {"seed": 3})
    assert names(tmp_path) == ["000000000100.safetensors", "000000099000.safetensors"]
    path = checkpoint.latest(tmp_path)
    assert path is not None and checkpoint.step_of(path) == 99_000
    tree, info = checkpoint.read(path)
    assert tree["x"].item() == 99_000 and info == {"seed": 3, "step": 99_000}


def test_a_future_that_was_given_up_is_dropped(tmp_path: Path) -> None:
    for step in (100, 200, 150):
        checkpoint.write(tmp_path, step, {"x": torch.tensor(step)}, {})
    assert names(tmp_path) == ["000000000100.safetensors", "000000000150.safetensors"]


def test_later_ones_can_be_dropped_before_anything_is_written(tmp_path: Path) -> None:
    for step in (5, 100):
        checkpoint.write(tmp_path, step, {"x": torch.tensor(step)}, {})
    (tmp_path / "checkpoint" / "notes.txt").write_text("mine")
    checkpoint.forget_after(tmp_path, 100)
    assert [checkpoint.step_of(p) for p in checkpoint.found(tmp_path)] == [100, 5]
    checkpoint.forget_after(tmp_path, 5)
    assert names(tmp_path) == ["000000000005.safetensors", "notes.txt"]


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_leaves_the_previous_ones_loadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for step in (1, 2):
        checkpoint.write(tmp_path, step, {"x": torch.tensor(step)}, {})

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.write(tmp_path, 3, {"x": torch.tensor(3)}, {})
    assert names(tmp_path) == ["000000000001.safetensors", "000000000002.safetensors"]
    path = checkpoint.latest(tmp_path)
    assert path is not None and checkpoint.read(path)[0]["x"].item() == 2


def test_other_files_are_no_checkpoints(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, 1, {"x": torch.tensor(1)}, {})
    for name in (".000000000009.safetensors.1-0.tmp", "best.safetensors", "000000000009.safetensors.bak"):
        (tmp_path / "checkpoint" / name).touch()
    assert [p.name for p in checkpoint.found(tmp_path)] == ["000000000001.safetensors"]


def test_a_member_file_is_no_checkpoint(tmp_path: Path) -> None:
    tensors.save(tmp_path / "t", {}, {}, "member")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        checkpoint.read(tmp_path / "t")


def test_kill_at_any_moment_leaves_one_that_loads(tmp_path: Path) -> None:
    runs = [tmp_path / str(i) for i in range(3)]
    writers = []
    for run in runs:
        run.mkdir()
        command = [sys.executable, "-c", WRITER, str(run)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        writers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    try:
        for i, writer in enumerate(writers):
            assert writer.stdout is not None
            assert writer.stdout.readline() == "1\n"
            time.sleep(0.11 + 0.017 * i)  # somewhere within a write
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
    for run, writer in zip(runs, writers, strict=True):
        said = [int(line) for line in writer.communicate()[0].split()]
        assert writer.returncode == -signal.SIGKILL
        path = checkpoint.latest(run)
        assert path is not None
        tree, info = checkpoint.read(path)
        assert (tree["x"] == info["step"]).all()
        assert info["step"] >= max(said, default=1)  # what was reported as written is there
        assert len(checkpoint.found(run)) <= 3  # a kill between rename and cleaning may leave one more
