"""The commands that a user types."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import get_args

import gymnasium as gym
import imageio.v2
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

import podium
import whole
from podium.agent import load
from podium.cli.reading import _statistics
from podium.core.errors import PodiumError
from podium.evolve.settings import EvolveSettings, Strategy
from podium.store.run import Run

WORDS = (
    "cartpole",
    "stop.fitness=null",
    "stop.steps=2048",
    "eval.every=1024",
    "eval.episodes=4",
    "algo.epochs=4",
    "train.members=3",
)
RANGE = ("algo.lr=[1e-4,1e-2]",)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    podium.train(*WORDS, *RANGE, out=path)
    return path


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "pendulum"
    wild = ("algo.log_std=3", "algo.lr=0")  # noise far beyond the torque of 2
    podium.train("Pendulum-v1", "algo.steps=64", *wild, "stop.steps=512", "eval.episodes=2", out=path)
    return path


def fresh(*words: str) -> tuple[str, float]:
    """Stdout of a process of its own, and the seconds it took."""
    started = time.monotonic()
    end = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60)
    assert end.returncode == 0, end.stderr
    return end.stdout, time.monotonic() - started


def test_a_path_whose_bytes_are_no_text(tmp_path: Path) -> None:
    path = os.path.join(tmp_path, os.fsdecode(b"keys \x80"))
    out, _ = fresh("-X", "utf8", "-m", "podium", "keys", path)
    assert "keys \\udc80: copy it to each machine" in out and os.path.exists(path)


def test_a_preset_without_numbers_for_an_algorithm_says_so(tmp_path: Path) -> None:
    few = ("stop.steps=8", "algo.batch=8", "algo.warmup=0", "eval.episodes=1", "eval.max_steps=9", "net.hidden=[8]")
    few += ("replay.capacity=1000", "stop.fitness=null")
    for i, (words, name) in enumerate({("cartpole", "sac-discrete"): "sac-discrete", ("cartpole", "dqn"): ""}.items()):
        code, out, err = whole.command("train", *words, *few, "env.num=1", "-o", tmp_path / str(i))
        assert (code, err) == (0, "") and "1 env each" in out
        assert (f"preset cartpole has no settings for {name}: defaults are used" in out) == bool(name)


def test_help_is_quick_and_needs_no_torch() -> None:
    code = """
import sys
from podium import cli
sys.argv = ["podium", "--help"]
try:
    cli.main()
except SystemExit:
    pass
assert not {"torch", "gymnasium", "numpy"} & set(sys.modules)
"""
    seconds = []
    for _ in range(3):
        out, took = fresh("-c", code)
        seconds.append(took)
        names = ("train", "resume", "eval", "top", "play", "keys", "serve", "presets", "bench")
        assert all(name in out for name in names)
    assert min(seconds) < 1.5  # 0.3 s by itself; the test machine may be busy


def test_module_and_version() -> None:
    assert fresh("-m", "podium", "--version")[0] == f"podium {podium.__version__}\n"


def test_top_and_presets_need_no_torch(run: Path) -> None:
    for words in (["top", str(run), "--json"], ["presets", "--json"]):
        code = f"import sys; from podium import cli; sys.argv = ['podium', *{words}]; cli.main()"
        code += "; assert 'torch' not in sys.modules"
        assert json.loads(fresh("-c", code)[0])


def test_train_says_how_it_went_and_what_to_do_next(tmp_path: Path) -> None:
    path = tmp_path / "my run"
    code, out, err = whole.command("train", *WORDS, *RANGE, "-o", path)
    assert (code, err) == (0, "")
    assert "ppo on CartPole-v1 (native) x 3 members" in out and "stop.steps reached" in out
    assert out.splitlines()[1] == "  ends at 2,048 steps" and "ends at 2,048 steps" in (path / "log.txt").read_text()
    for command in ("eval", "top", "play"):
        assert f"podium {command} '{path}'" in out  # quoted, for the blank in its name
    assert whole.command("train", *WORDS, "-o", path, "-D", "-q") == (0, "", "")
    assert len({row["genes"]["lr"] for row in whole.members(path)}) == 1


def test_a_run_without_a_name_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n in (1, 2):
        said = whole.command("train", *WORDS, "stop.steps=256", "-q")
        assert said == (0, f"runs/CartPole-v1-ppo-{n}\n", "")
        assert (tmp_path / f"runs/CartPole-v1-ppo-{n}/config.yaml").exists()


def test_the_help_of_evolve_names_all_strategies() -> None:
    out = whole.command("evolve", "-h")[1]
    assert all(name in out for name in get_args(Strategy)) and "tournament, the default, is asynchronous" in out
    assert EvolveSettings().strategy == "tournament"


def test_an_env_of_the_users_own_is_found_beside_him(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from podium.envs.native.cartpole import CartPole\nclass Mine(CartPole): ...\n")
    words = [sys.executable, "-c", "from podium.cli import main; main()", "train", "mine:Mine", "stop.steps=1024", "-q"]
    end = subprocess.run([*words, "-o", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert end.returncode == 0, end.stderr


def test_eval(run: Path) -> None:
    code, out, err = whole.command("eval", run, "--json", "--episodes", 20)
    row = json.loads(out)
    assert (code, err) == (0, "")
    assert row.keys() >= {"mean", "std", "iqm", "median", "min", "max", "episodes", "env", "member", "steps"}
    with Run.open(run) as opened:
        assert (row["member"], row["env"], row["episodes"]) == (opened.champion(), "CartPole-v1", 20)
        assert row["steps"] == opened.ledger.top(1)[0]["steps"]
    assert row["min"] <= row["iqm"] <= row["max"] and row["std"] > 0
    assert whole.command("eval", run, "--json", "--episodes", 20)[1] == out
    assert json.loads(whole.command("eval", run, "--json", "--episodes", 20, "--seed", 1)[1])["mean"] != row["mean"]
    assert json.loads(whole.command("eval", run, "--json", "--episodes", 20, "--member", 2)[1])["member"] == 2
    text = whole.command("eval", run, "--episodes", 20)[1]
    assert f"{row['mean']:.2f} ± {row['std']:.2f} over 20 episodes of at most 10,000 steps\n" in text
    assert "over 1 episode of" in whole.command("eval", run, "--episodes", 1)[1] and row["max_steps"] == 10_000


def test_eval_in_gymnasiums_own_env(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    step = CartPoleEnv.step
    monkeypatch.setattr(CartPoleEnv, "step", lambda self, action: steps.append(1) or step(self, action))
    whole.command("eval", run, "--episodes", 8)
    assert not steps  # the twin
    real = json.loads(whole.command("eval", run, "--episodes", 8, "--env", "CartPole-v1", "--json")[1])
    assert sum(steps) >= real["mean"] * 8 > 0
    assert json.loads(whole.command("eval", run, "--episodes", 8, "--env", "CartPole-v0", "--json")[1])["max"] <= 200


def test_statistics() -> None:
    assert _statistics([8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0])["iqm"] == (3 + 4 + 5 + 6) / 4
    assert _statistics([3.0]) == {"mean": 3, "std": 0, "iqm": 3, "median": 3, "min": 3, "max": 3}


def test_top(run: Path) -> None:
    before = whole.files(run)
    rows = json.loads(whole.command("top", run, "--json")[1])
    assert [row["rank"] for row in rows] == [1, 2, 3]
    names = {"rank", "id", "parent", "algo", "fitness", "steps", "seconds", "generation", "genes"}
    assert all(row.keys() >= names for row in rows)
    assert rows[0]["fitness"] >= rows[1]["fitness"] >= rows[2]["fitness"]
    assert [row["id"] for row in json.loads(whole.command("top", run, "--json", "-n", 1)[1])] == [rows[0]["id"]]
    text = whole.command("top", run)[1]
    assert "rank" in text and "fitness" in text
    assert whole.command("top", run, "--watch")[0] == 0  # the run is finished: nothing to wait for
    assert whole.files(run) == before


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_play(run: Path, suffix: str, tmp_path: Path) -> None:
    film = tmp_path / f"film.{suffix}"
    worst = json.loads(whole.command("top", run, "--json")[1])[-1]["id"]  # its episodes are short
    code, out, _ = whole.command("play", run, "-o", film, "--seed", 3, "--member", worst)
    assert code == 0
    frames = list(imageio.v2.get_reader(film).iter_data())
    assert frames[0].shape[-1] in (3, 4) and frames[0].shape[:2] == (400, 600)
    assert np.abs(frames[0].astype(int) - frames[-1].astype(int)).max() > 100  # it moves
    total = sum(1 for _ in load(run, worst).play(seed=3)) - 1
    assert len(frames) == total + 1 and f"{total + 1} frames, return {total:.2f}" in out


def test_play_without_imageio_names_the_extra(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    code, _, err = whole.command("play", run, "-o", tmp_path / "film.mp4")
    assert code == 2 and "podium-rl[render]" in err and not list(tmp_path.iterdir())


def test_presets() -> None:
    rows = {row["name"]: row for row in json.loads(whole.command("presets", "--json")[1])}
    assert rows["cartpole"]["group"] == "env" and rows["ppo"]["group"] == "algo"
    assert all(row["about"] for row in rows.values())
    assert "CartPole-v1" in whole.command("presets")[1]
    assert "env: {id: CartPole-v1" in whole.command("presets", "cartpole")[1]


def test_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def main(rounds: int, quick: bool) -> list[dict[str, object]]:
        seen.append((rounds, quick))
        return [{"name": "a", "ours": 2e6, "peer": 1e6, "ratio": 2.0, "low": 1.9, "high": 2.1, "unit": "steps/s"}]

    monkeypatch.setitem(sys.modules, "podium.bench.ppo", types.SimpleNamespace(main=main))
    monkeypatch.setattr("pkgutil.iter_modules", lambda _: [types.SimpleNamespace(name="ppo")])
    assert json.loads(whole.command("bench", "ppo", "--json", "--rounds", 7, "--quick")[1])[0]["ratio"] == 2
    assert "steps/s" in whole.command("bench", "ppo")[1]
    assert seen == [(7, True), (5, False)]


# ---- podium.load


def test_act_takes_one_observation_or_many(run: Path) -> None:
    agent = podium.load(run)
    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    many = agent.act(obs)
    assert many.shape == (9,) and set(many.tolist()) <= {0, 1}
    assert [agent.act(row) for row in obs] == many.tolist() and isinstance(agent.act(obs[0]), int)
    assert agent.act(torch.from_numpy(obs)).tolist() == many.tolist()
    assert agent.act(obs.astype(np.float64).tolist()).tolist() == many.tolist()
    assert agent.act(obs[:0]).shape == (0,)
    drawn = [agent.act(obs, explore=True) for _ in range(20)]
    assert drawn[0].shape == (9,) and len({tuple(d.tolist()) for d in drawn}) > 1


def test_act_is_what_the_member_would_do(run: Path) -> None:
    """The snapshot of each member, by hand: two hidden layers of tanh, then the logits."""
    obs = torch.randn(16, 4)
    for member in range(3):
        agent = podium.load(run, member)
        learnt, info = Run.open(run).read_snapshot(member)
        assert agent.step == info["step"]
        built = agent._algorithm.learnt()
        assert all(torch.equal(built["weights"][k], v) for k, v in learnt["weights"].items())
        assert all(torch.equal(built["genes"][k], v) for k, v in learnt["genes"].items())
        expected = agent._algorithm.act(obs[None], {}, explore=False)[0]["action"][0]
        assert agent.act(obs).tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(), (3,), (5,), (2, 3), (2, 2, 4)])
def test_act_refuses_another_shape(run: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(PodiumError, match=r"one observation \[4\] or a batch \[B, 4\]"):
        podium.load(run).act(np.zeros(shape, np.float32))


def test_act_clips_to_the_bounds_of_a_box(pendulum: Path) -> None:
    agent = podium.load(pendulum)
    drawn = agent.act(np.zeros((64, 3), np.float32), explore=True)
    assert drawn.shape == (64, 1) and drawn.dtype == np.float32
    assert drawn.min() == -2 and drawn.max() == 2
    assert agent.act(np.zeros(3)).shape == (1,)


class Shifted(gym.Env[int, int]):
    """Discrete observations and actions that do not begin at 0; action 6 is right where 11 is seen, else 5."""

    observation_space = gym.spaces.Discrete(2, start=10)
    action_space = gym.spaces.Discrete(2, start=5)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[int, dict[str, object]]:
        super().reset(seed=seed)
        self.now = 10 + int(self.np_random.integers(2))
        return self.now, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, object]]:
        assert action in (5, 6)
        return self.now, float(action - 5 == self.now - 10), True, False, {}


def test_act_counts_from_the_start_of_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "Shifted", Shifted, raising=False)
    words = ("env=whole:Shifted", "stop.steps=4096", "algo.lr=0.01", "algo.batch=128", "eval.episodes=16")
    podium.train(*words, out=tmp_path / "run")
    agent = podium.load(tmp_path / "run")
    assert [agent.act(10), agent.act(11)] == [5, 6] and agent.act(np.array([11, 10, 11])).tolist() == [6, 5, 6]
    assert agent.evaluate(8).tolist() == [1.0] * 8
    with pytest.raises(PodiumError, match="is not in Discrete"):
        agent.act(12)


def test_load_refuses_a_snapshot_of_another_shape(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    whole.configure(copy, {"net": {"hidden": [64, 32]}})
    with pytest.raises(PodiumError, match="wrong shape: tensor"):
        podium.load(copy)


def test_an_evolving_run_says_what_it_searches_and_a_resume_that_there_is_nothing_to_do(tmp_path: Path) -> None:
    run, searched = tmp_path / "run", "searches lr [1e-4, 0.01]"
    words = (
        "cartpole",
        "ppo",
        "wta",
        *RANGE,
        "evolve.members=2",
        "evolve.interval=64",
        "algo.steps=16",
        "algo.batch=32",
    )
    code, out, _ = whole.command("evolve", *words, "stop.fitness=1", "eval.episodes=2", "-o", run)
    paced = "evaluated every 128 steps (a rollout), not every 64"
    assert code == 0 and "Nothing was trained" not in out
    for said in (searched, paced):
        assert f"\n  {said}\n" in out and f"  {said}\n" in (run / "log.txt").read_text()
    code, out, _ = whole.command("resume", run)
    assert code == 0 and "Nothing was trained: stop.fitness=1.0 had been reached before, at step 128.\n" in out
    assert f"Go on with:  podium resume {run} stop.fitness=null  (or more than 1.0)\n" in out
    assert "Nothing" not in whole.command("resume", run, "-q")[1]
    code, out, _ = whole.command("resume", run, "stop.fitness=null", "stop.steps=256")
    assert code == 0 and "Nothing was trained" not in out and "stop.steps reached" in out


def test_a_run_that_starts_from_another_says_so(run: Path, tmp_path: Path) -> None:
    few = (*WORDS, "stop.steps=1024", "train.members=1")
    done = podium.train(*few, f"train.start={run}:2", out=tmp_path / "next")
    start = podium.lineage(done.path)["start"]
    assert start is not None and (start["run"], start["member"]) == (str(run), 2) and start["step"] > 0
    assert f"after member 2 of {run} at its step" in " ".join(whole.command("lineage", done.path)[1].split())
