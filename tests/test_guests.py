"""Agents of other libraries as members: Stable-Baselines3's PPO, and a class of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mpi
import podium
from podium import lookup
from podium.algos.base import AlgoSettings
from podium.core import tree
from podium.core.errors import ConfigError
from podium.core.hyper import GeneValue, gene
from podium.core.imports import Importable
from podium.envs.settings import EnvSettings
from podium.evolve.turn import Refill, Task
from podium.guests.sb3 import SB3PPO, SB3PPOSettings
from podium.roles.guests import GuestPod
from podium.store.ledger import Ledger

GENES = {"lr": 1e-3, "discount": 0.98, "lam": 0.9, "clip": 0.2, "entropy": 0.01, "critic": 0.5, "max_norm": 0.5}
PLAN = SB3PPOSettings(steps=32, batch=32, epochs=2)


def agent(seed: int = 0, normalise: bool = False, **genes: float) -> SB3PPO:
    env = EnvSettings(id="CartPole-v1", num=2, normalise_obs=normalise, normalise_reward=normalise)
    return SB3PPO(env, PLAN, GENES | genes, seed)


def weights(made: SB3PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in made.model.policy.parameters()])


def test_it_trains_as_it_does_by_itself() -> None:
    import gymnasium as gym
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    alone = PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2),
        **{"learning_rate": 1e-3, "gamma": 0.98, "gae_lambda": 0.9, "clip_range": 0.2, "ent_coef": 0.01},
        **{"n_steps": 32, "batch_size": 32, "n_epochs": 2, "seed": 3, "device": "cpu"},
    )
    alone.learn(256)
    ours = agent(3)
    ours.train(128)
    ours.train(128)
    assert torch.equal(weights(ours), torch.cat([p.detach().flatten() for p in alone.policy.parameters()]))


@pytest.mark.parametrize("normalise", [False, True])
def test_all_that_was_learnt_travels(normalise: bool) -> None:
    one, other = agent(1, normalise), agent(2, normalise)
    untrained = tree.flatten(one.state())
    one.train(128)
    state = copy.deepcopy(one.state())
    assert {k: v.shape for k, v in tree.flatten(state).items()} == {k: v.shape for k, v in untrained.items()}
    other.load(state)
    found, wanted = tree.flatten(other.state()), tree.flatten(state)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    if normalise:
        assert np.array_equal(other._envs.obs_rms.mean, one._envs.obs_rms.mean) and one._envs.obs_rms.count > 100
    # The optimiser's moments count: with the same data the next steps are the same.
    data = [torch.randn(p.shape) for p in one.model.policy.parameters()]
    for made in (one, other):
        for p, g in zip(made.model.policy.parameters(), data, strict=True):
            p.grad = g.clone()
        made.model.policy.optimizer.param_groups[0]["lr"] = 0.01
        made.model.policy.optimizer.step()
    assert torch.equal(weights(one), weights(other))


@pytest.mark.parametrize("name", list(GENES))
def test_a_perturbed_gene_changes_the_next_update(name: str) -> None:
    """From equal weights and equal dice: only the gene differs, and it is set after the agent was made."""
    other = {"discount": 0.6, "lam": 0.3, "clip": 1e-4, "max_norm": 0.01}.get(name, GENES[name] * 3)
    found = []
    for value in (GENES[name], other):
        made = agent(5)
        made.train(64)
        made.genes = GENES | {name: value}
        made.train(64)
        found.append(weights(made))
    assert not torch.equal(*found)


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
