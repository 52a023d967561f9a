"""Whole runs: what they leave on disk, and that killing, stopping, extending and replaying them changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import podium
import whole
from killing import killed_and_resumed, wait
from podium import entrants, resuming
from podium.compose import compose
from podium.core import hyper
from podium.core.errors import ConfigError, PodiumError
from podium.evolve.turn import Evaluation
from podium.report.tensorboard import NAME
from podium.roles.pod import Pod
from podium.store import checkpoint, schema
from podium.store.run import Run

SMALL = ("eval.every=256", "eval.episodes=3", "train.checkpoint=512", "train.threads=1", "env.num=8")
PPO = ("CartPole-v1", "ppo", "algo.epochs=2", "algo.steps=32", "algo.batch=256", "stop.steps=2048", *SMALL)
A2C = ("CartPole-v1", "a2c", "algo.steps=8", "stop.steps=2048", *SMALL)
TINY = ("ppo", "env.num=2", "algo.steps=16", "algo.batch=32", "stop.steps=64", "eval.every=32", "eval.episodes=2")
THREE = ("train.members=3", "algo.lr=[1e-4,1e-2]", "algo.entropy={each: [0, 0.01, 0.02]}")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three PPO members."""
    path = tmp_path_factory.mktemp("done") / "run"
    podium.train(*PPO, *THREE, out=path)
    return path


def same(one: Path, other: Path) -> None:
    """Two runs hold the same files, the same bits, the same scores and the same members."""
    left, right = whole.learnt(one), whole.learnt(other)
    assert left.keys() == right.keys()
    for file in left:
        assert left[file].keys() == right[file].keys()
        assert not [name for name, bits in left[file].items() if right[file][name] != bits], file
    assert whole.decided(one) == whole.decided(other)
    assert whole.scores(one) == whole.scores(other)
    assert [_timeless(row) for row in whole.members(one)] == [_timeless(row) for row in whole.members(other)]


def _timeless(member: dict[str, Any]) -> dict[str, Any]:
    """Without the number of the turn, which an evaluation that is made up for moves on."""
    return {name: value for name, value in member.items() if name not in ("born_turn", "ended_turn")}


# ---- what a run leaves


def test_a_run_is_a_folder(done: Path) -> None:
    names = {p.name for p in done.iterdir()}
    assert names >= {"config.yaml", "ledger.sqlite", "members", "checkpoint", "log.txt", NAME}
    assert sorted(p.name for p in (done / "members").iterdir()) == ["0.safetensors", "1.safetensors", "2.safetensors"]
    assert [checkpoint.step_of(p) for p in checkpoint.found(done)] == [2048, 1536]
    rows = whole.members(done)
    assert [row["status"] for row in rows] == ["finished"] * 3
    assert len({row["genes"]["lr"] for row in rows}) == 3
    assert [row["genes"]["entropy"] for row in rows] == pytest.approx([0, 0.01, 0.02])
    assert {score[1] for score in whole.scores(done)} == {str(256 * n) for n in range(1, 9)}


def test_a_snapshot_holds_the_weights_that_were_scored(done: Path) -> None:
    """Played again, they get the very returns of the member's best score, and of no other."""
    with Run.open(done) as run:
        pod = entrants.build_pods(entrants.validate(run.config))[0]
        for row in run.ledger.top():
            state, info = run.read_snapshot(row["id"])
            scores = run.ledger.scores(row["id"])
            best = max(scores, key=lambda score: (score["fitness"], -score["step"]))
            assert (info["step"], info["fitness"]) == (best["step"], best["fitness"]) == (row["steps"], row["fitness"])
            pod.write([row["id"]], state)
            pod.steps.fill_(info["step"])
            played = pod.evaluate([row["id"]], len(best["returns"]))
            assert played.returns.tolist() == [best["returns"]]
            assert int(played.lengths.sum()) == best["cost"]
        pod.close()


EVOLVING = ("CartPole-v1", "stop.steps=4096", *SMALL, "evolve.genes=[lr]")
GENES = {
    "train": (*PPO, *THREE),
    "evolve": (*EVOLVING, "evolve.members=3", "algo.entropy={each: [0, 0.01, 0.02]}"),
    "kinds": (*EVOLVING, "evolve.members=5", "evolve.entrants=[ppo, {algo: {name: a2c, entropy: [0.01, 0.02]}}]"),
}


@pytest.mark.parametrize("words", GENES.values(), ids=GENES)
def test_members_train_with_the_genes_that_the_ledger_says(words: tuple[str, ...], tmp_path: Path) -> None:
    tree = compose(words)
    experiment = entrants.validate(entrants.complete(tree) if "evolve" in tree else tree)
    with Run.create(tmp_path / "run", experiment.model_dump(mode="json")) as run:
        entrants.orchestrator(experiment, run).population.enter()
        entered = {member["id"]: hyper.live(member["genes"]) for member in run.ledger.members()}
    pods = entrants.build_pods(experiment)
    ids = [int(member) for pod in pods for member in pod.ids]
    assert sorted(entered) == ids
    for pod in pods:
        for row, member in enumerate(pod.ids.tolist()):
            assert {name: float(values[row]) for name, values in pod.algorithm.genes.items()} == entered[member]


def test_the_same_words_give_the_same_run(done: Path, tmp_path: Path) -> None:
    podium.train(*PPO, *THREE, out=tmp_path / "again")
    same(done, tmp_path / "again")
    podium.train(*PPO, *THREE, "seed=1", out=tmp_path / "other")
    assert whole.learnt(done) != whole.learnt(tmp_path / "other")


def test_its_config_replays_it(done: Path, tmp_path: Path) -> None:
    code, _, err = whole.command("train", done / "config.yaml", "-o", tmp_path / "replay", "-q")
    assert (code, err) == (0, "")
    same(done, tmp_path / "replay")
    assert (done / "config.yaml").read_bytes() == (tmp_path / "replay/config.yaml").read_bytes()


def test_reports_reach_the_hook(tmp_path: Path) -> None:
    reports: list[dict[str, Any]] = []
    result = podium.train(*A2C, "stop.steps=20000", "eval.every=20000", "train.members=2", out=tmp_path / "run",
                          on_report=reports.append)  # fmt: skip
    assert result.reason == "steps" and result.step >= 20000
    assert reports and all(a["step"] <= b["step"] for a, b in pairwise(reports))
    assert len(reports[0]["members"]["return"]) == 2
    top = {row["id"]: row["fitness"] for row in result.top}
    assert reports[-1]["members"]["fitness"] == [top[0], top[1]], "the last report has the last scores"


def test_a_run_starts_from_a_member_of_another(done: Path, tmp_path: Path) -> None:
    kept, _ = Run.open(done).read_snapshot(2)
    words = (*PPO, "train.members=2", "algo.lr={each: [0, 0]}")  # lr 0: what was learnt stays as it is
    result = podium.train(*words, f"train.start={done}:2", out=tmp_path / "two")
    for row in (0, 1):
        assert torch.equal(Run.open(result.path).read_snapshot(row)[0]["weights"]["0"], kept["weights"]["0"])
    champion = Run.open(done).champion()
    result = podium.train(*words, f"train.start={done}", out=tmp_path / "best")
    best = Run.open(done).read_snapshot(champion)[0]["weights"]["0"]
    assert torch.equal(Run.open(result.path).read_snapshot(0)[0]["weights"]["0"], best)
    with Run.open(result.path) as run:
        assert run.ledger.events("start")[0]["detail"]["member"] == champion


def test_a_start_that_does_not_fit_is_refused_by_its_setting(done: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"train.start: '{done}:77' is not allowed; of .* there are 0, 1, 2"):
        podium.train(*PPO, f"train.start={done}:77", out=tmp_path / "run")
    with pytest.raises(ConfigError, match=rf"train.start: '{done}:1' .* it is a member of ppo on CartPole-v1; .*shape"):
        podium.train(*PPO, "net.hidden=[8]", f"train.start={done}:1", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- kill, stop, extend


@pytest.mark.parametrize(
    "words",
    [(*PPO, *THREE), A2C, (*PPO, "env.source=gymnasium", "train.members=2")],
    ids=["ppo", "a2c", "gymnasium"],
)
def test_killed_at_any_moment_it_goes_on_as_if_it_were_not(words: tuple[str, ...], tmp_path: Path) -> None:
    words = (*words, "stop.steps=4096")
    started = time.monotonic()
    podium.train(*words, out=tmp_path / "whole")
    length = time.monotonic() - started
    run = killed_and_resumed(tmp_path, 1, length, "train", *words)
    same(tmp_path / "whole", run)
    assert [row["status"] for row in whole.members(run)] == ["finished"] * len(whole.members(run))


def test_interrupted_once_it_saves_and_goes_on_bitwise(tmp_path: Path) -> None:
    words = (*PPO, *THREE, "stop.steps=6144")
    podium.train(*words, out=tmp_path / "whole")
    run = tmp_path / "stopped"
    child = whole.process(tmp_path / "out.txt", "train", *words, "-o", run)
    wait(lambda: any(checkpoint.step_of(p) for p in checkpoint.found(run)), child)
    os.kill(child.pid or 0, signal.SIGINT)
    child.join(30)
    said = (tmp_path / "out.txt").read_text()
    assert child.exitcode == 0 and f"podium resume {run}" in said
    latest = checkpoint.latest(run)
    assert latest is not None and 0 < checkpoint.step_of(latest) < 6144
    podium.resume(run)
    final = "checkpoint/000000006144.safetensors"
    left, right = whole.learnt(tmp_path / "whole"), whole.learnt(run)
    assert left[final] == right[final]
    assert {k: v for k, v in left.items() if "member" in k} == {k: v for k, v in right.items() if "member" in k}
    assert whole.scores(tmp_path / "whole") == whole.scores(run)


def test_interrupted_twice_it_ends_at_once(tmp_path: Path) -> None:
    """The rollout takes seconds, so that the second Ctrl-C comes before the first can be obeyed."""
    log = tmp_path / "run/log.txt"
    words = (*PPO, "env.source=gymnasium", "algo.steps=16384", "stop.steps=1e7")
    child = whole.process(tmp_path / "out.txt", "train", *words, "-o", tmp_path / "run")
    wait(log.exists, child)
    for _ in range(6):
        time.sleep(0.3)  # two that come during one call of torch, or on a busy machine, are seen as one
        if child.exitcode is None:
            os.kill(child.pid or 0, signal.SIGINT)
    child.join(20)
    assert child.exitcode == 130, (tmp_path / "out.txt").read_text()


@pytest.mark.parametrize("source", ["native", "gymnasium"])
def test_extended_it_equals_a_longer_run(source: str, tmp_path: Path) -> None:
    words = (*PPO, *THREE, f"env.source={source}")
    podium.train(*words, "stop.steps=4096", out=tmp_path / "long")
    podium.train(*words, out=tmp_path / "short")
    code, out, err = whole.command("resume", tmp_path / "short", "stop.steps=4096")
    assert (code, err) == (0, "") and "stop.steps reached" in out and "statistical" not in out
    same(tmp_path / "long", tmp_path / "short")
    assert (tmp_path / "long/config.yaml").read_bytes() == (tmp_path / "short/config.yaml").read_bytes()


def test_resuming_a_finished_run_changes_nothing(done: Path, tmp_path: Path) -> None:
    run = copy(done, tmp_path)
    assert podium.resume(run).reason == "steps"
    same(done, run)


def test_resuming_a_finished_run_of_envs_that_cannot_be_saved_changes_nothing(tmp_path: Path) -> None:
    words = (*PPO, "env.source=gymnasium", "stop.fitness=null")
    podium.train(*words, "stop.steps=2048", out=tmp_path / "run")
    before = whole.learnt(tmp_path / "run")
    podium.resume(tmp_path / "run")
    assert whole.learnt(tmp_path / "run") == before


def test_a_run_killed_at_birth_begins_anew(done: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(done / "config.yaml", run)
    podium.resume(run)
    same(done, run)


def test_a_fitness_that_is_not_finite_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Evaluation(torch.full((1, 2), torch.inf), torch.ones(1, 2), torch.zeros(1, 2, 0))
    monkeypatch.setattr(Pod, "evaluate", lambda *_: endless)
    result = podium.train(*PPO, "stop.fitness=1", out=tmp_path / "run")
    assert result.reason == "steps" and result.top[0]["fitness"] is None
    assert not list((tmp_path / "run/members").iterdir()) and not whole.scores(tmp_path / "run")
    assert whole.members(tmp_path / "run")[0]["status"] == "finished"


def test_images_are_scaled_and_normalised(tmp_path: Path) -> None:
    for word in ("env.normalise_obs=true", "env.normalise_obs=false"):
        podium.train("whole:Bytes", *TINY, word, out=tmp_path / word)
        assert not [row for row in whole.members(tmp_path / word) if row["status"] == "failed"]


def test_resume_goes_back_to_an_earlier_step(done: Path, tmp_path: Path) -> None:
    run = copy(done, tmp_path)
    podium.resume(run, step=1536)
    same(done, run)


def test_killed_while_it_goes_back_it_still_goes_back(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the rewinding of the ledger and the next checkpoint, the one that was given up must not be taken."""
    run = copy(done, tmp_path)

    def die(*_: Any, **__: Any) -> Any:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(resuming, "finish", die)
        podium.resume(run, step=1536)
    assert {int(score[1]) for score in whole.scores(run)} == {256 * n for n in range(1, 7)}
    podium.resume(run)
    same(done, run)


def test_resume_changes_a_gene(done: Path, tmp_path: Path) -> None:
    run = copy(done, tmp_path)
    before = whole.learnt(run)["checkpoint/000000002048.safetensors"]
    podium.resume(run, "algo.lr=0", "stop.steps=4096")
    after = whole.learnt(run)["checkpoint/000000004096.safetensors"]
    assert before["pods.0.learnt.weights.0"] == after["pods.0.learnt.weights.0"]
    assert before["pods.0.slot.steps"] != after["pods.0.slot.steps"]
    rows = whole.decided(run)["checkpoint/000000004096.safetensors"]["orchestrator"]["population"]["rows"]
    assert [row["genes"]["lr"] for row in rows[0]] == [0, 0, 0]
    assert [row["genes"]["lr"] for row in whole.members(run)] == [0, 0, 0]


def copy(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "copy"))


# ---- a full disk


def full(monkeypatch: pytest.MonkeyPatch, where: str, after: int) -> None:
    """From the `after`-th file on, nothing more can be written in folders called `where`."""
    real, seen = os.write, set[str]()

    def write(file: int, data: Any) -> int:
        path = os.readlink(f"/proc/self/fd/{file}")
        if f"/{where}/" in path:
            seen.add(path)
            if len(seen) > after:
                raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)


def test_a_disk_too_full_for_a_checkpoint_is_a_warning_and_for_the_last_one_an_error(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        full(patch, "checkpoint", 3)  # steps 0, 512, 1024
        code, out, err = whole.command("train", *PPO, *THREE, "-o", run)
    assert "podium: warning: The checkpoint of step 1,536 was not written" in err
    assert code == 2 and "No space left" in err and "podium resume" in err  # the last one cannot be done without
    assert [checkpoint.step_of(p) for p in checkpoint.found(run)] == [1024, 512]
    assert len(list((run / "checkpoint").iterdir())) == 2
    podium.resume(run)
    same(done, run)


def test_a_disk_too_full_for_a_snapshot_ends_the_run_with_a_message(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        full(patch, "members", 3)
        code, _, err = whole.command("train", *PPO, *THREE, "-o", run)
    assert code == 2 and "No space left" in err.splitlines()[-1] and "podium resume" in err.splitlines()[-1]
    podium.resume(run)
    same(done, run)


def test_a_disk_too_full_for_the_ledger_ends_the_run_with_a_message(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, writer = tmp_path / "run", schema.writer

    def small(path: Path) -> Any:
        link = writer(path)
        link.execute("PRAGMA max_page_count = 1")  # SQLite makes it as small as the file is by now
        return link

    with monkeypatch.context() as patch:
        patch.setattr(schema, "writer", small)
        code, _, err = whole.command("train", *PPO, "train.members=40", "-o", run)
    assert code == 2 and "full" in err and str(run) in err and len(err.splitlines()) == 1
    with pytest.raises(PodiumError, match="fresh=True"):
        podium.train(*PPO, out=run)


# ---- a member that fails


@pytest.mark.parametrize("what", ["obs", "reward"])
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_a_nan_fails_its_own_member_and_no_other(algo: str, what: str, tmp_path: Path) -> None:
    words = ("env=whole:Faulty", f"algo={algo}", "stop.steps=1024", "algo.steps=16", *SMALL, *THREE)
    podium.train(*words, out=tmp_path / "sound")
    code, out, err = whole.command(
        "train", *words, "env.kwargs.row=1", f"env.kwargs.what={what}", "-o", tmp_path / "ill"
    )
    assert (code, err) == (0, "") and "member 1 failed at step" in out
    rows = whole.members(tmp_path / "ill")
    assert [row["status"] for row in rows] == ["finished", "failed", "finished"]
    assert 39 * 8 < rows[1]["ended_step"] <= 39 * 8 + 16 * 8 + 8  # at the first update that saw it
    seen = "observation" if what == "obs" else "reward"
    assert rows[1]["reason"] == f"the {seen} of env 0 was nan (step 8 of the rollout)"  # the 40th, 16 a rollout
    told = f"member 1 failed at step {rows[1]['ended_step']:,}: {rows[1]['reason']}"
    assert (tmp_path / "ill/log.txt").read_text().count(told) == 1

    def others(run: Path) -> dict[str, Any]:
        state, _ = checkpoint.read(checkpoint.found(run)[0])
        return {k: v[[0, 2]] for k, v in whole.flatten(state["pods"]["0"]).items()}

    one, two = others(tmp_path / "sound"), others(tmp_path / "ill")
    assert one.keys() == two.keys()
    assert not [name for name in one if one[name].numpy().tobytes() != two[name].numpy().tobytes()]
    kept = [[s for s in whole.scores(tmp_path / run) if s[0] != "1"] for run in ("sound", "ill")]
    assert kept[0] == kept[1] and kept[0]
    files = [f"members/{member}.safetensors" for member in (0, 2)]
    sound, ill = ({k: whole.learnt(tmp_path / run)[k] for k in files} for run in ("sound", "ill"))
    assert sound == ill
    known = [whole.decided(tmp_path / run)["checkpoint/000000001024.safetensors"] for run in ("sound", "ill")]
    best, standing = ([info["orchestrator"][name] for info in known] for name in ("best", "population"))
    assert [best[0][row] == best[1][row] for row in (0, 2)] == [True, True]
    assert [standing[0]["rows"][0][row] == standing[1]["rows"][0][row] for row in (0, 2)] == [True, True]
    assert [row["failed"] for row in standing[1]["rows"][0]] == [False, True, False]


def test_when_all_fail_the_exit_code_is_one(tmp_path: Path) -> None:
    words = ("env=whole:Faulty", "env.kwargs.row=0", "stop.steps=8192", "algo.steps=16", *SMALL)
    code, _, err = whole.command("train", *words, "-o", tmp_path / "run")
    assert code == 1 and "all members failed at step" in err


def test_an_evaluation_is_interrupted_and_made_up_for(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real, calls = tmp_path / "run", Pod.evaluate, []

    def interrupt(self: Pod, *words: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(Pod, "evaluate", interrupt)
        assert podium.train(*PPO, *THREE, out=run).reason == "interrupted"
    podium.resume(run)
    same(done, run)


@pytest.mark.parametrize("source", ["native", "gymnasium"])
@pytest.mark.parametrize("every", [256, 10_000], ids=["as scheduled", "since the run is over"])
def test_the_last_evaluation_is_interrupted_and_made_up_for(
    every: int, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, run, real = (*PPO, *THREE, f"eval.every={every}", f"env.source={source}"), tmp_path / "run", Pod.evaluate
    podium.train(*words, out=tmp_path / "whole")

    def interrupt(self: Pod, *words: Any) -> Any:
        if int(self.steps[0]) == 2048:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(Pod, "evaluate", interrupt)
        podium.train(*words, out=run)
    assert "2048" not in {score[1] for score in whole.scores(run)}
    for _ in range(2):  # the second time there is nothing to make up for
        assert podium.resume(run).reason == "steps"
        same(tmp_path / "whole", run)


def test_an_interrupted_evaluation_is_owed_over_a_kill(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in an evaluation, resumed, and killed before that had been made up for."""
    run, real = tmp_path / "run", Pod.evaluate

    def interrupt(self: Pod, *words: Any) -> Any:
        if int(self.steps[0]) == 768:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, *words)

    def die(self: Pod, *_: Any) -> Any:
        raise RuntimeError(f"killed at {int(self.steps[0])}")

    with monkeypatch.context() as patch:
        patch.setattr(Pod, "evaluate", interrupt)
        assert podium.train(*PPO, *THREE, out=run).reason == "interrupted"
        patch.setattr(Pod, "evaluate", die)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="killed at 768"):
                podium.resume(run)
    podium.resume(run)
    same(done, run)


def test_stop_steps_must_lie_ahead(done: Path, tmp_path: Path) -> None:
    run = copy(done, tmp_path)
    before = whole.files(run)
    with pytest.raises(PodiumError, match=r"stop\.steps: 1024 .*2048"):
        podium.resume(run, "stop.steps=1024")
    assert whole.files(run) == before


def test_all_members_failing_in_the_last_rollout_is_a_failure(tmp_path: Path) -> None:
    words = ("env=whole:Faulty", "env.kwargs.row=0", "env.kwargs.what=reward", "algo.steps=64", "algo.batch=64", *SMALL)
    assert podium.train(*words, "stop.steps=512", out=tmp_path / "run").reason == "failed"
