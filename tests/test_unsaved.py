"""A run whose folder is deleted, moved or cannot be written: it says so, and does not go on for ever."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import podium
import whole
from podium.core.errors import PodiumError
from podium.store import checkpoint, tensors
from podium.topologies import driver

PPO = (
    "CartPole-v1",
    "ppo",
    "algo.batch=64",
    "train.threads=1",
    "env.num=2",
    "algo.steps=32",
    "eval.episodes=2",
    "eval.every=256",
)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is looked after at every turn, not twice a second."""
    monkeypatch.setattr(driver.Plan, "report_seconds", 0.0)
    real = driver.Plan.__init__
    monkeypatch.setattr(driver.Plan, "__init__", lambda self, *a, **k: real(self, *a, **k | {"report_seconds": 0.0}))


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_folder_that_goes_is_told_and_made_anew_at_the_end(
    how: str, tmp_path: Path, at_once: None, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"

    def go(report: dict[str, Any]) -> None:
        if report["step"] >= 512 and run.exists() and not (tmp_path / "gone").exists():
            (tmp_path / "gone").touch()
            shutil.rmtree(run) if how == "deleted" else run.rename(tmp_path / "moved")

    with pytest.raises(PodiumError, match=r"deleted or moved.*saved in a new folder, as of step 2,048: podium resume"):
        podium.train(*PPO, "stop.steps=2048", out=run, on_report=go)
    err = capfd.readouterr().err
    assert f"podium: warning: {run} was deleted or moved while the run wrote to it." in err
    assert err.count("was deleted or moved") == 1, "told once"
    result = podium.resume(run, "stop.steps=3072")
    assert result.step == 3072 and result.top[0]["fitness"] is not None
    assert len(whole.members(run)) == 1


def test_it_ends_after_the_minutes_that_it_may_be_unsaved(
    tmp_path: Path, at_once: None, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(PodiumError, match="saved in a new folder") as caught:
        podium.train(
            *(*PPO, "stop.steps=10000000", "train.max_unsaved=0.01"),
            out=run,
            on_report=lambda report: shutil.rmtree(run) if report["step"] < 1000 and run.exists() else None,
        )
    assert "train.max_unsaved" in capfd.readouterr().err
    assert checkpoint.latest(run) is not None and str(run) in str(caught.value)


def test_another_folder_in_its_place_is_left_alone(tmp_path: Path, at_once: None) -> None:
    run = tmp_path / "run"

    def other(report: dict[str, Any]) -> None:
        if not (run / "mine").exists():
            shutil.rmtree(run)
            run.mkdir()
            (run / "mine").write_text("not a run")

    with pytest.raises(PodiumError, match=r"no new one can be written .*the run ends unsaved"):
        podium.train(*PPO, "stop.steps=512", out=run, on_report=other)
    assert os.listdir(run) == ["mine"]


def test_what_cannot_be_written_for_a_while_is_written_later(
    tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Snapshots, too: they are kept in memory until there is room."""
    real, full = tensors.write_atomic, [True]

    def write(path: Path, *parts: Any, **how: Any) -> None:
        if full[0] and path.suffix == ".safetensors" and path.stem != f"{0:012d}":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, *parts, **how)

    monkeypatch.setattr(tensors, "write_atomic", write)

    def room(report: dict[str, Any]) -> None:
        full[0] = report["step"] < 1024

    words = *PPO, "stop.steps=2048", "train.checkpoint=512"
    podium.train(*words, out=tmp_path / "run", on_report=room)
    err = capfd.readouterr().err
    assert "The checkpoint of step 512 was not written" in err and "The run can be saved again." in err
    monkeypatch.setattr(tensors, "write_atomic", real)
    podium.train(*words, out=tmp_path / "twin")
    assert whole.learnt(tmp_path / "run") == whole.learnt(tmp_path / "twin")


def test_it_is_saved_anew_though_this_step_was_saved_before(tmp_path: Path, at_once: None) -> None:
    run = tmp_path / "run"

    def end(report: dict[str, Any]) -> bool:
        shutil.rmtree(run)
        return False

    with pytest.raises(PodiumError, match="saved in a new folder"):
        podium.train(*PPO, "stop.steps=2048", "train.checkpoint=1", out=run, on_report=end)
    assert podium.resume(run, "stop.steps=2048").reason == "steps"


def test_a_reason_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = tensors.write_atomic

    def write(path: Path, *parts: Any, **how: Any) -> None:
        if path.parent.name == "checkpoint" and 0 < int(path.stem) < 2048:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, *parts, **how)

    monkeypatch.setattr(tensors, "write_atomic", write)
    podium.train(*PPO, "stop.steps=2048", "train.checkpoint=256", out=tmp_path / "run")
    assert capfd.readouterr().err.count("No space left") == 1
