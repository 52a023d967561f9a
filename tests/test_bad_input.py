"""What a user may get wrong is refused before anything starts: exit code 2, one line that names it, no file touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import podium
import whole
from podium.store import checkpoint, tensors
from whole import refused

TINY = (
    "cartpole",
    "ppo",
    "stop.steps=512",
    "eval.every=256",
    "eval.episodes=2",
    "train.checkpoint=256",
    "algo.epochs=1",
    "algo.steps=32",
    "env.num=8",
    "algo.batch=256",
    "stop.fitness=null",
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done") / "run"
    podium.train(*TINY, out=path)
    return path


@pytest.fixture
def run(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "run"))


SETTINGS = {
    "algo.lr=-0.1": "algo.lr: -0.1 is not allowed; a number of at least 0",
    "algo.lr=.inf": "algo.lr: inf is not allowed",
    "algo.lr=1e300": "algo.lr: 1e+300 is not allowed",
    "algo.lr=fast": "algo.lr: 'fast' is not allowed; a number of at least 0",
    "algo.lr=true": "algo.lr: True is not allowed",
    "algo.lr=null": "algo.lr: None is not allowed",
    "algo.lr=[1e-2, 1e-4]": "algo.lr: [0.01, 0.0001] is not allowed",
    "algo.discount=[0.1, 0.9]": "within [0.5, 0.9999]",
    "algo.lr={each: [1e-3, 1e-4]}": "2 values for 1 members",
    "algo.lr={each: [-1]}": "algo.lr: {'each': [-1]} is not allowed; a number of at least 0",
    "algo.lr={every: [1]}": "algo.lr: {'every': [1]} is not allowed",
    "algo.epochs=[1, 5]": "algo.epochs: [1, 5] is not allowed; a whole number of at least 1; only a gene takes a range",
    "algo.epochs=2.5": "algo.epochs: 2.5 is not allowed; a whole number of at least 1",
    "algo.batch=512": "algo.batch: 512 is not allowed; a divisor of the rollout",
    "algo.batch=100": "algo.batch: 100 is not allowed; a divisor of the rollout",
    "algo.lrr=1": "algo.lrr: no such setting; did you mean algo.lr?",
    "lr=1": "lr: no such setting; did you mean algo.lr?",
    "net.hiden=[3]": "net.hiden: no such setting; did you mean net.hidden?",
    "trian.members=2": "trian: no such setting; did you mean train?",
    "stop.qqq=2": "stop.qqq: no such setting; allowed: stop.steps, stop.seconds, stop.fitness",
    "for.ppo.algo.lr=1": "for: no such setting",
    "train.members=0": "train.members: 0 is not allowed; a whole number of at least 1",
    "train.members=true": "train.members: True is not allowed",
    "train.members=two": "train.members: 'two' is not allowed; a whole number of at least 1",
    "train.device=toaster": "train.device: 'toaster' is not allowed",
    "train.start=nowhere": "nowhere: no such run",
    "stop.seconds=-1": "stop.seconds: -1 is not allowed; a number of more than 0 or null",
    "stop=5": "stop: 5 is not allowed; a mapping of settings",
    "seed=-1": "seed: -1 is not allowed; a whole number of at least 0",
    "net.hidden=[64, 0]": "net.hidden: 0 is not allowed; a list, each a whole number",
    "net.hidden=64": "net.hidden: 64 is not allowed; a list",
    "net.conv=[[8, 3, 1]]": "net.conv: [[8, 3, 1]] is not allowed; null: CartPole-v1 shows no images",
    "net.module=nowhere:net": "net.module: 'nowhere:net' is not allowed",
    "env.source=envpol": "env.source: 'envpol' is not allowed; one of auto, native, mujoco, atari, envpool, gymnasium",
    "env.workers=0": "env.workers: 0 is not allowed; a whole number of at least 1 or null",
    "env.workers=2": "env.workers: 2 is not allowed; null: only env.source=workers has processes of its own",
    "env.timeout=0": "env.timeout: 0 is not allowed; a number of more than 0",
    "env.max_failures=0": "env.max_failures: 0 is not allowed; a whole number of at least 1",
    "env.kwargs.mass=3": "env.kwargs: {'mass': 3} is not allowed",
    "env=CartPole-v9": "env.id: there is no 'CartPole-v9'; did you mean 'CartPole-v1'?",
    "env=cartpole-V1": "did you mean 'CartPole-v1'?",
    "env=nowhere:Env": "env.id: 'nowhere:Env' is not allowed",
    "env=whole:Broken": "env.id: 'whole:Broken' is not allowed; it cannot be made (RuntimeError: no licence)",
    "env=whole:Note": "env.id: 'Note' is not allowed; its observations are Text",
    "algo=pp": "algo.name: there is no 'pp'; did you mean 'ppo'?",
    "algo=": "algo.name: None is not allowed; one of ppo, a2c",
    "algo=os:getcwd": "algo.name: 'os:getcwd' is not allowed",
    "algo.anneal=[lam]": "algo.anneal: 'lam' is not allowed; a list, each one of lr, clip, entropy",
    "algo.lr=[1": "algo.lr=[1: not YAML",
    "=3": "=3: not a setting; write key=value",
}


@pytest.mark.parametrize("word", SETTINGS)
def test_a_setting(word: str, tmp_path: Path) -> None:
    rollout = ("algo.steps=32", "env.num=8", "algo.batch=256")
    assert SETTINGS[word] in refused(tmp_path, "train", "cartpole", *rollout, word, "-o", tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cartpol"], "there is no 'cartpol'; did you mean 'cartpole'?"),
        (["zzzqqq"], "there is no 'zzzqqq'; a preset ("),
        (["cartpole", "pendulum"], "cartpole pendulum: two names of one group"),
        (["cartpole", "CartPole-v1"], "two names of one group; name one env"),
        (["ppo", "a2c"], "name one algo"),
        (["ppo"], "env.id: missing"),
        (
            ["cartpole", "algo.anneal=[lr]", "stop.steps="],
            "stop.steps: None is not allowed; a number of steps, since algo.anneal",
        ),
        (["nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_a_word(words: list[str], message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, "train", *words, "-o", tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"algo: [", "not YAML"),
        (b"\x00\x01", "not YAML"),
        (b"\xff\xfe", "not YAML"),
        (b"just words", "not a mapping of settings (found 'just words')"),
        (b"", "not a mapping of settings (found nothing)"),
        (b"- 1", "not a mapping of settings (found list)"),
        (b"a: &a [*a]", "not YAML"),
        (b"algo: {lr: 1, lr_: 2}", "algo.lr_: no such setting; did you mean algo.lr?"),
        (b"3: 4", "3: no such setting"),
        (b"for: [ppo]", "for: ['ppo'] is not allowed"),
        (b"!!python/object/apply:os.system [ls]", "not YAML"),
    ],
)
def test_a_file(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_bytes(text)
    assert message in refused(tmp_path, "train", "cartpole", tmp_path / "my.yaml", "-o", tmp_path / "run")


def test_a_folder_that_is_taken(run: Path) -> None:
    message = refused(run.parent, "train", *TINY, "-o", run)
    assert str(run) in message and "-D" in message


def test_a_folder_that_is_no_run_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "holds files but no run" in refused(tmp_path, "train", *TINY, "-o", tmp_path, "-D")


# ---- resume


OVERRIDES = {
    "net.hidden=[32, 32]": "net.hidden: [32, 32] is not allowed; a resumed run keeps [64, 64]",
    "env.num=4": "env.num: 4 is not allowed; a resumed run keeps 8",
    "train.members=2": "train.members: 2 is not allowed; a resumed run keeps 1",
    "env=Acrobot-v1": "env.id: 'Acrobot-v1' is not allowed; a resumed run keeps 'CartPole-v1'",
    "env.source=gymnasium": "env.source: 'gymnasium' is not allowed; a resumed run keeps 'auto'",
    "env.normalise_obs=true": "env.normalise_obs: True is not allowed; a resumed run keeps False",
    "seed=3": "seed: 3 is not allowed; a resumed run keeps 0",
    "algo.lr=-1": "algo.lr: -1 is not allowed",
    "stop.stepz=1": "stop.stepz: no such setting; did you mean stop.steps?",
    "ppo": "ppo: not a setting; write key=value",
}


@pytest.mark.parametrize("word", OVERRIDES)
def test_an_override_on_resume(word: str, run: Path) -> None:
    assert OVERRIDES[word] in refused(run, "resume", run, word, "stop.steps=1024")


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
        code, message, _ = whole.command("resume", run, "stop.steps=1024")
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


# ---- reading commands


def test_what_the_reading_commands_refuse(run: Path) -> None:
    assert "no such run" in refused(run, "top", run / "nowhere")
    assert "no such run" in refused(run, "eval", run / "nowhere")
    assert "--member: 7 is not allowed" in refused(run, "eval", run, "--member", "7")
    assert "--env: 'Acrobot-v1' is not allowed" in refused(run, "eval", run, "--env", "Acrobot-v1")
    assert "a file that ends in .gif or .mp4" in refused(run, "play", run, "-o", run / "film.avi")
    assert "there is no 'nope'" in refused(run, "presets", "nope")
    assert "bench: there is no 'nope'" in refused(run, "bench", "nope")
    flip(run / "members/0.safetensors")
    assert "checksum" in refused(run, "eval", run)


def test_a_whole_process_refuses_within_five_seconds(tmp_path: Path) -> None:
    started = time.monotonic()
    words = [sys.executable, "-m", "podium", "train", "cartpole", "algo.lr=-1", "-o", str(tmp_path / "run")]
    end = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert end.returncode == 2 and end.stderr.startswith("podium: error: algo.lr: -1 is not allowed")
    assert len(end.stderr.splitlines()) == 1 and not list(tmp_path.iterdir())
    assert time.monotonic() - started < 15  # 5 s by itself; the test machine may be busy
