"""What a user may get wrong is refused before anything starts: exit code 2, one line that names it, no file touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import bad_inputs
import podium
import whole
from podium.store import checkpoint, tensors
from whole import refused


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done") / "RUN"
    podium.train(*bad_inputs.TINY, out=path)
    return path


@pytest.fixture
def run(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "run"))


@pytest.fixture(scope="module")
def folder(done: Path) -> Path:
    """Where the commands of the table are typed."""
    bad_inputs.write_files(done.parent)
    return done.parent


CASES = bad_inputs.cases()


def test_the_table_is_whole() -> None:
    assert len(CASES) >= 75 and all(len(parts) >= 1 for parts in CASES.values())
    assert len(CASES) == len(bad_inputs.TABLE.strip().splitlines())  # nothing stands there twice


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_command(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    message = refused(folder, *bad_inputs.words(case))
    missing = [part for part in CASES[case] if part not in message]
    assert not missing, f"{message}does not name {missing}"


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES)[:: len(CASES) // 10][:10])
def test_a_wrong_command_as_a_process_of_its_own(case: str, folder: Path) -> None:
    wrong, seconds = bad_inputs.as_a_process(case, folder)
    assert wrong is None
    assert seconds < 20  # 4 by itself; the test machine may be busy


# ---- resume


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def age(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"podium":"2"', b'"podium":"9"', 1))


def reshape(path: Path) -> None:
    state, info = checkpoint.read(path)
    learnt = state["pods"]["0"]["learnt"]
    learnt["weights"]["0"] = learnt["weights"]["0"][..., :-1].clone()
    tensors.save(path, state, info, "checkpoint")


def strip(path: Path) -> None:
    state, info = checkpoint.read(path)
    del state["pods"]["0"]["learnt"]["optimiser"]
    tensors.save(path, state, info, "checkpoint")


def unseat(path: Path) -> None:
    state, info = checkpoint.read(path)
    state["pods"]["0"]["slot"]["env"]["now"].popitem()
    tensors.save(path, state, info, "checkpoint")


def numb(path: Path) -> None:
    state, info = checkpoint.read(path)
    state["orchestrator"]["rng"] = state["orchestrator"]["rng"][:-1].clone()
    tensors.save(path, state, info, "checkpoint")


def behead(path: Path) -> None:
    state, info = checkpoint.read(path)
    del state["orchestrator"]
    tensors.save(path, state, info, "checkpoint")


def forget(path: Path) -> None:
    state, info = checkpoint.read(path)
    del info["orchestrator"]["best"]
    tensors.save(path, state, info, "checkpoint")


def unname(path: Path) -> None:
    state, info = checkpoint.read(path)
    info["orchestrator"]["population"]["rows"][0][0]["nickname"] = "Bob"
    tensors.save(path, state, info, "checkpoint")


DAMAGE = {
    flip: "damaged, its checksum does not match",
    cut: "truncated",
    empty: "truncated",
    age: "version 9, this Podium reads 2",
    reshape: "wrong shape: tensor pods.0.learnt.weights.0",
    strip: "is absent in the file",
    unseat: "env: not the state of 1 x 8 CartPole",
    numb: "wrong shape: tensor orchestrator.rng",
    behead: "not a checkpoint of this run",
    forget: "not a checkpoint of this run",
    unname: "not a checkpoint of this run",
}

TOLD = (flip, cut, empty, age)
"""Damage that the file itself tells: the checkpoint before it is taken."""


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__)
def test_a_checkpoint_on_resume(damage: object, run: Path) -> None:
    path = checkpoint.found(run)[0]
    damage(path)  # type: ignore[operator]
    if damage in TOLD:
        message = refused(run, "resume", run, "--step", "512", "stop.steps=1024")
        assert "the other checkpoint may be whole" in message and "--step 256" in message
        code, *said = whole.command("resume", run, "stop.steps=1024")
        message = "".join(said)
        assert code == 0 and "resumed from step 256" in message and "the checkpoint before it is used" in message
    else:
        message = refused(run, "resume", run, "stop.steps=1024")
    assert str(path) in message and DAMAGE[damage] in message  # type: ignore[index]


def test_a_run_to_resume(run: Path) -> None:
    assert "no such run" in refused(run, "resume", run / "nowhere")
    assert "there are checkpoints of steps 256, 512" in refused(run, "resume", run, "--step", "7")
    shutil.rmtree(run / "checkpoint")
    assert "there is no checkpoint to go on from" in refused(run, "resume", run)
    (run / "config.yaml").write_text("seed: [")
    assert "config.yaml: damaged or edited" in refused(run, "resume", run)
    (run / "config.yaml").unlink()
    assert "not a run" in refused(run, "resume", run)


def test_a_damaged_snapshot(run: Path) -> None:
    flip(run / "members/0.safetensors")
    assert "checksum" in refused(run, "eval", run)
