"""Pods whose node is lost and that have to wait for another, and pods that join: the books stay right.

The fleet is one in this process whose nodes die, and start again, when a test says so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import podium
from podium import entrants
from podium.compose import compose
from podium.core import tree
from podium.core.errors import PodiumError
from podium.fleet import engines, wire
from podium.fleet.group import Group
from podium.fleet.inline import Here
from podium.fleet.node import path_of
from podium.placing import PodNode
from podium.store import checkpoint
from podium.store.ledger import Ledger
from podium.topologies import afar

TINY = ("cartpole", "ppo", "evolve.members=4", "evolve.interval=128", "stop.fitness=null", "eval.episodes=4")
TINY = (*TINY, "fleet=processes", "fleet.pods=2", "stop.steps=2048", "algo.steps=32", "env.num=2")
TINY = (*TINY, "algo.epochs=1", "eval.max_steps=25")
NSGA2 = ("nsga2", "evolve.objectives=[return,-switching]")


class Fleet:
    """`dies(node, turn)` says at which of its turns a node dies, `full(turns)` whether there is room for a new one."""

    def __init__(self) -> None:
        self.turns = [0] * 9  # of each node
        self.heal()

    def heal(self) -> None:
        self.dies: Callable[[int, int], bool] = lambda node, turn: False
        self.asked: Callable[[int, str], bool] = lambda node, method: False  # whether it dies of that
        self.full: Callable[[list[int]], bool] = lambda turns: False
        self.lives = [0] * 9
        self.late: set[int] = set()  # nodes for which there is no room from the start
        self.spare: Callable[[list[int]], bool] = lambda turns: False  # whether there is room for one more

    def group(self, target: Any, size: int, *args: Any, each: Sequence[Any] = (), **_: Any) -> Group:
        fleet, path = self, path_of(target)

        class There(Here):
            def __init__(self, node: int, own: Sequence[Any]) -> None:
                super().__init__(node, path, [*args, *own], {})
                self._number, self._started = node, fleet.lives[node] == 0 and node not in fleet.late
                fleet.lives[node] += 1

            def up(self) -> There | None:
                self._started = self._started or not fleet.full(fleet.turns)
                return self if self._started else None

            def transmit(self, number: int, frames: list[wire.Frame], copy: bool) -> None:
                method = wire.unpack(frames)[0]
                if fleet.asked(self._number, method):
                    return self.lose("was killed")
                if method == "turn":
                    fleet.turns[self._number] += 1
                    if fleet.dies(self._number, fleet.turns[self._number]):
                        return self.lose("was killed")
                super().transmit(number, frames, copy)

        return Group(There, size, each)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()
    monkeypatch.setattr(engines, "engine", lambda name: made.group)
    monkeypatch.setattr(engines, "room", lambda *_: 1)
    monkeypatch.setattr(engines, "spare", lambda *_: made.spare(made.turns))
    monkeypatch.setattr(afar, "EVERY", 0.0)
    return made


def members(run: Path) -> list[dict[str, Any]]:
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        assert not ledger.training()
        return ledger.members()


@pytest.mark.parametrize("words", [("tournament",), ("truncation",), NSGA2], ids=lambda words: words[0])
def test_the_others_go_on_and_it_comes_back(words: Sequence[str], fleet: Fleet, tmp_path: Path) -> None:
    fleet.dies = lambda node, turn: node == 1 and turn == 5
    seen: list[tuple[int, int]] = []
    fleet.full = lambda turns: seen.append((turns[0], turns[1])) or turns[0] < 20  # type: ignore[func-returns-value]
    result = podium.evolve(*TINY, *words, out=tmp_path / "run")
    assert result.reason == "steps" and result.step >= 2048
    assert {turns for _, turns in seen} == {5} and fleet.lives[1] == 2  # it waited, and was launched once
    assert fleet.turns[0] > 25 and fleet.turns[1] > 10, "both went on"
    found = members(tmp_path / "run")
    failed = [m for m in found if m["status"] == "failed"]
    assert len(failed) == 2 and all(m["pod"] == 1 and "was killed" in m["reason"] for m in failed)
    finished = [(m["pod"], m["row"]) for m in found if m["status"] == "finished"]
    assert sorted(finished) == list(itertools.product([0, 1], [0, 1]))
    assert "pod 1 is back" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize("strategy", ["truncation", "nsga2"])
def test_all_pods_of_a_kind_are_away(strategy: str, fleet: Fleet, tmp_path: Path) -> None:
    fleet.dies = lambda node, turn: node == 1 and turn == 5
    fleet.full = lambda turns: turns[0] < 30
    words = [word for word in TINY if not word.startswith("algo.") and word != "ppo"]
    words += ["evolve.entrants=[{algo: {name: ppo, steps: 32, epochs: 1}}, {algo: {name: a2c, steps: 32}}]"]
    words += NSGA2 if strategy == "nsga2" else [strategy]
    result = podium.evolve(*words, out=tmp_path / "run")
    assert result.reason == "steps" and fleet.turns[0] > 30 and fleet.turns[1] > 5
    assert {m["algo"] for m in members(tmp_path / "run") if m["status"] == "finished"} == {"ppo", "a2c"}


def test_a_pod_that_is_lost_while_it_is_saved(fleet: Fleet, tmp_path: Path) -> None:
    deaths = iter([False, True])  # the first is that of the beginning
    fleet.asked = lambda node, method: node == 1 and method == "state" and next(deaths, False)
    result = podium.evolve(*TINY, "tournament", "train.checkpoint=512", out=tmp_path / "run")
    failed = [m for m in members(tmp_path / "run") if m["status"] == "failed"]
    assert result.reason == "steps" and fleet.lives[1] == 2 and len(failed) == 2


def decided(run: Path) -> list[Any]:
    """All members as they were decided on, without the time that it took."""
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return [ledger.members(), [(s["member"], s["step"], s["returns"]) for s in ledger.scores()]]


def kill(fleet: Fleet, method: str, times: int) -> None:
    """Pod 1 dies so many times of being asked for something."""
    deaths = iter([True] * times)
    fleet.asked = lambda node, asked: node == 1 and asked == method and next(deaths, False)


def test_a_pod_that_is_lost_before_its_first_turn_is_made_anew(fleet: Fleet, tmp_path: Path) -> None:
    """Nothing is lost with it: the run goes on as if it had not happened, whatever it was asked for."""
    words = (*TINY, "truncation", "stop.steps=256")
    podium.evolve(*words, out=tmp_path / "first")
    words = (*words, f"train.start={tmp_path / 'first'}")
    podium.evolve(*words, out=tmp_path / "whole")
    for method in ("about", "read", "begin", "state"):
        fleet.heal()
        kill(fleet, method, times=2)
        assert podium.evolve(*words, out=tmp_path / method).reason == "steps"
        assert fleet.lives[1] == 3 and decided(tmp_path / method) == decided(tmp_path / "whole")


def test_a_pod_that_is_lost_while_a_run_is_resumed(fleet: Fleet, tmp_path: Path) -> None:
    """What was saved is loaded into the node that takes its place."""
    podium.evolve(*TINY, "truncation", "stop.steps=256", out=tmp_path / "run")
    for method in ("", "about", "state", "read", "load"):
        shutil.copytree(tmp_path / "run", tmp_path / f"killed {method}")
        fleet.heal()
        kill(fleet, method, times=2)
        assert podium.resume(tmp_path / f"killed {method}", "stop.steps=512").reason == "steps"
        assert fleet.lives[1] == (3 if method else 1)
        assert decided(tmp_path / f"killed {method}") == decided(tmp_path / "killed ")


@pytest.mark.parametrize("method", ["about", "state"])
def test_a_pod_that_never_starts(method: str, fleet: Fleet, tmp_path: Path) -> None:
    fleet.asked = lambda node, asked: node == 1 and asked == method
    with pytest.raises(PodiumError, match=r"pod 1 was lost 3 times in a row \(node 1: was killed\)"):
        podium.evolve(*TINY, "tournament", out=tmp_path / "run")
    assert fleet.lives[1] == 3


@pytest.mark.parametrize("strategy", ["tournament", "truncation"])
def test_a_run_that_is_saved_meanwhile_can_be_resumed(strategy: str, fleet: Fleet, tmp_path: Path) -> None:
    fleet.dies = lambda node, turn: node == 1 and turn == 5
    fleet.full = lambda turns: True
    run = tmp_path / "run"
    podium.evolve(*TINY, strategy, "train.checkpoint=512", out=run)
    assert fleet.turns[1] == 5
    fleet.heal()
    result = podium.resume(run, "stop.steps=3072")
    assert result.reason == "steps" and result.step >= 3072 and fleet.turns[1] > 10
    away = [m for m in members(run) if m["reason"] == "its pod was away when the run was saved"]
    assert len(away) == 2 and all(m["pod"] == 1 and m["status"] == "failed" for m in away)


def test_when_all_are_away_for_too_long(fleet: Fleet, tmp_path: Path) -> None:
    fleet.dies = lambda node, turn: turn == 5
    fleet.full = lambda turns: True
    text = "all pods are lost, and none has come back for 0.5 s; podium resume goes on from the last checkpoint"
    with pytest.raises(PodiumError, match=text):
        podium.evolve(*TINY, "tournament", "fleet.timeout=0.5", out=tmp_path / "run")
    fleet.heal()
    assert podium.resume(tmp_path / "run").reason == "steps"


def test_ctrl_c_while_all_are_away(fleet: Fleet, tmp_path: Path) -> None:
    fleet.dies = lambda node, turn: turn == 5
    fleet.full = lambda turns: True
    ask = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    ask.start()
    assert podium.evolve(*TINY, "tournament", out=tmp_path / "run").reason == "interrupted"
    ask.join()
    fleet.heal()
    assert podium.resume(tmp_path / "run").reason == "steps"


def test_a_pod_that_is_lost_again_and_again(fleet: Fleet, tmp_path: Path) -> None:
    fleet.dies = lambda node, turn: node == 1 and turn >= 5
    with pytest.raises(PodiumError, match="pod 1 was lost 3 times in a row"):
        podium.evolve(*TINY, "tournament", out=tmp_path / "run")
    assert fleet.turns[1] == 7


def seats(run: Path) -> list[list[int]]:
    """Kind and rows of each pod, as the last checkpoint has them."""
    found: list[list[int]] = checkpoint.read(checkpoint.found(run)[0])[1]["seats"]
    return found


JOIN = (*(word for word in TINY if not word.startswith("fleet")), "fleet=ray")


@pytest.mark.parametrize("words", [("tournament",), ("truncation",), NSGA2], ids=lambda words: words[0])
def test_pods_join(words: Sequence[str], fleet: Fleet, tmp_path: Path) -> None:
    """One pod becomes two, then three; a resume has all of them, and gets a fourth."""
    run, reports = tmp_path / "run", list[dict[str, Any]]()
    fleet.spare = lambda turns: sum(lives > 0 for lives in fleet.lives) < 3 and sum(turns) >= 10 * (turns[1] > 0)
    result = podium.evolve(*JOIN, *words, out=run, on_report=reports.append)
    assert result.reason == "steps" and seats(run) == [[0, 1], [0, 2], [0, 1]]
    assert fleet.lives[:4] == [1, 1, 1, 0] and min(fleet.turns[:3]) > 5, "all go on, none was started again"
    found = members(run)
    assert not [m for m in found if m["status"] == "failed"]
    assert sorted((m["pod"], m["row"]) for m in found if m["status"] == "finished") == [(0, 0), (1, 0), (1, 1), (2, 0)]
    with Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        assert all(e["replaced"] is not None for e in ledger.exchanges()), "who sat there before is known"
    fleet.heal()
    fleet.spare = lambda turns: fleet.lives[3] == 0
    result = podium.resume(run, "stop.steps=3072")
    assert result.step >= 3072 and seats(run) == [[0, 1], [0, 1], [0, 1], [0, 1]]
    assert sorted(m["pod"] for m in members(run) if m["status"] == "finished") == [0, 1, 2, 3]


def test_a_resume_from_before_a_pod_joined(fleet: Fleet, tmp_path: Path) -> None:
    run = tmp_path / "run"
    podium.evolve(*JOIN, "tournament", "stop.steps=512", "train.checkpoint=512", out=run)
    assert seats(run) == [[0, 4]]
    before = checkpoint.found(run)[0]
    saved = before.read_bytes()
    fleet.heal()
    fleet.spare = lambda turns: fleet.lives[1] == 0
    podium.resume(run, "stop.steps=640")
    assert seats(run) == [[0, 2], [0, 2]] and {m["pod"] for m in members(run)} == {0, 1}
    fleet.heal()
    before.write_bytes(saved)
    podium.resume(run, "stop.steps=1024", step=512)
    assert seats(run) == [[0, 4]] and {m["pod"] for m in members(run)} == {0}


def test_a_pod_that_is_lost_after_it_joined(fleet: Fleet, tmp_path: Path) -> None:
    fleet.spare = lambda turns: fleet.lives[1] == 0
    fleet.dies = lambda node, turn: turn == 10
    result = podium.evolve(*JOIN, "tournament", out=tmp_path / "run")
    failed = [m for m in members(tmp_path / "run") if m["status"] == "failed"]
    assert result.reason == "steps" and sorted(m["pod"] for m in failed) == [0, 0, 1, 1]
    assert seats(tmp_path / "run") == [[0, 2], [0, 2]]


def test_halves_go_on_as_the_whole_would_have() -> None:
    experiment = entrants.validate(entrants.complete(compose([*JOIN, "tournament"])))
    config, seat = experiment.model_dump(mode="json"), {"kind": 0, "rows": 5, "first": 0}
    whole, first = (PodNode(config, 0, seat, "cpu") for _ in range(2))
    for pod in (whole, first):
        pod.turn({"updates": 3}, 0.0)
    second = PodNode(config, 1, {"kind": 0, "rows": 2, "first": 3}, "cpu")
    second.load(first.split(3))
    for pod in (whole, first, second):
        pod.turn({"updates": 3}, 0.0)
    halves = [tree.flatten(pod.state()) for pod in (first, second)]
    for name, leaf in tree.flatten(whole.state()).items():
        torch.testing.assert_close(torch.cat([half[name] for half in halves]), leaf, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("strategy", ["tournament", "truncation"])
def test_a_resume_with_less_room(strategy: str, fleet: Fleet, tmp_path: Path) -> None:
    """The pod that has to wait loses nothing, even if the run is saved, stopped and resumed once more meanwhile."""
    run = tmp_path / "run"
    podium.evolve(*TINY, strategy, "train.checkpoint=512", out=run)
    before, turns = learnt(run), fleet.turns[1]
    for stop in ("stop.steps=2560", "stop.steps=3072"):
        fleet.heal()
        fleet.late, fleet.full = {1}, lambda turns: True
        assert podium.resume(run, stop).reason == "steps"
        assert fleet.turns[1] == turns and all(torch.equal(before[name], leaf) for name, leaf in learnt(run).items())
    fleet.heal()
    fleet.late, fleet.full = {1}, lambda turns, start=fleet.turns[0]: turns[0] < start + 10
    assert podium.resume(run, "stop.steps=4096").reason == "steps" and fleet.turns[1] > turns
    assert not [m for m in members(run) if m["status"] == "failed"]


def learnt(run: Path) -> dict[str, torch.Tensor]:
    """What the second pod has learnt, as the last checkpoint has it."""
    return tree.flatten(checkpoint.read(checkpoint.found(run)[0])[0]["pods"]["1"]["learnt"])
