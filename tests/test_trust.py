"""A run's folder is data: code that only the folder names does not run, and no file outside the folder is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import podium
import whole
from podium.core import trust
from podium.core.errors import CheckpointError, PodiumError
from podium.store import checkpoint, schema, tensors

TINY = "ppo", "env.num=2", "algo.steps=16", "algo.batch=32", "stop.steps=64", "eval.episodes=2", "train.threads=1"
ENV = """
import pathlib, gymnasium
pathlib.Path({mark!r}).write_text("ran")
class Env(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return self.observation_space.sample(), {{}}
    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {{}}
"""
READING = (
    ("eval", "RUN", "--episodes", "1"),
    ("eval", "RUN", "--ensemble", "top:1", "--episodes", "1"),
    ("export", "RUN", "-o", "x.onnx"),
    ("play", "RUN", "-o", "x.gif"),
    ("resume", "RUN"),
    ("train", "RUN/config.yaml", "-o", "other"),
    ("lineage", "RUN", "--plot", "x.png"),
    ("top", "RUN"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module of its own, and a user who has never run anything."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "my_own_env.py").write_text(ENV.format(mark=str(tmp_path / "mark")))
    yield here
    sys.modules.pop("my_own_env", None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trust") / "run"
    podium.train("CartPole-v1", *TINY, out=path)
    return path


def strange(run: Path, folder: Path, change: dict[str, object]) -> Path:
    """A copy of a run whose settings name other code."""
    copy = Path(shutil.copytree(run, folder / "copy"))
    whole.configure(copy, change)
    return copy


def test_ones_own_runs_are_read_without_a_question(folder: Path, tmp_path: Path) -> None:
    assert whole.command("train", "my_own_env:Env", *TINY, "-o", "mine", "-q")[0] == 0
    for words in (("eval", "mine", "--episodes", "2"), ("resume", "mine", "stop.steps=96", "-q"), ("top", "mine")):
        sys.modules.pop("my_own_env")
        code, _, err = whole.command(*words)
        assert (code, err) == (0, ""), words
        assert str(folder) not in sys.path
        if words[0] == "top":
            assert "my_own_env" not in sys.modules, "a table needs no env"
            podium.load("mine")
    assert podium.load("mine").env == "my_own_env:Env"


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"env": {"id": "my_own_env:Env"}}, "my_own_env:Env (env.id)"),
        ({"env": {"id": "{here}/my_own_env.py:Env"}}, "my_own_env.py:Env (env.id)"),
        ({"algo": {"name": "my_own_env:Algo"}}, "my_own_env:Algo (algo.name)"),
        ({"net": {"module": "my_own_env:Net"}}, "my_own_env:Net (net.module)"),
        ({"env": {"id": "os:system", "kwargs": {"command": "touch {here}/../mark"}}}, "os:system (env.id)"),
    ],
    ids=["module", "file", "algo", "net", "loaded"],
)
def test_a_strangers_code_does_not_run(
    change: dict[str, dict[str, object]], named: str, words: tuple[str, ...], run: Path, folder: Path, tmp_path: Path
) -> None:
    filled = {
        section: {k: v.format(here=folder) if isinstance(v, str) else v for k, v in fields.items()}
        for section, fields in change.items()
    }
    copy = strange(run, folder, filled)
    before = whole.files(copy)
    code, out, err = whole.command(*(word.replace("RUN", str(copy)) for word in words))
    assert not (tmp_path / "mark").exists(), "its code has run"
    assert whole.files(copy) == before
    if words[0] not in ("lineage", "top"):  # which need no code
        assert code == 2 and named in err and "--trust" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("train", {"for": {"ppo": {"net": {"module": "my_own_env:Net"}}}}),
        ("evolve", {"evolve": {"entrants": [{"algo": "my_own_env:Algo"}, "ppo"]}}),
        ("train", {"env": {"id": "FrozenLake-v1", "kwargs": {"desc": ["SG"]}}}),
    ],
    ids=["for", "entrants", "kwargs"],
)
def test_settings_of_another_run_are_asked_for_however_they_are_written(
    command: str, change: dict[str, object], ledger: bool, run: Path, folder: Path, tmp_path: Path
) -> None:
    copy = strange(run, folder, change)
    if not ledger:
        (copy / "ledger.sqlite").unlink()
    code, _, err = whole.command(command, copy / "config.yaml", "-o", "other")
    assert not (tmp_path / "mark").exists() and not Path("other").exists()
    assert code == 2 and ("It was not run" in err or "not the settings of a run" in err), err


@pytest.mark.parametrize("how", ["link", "pipe", "flipped"])
def test_settings_of_another_run_are_read_as_data(how: str, run: Path, folder: Path) -> None:
    copy = Path(shutil.copytree(run, folder / "copy"))
    path = copy / "config.yaml"
    if how == "flipped":
        flip(path, path.read_bytes().index(b"seed: 0") + 6)
    else:
        path.rename(folder / "away.yaml")
        path.symlink_to(folder / "away.yaml") if how == "link" else os.mkfifo(path)
    code, _, err = whole.command("train", path, "-o", "other", "stop.steps=64")
    assert code == 2 and not Path("other").exists() and "config.yaml" in err


def test_what_was_allowed_once_is_not_remembered(run: Path, folder: Path) -> None:
    copy = strange(run, folder, {"env": {"id": "my_own_env:Env"}})
    shutil.rmtree(copy / "checkpoint")
    shutil.rmtree(copy / "members")
    for words in (("resume", copy, "--trust", "-q"), ("train", copy / "config.yaml", "--trust", "-o", "new", "-q")):
        assert whole.command(*words)[0] == 0
        sys.modules.pop("my_own_env", None)
    assert not trust.known("my_own_env:Env")


def test_a_member_to_start_from_is_checked(run: Path, folder: Path) -> None:
    copy = Path(shutil.copytree(run, folder / "copy"))
    path = copy / "members/0.safetensors"
    learnt, info = tensors.load(path, "member")
    tensors.save(path, learnt, {k: v for k, v in info.items() if k != "step"}, "member")
    words = "train", "CartPole-v1", *TINY, f"train.start={copy}", "-o", "other"
    code, _, err = whole.command(*words)
    assert code == 2 and "not the weights of a member" in err


def test_the_user_may_allow_it(run: Path, folder: Path, tmp_path: Path) -> None:
    change: dict[str, object] = {"env": {"id": "my_own_env:Env"}}
    copy = strange(run, folder, change)
    with pytest.raises(PodiumError, match=r"my_own_env:Env \(env\.id\)\. It was not run\..*pass trust=True"):
        podium.load(copy)
    assert not (tmp_path / "mark").exists()
    for words in (("eval", copy, "--trust"), ("eval", copy, "--env", "my_own_env:Env")):
        (tmp_path / "mark").unlink(missing_ok=True)
        sys.modules.pop("my_own_env", None)
        _, _, err = whole.command(*words)
        assert (tmp_path / "mark").exists() and "It was not run" not in err
    with pytest.raises(PodiumError, match="It was not run"):  # allowed once is not allowed for ever
        podium.load(copy)


def test_code_is_known_by_the_file_that_it_stands_in(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another module of the same name, in the folder where a stranger's run was unpacked, is another."""
    trust.remember({"env": {"id": "my_own_env:Env"}})
    assert trust.known("my_own_env:Env") and not trust.known("my_own_env:Other")
    (tmp_path / "theirs").mkdir()
    shutil.copy("my_own_env.py", tmp_path / "theirs")
    monkeypatch.chdir(tmp_path / "theirs")
    assert not trust.known("my_own_env:Env")
    assert not (tmp_path / "mark").exists()


def test_entrants_clusters_and_wrapped_envs_are_asked_for_too(folder: Path) -> None:
    config = {
        "env": {"id": "GymV26Environment-v0", "kwargs": {"env_id": "evil:Env"}},
        "evolve": {"entrants": [{"algo": {"name": "ppo"}}, {"algo": {"name": "a:B"}, "net": {"module": "c:D"}}]},
        "fleet": {"kind": "ray", "address": "10.1.2.3:6379"},
    }
    assert dict(trust.named(config)) == {
        "evolve.entrants[1].algo.name": "a:B",
        "evolve.entrants[1].net.module": "c:D",
        "env.kwargs": 'GymV26Environment-v0 {"env_id": "evil:Env"}',
        "fleet.address": "10.1.2.3:6379",
    }
    with pytest.raises(PodiumError, match=r"a:B.*c:D.*evil.*10\.1\.2\.3:6379 \(fleet\.address\)"):
        trust.check(Path("run"), config)


@pytest.mark.slow
@pytest.mark.parametrize(
    "start", [["-m", "podium"], ["-c", "from podium.cli import main; main()"]], ids=["-m", "script"]
)
def test_the_current_folder_is_not_searched_for_packages(
    start: list[str], run: Path, folder: Path, tmp_path: Path
) -> None:

    for name in ("dill", "pynvml", "cupy", "tabulate", "ujson"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()")
    safe = ["-P"] if start[0] == "-c" else []
    for words in (["top", str(run)], ["eval", str(run), "--episodes", "1"]):
        done = subprocess.run([sys.executable, *safe, *start, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "mark").exists()


# ---- links, pipes and devices


def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "members").mkdir(parents=True)
    for name in ("precious.txt", "members/0.safetensors", "members/7.safetensors"):
        (folder / name).write_text("precious")
    return folder


NAMES = "lock", "log.txt", "events.out.tfevents.0.podium", "config.yaml", "ledger.sqlite", "members", "checkpoint"
MORE = "ledger.sqlite-shm", "ledger.sqlite-wal", "members/0.safetensors"
COMMANDS = (
    ("resume", "RUN", "stop.steps=96", "-q"),
    ("train", "CartPole-v1", *TINY, "-o", "RUN", "-D", "-q"),
    ("top", "RUN"),
    ("eval", "RUN", "--episodes", "1"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("name", [*NAMES, *MORE])
@pytest.mark.parametrize("how", ["link", "pipe", "zero", "hard"])
def test_nothing_is_read_or_written_through_a_link(
    how: str, name: str, words: tuple[str, ...], run: Path, tmp_path: Path
) -> None:
    copy, away = Path(shutil.copytree(run, tmp_path / "copy")), outside(tmp_path)
    path = copy / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if how == "link":
        path.symlink_to(away / ("members" if "." not in name and name != "lock" else "precious.txt"))
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "zero":
        path.symlink_to("/dev/zero")
    else:
        os.link(away / "precious.txt", path)
    before = whole.files(away)
    code, _, err = whole.command(*(word.replace("RUN", str(copy)) for word in words))
    assert whole.files(away) == before
    assert code in (0, 2) and "Traceback" not in err and len(err.splitlines()) <= 4


# ---- a ledger that only looks like one


def test_a_ledger_of_other_tables_is_not_queried(run: Path, tmp_path: Path) -> None:
    """An endless view in the place of a table would keep every reader busy for ever."""
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    link = schema.writer(copy / "ledger.sqlite")
    link.execute("ALTER TABLE events RENAME TO others")
    link.execute(
        "CREATE VIEW events AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    )
    link.close()
    assert "its tables are not those of a ledger" in whole.command("top", copy)[2]


def test_a_rollback_journal_is_not_played_back(run: Path, tmp_path: Path) -> None:
    """It may name a file that SQLite then deletes."""
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "ledger.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(1000))
    assert "Podium never writes such a file" in whole.command("top", copy)[2]
    assert whole.command("resume", copy, "stop.steps=96", "-q")[0] == 0
    assert whole.command("top", copy)[0] == 0


# ---- damage


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_damaged_config_is_told_and_restored(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    before = (copy / "config.yaml").read_bytes()
    flip(copy / "config.yaml", before.index(b"seed: 0") + 6)
    for command in ("eval", "top"):
        code, _, err = whole.command(command, copy)
        assert code == 2 and "config.yaml: damaged or edited" in err and f"podium resume {copy} restores it" in err
    result = podium.resume(copy)
    assert result.reason == "steps" and (copy / "config.yaml").read_bytes() == before
    assert "restored from" in (copy / "log.txt").read_text()


def test_a_lost_ledger_is_rebuilt(run: Path, tmp_path: Path) -> None:
    for how in ("missing", "damaged"):
        copy = Path(shutil.copytree(run, tmp_path / how))
        before = podium.load(copy)
        if how == "missing":
            (copy / "ledger.sqlite").unlink()
        else:
            flip(copy / "ledger.sqlite", (copy / "ledger.sqlite").read_bytes().index(b"finished"))
        code, _, err = whole.command("eval", copy)
        assert code == 2 and "ledger.sqlite" in err and len(err.splitlines()) == 1
        result = podium.resume(copy, "stop.steps=128")
        assert "rebuilt from" in (copy / "log.txt").read_text()
        assert result.step == 128 and result.top[0]["id"] == 0
        whole_run = podium.resume(Path(shutil.copytree(run, tmp_path / f"twin of {how}")), "stop.steps=128")
        assert [row["fitness"] for row in result.top] == [row["fitness"] for row in whole_run.top]
        assert podium.load(copy).member == before.member


def test_a_rebuilt_ledger_of_an_evolving_run_knows_who_leads(tmp_path: Path) -> None:
    words = "CartPole-v1", *TINY, "tournament", "evolve.members=4", "evolve.interval=64", "stop.steps=320"
    podium.evolve(*words, "algo.lr=[1e-4,1e-2]", "train.checkpoint=64", out=tmp_path / "run")
    before = [(row["id"], row["fitness"], row["genes"]) for row in podium.resume(tmp_path / "run").top]
    (tmp_path / "run" / "ledger.sqlite").unlink()
    after = [(row["id"], row["fitness"], row["genes"]) for row in podium.resume(tmp_path / "run").top]
    assert after == before
    lineage = podium.lineage(tmp_path / "run")
    assert lineage["champion"]["id"] == before[0][0]
    for command in ("top", "lineage"):
        assert whole.command(command, tmp_path / "run")[0] == 0


def test_weights_that_are_no_numbers_are_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    path = copy / "members/0.safetensors"
    learnt, info = tensors.load(path, "member")
    for bad in ({**info, "step": None}, {**info, "step": -1}, {k: v for k, v in info.items() if k != "step"}):
        tensors.save(path, learnt, bad, "member")
        with pytest.raises(CheckpointError, match="not the weights of a member"):
            podium.load(copy)
    learnt["weights"]["0"].fill_(float("nan"))
    tensors.save(path, learnt, info, "member")
    with pytest.raises(CheckpointError, match=r"tensor weights\.0 holds NaN"):
        podium.load(copy)
    state, info = checkpoint.read(checkpoint.found(copy)[0])
    state["pods"]["0"]["learnt"]["weights"]["0"].fill_(float("nan"))
    tensors.save(checkpoint.found(copy)[0], state, info, "checkpoint")
    before = whole.files(copy)
    with pytest.raises(CheckpointError, match="holds NaN"):
        podium.resume(copy, "stop.steps=96")
    assert whole.files(copy) == before
