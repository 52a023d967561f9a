"""stop.seconds and eval.seconds hold, whatever the env does; so does a signal while a stack is being built."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

import podium
import whole
from podium.algos.base import AlgoSettings
from podium.core.imports import Importable
from podium.envs.native.cartpole import CartPole
from podium.evolve.turn import Task
from podium.roles.clock import Clock
from podium.roles.guests import GuestPod

SMALL = ("ppo", "algo.steps=16", "env.num=2", "algo.batch=32", "algo.epochs=1", "eval.episodes=4", "stop.steps=null")
ENDLESS = ("env=test_time_limits:Endless", *SMALL)


class Endless(gym.Env[Any, Any]):
    """Its episodes never end; each step takes a millisecond, and costs 1."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(0.001)
        return np.zeros(2, np.float32), -1.0, False, False, {}


def ended(run: Path) -> float:
    """Seconds of the last score in the ledger."""
    with whole.Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return float(ledger.scores()[-1]["seconds"])


def test_endless_episodes_do_not_hold_a_run_up(tmp_path: Path) -> None:
    """All evaluations are cut; the first one counts, so that there is a member to use."""
    started = time.monotonic()
    words = (*ENDLESS, "stop.seconds=1.5", "eval.every=256")
    result = podium.train(*words, out=tmp_path / "run")
    assert time.monotonic() - started < 1.5 + 1.0 + 6, "with time to build, on a busy machine"
    assert result.reason == "seconds" and ended(tmp_path / "run") < 1.5 + 1.0 + 0.5
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("evaluation was cut by stop.seconds=1.5: 0 of 4 episodes had ended; the others count as they") == 1
    limit = "Endless has no time limit: its episodes may never end. An evaluation cuts them after eval.max_steps=10,000"
    assert limit in log
    assert podium.load(tmp_path / "run").step > 0


def test_an_evaluation_that_the_end_cuts_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    """Of rewards that are costs a part is better than all, and must not become the best."""
    words = (*ENDLESS, "eval.max_steps=40", "eval.every=64", "stop.seconds=2")
    podium.train(*words, out=tmp_path / "run")
    assert {score["fitness"] for score in _scores(tmp_path / "run")} == {-40.0}


def _scores(run: Path) -> list[dict[str, Any]]:
    with whole.Ledger(run / "ledger.sqlite", readonly=True) as ledger:
        return list(ledger.scores())


def test_eval_seconds_cuts_every_evaluation(tmp_path: Path) -> None:
    words = (*ENDLESS, "eval.seconds=0.1", "eval.every=64", "stop.steps=128")
    podium.train(*words, out=tmp_path / "run")
    assert len(_scores(tmp_path / "run")) == 2
    assert all(-200 < score["fitness"] < 0 for score in _scores(tmp_path / "run"))
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("evaluation was cut by eval.seconds=0.1") == 1, "once for a run"


@pytest.mark.parametrize("strategy", ["truncation", "tournament"])
def test_members_that_evolve_end_in_time(strategy: str, tmp_path: Path) -> None:
    words = (*ENDLESS, strategy, "evolve.members=2", "evolve.interval=64", "stop.seconds=1.5")
    result = podium.evolve(*words, out=tmp_path / "run")
    assert result.reason == "seconds" and ended(tmp_path / "run") < 1.5 + 2 * 1.0 + 1
    assert result.top, "and there is a champion"


@pytest.mark.slow
def test_so_do_the_pods_of_a_fleet(tmp_path: Path) -> None:
    words = (*ENDLESS, "evolve.members=2", "evolve.interval=64", "stop.seconds=1.5", "fleet=processes", "fleet.pods=2")
    result = podium.evolve(*words, out=tmp_path / "run")
    assert result.reason == "seconds" and ended(tmp_path / "run") < 1.5 + 2 * 1.0 + 1


def test_an_env_with_a_limit_is_not_warned_about(tmp_path: Path) -> None:
    podium.train(*ENDLESS, "env.time_limit=20", "stop.steps=32", out=tmp_path / "run")
    assert "no time limit" not in (tmp_path / "run" / "log.txt").read_text()


class Slowpoke:
    """A guest whose every episode takes 0.2 seconds."""

    class Settings(AlgoSettings):
        name: Importable = "test_time_limits:Slowpoke"

    genes: ClassVar[dict[str, float]] = {}

    def train(self, steps: int) -> None: ...

    def evaluate(self, episodes: int) -> list[float]:
        time.sleep(0.2 * episodes)
        return [1.0] * episodes

    def state(self) -> dict[str, Any]:
        return {}


def test_guests_that_come_too_late_are_evaluated_shortly_or_not_at_all() -> None:
    made = GuestPod(lambda i, genes: Slowpoke(), range(3), lambda i: {}, rollout=1, episodes=3, clock=Clock(0.3, None))  # type: ignore[arg-type, return-value]
    outcome = made.turn(Task(0, range(3)), lambda: 0.0, lambda: False)
    assert outcome.evaluation is not None and not outcome.late
    assert (~outcome.evaluation.lengths.isnan()).sum(1).tolist() == [3, 1, 1]
    made._clock = Clock(None, 0.1)
    outcome = made.turn(Task(0, range(3)), lambda: 0.1, lambda: False)
    assert outcome.late and outcome.evaluation is None and not outcome.cut_short


# ---- signals


class Slow(CartPole):
    """Takes for ever to build, unless it is alone; leaves a file once it has begun."""

    def __init__(self, members: int, envs: int, device: Any = "cpu", mark: str = "") -> None:
        if envs > 1:
            Path(mark).touch()
            for _ in range(600):
                time.sleep(0.1)
        super().__init__(members, envs, device)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_that_is_being_built_at_once(number: signal.Signals, tmp_path: Path) -> None:
    mark, run = tmp_path / "mark", tmp_path / "run"
    words = ("env=test_time_limits:Slow", f"env.kwargs.mark={mark}", *SMALL)
    child = whole.process(tmp_path / "out.txt", "train", *words, "-o", run)
    ends = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    os.kill(child.pid or 0, number)
    child.join(10)
    said = (tmp_path / "out.txt").read_text()
    assert child.exitcode == 128 + number, said
    assert said.splitlines() == ["podium: stopped before training had begun; nothing was saved"]
    assert not run.exists()


def test_ctrl_c_ends_an_evaluation_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    podium.train(*ENDLESS, "stop.steps=32", "env.time_limit=20", out=tmp_path / "run")

    def interrupted(self: Any, action: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("test_time_limits.Endless.step", interrupted)
    code, out, err = whole.command("eval", tmp_path / "run")
    assert (code, out, err) == (130, "", "podium: the evaluation was stopped before its end\n")
