"""Agents of other libraries as members of a run: Stable-Baselines3's, and a class of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import mpi
import podium
from podium import lookup
from podium.algos.base import AlgoSettings
from podium.core.errors import ConfigError
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.envs.settings import EnvSettings
from podium.evolve.turn import Refill, Task
from podium.roles.guests import GuestPod
from podium.store.ledger import Ledger


class Walker:
    """A guest that needs no library: its skill grows by its gene, and it may raise."""

    class Settings(AlgoSettings):
        name: Importable = "test_guests:Walker"
        speed: GeneValue = gene(0.1, 0.001, 10.0, search=(0.01, 1.0))

    def __init__(self, env: EnvSettings, settings: AlgoSettings, genes: Mapping[str, float], seed: int) -> None:
        self.genes, self.skill = dict(genes), torch.zeros(1)

    def train(self, steps: int) -> None:
        if self.genes["speed"] > 0.9:
            raise RuntimeError("too fast")
        self.skill += steps * self.genes["speed"]

    def evaluate(self, episodes: int) -> list[float]:
        return [float(self.skill)] * episodes

    def state(self) -> dict[str, Any]:
        return {"skill": self.skill}

    def load(self, state: dict[str, Any]) -> None:
        self.skill = state["skill"].clone()


def pod(*speeds: float) -> GuestPod:
    made = lambda member, genes: Walker(None, None, genes, member)  # type: ignore[arg-type]  # noqa: E731
    return GuestPod(made, range(len(speeds)), lambda i: {"speed": speeds[i]}, rollout=10, episodes=2)


def test_rows_train_by_themselves_and_a_guest_that_raises_fails_alone() -> None:
    made = pod(0.1, 0.95, 0.2)
    outcome = made.turn(Task(3, [0, 1, 2]), lambda: 0.0, lambda: False)
    assert outcome.failed == [False, True, False] and outcome.steps == 30
    assert outcome.evaluation is not None
    assert torch.allclose(outcome.evaluation.returns[:, 0], torch.tensor([3.0, torch.nan, 6.0]), equal_nan=True)
    assert "too fast" in outcome.notes[0]


def test_an_exchange_copies_rows_as_they_were() -> None:
    made = pod(0.1, 0.2, 0.3)
    made.turn(Task(1), lambda: 0.0, lambda: False)
    snapshot = made.read([2])
    made.exchange(
        [Refill(0, 7, 1, {"speed": 0.5}), Refill(1, 8, snapshot, {"speed": 0.6}), Refill(2, 9, None, {"speed": 0.7})]
    )
    assert [float(g.skill) for g in made.guests] == pytest.approx([2.0, 3.0, 0.0])
    assert [g.genes["speed"] for g in made.guests] == [0.5, 0.6, 0.7] and made.ids.tolist() == [7, 8, 9]
    saved = copy.deepcopy(made.state())
    made.turn(Task(1), lambda: 0.0, lambda: False)
    fresh = pod(0.1, 0.2, 0.3)
    fresh.load(saved)
    fresh.turn(Task(1), lambda: 0.0, lambda: False)
    assert [float(g.skill) for g in fresh.guests] == pytest.approx([float(g.skill) for g in made.guests])


def test_a_guest_that_is_replaced_is_closed_and_may_fail_at_that() -> None:
    made, closed = pod(0.1, 0.2), []

    def close() -> None:
        closed.append(1)
        raise RuntimeError("broken")

    made.guests[1].close = close  # type: ignore[attr-defined]
    made.exchange([Refill(1, 9, None, {"speed": 0.7})])
    assert closed == [1] and made.guests[1].genes["speed"] == 0.7


WALK = ("CartPole-v1", "algo=test_guests:Walker", "evolve.members=4", "evolve.interval=10", "algo.steps=1", "env.num=1")


@pytest.mark.parametrize("fleet", ["inline", "processes"])
@pytest.mark.parametrize("strategy", ["tournament", "truncation"])
def test_a_class_of_the_user_evolves(fleet: str, strategy: str, tmp_path: Path) -> None:
    words = (*WALK, strategy, f"fleet={fleet}", "fleet.pods=1", "stop.steps=100", "eval.episodes=2")
    result = podium.evolve(*words, out=tmp_path / "run")
    assert result.reason == "steps"
    with Ledger(result.path / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.exchanges() and all(m["reason"] for m in ledger.members() if m["status"] == "failed")
    assert podium.resume(tmp_path / "run", "stop.steps=150").step >= 150


SB3 = ("CartPole-v1", "algo=sb3-ppo", "evolve.members=2", "evolve.interval=128", "algo.steps=64", "env.num=2")
SB3 += ("truncation", "stop.steps=512", "eval.episodes=3")


@pytest.mark.slow
@pytest.mark.parametrize("fleet", ["inline", "processes", "ray"])
def test_stable_baselines3_evolves(fleet: str, tmp_path: Path) -> None:
    result = podium.evolve(*SB3, f"fleet={fleet}", "fleet.pods=1", out=tmp_path / "run")
    assert result.reason == "steps" and result.top[0]["algo"] == "sb3-ppo"
    with Ledger(result.path / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.exchanges()
    assert len(podium.load(result.path).evaluate(3)) == 3
    assert podium.resume(result.path, "stop.steps=640").step >= 640


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("cartpole", "sb3-dqn", "truncation"),
        ("pendulum", "sb3-sac", "tournament"),
        ("pendulum", "sb3-tqc", "truncation"),
        ("cartpole", "sb3-recurrent-ppo", "tournament", "algo.steps=32", "algo.epochs=1", "env.num=1"),
    ],
    ids=lambda words: words[1],
)
def test_any_agent_of_it_evolves_and_goes_on(words: tuple[str, ...], tmp_path: Path) -> None:
    plan = ("evolve.members=2", "evolve.interval=64", "stop.steps=192", "eval.episodes=2", "fleet.pods=1")
    own = () if "algo.epochs=1" in words else ("algo.warmup=32",)
    result = podium.evolve(*words, *plan, *own, "algo.batch=16", out=tmp_path / "run")
    assert result.reason == "steps" and result.top[0]["algo"] == words[1]
    with Ledger(result.path / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.exchanges() and not any(m["status"] == "failed" for m in ledger.members())
    assert podium.lineage(result.path)["schedule"]
    champion = podium.load(result.path)
    assert 0 < champion.guest.model.num_timesteps <= 192 and len(champion.evaluate(2)) == 2
    assert podium.resume(result.path, "stop.steps=256").step >= 256
    with Ledger(result.path / "ledger.sqlite", readonly=True) as ledger:
        assert not any(m["status"] == "failed" for m in ledger.members())


@pytest.mark.slow
def test_stable_baselines3_evolves_on_mpi(tmp_path: Path) -> None:
    """Two ranks with a member each: what is copied comes from the other rank."""
    pytest.importorskip("mpi4py")
    done = mpi.run(2, "-m", "podium", "evolve", *SB3, "fleet=mpi", "-o", str(tmp_path / "mpi"), "-q")
    assert done.returncode == 0, done.stderr
    with Ledger(tmp_path / "mpi" / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.exchanges() and {m["pod"] for m in ledger.members()} == {0, 1}
        assert not any(m["status"] == "failed" for m in ledger.members())


def test_an_unknown_guest_is_refused() -> None:
    with pytest.raises(Exception, match="sb3-ppo"):
        lookup.algorithm("sb3-pppo")


@pytest.mark.parametrize("word", ["env.frame_stack=2", "env.time_limit=20", "env.sticky=0.1", "env.source=workers"])
def test_what_sb3_would_not_heed_is_refused(word: str, tmp_path: Path) -> None:
    name = word.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"{name}: .* is not allowed; leave it out: sb3-ppo makes its envs itself"):
        podium.evolve(*SB3, word, out=tmp_path / "run")
