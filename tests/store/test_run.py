"""The run folder: who may make it, open it and write to it."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import podium.core
from podium.core.errors import CheckpointError, ConfigError
from podium.store import checkpoint
from podium.store.lock import Lock, RunLocked, _held
from podium.store.records import Member
from podium.store.run import Run, next_name

SOURCE = Path(podium.core.__file__).parents[2]
CONFIG = {"seed": 1, "env": {"id": "CartPole-v1"}, "algo": {"lr": 3e-05, "name": "ppo"}, "stop": {"steps": None}}


def sealed(body: bytes) -> bytes:
    """With the checksum that a stranger can compute as well as Podium."""
    return body + b"# sha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n"


def test_create_then_open(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    with Run.create(path, CONFIG) as run:
        run.ledger.add_members([Member(id=0, algo="ppo")])
        run.log("started")
        run.log("ended")
        run.log("no file \udc80")  # as file names with bad bytes are
        assert run.snapshot(0, {"w": torch.ones(2)}, {"fitness": 3.0}) == path / "members" / "0.safetensors"
    assert yaml.safe_load((path / "config.yaml").read_text()) == CONFIG
    again = Run.open(path)
    assert again.config == CONFIG
    assert [m["id"] for m in again.ledger.members()] == [0]
    tree, info = again.read_snapshot(0)
    assert torch.equal(tree["w"], torch.ones(2)) and info == {"fitness": 3.0}
    with pytest.raises(CheckpointError, match=r"members/5\.safetensors"):
        again.read_snapshot(5)
    lines = again.log_path.read_text().splitlines()
    said = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", "", line) for line in lines]
    assert said == ["started", "ended", "no file \\udc80"]


def test_kept_weights_can_be_forgotten(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG) as run:
        for member in range(5):
            run.snapshot(member, {"w": torch.full((2,), member)}, {})
        (run.path / "members" / "notes.txt").write_text("mine")
        (run.path / "members" / "best.safetensors").write_bytes(b"")  # no member's: a leftover of something else
        run.forget(3)
        run.forget(3)
        assert sorted(p.stem for p in (run.path / "members").glob("*.safetensors")) == ["0", "1", "2", "4", "best"]
        run.forget_all(keep=[1, 4, 77])
        assert sorted(os.listdir(run.path / "members")) == ["1.safetensors", "4.safetensors", "notes.txt"]
        assert run.read_snapshot(4)[0]["w"].tolist() == [4, 4]


def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ConfigError, match="pass fresh=True to start it afresh") as caught:
        Run.create(tmp_path, CONFIG, fresh=False)
    assert (caught.value.field, caught.value.value) == ("out", str(tmp_path))
    assert caught.value.typed.startswith("-o: ") and "pass -D to start it afresh" in caught.value.typed
    with pytest.raises(ConfigError, match="holds files but no run"):
        Run.create(tmp_path, CONFIG, fresh=True)
    assert os.listdir(tmp_path) == ["notes"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    Run.create(tmp_path, CONFIG).close()
    assert (tmp_path / "config.yaml").is_file()


def test_fresh_deletes_the_old_run_and_nothing_else(tmp_path: Path) -> None:
    with Run.create(tmp_path, CONFIG) as run:
        run.ledger.add_members([Member(id=0, algo="ppo")])
        run.snapshot(0, {"w": torch.ones(2)}, {})
        run.log("old")
        checkpoint.write(run.path, 10, {"w": torch.ones(2)}, {})
    (tmp_path / "events.out.tfevents.0.podium").touch()
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "members" / "picture.png").touch()
    with Run.create(tmp_path, {"seed": 2}, fresh=True) as run:
        assert run.ledger.members() == []
        assert checkpoint.latest(run.path) is None
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"config.yaml", "ledger.sqlite", "lock", "notes", "members/picture.png"}
    assert Run.open(tmp_path).config == {"seed": 2}


def test_a_file_or_a_place_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="it is a file"):
        Run.create(tmp_path / "file", CONFIG)
    with pytest.raises(ConfigError, match="cannot be made"):
        Run.create(tmp_path / "file" / "run", CONFIG)


def test_a_config_that_is_not_plain_touches_nothing(tmp_path: Path) -> None:
    with pytest.raises(yaml.YAMLError):
        Run.create(tmp_path / "run", {"x": object()})
    assert os.listdir(tmp_path) == []


def test_open_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: no such run"):
        Run.open(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"config\.yaml: missing"):
        Run.open(tmp_path)
    for text, reason in (
        ("a: [1", "not YAML"),
        ("just words", "not a mapping"),
        ("a: !!python/object/apply:os.getcwd []", "not YAML"),
        ("\udcff", "not YAML"),
    ):
        (tmp_path / "config.yaml").write_bytes(sealed(text.encode(errors="surrogateescape")))
        with pytest.raises(CheckpointError, match=rf"config\.yaml: {reason}"):
            Run.open(tmp_path)
    (tmp_path / "config.yaml").write_bytes(sealed(b"a: 1\n"))
    with pytest.raises(CheckpointError, match=r"ledger\.sqlite: no such ledger"):
        Run.open(tmp_path).ledger  # noqa: B018
    assert os.listdir(tmp_path) == ["config.yaml"]


def test_a_second_writer_is_refused_but_not_a_reader(tmp_path: Path) -> None:
    run = Run.create(tmp_path, CONFIG)
    with pytest.raises(RunLocked, match=rf"pid {os.getpid()}\) is writing to this run"):
        Run.open(tmp_path, write=True)
    with pytest.raises(RunLocked):
        Run.create(tmp_path, CONFIG, fresh=True)
    assert Run.open(tmp_path).config == CONFIG
    run.close()
    run.close()
    Run.open(tmp_path, write=True).close()


def test_death_releases_the_lock(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from podium.store.lock import Lock\n"
    code += "lock = Lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(RunLocked, match=f"pid {holder.pid}"):
            Lock(tmp_path / "lock")
        holder.kill()
    Lock(tmp_path / "lock").release()


@pytest.mark.parametrize("dies", [True, False])
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path, dies: bool) -> None:
    lock = Lock(tmp_path / "lock")
    ready, tell = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        lock.release()  # of a lock it does not have
        os.write(tell, b"x")
        os.read(wait, 1)  # lives until the test ends
        os._exit(0)
    try:
        os.read(ready, 1)
        with pytest.raises(RunLocked):
            Lock(tmp_path / "lock")  # the parent still holds it
        if dies:
            _held.discard(lock._file)
            os.close(lock._file)  # what the parent's death does
        else:
            lock.release()
        Lock(tmp_path / "lock").release()
    finally:
        os.close(go)
        assert os.waitpid(child, 0)[1] == 0
        for end in (ready, tell, wait):
            os.close(end)


def test_a_writer_cleans_up_after_a_killed_one_and_a_reader_does_not(tmp_path: Path) -> None:
    Run.create(tmp_path, CONFIG).close()
    temps = [tmp_path / folder / ".x.1-0.tmp" for folder in (".", "members", "checkpoint")]
    for temp in temps:
        temp.touch()
    Run.open(tmp_path)
    assert all(temp.exists() for temp in temps)
    Run.open(tmp_path, write=True).close()
    assert not any(temp.exists() for temp in temps)


def test_next_name_counts(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    assert next_name("cartpole-ppo", base) == base / "cartpole-ppo-1"
    for name in (
        "cartpole-ppo-1",
        "cartpole-ppo-9",
        "cartpole-ppo-x",
        "cartpole-ppo-tournament-50",
        "cartpole-ppo-10.old",
    ):
        (base / name).mkdir(parents=True)
    assert next_name("cartpole-ppo", base) == base / "cartpole-ppo-10"
    assert next_name("ALE/Pong v5", base) == base / "ALE-Pong-v5-1"


def test_a_checkpoint_comes_after_all_that_it_counts_on(tmp_path, monkeypatch):
    """Snapshots, names, and the ledger's log, though somebody reads it: synced first, whatever SQLite would do."""
    synced = []
    sync = os.fsync

    def watched(file):
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        sync(file)

    monkeypatch.setattr(os, "fsync", watched)
    with Run.create(tmp_path / "run", CONFIG) as run:
        run.ledger.event(0, 0.0, "begin")
        reader = sqlite3.connect(run.path / "ledger.sqlite", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM events").fetchall()
        run.ledger.event(1, 0.0, "more")
        run.snapshot(3, {"w": torch.zeros(1, 2)}, {}, durable=False)
        synced.clear()
        run.snapshot(4, {"w": torch.zeros(1, 2)}, {}, durable=False)
        assert synced == []
        run.sync()
        assert sorted(synced) == sorted(["3.safetensors", "4.safetensors", "members", "ledger.sqlite-wal"])
        synced.clear()
        run.snapshot(5, {"w": torch.zeros(1, 2)}, {})
        assert len(synced) == 2 and synced[1] == "members"
        reader.close()
