"""One line where a traceback would come: folders that cannot be written, Ctrl-C, pipes, what nobody foresaw."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import podium
import whole
from podium.core import home

FAST = ("cartpole", "stop.steps=512", "eval.episodes=2", "eval.max_steps=50", "algo.epochs=1", "stop.fitness=null")


def fails(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    return fail


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "podium"


def test_what_nobody_foresaw_is_one_line_and_a_file(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.training.compose", fails(ValueError("two\nlines")))
    code, out, err = whole.command("train", *FAST)
    (file,) = state.iterdir()
    assert (code, out) == (1, "")
    assert err == f"podium: error: unexpected ValueError: two lines; the traceback is in {file}, please report it\n"
    text = file.read_text()
    assert "Traceback (most recent call last)" in text and "podium train cartpole" in text and "two\nlines" in text


def test_a_traceback_that_cannot_be_written_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.training.compose", fails(ValueError("odd")))
    monkeypatch.setattr("podium.cli.unforeseen.state_folder", fails(OSError("no room")))
    code, _, err = whole.command("train", *FAST)
    assert code == 1 and err.startswith("podium: error: unexpected ValueError: odd; ") and "Traceback" in err


def test_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert home.state_folder() == tmp_path / "state" / "podium"
    assert (tmp_path / "state" / "podium").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert home.state_folder() == tmp_path / "home/.local/state/podium"
    (tmp_path / "file").write_text("")
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert home.state_folder() == tmp_path / f"podium-{os.getuid()}"
    (tmp_path / f"podium-{os.getuid()}").rmdir()
    (tmp_path / f"podium-{os.getuid()}").symlink_to(tmp_path / "home")  # somebody else's trap
    found = home.state_folder()
    assert found.is_dir() and not found.is_symlink() and found.name != f"podium-{os.getuid()}"


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a new run, of one that is started afresh, and of one that goes on. Root may write anywhere, so it is acted."""
    podium.train(*FAST, out=tmp_path / "run")
    monkeypatch.setattr("podium.store.run.Lock", fails(PermissionError(errno.EACCES, "Permission denied")))
    new, run = tmp_path / "new", tmp_path / "run"
    for words in (
        ("train", *FAST, "-o", new),
        ("train", *FAST, "-o", run, "-D"),
        ("resume", run, "stop.steps=1024"),
    ):
        code, _, err = whole.command(*words, "-q")
        assert code == 2 and len(err.splitlines()) == 1
        assert "cannot be written (Permission denied)" in err and str(tmp_path) in err
    monkeypatch.setattr("podium.store.run.os.access", lambda *_: False)
    before = whole.files(tmp_path)
    code, _, err = whole.command("train", *FAST, "-o", tmp_path / "third")
    assert code == 2 and "cannot be written" in err and whole.files(tmp_path) == before


def test_a_film_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.report.video.os", SimpleNamespace(access=lambda *_: False, W_OK=os.W_OK))
    said = whole.refused(tmp_path, "play", tmp_path, "-o", tmp_path / "a.gif")
    assert "may not be written to" in said and str(tmp_path / "a.gif") in said


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for words in (("presets",), ("train", *FAST)):
        code, _, err = whole.command(*words)
        assert code == 2 and err.startswith("podium: error: the current folder cannot be used")
        assert len(err.splitlines()) == 1


def test_ctrl_c_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.training.compose", fails(KeyboardInterrupt()))
    assert whole.command("train", *FAST) == (130, "", "")
    code = """
import sys
class Finder:
    def find_spec(self, name, *rest):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
from podium.cli import main
main()
"""
    end = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (end.returncode, end.stdout, end.stderr) == (130, "", "")


def test_a_pipe_that_nobody_reads() -> None:
    read, write = os.pipe()
    os.close(read)
    end = subprocess.run(
        [sys.executable, "-m", "podium", "presets", "--json"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert end.returncode == 1 and end.stderr == ""


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [("imageio", ("play", "RUN", "-o", "a.mp4"), "render"), ("onnx", ("export", "RUN", "-o", "a.onnx"), "export")],
)
def test_a_package_that_is_missing(
    package: str, words: tuple[str, ...], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = whole.command(*words)
    assert code == 2 and len(err.splitlines()) == 1
    assert f"{package} is not installed; install it with: pip install -c constraints.txt 'podium-rl[{extra}]'" in err
    assert "constraints.txt, the versions that were tested, is in the root of Podium's repository" in err
