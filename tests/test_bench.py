"""The benchmarks: the harness on programs of known speed, and that each benchmark gives its rows."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import podium
from podium.bench import _agents, _apart, _evolve_curves, _mpi_peer
from podium.bench import _side_by_side as side_by_side
from podium.bench._side_by_side import Side, compare, effort, interval, race, row
from podium.core.errors import MissingExtra
from podium.evolve.turn import Outcome, Task
from podium.store import schema

KEYS = {"name", "ours", "peer", "ratio", "low", "high", "unit", "threads", "rounds", "cold"}


class Clock:
    """Time that passes only when a fake program works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.log = 0.0, list[tuple[str, int, int]]()
        monkeypatch.setattr(side_by_side.time, "perf_counter", lambda: self.now)

    def side(self, name: str, rate: float, threads: int = 1, build: float = 0.0) -> Side:
        """A program of `rate` units a second, a unit a piece."""

        def make() -> side_by_side.Work:
            self.now += build
            torch.set_num_threads(3)  # as a program that chooses for itself

            def work(pieces: int) -> float:
                self.log.append((name, pieces, torch.get_num_threads()))
                self.now += pieces / rate
                return float(pieces)

            return work

        return Side(name, make, threads)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


# ---- the harness


def test_known_speeds_give_their_ratio(clock: Clock) -> None:
    found = compare("x", "steps/s", clock.side("a", 300, build=2.0), [clock.side("b", 100)], 5, 1.0, key="k")
    assert found.keys() >= KEYS
    assert [found[k] for k in ("ours", "peer", "ratio", "low", "high")] == pytest.approx([300, 100, 3, 3, 3])
    assert found["cold"] == pytest.approx(2 + 1 / 300)  # construction and the first piece, in no rate
    assert (found["rounds"], found["threads"], found["key"], found["unit"]) == (5, 1, "k", "steps/s")
    json.dumps(found, allow_nan=False)


def test_the_order_is_reversed_every_round_and_each_side_works_long_enough(clock: Clock) -> None:
    race([clock.side("a", 1000), clock.side("b", 10), clock.side("c", 0.1)], 4, 1.0)
    names = "".join(name for name, _, _ in clock.log[-12:])
    assert names == "abc" + "cba" + "abc" + "cba"
    pieces = {name: n for name, n, _ in clock.log[-3:]}
    assert pieces == {"a": pytest.approx(1000, abs=1), "b": pytest.approx(10, abs=1), "c": 1}


def test_each_side_works_with_its_threads(clock: Clock) -> None:
    race([clock.side("a", 10, threads=1), clock.side("b", 10, threads=2)], 3, 0.5)
    assert {(name, threads) for name, _, threads in clock.log} == {("a", 1), ("b", 2)}


def test_unequal_threads_are_refused(clock: Clock) -> None:
    with pytest.raises(ValueError, match="2 threads against 1"):
        compare("x", "u", clock.side("a", 1, threads=2), [clock.side("b", 1, threads=1)], 5, 0.1)


def test_the_peers_best_is_reported_and_does_not_replace_the_peer(clock: Clock) -> None:
    peers = [clock.side("b", 10, threads=2), clock.side("b", 20, threads=1)]
    found = compare("x", "u", clock.side("a", 100, threads=2), peers, 5, 0.5)
    assert (found["peer"], found["ratio"]) == pytest.approx((10, 10))
    assert (found["peer_best"], found["peer_best_threads"], found["ratio_best"]) == pytest.approx((20, 1, 5))


def test_a_slow_spell_that_meets_both_sides_leaves_the_ratio_alone() -> None:
    slow = [1.0, 0.3, 1.0, 0.5, 0.9]
    found = row("x", "u", [300 * s for s in slow], [100 * s for s in slow])
    assert [found[k] for k in ("ratio", "low", "high")] == pytest.approx([3, 3, 3])
    assert found["ours"] == pytest.approx(270)


def test_the_interval_holds_the_median_is_repeatable_and_narrows() -> None:
    few, many = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0] * 20
    low, high = interval(few)
    assert 1 <= low < 3 < high <= 5
    assert interval(few) == (low, high)
    a, b = interval(many)
    assert b - a < high - low
    assert interval([2.0]) == (2.0, 2.0)


def test_a_full_run_has_at_least_five_rounds() -> None:
    assert effort(1, quick=False)[0] == 5 and effort(9, quick=False)[0] == 9
    assert effort(1, quick=True)[0] == 1
    assert effort(5, quick=False)[1] >= 1


# ---- both sides are the same agent


@pytest.mark.parametrize("plan", [_agents.RL_ZOO, _agents.DEFAULTS], ids=lambda plan: plan.name)
def test_both_sides_have_the_same_settings(plan: _agents.Plan) -> None:
    model, ours = _agents.sb3_model(plan), _agents.experiment(plan)
    algo: Any = ours.algo
    assert (model.n_envs, model.n_steps, model.batch_size, model.n_epochs) == (
        ours.env.num, algo.steps, algo.batch, algo.epochs)  # fmt: skip
    theirs = [model.gamma, model.gae_lambda, model.ent_coef, model.vf_coef, model.max_grad_norm]
    assert theirs == [algo.discount, algo.lam, algo.entropy, algo.critic, algo.max_norm]
    for progress in (1.0, 0.25):
        share = progress if algo.anneal else 1.0
        assert model.lr_schedule(progress) == pytest.approx(algo.lr * share)
        assert model.clip_range(progress) == pytest.approx(algo.clip * share)
    widths = [tuple(p.shape) for p in model.policy.mlp_extractor.parameters() if p.ndim == 2]
    assert widths == [(64, 4), (64, 64)] * 2 and ours.net.hidden == (64, 64)
    assert type(model.policy.mlp_extractor.policy_net[1]).__name__.lower() == ours.net.activation


def test_the_default_plan_is_what_sb3_defaults_to() -> None:
    from stable_baselines3 import PPO

    plan, model = _agents.DEFAULTS, PPO("MlpPolicy", "CartPole-v1", device="cpu")
    assert (model.n_envs, model.n_steps, model.batch_size, model.n_epochs, model.gamma, model.gae_lambda) == (
        plan.envs, plan.steps, plan.batch, plan.epochs, plan.discount, plan.lam)  # fmt: skip
    assert model.learning_rate == plan.lr


def test_the_same_envs_are_those_of_sb3_but_for_its_monitor() -> None:
    import worlds

    def wrappers(env: Any) -> list[str]:
        names = [type(env).__name__]
        return names + (wrappers(env.env) if hasattr(env, "env") else [])

    theirs = wrappers(_agents.sb3_model(_agents.RL_ZOO).env.envs[0])
    ours = [wrappers(env) for env in worlds.make(_agents.SAME_ENVS, 1, 2)._objects._objects]
    assert theirs[0] == "Monitor" and ours == [theirs[1:]] * 2


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from podium.bench import env, ppo

    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.setitem(sys.modules, "envpool", None)
    for bench, extra in ((ppo, "sb3"), (env, "envpool")):
        with pytest.raises(MissingExtra, match=rf"podium-rl\[{extra}\]"):
            bench.main(1, True)


def test_without_mpi_the_benchmark_of_evolution_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from podium.bench import evolve

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(MissingExtra, match=r"podium-rl\[mpi\]"):
        evolve.main(1, True)


# ---- agents under MPI


def test_a_copy_of_an_sb3_agent_has_its_parents_weights_optimiser_and_genes() -> None:
    plan = _agents.smaller(_agents.DEFAULTS)
    parent, child = _mpi_peer.Agent(plan, 1, 0), _mpi_peer.Agent(plan, 1, 1)
    parent.learn()
    child.copy(pickle.loads(pickle.dumps(parent.read())))
    theirs, mine = parent.model.get_parameters(), child.model.get_parameters()
    assert all(torch.equal(theirs["policy"][name], mine["policy"][name]) for name in theirs["policy"])
    moments = [p["policy.optimizer"]["state"][0]["exp_avg"] for p in (theirs, mine)]
    assert moments[0].abs().max() > 0 and torch.equal(*moments)
    factors = child.lr / parent.lr, (1 - child.discount) / (1 - parent.discount)
    bounds = child.lr in _mpi_peer.LR, child.discount in _mpi_peer.DISCOUNT
    assert all(
        at_bound or any(math.isclose(f, g) for g in (0.8, 1.25)) for f, at_bound in zip(factors, bounds, strict=True)
    )


def test_genes_reach_the_optimiser_and_the_returns_of_an_sb3_agent() -> None:
    agent = _mpi_peer.Agent(_agents.smaller(_agents.DEFAULTS), 1, 0)
    agent.set_genes(2e-4, 0.5)
    agent.learn()
    assert agent.model.policy.optimizer.param_groups[0]["lr"] == 2e-4
    buffer = agent.model.rollout_buffer
    delta = buffer.rewards[-2] + 0.5 * buffer.values[-1] * (1 - buffer.episode_starts[-1]) - buffer.values[-2]
    ahead = 0.5 * agent.model.gae_lambda * (1 - buffer.episode_starts[-1]) * buffer.advantages[-1]
    torch.testing.assert_close(torch.as_tensor(buffer.advantages[-2]), torch.as_tensor(delta + ahead))


def test_the_peer_decides_by_truncation() -> None:
    scores = np.array([5.0, 1.0, 9.0, 3.0, 8.0, 2.0, 7.0, 4.0])
    for seed in range(20):
        parents = _mpi_peer.truncation(scores, np.random.default_rng(seed))
        moved = np.flatnonzero(parents != np.arange(8))
        assert set(moved) == {1, 5} and set(parents[moved]) <= {2, 4}
    assert _mpi_peer.truncation(np.array([1.0, 2.0]), np.random.default_rng(0)).tolist() == [1, 1]


@pytest.mark.slow
def test_no_rank_outlives_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _agents.smaller(_agents.DEFAULTS)
    with pytest.raises(ZeroDivisionError), _mpi_peer.Job(plan, 2, 1) as job:
        assert len(job.generation()["scores"]) == 2
        job._say("go\n")
        1 / 0  # noqa: B018
    assert job._process.poll() is not None
    monkeypatch.setattr(_mpi_peer, "START", 0.1)
    with pytest.raises(RuntimeError, match="nothing for 0 seconds"):
        _mpi_peer.Job(plan, 2, 1)
    monkeypatch.setattr(_mpi_peer, "START", 60)
    with pytest.raises(RuntimeError, match=r"has ended:[^$]*TypeError"):
        _mpi_peer.Job(plan, 2, None)  # type: ignore[arg-type]
    assert not ranks_of(os.getpid())


def ranks_of(master: int) -> list[bytes]:
    """Command lines of ranks that still run; none where there is no /proc."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            lines.append(file.read_bytes())
    return [line for line in lines if f'"master": {master}}}'.encode() in line]


# ---- courses of a run


def score(member: int, step: int, seconds: float, *returns: float) -> dict[str, Any]:
    return {"member": member, "step": step, "seconds": seconds, "returns": list(returns)}


def test_a_course_is_the_best_of_the_scores_so_far() -> None:
    scores = [score(0, 10, 1.0, 4, 6), score(1, 20, 2.0, 9, 9), score(1, 20, 3.0, 5, 5), score(0, 40, 4.0, 1, 1)]
    found = _evolve_curves.course(scores, 50, 5.0, 0.9)
    assert (found.steps, found.seconds, found.fitness) == ([10, 20, 40], [1, 3, 4], [5, 7, 7])  # 9 was not confirmed
    assert found.at("seconds", np.array([0.0, 1.0, 2.9, 3.0, 9.0])).tolist() == [0, 5, 5, 7, 7]
    assert found.mean("steps", 50) == pytest.approx((10 * 0 + 10 * 5 + 30 * 7) / 50)
    assert found.mean("seconds", 2) == pytest.approx(2.5)


class Still:
    """A pod that does nothing."""

    def turn(self, task: Task, seconds: Callable[[], float], stop: Callable[[], bool]) -> Outcome:
        return Outcome(task, 0, seconds())


def test_a_turn_takes_as_long_as_its_updates_and_evaluation_is_free() -> None:
    pods: Any = [Still(), Still()]
    clock, times = _evolve_curves.Paced(pods, 3, 5), np.random.default_rng(3).lognormal(0.0, 1.0, 2)
    clock.start(0, Task(2))
    clock.start(1, Task(3))
    assert list(clock.free()) == []
    ends = sorted([(2 * times[0], 0), (3 * times[1], 1)])
    for at, pod in ends:
        done = clock.next()
        assert done is not None and (clock.now, done[0], done[1].seconds) == (at, pod, at)
    clock.start(0, Task(1))  # there is no work left
    assert clock.next() is None and list(clock.free()) == [0, 1]
    clock.start(0, Task(0, [0]))
    assert clock.next() is not None and clock.now == ends[-1][0]
    assert clock.busy == pytest.approx(2 * times[0] + 3 * times[1])


# ---- the benchmarks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("env", 5),
        ("mujoco", 4),
        ("ppo", 2),
        pytest.param(
            "atari", 2, marks=pytest.mark.skipif(importlib.util.find_spec("cv2") is None, reason="needs OpenCV")
        ),
        ("stack", 3),
        ("evolve", 9),
        ("rpc", 5),
    ],
)
def test_a_benchmark_gives_its_rows(name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the pictures
    rows = importlib.import_module(f"podium.bench.{name}").main(rounds=2, quick=True)
    assert len(rows) == count and len({r["key"] for r in rows}) == count
    for r in rows:
        assert r.keys() >= KEYS
        numbers = [v for v in r.values() if isinstance(v, int | float)]
        assert all(math.isfinite(v) for v in numbers)
        assert min(r["ours"], r["peer"], r["ratio"]) > 0
        assert r["low"] <= r["ratio"] <= r["high"]
    json.dumps(rows, allow_nan=False)


@pytest.mark.slow
def test_two_processes_against_one() -> None:
    from podium.bench import fleet

    found = fleet.scaling(2, quick=True)
    assert found.keys() >= KEYS | {"key", "busy", "driver"} and found["low"] <= found["ratio"] <= found["high"]
    assert min(found["ours"], found["peer"]) > 0 and 0 < found["busy"] <= 1 and 0 < found["driver"] < 1
    json.dumps(found, allow_nan=False)


@pytest.mark.slow
def test_exchanges_on_mpi_against_each_other() -> None:
    from podium.bench import fleet

    rows = fleet.exchanges(1, quick=True)
    assert [found["key"] for found in rows] == ["fleet/mpi-p2p", "fleet/mpi-collective"]
    for found in rows:
        assert found.keys() >= KEYS and min(found["ours"], found["peer"], found["ratio"]) > 0


def test_an_mpi_job_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from podium.bench import fleet

    with pytest.raises(RuntimeError, match=r"(?s)ended with exit code 2.*no such run"):
        fleet.under_mpi(1, "top", "nowhere")
    monkeypatch.setattr(fleet, "LONGEST", 0.2)
    with pytest.raises(fleet.subprocess.TimeoutExpired):
        fleet.under_mpi(1, "bench", "env", "--quick")


@pytest.mark.slow
def test_the_equal_learning_check_scores_both_sides() -> None:
    from podium.bench import ppo

    steps = 2 * _agents.RL_ZOO.rollout
    for act in (ppo._podium(_agents.SAME_ENVS, 0, steps), ppo._sb3(0, steps)):
        assert 5 < ppo.score(act, episodes=4) <= 500


def remote(body: str) -> Side:
    """A peer in another process whose work, given `n` pieces, is the expression `body`."""
    return _apart.apart("peer", f"builtins:eval({f'lambda: lambda n: {body}'!r})", 1)


def test_a_peer_apart_has_nothing_of_ours_and_may_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")
    given = "open('/proc/self/environ').read().count('GOMP_SPINCOUNT')" if Path("/proc").exists() else "0"
    work = remote(f"print('some words') or n + {given}").build()
    assert [work(2), work(3)] == [2, 3]
    process = work._process  # type: ignore[attr-defined]
    assert process.poll() is None
    del work
    assert process.poll() == 0


def test_a_peer_apart_that_fails_or_hangs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)peer in a process of its own has ended.*ZeroDivisionError"):
        remote("1 / 0").build()(1)
    work = remote("__import__('time').sleep(60)").build()
    monkeypatch.setattr(_apart, "LONGEST", 0.2)
    monkeypatch.setattr(_apart, "PATIENCE", 0.1)
    with pytest.raises(RuntimeError, match="peer: nothing for 0 seconds"):
        work(1)
    assert work._process.poll() is not None  # type: ignore[attr-defined]
    monkeypatch.undo()
    work = remote("n").build()
    work._process.kill()  # type: ignore[attr-defined]
    work._process.wait()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="has ended"):
        work(1)


def test_sb3_by_itself_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_agents.machine, "cores", lambda: 2)
    found = _agents.unshared({"ours": 1000.0}, _agents.smaller(_agents.DEFAULTS), 0.01, times=1)
    assert found["peer_alone"] > 0 and found["ratio_alone"] == 1000 / found["peer_alone"]


# ---- bench/floors.py


@pytest.fixture
def floors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    file = Path(__file__).parents[1] / "bench/floors.py"
    spec = importlib.util.spec_from_file_location("floors", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "floors", module)  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    for name in ("KEPT", "RESULTS"):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).name)
    return module


def fake(floors: ModuleType, monkeypatch: pytest.MonkeyPatch, results: dict[str, Any]) -> list[str]:
    """Floors `a` and `b` that share a part; a result may be an error. The keys of what was measured."""
    calls: list[str] = []

    def part(key: str) -> Any:
        def measure() -> Any:
            calls.append(key)
            if isinstance(results[key], Exception):
                raise results[key]
            return {"x": results[key]}

        return floors.Part(key, measure)

    def judge(found: list[Any]) -> Any:
        return floors.Verdict(str([r["x"] for r in found]), min(r["x"] for r in found) >= 1, False)

    both = [
        floors.Floor(n, f"the {n}", "1", "2", "command", [part(k) for k in keys], judge)
        for n, keys in (("a", "pq"), ("b", "q"))
    ]
    monkeypatch.setattr(floors, "FLOORS", both)
    return calls


def start(floors: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["floors.py", *words])
    code: int = floors.main()
    return code


def test_floors_measure_once_and_again_when_asked_or_when_sources_change(
    floors: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake(floors, monkeypatch, {"p": 3, "q": 2})
    assert start(floors, monkeypatch) == 0 and calls == ["p", "q"]
    assert start(floors, monkeypatch) == 0 and calls == ["p", "q"]
    assert start(floors, monkeypatch, "--fresh") == 0 and calls == ["p", "q"] * 2
    monkeypatch.setattr(floors, "sources", lambda: "others")
    monkeypatch.setattr(floors, "commit", lambda: "newer")
    assert start(floors, monkeypatch, "--only", "b") == 0 and calls == ["p", "q"] * 2 + ["q"]
    text = floors.RESULTS.read_text()
    a, b = (line for line in text.splitlines() if line.startswith(("| the a", "| the b")))
    assert a.startswith("| the a | 1 | 2 | [3, 2] | yes |") and a.count(", at ") == 2  # p of the sources before
    assert b.startswith("| the b | 1 | 2 | [2] | yes |") and b.endswith(", at newer | `command` |")


def test_floors_keep_the_rows_of_what_was_measured_elsewhere(
    floors: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(floors, monkeypatch, {"p": 3, "q": 2})
    assert start(floors, monkeypatch) == 0
    before = floors.RESULTS.read_text()
    floors.KEPT.unlink()
    monkeypatch.setattr(floors, "machine", lambda: "another")
    assert start(floors, monkeypatch, "--only", "b") == 0
    after = floors.RESULTS.read_text()
    lines = [line for line in before.splitlines() if line.startswith(("| the a", "- **a**", "Machine: "))]
    assert len(lines) == 3 and set(lines) <= set(after.splitlines()) and "Machine: another." in after


def test_floors_that_do_not_hold_or_fail_give_exit_code_1(floors: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"p": 3, "q": RuntimeError("it broke")}
    calls = fake(floors, monkeypatch, results)
    assert start(floors, monkeypatch) == 1
    assert "it broke" in floors.RESULTS.read_text() and "| failed | **no** |" in floors.RESULTS.read_text()
    results["q"] = 0
    assert start(floors, monkeypatch) == 1 and calls == ["p", "q", "q", "q"]  # p was kept
    assert "| [3, 0] | **no** |" in floors.RESULTS.read_text()


def test_floors_judge_the_ends_of_a_front(floors: ModuleType) -> None:
    def judged(*members: tuple[float, float, float]) -> Any:
        names = ("fitness", "stop", "moved", "lazy", "busy")
        front = {str(i): dict(zip(names, (f, s, m, f + s, f + m), strict=True)) for i, (f, s, m) in enumerate(members)}
        return floors.behaves([{"front": front}], 0.5, 0.8)[1:3]

    lazy, busy = (0.6, 0.7, 0.3), (0.9, 0.1, 0.9)
    assert judged(lazy, busy) == (True, False) and judged((0.85, 0.65, 0.3), busy) == (True, True)
    assert judged((0.6, 0.5, 0.4), busy) == judged(lazy, (0.9, 0.2, 0.7)) == (False, False)
    assert judged(lazy, busy, (0.45, 0.95, 0.05)) == (False, False)  # the laziest hardly plays


def test_floors_judge(floors: ModuleType) -> None:
    seeds = [{"seed": s, "seconds": 6.0, "mean": 480.0, "steps": 10, "total_steps": 20} for s in range(10)]
    assert floors.in_time(seeds, 475, 15, 7, 9)[1:3] == (True, True)
    slow = [r | {"seconds": 16.0} if r["seed"] < 2 else r for r in seeds]
    assert floors.in_time(slow, 475, 15, 7, 9).holds is False
    poor = [r | {"mean": 400.0} if r["seed"] < 2 else r for r in seeds]
    assert floors.in_time(poor, 475, 15, 7, 9).holds is False
    late = [r | {"steps": 201} if r["seed"] < 2 else r for r in seeds[:5]]
    assert floors.within_steps(seeds[:5], 475, 200, 4).holds and not floors.within_steps(late, 475, 200, 4).holds
    made = {
        "name": "n",
        "ours": 9.0,
        "peer": 3.0,
        "unit": "u",
        "threads": 1,
        "rounds": 5,
        "cold": 0.0,
        "peer_cold": 0.0,
    }
    made |= {"ratio": 3.0, "low": 2.0, "high": 4.0, "peer_best": 6.0, "peer_best_threads": 2, "ratio_best": 1.5}
    by_itself = {"peer_alone": 9.0, "peer_alone_threads": 2, "ratio_alone": 1.0}
    assert floors.ratio([{"rows": {"k": made}}], "k", 1.4, 3)[1:3] == (True, False)
    assert not floors.ratio([{"rows": {"k": made}}], "k", 2, 3).holds  # not against the peer at its best
    assert not floors.ratio([{"rows": {"k": made | by_itself}}], "k", 1.4, 3).holds  # nor by itself
    learnt = {"learn_steps": 1, "ours_scores": [100.0, 90.0, 80.0], "peer_scores": [500.0, 400.0, 450.0]}
    assert not floors.ratio([{"rows": {"k": made | learnt}}], "k", 1.4, 3).holds  # faster, but it learns less


# ---- bench/fleet.py


@pytest.fixture
def hurt(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("hurt", Path(__file__).parents[1] / "bench/fleet.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_has_recovered_when_a_whole_second_is_as_fast_as_before(hurt: ModuleType) -> None:
    """1000 steps a second; from second 20 to 23 half of that, as one of two pods is gone."""
    seen, steps = [], 0.0
    for tick in range(400):
        seen.append((tick / 10, steps))
        steps += 50 if 200 <= tick < 230 else 100
    assert hurt.trained(seen, 10.05) == pytest.approx(10_050)
    assert hurt.pace_before(seen, 20.0) == pytest.approx(1000)
    assert hurt.recovered(seen, 20.0, 35.0) == pytest.approx(3.8, abs=0.06)  # the first second with 900 steps
    assert hurt.recovered(seen, 20.0, 22.0) == math.inf


def test_books_that_are_not_exact_are_found(hurt: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hurt, "MEMBERS", 4)
    words = ("cartpole", "ppo", "evolve.members=4", "evolve.interval=256", "stop.fitness=null", "eval.episodes=2")
    podium.evolve(*words, "stop.steps=1024", "train.threads=1", out=tmp_path / "run")
    found = hurt.books(tmp_path / "run")
    assert found["wrong"] == [] and found["finished"] == 4 and found["scores"] >= 4 and found["lost_members"] == 0
    for change, said in {
        "UPDATE members SET status = 'training' WHERE id = 0": "member 0 still trains",
        "UPDATE members SET status = 'failed', reason = NULL WHERE id = 0": "member 0 failed without a reason",
        "DELETE FROM members WHERE id = 0": "a score of member 0 at step",
        "UPDATE members SET ended_step = NULL WHERE id = 0": "member 0 still trains",
        "UPDATE scores SET step = 999999 WHERE member = 1": "a score of member 1 at step 999999",
        "UPDATE members SET parent = 77 WHERE id = 1": "member 1 has no parent 77",
    }.items():
        shutil.copytree(tmp_path / "run", tmp_path / "bent", dirs_exist_ok=True)
        with closing(schema.writer(tmp_path / "bent" / "ledger.sqlite")) as ledger:
            ledger.execute("PRAGMA foreign_keys = OFF")
            ledger.execute(change)
        wrong = hurt.books(tmp_path / "bent")["wrong"]
        assert any(text.startswith(said) for text in wrong), (change, wrong)
        shutil.rmtree(tmp_path / "bent")


def test_processes_ports_and_shared_memory_are_seen_until_they_are_gone(hurt: ModuleType) -> None:
    name = f"/dev/shm/podium-test-{os.getpid()}"
    code = "import mmap, socket, subprocess, sys; s = socket.create_server(('127.0.0.1', 0))\n"
    code += f"f = open({name!r}, 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)\n"
    code += "p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); sys.stdin.read(); p.kill(); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdin is not None
        sleeping = int(child.stdout.readline())
        assert {child.pid, sleeping} <= set(hurt.below(os.getpid())) and hurt.says(sleeping) == "sleep 60"
        ports, shared = hurt.listening([child.pid]), hurt.shared_memory([child.pid])
        assert len(ports) == 1 and shared == {name}
        child.stdin.close()
        child.wait()
        assert hurt.stat(sleeping) is None and not ports & hurt.open_sockets()
    Path(name).unlink()


def test_floors_of_the_fleet_judge(floors: ModuleType) -> None:
    good = {"reason": "seconds", "kills": 11, "lost": 11, "champion": 500.0, "members": 104, "finished": 16}
    good |= {"failed": 88, "lost_members": 88, "scores": 200, "wrong": [], "left": 0}
    assert floors.survived([good, good]).holds
    for bad in (
        {"champion": 474.0},
        {"wrong": ["x"]},
        {"left": 1},
        {"kills": 3},
        {"lost_members": 80},
        {"finished": 8},
    ):
        assert not floors.survived([good, good | bad]).holds, bad
    times = [{"seconds": [2.0, 2.5, 2.9]}]
    assert floors.soon(times, ["seconds"], 8, 3)[1:3] == (True, True)
    assert floors.soon([{"seconds": [2.0, 2.0, 7.0]}], ["seconds"], 8, 3)[1:3] == (True, False)
    never = json.loads(json.dumps({"seconds": [2.0, math.inf], "late": ["raylet"]}))
    assert not floors.soon([never], ["seconds"], 8, 3).holds and "raylet" in floors.soon([never], ["seconds"], 8, 3)[3]
    held = {key: [5, 5] for key in (*floors.HELD, "sockets", "memory")} | {"cycles": 100}
    assert floors.flat([held, held]).holds and floors.flat([held | {"memory": [5, 9]}, held]).holds
    for key in floors.HELD:
        assert not floors.flat([held | {key: [5, 6]}, held]).holds, key
    on_ray = held | {"cycles": 10}
    assert floors.flat([held, on_ray | {"threads": [5, 7], "sockets": [5, 20]}]).holds  # Ray's own come and go
    assert not floors.flat([held, on_ray | {"threads": [5, 15]}]).holds
    assert not floors.flat([held, on_ray | {"files": [5, 6]}]).holds
    run = {"champion": 500.0, "seconds": 20.0}
    assert floors.learnt([run, run]).holds and not floors.learnt([run, run | {"champion": 470.0}]).holds
    frames = {"frames": 100_000, "before": 200.0, "after": 205.0, "seconds": 60.0}
    assert floors.unmoved([frames], 100, 10)[1:3] == (True, True)
    assert not floors.unmoved([frames | {"after": 301.0}], 100, 10).holds
