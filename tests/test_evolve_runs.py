"""Whole runs that evolve: what they leave, and that killing, stopping, extending and replaying changes nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import podium
import whole
from killing import killed_and_resumed
from podium.roles.pod import Pod
from podium.store import checkpoint
from podium.store.ledger import Ledger
from podium.store.run import Run

NET = ("net.hidden=[16,16]", "env.num=4", "train.threads=1", "eval.episodes=4", "eval.max_steps=200")
PACE = ("evolve.members=4", "evolve.interval=256", "stop.steps=1536", "train.checkpoint=512", "stop.fitness=null")
SMALL = (*NET, *PACE)
PPO = ("CartPole-v1", "ppo", "algo.steps=16", "algo.batch=32", "algo.epochs=2", *SMALL)
ENTRANTS = "evolve.entrants=[{algo: {name: ppo, steps: 16, batch: 32, epochs: 2}}, {algo: {name: a2c, steps: 8}}]"
MIXED = ("CartPole-v1", *SMALL, ENTRANTS, "evolve.members=5")
NSGA2 = ("nsga2", "evolve.objectives=[return,-switching]")
STRATEGIES: dict[str, tuple[str, ...]] = {
    **{name: (*PPO, name) for name in ("tournament", "truncation", "wta", "tournament-selection", "t-test", "softmax")},
    "nsga2": (*PPO, *NSGA2),
    "mixed": (*MIXED, "tournament"),
    "mixed-generations": (*MIXED, "truncation", "evolve.fraction=0.5"),
    "seconds": (*PPO, "tournament", "evolve.seconds=0.1"),
}


def tables(run: Path) -> dict[str, list[dict[str, Any]]]:
    """The ledger's members, scores, leaderboard and events, but for what depends on the clock."""
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        found = {"members": ledger.members(), "scores": ledger.scores(), "board": ledger.top()}
        found["events"] = ledger.events()
    return {name: [{k: v for k, v in row.items() if k != "seconds"} for row in rows] for name, rows in found.items()}


def same(one: Path, other: Path, turns: bool = True) -> None:
    """Two runs hold the same files, the same bits and the same books, but perhaps for how `turns` are counted."""
    left, right = tables(one), tables(other)
    for name in left:
        rows = [[{k: v for k, v in r.items() if turns or "turn" not in k} for r in t[name]] for t in (left, right)]
        assert rows[0] == rows[1], name
    left, right = whole.learnt(one), whole.learnt(other)
    assert left.keys() == right.keys()
    for file in left:
        assert left[file].keys() == right[file].keys()
        assert not [name for name, bits in left[file].items() if right[file][name] != bits], file
    assert timeless(whole.decided(one)) == timeless(whole.decided(other))


def timeless(info: Any) -> Any:
    """Without the seconds of entries on the leaderboard, and of pods that wait for others (steps, seconds, rows)."""
    if isinstance(info, dict):
        told = {pod: [steps, rows] for pod, (steps, _, rows) in info.get("told", {}).items()}
        return {k: timeless(v) for k, v in info.items() if k not in ("seconds", "told")} | {"told": told}
    return [timeless(v) for v in info] if isinstance(info, list) else info


def consistent(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Ledger, snapshots, checkpoint and config of a finished run agree with each other; its tables."""
    with closing(sqlite3.connect(run / "ledger.sqlite")) as link:
        assert link.execute("PRAGMA foreign_key_check").fetchall() == []
        assert link.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    books, config = tables(run), yaml.safe_load((run / "config.yaml").read_text())
    members = {row["id"]: row for row in books["members"]}
    assert list(members) == list(range(len(members))), "ids are counters"
    scored = {(score["member"], score["step"]) for score in books["scores"]}
    for row in members.values():
        assert row["status"] != "training" and row["ended_step"] >= row["born_step"]
        if row["parent"] is not None:
            parent = members[row["parent"]]
            assert parent["id"] < row["id"] and parent["kind"] == row["kind"]
            assert (parent["id"], row["inherited"] - parent["inherited"] + parent["born_step"]) in scored
        _in_range(row, config)
    _snapshots(run, books, members)
    state, info = checkpoint.read(checkpoint.found(run)[0])
    finished = {(row["pod"], row["row"]): row for row in members.values() if row["status"] == "finished"}
    assert sum(len(pod["slot"]["ids"]) for pod in state["pods"].values()) == config["evolve"]["members"]
    for (pod, index), row in finished.items():
        assert int(state["pods"][str(pod)]["slot"]["ids"][index]) == row["id"]
        genes = {k: v[index].item() for k, v in state["pods"][str(pod)]["learnt"]["genes"].items()}
        assert plain(genes) == row["genes"]
    return books


def plain(genes: dict[str, float]) -> dict[str, float | None]:
    return {name: None if value == float("inf") else value for name, value in genes.items()}


def _in_range(row: dict[str, Any], config: dict[str, Any]) -> None:
    kinds = config["evolve"]["entrants"] or [config]
    ranges = next(kind["algo"] for kind in kinds if kind["algo"]["name"] == row["algo"])
    searched = [name for name in row["genes"] if isinstance(ranges.get(name), list)]
    assert "lr" in searched
    for name in searched:
        low, high = (torch.tensor(end).item() for end in ranges[name])
        assert low <= row["genes"][name] <= high, name


def _snapshots(run: Path, books: dict[str, Any], members: dict[int, dict[str, Any]]) -> None:
    files = {int(path.stem) for path in (run / "members").iterdir()}
    assert files == {row["id"] for row in books["board"]} and files
    with Run.open(run) as folder:
        for row in books["board"]:
            learnt, info = folder.read_snapshot(row["id"])
            assert (info["step"], info["fitness"]) == (row["steps"], row["fitness"])
            weights = learnt.get("weights", learnt.get("critic"))
            assert all(leaf.isfinite().all() for leaf in whole.flatten(weights).values())
            assert plain({k: v.item() for k, v in learnt["genes"].items()}) == members[row["id"]]["genes"]


def read(*words: object) -> Any:
    code, out, err = whole.command(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


# ---- what a run leaves


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A finished run of each strategy, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("done")

    def find(name: str) -> Path:
        if not (folder / name).exists():
            podium.evolve(*STRATEGIES[name], out=folder / name)
        return folder / name

    return find


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_of_each_strategy(name: str, runs: Callable[[str], Path]) -> None:
    run = runs(name)
    books = consistent(run)
    assert any(row["parent"] is not None for row in books["members"])
    top = read("top", run)
    assert [row["rank"] for row in top] == list(range(1, len(top) + 1))
    assert top[0].keys() >= {"id", "parent", "algo", "fitness", "steps", "seconds", "generation", "genes"}
    lineage = read("lineage", run)
    assert lineage["champion"]["id"] == top[0]["id"] == lineage["ancestors"][-1]["id"]
    steps = [entry["step"] for entry in lineage["schedule"]]
    assert steps[0] == 0 and steps == sorted(steps) and lineage["champion"]["steps"] >= steps[-1]
    for row in (top[0], top[-1]):
        found = read("eval", run, "--episodes", 4, "--member", row["id"])
        assert found["member"] == row["id"] and found["steps"] == row["steps"] and found["mean"] >= 1
    if name == "nsga2":
        front = read("front", run)
        assert {row["id"] for row in front} == {row["id"] for row in top if row["front"] == 0}
    if name.startswith("mixed"):
        assert {row["algo"] for row in top} == {row["kind"] for row in top} == {"ppo", "a2c"}
        assert {row["pod"] for row in books["members"] if row["algo"] == "a2c"} == {1}


def test_evolve_is_a_function_though_there_is_a_folder_of_that_name() -> None:
    import podium.evolve.lineage
    from podium import evolve

    assert podium.evolve is evolve and evolve.__module__ == "podium.training"


def test_the_command_says_how_it_went(tmp_path: Path) -> None:
    code, out, err = whole.command("evolve", *PPO, "truncation", "stop.steps=512", "-o", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "truncation of ppo on CartPole-v1 (native) x 4 members" in out and "stop.steps reached" in out
    consistent(tmp_path / "run")


def test_its_config_replays_it(runs: Callable[[str], Path], tmp_path: Path) -> None:
    for name in ("tournament", "mixed"):
        config = runs(name) / "config.yaml"
        assert whole.command("evolve", config, "-o", tmp_path / name, "-q") == (0, "", "")
        same(runs(name), tmp_path / name)
        assert config.read_bytes() == (tmp_path / name / "config.yaml").read_bytes()


def test_generations_end_a_run(tmp_path: Path) -> None:
    result = podium.evolve(*PPO, "truncation", "stop.steps=null", "stop.generations=2", out=tmp_path / "run")
    assert (result.reason, result.step) == ("generations", 512)
    result = podium.evolve(*PPO, "tournament", "stop.generations=2", out=tmp_path / "free")
    assert result.reason == "generations" and 256 < result.step <= 512 + 64


def test_a_champion_ends_a_run(tmp_path: Path) -> None:
    result = podium.evolve(*PPO, "tournament", "stop.fitness=9.5", "stop.steps=65536", out=tmp_path / "run")
    assert result.reason == "fitness" and result.top[0]["fitness"] >= 9.5 and result.step < 8192
    consistent(tmp_path / "run")


# ---- kill, stop, extend


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tournament", "truncation", "nsga2", "mixed"])
def test_killed_at_any_moment_it_goes_on_as_if_it_were_not(name: str, tmp_path: Path) -> None:
    """Also where members fail, as they do on a treacherous track."""
    env = () if name == "mixed" else ("env=simulated:Treacherous",)
    words = (*STRATEGIES[name][1:], *(env or ("CartPole-v1",)), "stop.steps=2048", "evolve.window=2")
    started = time.monotonic()
    podium.evolve(*words, out=tmp_path / "whole")
    length = time.monotonic() - started
    run = killed_and_resumed(tmp_path, name, length, "evolve", *words)
    consistent(run)
    same(tmp_path / "whole", run)


def interrupting(patch: pytest.MonkeyPatch, when: Callable[[Pod, int], bool]) -> None:
    """Ctrl-C as soon as an evaluation begins for which `when` (the pod, how many there were) says so; once."""
    real, calls, done = Pod.evaluate, [], []

    def evaluate(self: Pod, *words: Any) -> Any:
        calls.append(1)
        if not done and when(self, len(calls)):
            done.append(os.kill(os.getpid(), signal.SIGINT))
        return real(self, *words)

    patch.setattr(Pod, "evaluate", evaluate)


@pytest.mark.parametrize("name", ["tournament", "truncation", "nsga2", "mixed", "mixed-generations"])
def test_interrupted_in_mid_evaluation_it_goes_on_as_if_it_were_not(
    name: str, runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, reasons = tmp_path / "run", []
    for count in (2, 1, 2):  # the second time in what the resume makes up for
        with monkeypatch.context() as patch:
            interrupting(patch, lambda pod, calls, count=count: calls == count)
            go = podium.resume(run) if run.exists() else podium.evolve(*STRATEGIES[name], out=run)
            reasons.append(go.reason)
    podium.resume(run)
    assert reasons == ["interrupted"] * 3
    consistent(run)
    same(runs(name), run, turns=False)


@pytest.mark.parametrize("name", ["tournament", "truncation"])
def test_interrupted_in_its_last_evaluation(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*STRATEGIES[name], "stop.steps=640")  # in the midst of a generation
    podium.evolve(*words, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupting(patch, lambda pod, calls: int(pod.steps[0]) == 640)
        podium.evolve(*words, out=tmp_path / "run")
    for _ in range(2):  # the second time there is nothing to make up for
        assert podium.resume(tmp_path / "run").reason == "steps"
        consistent(tmp_path / "run")
        same(tmp_path / "whole", tmp_path / "run", turns=False)


@pytest.mark.parametrize("name", ["tournament", "truncation", "nsga2", "mixed"])
def test_resuming_a_finished_run_changes_nothing(name: str, runs: Callable[[str], Path]) -> None:
    run = runs(name)
    before = tables(run), whole.learnt(run)
    assert podium.resume(run).reason == "steps"
    assert (tables(run), whole.learnt(run)) == before


@pytest.mark.parametrize(
    ("name", "stop"),
    [*((name, 768) for name in ("tournament", "truncation", "nsga2", "mixed")), ("tournament", 1000), ("wta", 1000)],
)
def test_extended_it_equals_a_longer_run(name: str, stop: int, runs: Callable[[str], Path], tmp_path: Path) -> None:
    podium.evolve(*STRATEGIES[name], f"stop.steps={stop}", out=tmp_path / "run")
    consistent(tmp_path / "run")
    code, out, err = whole.command("resume", tmp_path / "run", "stop.steps=1536")
    assert (code, err) == (0, "") and "stop.steps reached" in out
    consistent(tmp_path / "run")
    same(runs(name), tmp_path / "run", turns=False)


def test_by_the_clock_it_says_that_resume_is_statistical(runs: Callable[[str], Path]) -> None:
    code, out, err = whole.command("resume", runs("seconds"), "stop.steps=2048")
    assert (code, err) == (0, "") and "evolve.seconds" in " ".join(out.split())
    consistent(runs("seconds"))


# ---- a schedule


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_a_lineage_is_replayed(form: str, runs: Callable[[str], Path], tmp_path: Path) -> None:
    """Its genes hold from the steps on at which they held; a replay that is stopped and resumed is the same."""
    run = runs("wta")
    members = {row["id"]: row for row in tables(run)["members"]}
    late = min((row for row in members.values() if row["generation"] == 2), key=lambda row: row["inherited"])
    code, out, err = whole.command("lineage", run, "--member", late["id"], form)
    (tmp_path / "schedule").write_text(out)
    schedule = {row["inherited"]: row["genes"] for row in line(members, late)}
    assert len(schedule) == 3
    words = ("CartPole-v1", "ppo", "algo.steps=16", "algo.batch=32", "algo.epochs=2", *NET, "stop.fitness=null")
    words = (*words, "eval.every=128", "train.checkpoint=128", f"stop.steps={late['inherited'] + 64}")
    command = ("train", *words, "--schedule", tmp_path / "schedule", "-q", "-o")
    seen: dict[int, dict[str, Any]] = {}
    learn = Pod.train

    def watched(self: Pod, *how: Any) -> Any:
        step, report = int(self.steps[0]), learn(self, *how)
        seen[step] = plain({name: float(values[0]) for name, values in self.algorithm.genes.items()})
        return report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pod, "train", watched)
        assert whole.command(*command, tmp_path / "replay") == (0, "", "")
    for step, genes in seen.items():
        assert genes == schedule[max(at for at in schedule if at <= step)], step
    assert sorted(seen) == list(range(0, late["inherited"] + 64, 64))
    assert tables(tmp_path / "replay")["members"][0]["genes"] == schedule[0], "as it began"

    with pytest.MonkeyPatch.context() as patch:
        interrupting(patch, lambda pod, calls: calls == 2)
        assert whole.command(*command, tmp_path / "stopped") == (0, "", "")
    podium.resume(tmp_path / "stopped")
    same(tmp_path / "replay", tmp_path / "stopped", turns=False)


def line(members: dict[int, dict[str, Any]], member: dict[str, Any]) -> list[dict[str, Any]]:
    """A member and all that it descends from."""
    parent = member["parent"]
    return [*(line(members, members[parent]) if parent is not None else []), member]


# ---- members that fail


@pytest.mark.parametrize("name", ["tournament", "truncation", "nsga2"])
def test_a_member_that_fails_is_replaced_and_the_run_goes_on(name: str, tmp_path: Path) -> None:
    """One row's env gives NaN from its 40th step on: whoever sits there fails, and everyone else learns."""
    words = (*STRATEGIES[name][1:], "env=whole:Faulty", "env.kwargs={row: 1, what: obs}", "stop.steps=1024")
    code, out, err = whole.command("evolve", *words, "-o", tmp_path / "run")
    assert (code, err) == (0, "") and "failed at step" in out
    books = consistent(tmp_path / "run")
    failed = [row for row in books["members"] if row["status"] == "failed"]
    assert len(failed) >= 2 and {row["row"] for row in failed} == {1}
    for row in failed:
        assert re.match(r"the observation of env \d+ was nan \(", row["reason"]) and row["ended_step"] > 39 * 4
        assert not [s for s in books["scores"] if s["member"] == row["id"] and s["step"] >= row["ended_step"]]
    heirs = [row for row in books["members"] if row["row"] == 1 and row["id"] > failed[0]["id"]]
    assert heirs and all(row["parent"] is not None for row in heirs)
    assert all(score["fitness"] is not None for score in books["scores"])


def test_a_learning_rate_that_explodes_is_selected_against(tmp_path: Path) -> None:
    """Where the rate is absurd a member fails; its row goes to a child of a sound one, and the run goes on."""
    words = ("probes:ContinuousTarget", "ppo", "algo.steps=16", "algo.batch=32", "algo.epochs=8", *SMALL, "truncation")
    rates = "algo.lr={each: [1e38, 1e-3, 1e38, 1e-3]}"
    podium.evolve(*words, rates, "evolve.genes=[entropy]", "stop.steps=1024", out=tmp_path / "run")
    books = tables(tmp_path / "run")
    assert {row["id"] for row in books["members"] if row["status"] == "failed"} >= {0, 2}
    born = books["members"][4:]
    assert born and all(row["genes"]["lr"] == pytest.approx(1e-3) for row in born)
    assert sum(row["status"] == "finished" for row in books["members"]) == 4
