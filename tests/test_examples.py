"""The examples run as they stand, and a stack in a user's own loop learns as it does in a pod."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import podium
import worlds
from algos.test_spaces import World
from podium import checks
from podium import experiment as experiments
from podium.compose import compose
from podium.core import tree
from podium.core.errors import ConfigError, PodiumError
from podium.core.parts import Row
from podium.core.streams import Streams
from podium.envs.base import VecEnv

EXAMPLES = Path(__file__).parents[1] / "examples"
FEW = ["train.threads=1", "stop.steps=1024", "eval.every=512", "eval.episodes=2"]
EVOLVING = ["stop.steps=4096", "evolve.interval=512", "evolve.burn_in=0"]  # no shorter than the longest rollout
SAYS = {
    "01_one_agent": "return of one episode",
    "02_own_environment": "mean return",
    "03_own_network": "4. member",
    "04_own_algorithm": "with lr",
    "05_own_loop": "member 1:",
    "06_a_population": "16. member",
    "07_evolution": "champion: member",
    "08_two_objectives": "the front:",
    "09_stable_baselines3": "a PPO of SB3",
    "10_own_replay_algorithm": "at heat",
    "11_own_simulator": "mean return",
}
TRACKED = {
    "12_weights_and_biases": """
        import json, pathlib, types
        said, dir = {"config": {}, "summary": {}, "log": []}, "elsewhere"
        config, summary = (types.SimpleNamespace(update=said[name].update) for name in ("config", "summary"))
        def init(project, name, dir, mode):
            assert mode == "offline" and pathlib.Path(dir).is_dir()
            return types.SimpleNamespace(log=log, config=config, summary=summary, finish=finish, dir="elsewhere")
        def log(numbers, step):
            said["log"].append([step, numbers])
        def finish():
            pathlib.Path("said.json").write_text(json.dumps(said, allow_nan=False))
    """,
    "13_mlflow": """
        import contextlib, json, pathlib
        said = {"params": {}, "log": []}
        def set_tracking_uri(uri):
            assert uri.startswith("sqlite:///runs/") and pathlib.Path("runs").is_dir()
        @contextlib.contextmanager
        def start_run(run_name):
            yield
            pathlib.Path("said.json").write_text(json.dumps(said, allow_nan=False))
        def log_metrics(numbers, step):
            said["log"].append([step, numbers])
        def log_params(params):
            assert not params.keys() & said["params"].keys()
            said["params"] |= params
    """,
}
"""Examples that need a package which the extra `dev` does not have, and what stands in for it."""


def run(name: str, folder: Path, *words: str, **environment: str) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *words]
    here = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested_and_short() -> None:
    numbered = list(EXAMPLES.glob("[01]*.py"))
    assert sorted([*SAYS, *TRACKED]) == sorted(p.stem for p in numbered)
    assert {p.stem for p in EXAMPLES.glob("*.py")} - {*SAYS, *TRACKED} == {"pbt_toy"}  # tests/evolve/test_toy.py
    long = {p.name: n for p in numbered if (n := len(p.read_text().splitlines())) > 44}
    assert not long


@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name: str, tmp_path: Path) -> None:
    evolves = "podium.evolve(" in (EXAMPLES / f"{name}.py").read_text()
    assert SAYS[name] in run(name, tmp_path, *FEW, *(EVOLVING if evolves else []))


@pytest.mark.parametrize("name", TRACKED)
def test_an_example_tells_a_tracker_all_it_should(name: str, tmp_path: Path) -> None:
    """Against a stand-in that has only the calls which the example makes, and records them.

    wandb and mlflow are tens of megabytes, with dozens of packages of their own, so CI does not install them. That the
    calls are theirs is not tested here: it was tried by hand with wandb 0.31 (offline) and mlflow-skinny 3.17 (SQLite).
    """
    package = "mlflow" if name.endswith("mlflow") else "wandb"
    stand_in = tmp_path / "packages"
    stand_in.mkdir()
    (stand_in / f"{package}.py").write_text(textwrap.dedent(TRACKED[name]))
    found = os.pathsep.join(filter(None, [str(stand_in), os.environ.get("PYTHONPATH")]))
    assert "champion: member" in run(name, tmp_path, *FEW, *EVOLVING[1:], PYTHONPATH=found)
    said = json.loads((tmp_path / "said.json").read_text())
    steps, reports = zip(*said["log"], strict=True)
    assert steps == tuple(sorted(steps)) and steps[-1] == 8 * 1024  # a tracker drops what goes back
    assert all(isinstance(value, int | float) for report in reports for value in report.values())
    assert {"run/best_fitness", "run/seconds"} | {f"fitness/{row}" for row in range(8)} <= reports[-1].keys()
    if package == "wandb":
        assert said["config"]["evolve"]["members"] == 8 and 1e-6 < said["summary"]["genes"]["lr"] < 0.1
    else:
        assert said["params"]["evolve.members"] == 8 and 1e-6 < said["params"]["champion.lr"] < 0.1


@pytest.mark.parametrize("name", sorted({*SAYS, *TRACKED} - {"05_own_loop"}))
def test_example_knows_that_it_may_be_stopped(name: str) -> None:
    """Before the first evaluation there is no fitness to print, and no champion to load."""
    assert 'if result.reason == "interrupted":' in (EXAMPLES / f"{name}.py").read_text()


def test_an_example_that_is_stopped_before_any_evaluation_ends_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "10_own_replay_algorithm.py"), "stop.steps=1e9", "eval.every=1000000000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        for _ in range(600):
            time.sleep(0.1)
            if any((tmp_path / "runs/own_replay_algorithm/checkpoint").glob("*")):
                break
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert err == "not at its end yet; go on with: podium resume runs/own_replay_algorithm\n"


@pytest.mark.slow
def test_own_replay_algorithm_learns(tmp_path: Path) -> None:
    best = run("10_own_replay_algorithm", tmp_path, "train.threads=1").splitlines()[0]
    assert float(best.split()[3]) > 200, best  # an untrained agent gets about 20


@pytest.mark.slow
def test_own_loop_learns(tmp_path: Path) -> None:
    means = [float(line.rpartition(" ")[2]) for line in run("05_own_loop", tmp_path, "train.threads=1").splitlines()]
    assert len(means) == 2 and min(means) > 100, means  # an untrained agent gets about 20


@pytest.mark.slow
def test_own_algorithm_learns(tmp_path: Path) -> None:
    best = run("04_own_algorithm", tmp_path, "train.threads=1").splitlines()[0]
    assert float(best.split()[3]) > 400, best


WORDS = ["ppo", "train.members=2", "env.num=3", "algo.steps=8", "algo.batch=24", "algo.epochs=2", "train.threads=1"]
WORDS += ["algo.anneal=[lr]", "stop.steps=200", "algo.lr={each: [1e-3, 1e-2]}"]


def drive(stack: podium.Stack, env: VecEnv, obs: np.ndarray, updates: int, flat: bool) -> np.ndarray:
    """A user's loop over a VecEnv, in numpy."""
    for _ in range(updates):
        while not stack.ready:
            action = stack.act(obs.reshape(-1, *obs.shape[2:]) if flat else obs)
            assert action.shape[:1] == ((6,) if flat else (2,))
            step = env.step(torch.as_tensor(action).reshape(2, 3, *action.shape[1 if flat else 2 :]))
            stack.store(*(x.numpy().copy() for x in (step.reward, step.terminated, step.truncated, step.last)))
            obs = step.obs.numpy().copy()
        stack.learn()
    return obs


@pytest.mark.parametrize(("id", "flat"), [("CartPole-v1", False), ("Pendulum-v1", True)])
def test_a_stack_in_an_own_loop_equals_a_pod(id: str, flat: bool) -> None:
    """Pendulum only truncates: its time limit falls into the 25th rollout."""
    updates = 4 if id == "CartPole-v1" else 27
    pod = experiments.build_pod(checks.validate(compose([id, *WORDS])))
    pod.train(updates)
    stack, env = podium.Stack(id, *WORDS), worlds.make(id, 2, 3)
    obs = env.reset(Streams(0, range(2))).numpy().copy()
    drive(stack, env, obs, updates, flat)
    theirs, ours = tree.flatten(pod.algorithm.learnt()), tree.flatten(stack.algorithm.learnt())
    assert stack.steps == int(pod.steps[0]) == updates * 24
    assert theirs.keys() == ours.keys() and all(torch.equal(theirs[k], ours[k]) for k in theirs)


def test_a_saved_stack_goes_on(tmp_path: Path) -> None:
    one, env = podium.Stack("CartPole-v1", *WORDS), worlds.make("CartPole-v1", 2, 3)
    obs = drive(one, env, env.reset(Streams(0, range(2))).numpy().copy(), 1, False)
    one.save(tmp_path / "stack.safetensors")
    two = podium.Stack("CartPole-v1", *WORDS)
    two.load(tmp_path / "stack.safetensors", goes_on=True)
    state = env.state()
    assert state is not None
    again = worlds.make("CartPole-v1", 2, 3)
    again.reset(Streams(0, range(2)))
    again.load(tree.clone(state))
    drive(one, env, obs, 1, False)
    drive(two, again, obs, 1, False)
    a, b = tree.flatten(one.algorithm.learnt()), tree.flatten(two.algorithm.learnt())
    assert one.steps == two.steps and all(torch.equal(a[k], b[k]) for k in a)


def test_a_stack_refuses_what_is_out_of_turn() -> None:
    stack, obs, no = podium.Stack("CartPole-v1", *WORDS), np.zeros((2, 3, 4)), np.zeros(6, bool)
    with pytest.raises(PodiumError, match=r"obs: shape \[3, 4\] is not allowed; \[2, 3, 4\] or \[6, 4\]"):
        stack.act(np.zeros((3, 4)))
    with pytest.raises(PodiumError, match="store: call act first"):
        stack.store(np.ones(6), no, no, obs)
    with pytest.raises(PodiumError, match="learn: 0 of 8 steps"):
        stack.learn()
    stack.act(obs, explore=False)
    with pytest.raises(PodiumError, match="store: call act first"):
        stack.store(np.ones(6), no, no, obs)


def test_a_stack_scales_and_clips_rewards() -> None:
    stack = podium.Stack("CartPole-v1", *WORDS, "env.reward_scale=0.5", "env.reward_clip=2")
    no = np.zeros(6, bool)
    stack.act(np.zeros((6, 4)))
    stack.store([1, -3, 100, -100, 0, 2], no, no, np.zeros((6, 4)))
    assert stack._rollout.data["reward"][:, 0].flatten().tolist() == [0.5, -1.5, 2, -2, 0, 1]


@pytest.mark.parametrize("word", ["env.sticky=0.25", "env.time_limit=50"])
def test_a_stack_refuses_what_only_an_env_can_do(word: str) -> None:
    with pytest.raises(ConfigError, match=f"{word.split('=')[0]}: .*your own loop steps the envs"):
        podium.Stack("CartPole-v1", *WORDS, word)


def test_a_stack_takes_the_envs_own_observations() -> None:
    words = ("env=algos.test_spaces:World", "env.kwargs.shown=nested", *WORDS)
    env = World(shown="nested")
    seen = [env.reset(seed=i)[0] for i in range(6)]
    no, space = np.zeros(6, bool), podium.Stack(*words).obs_space
    assert isinstance(space, Row)
    found = space.rows(seen)
    assert found is not None
    given = {"flat": seen, "nested": [seen[:3], seen[3:]], "rows": found[0], "by member": found[0].reshape(2, 3, -1)}
    actions, stored = {}, {}
    for name, obs in given.items():
        stack = podium.Stack(*words)
        actions[name] = stack.act(obs)
        stack.store(np.ones(6), no, no, obs)
        stored[name] = stack._rollout.data["last"][:, 0].reshape(6, -1)
        assert actions[name].shape == ((6,) if name in ("flat", "rows") else (2, 3))
        np.testing.assert_array_equal(actions[name].ravel(), actions["flat"])
        np.testing.assert_array_equal(stored[name], found[0])
    with pytest.raises(PodiumError, match=r"obs: shape \[4, .*is not allowed"):
        stack.act(seen[:4])
    with pytest.raises(PodiumError, match=r"obs: numbers of the shape .* or a list of 6 of Dict"):
        stack.act([{"a": 1}] * 6)


def test_your_own_loop_tells_how_steps_were_done() -> None:
    words = ("pong", "ppo", "env.num=3", "algo.steps=4", "algo.batch=12", "algo.epochs=1")
    tastes = [(0.0, None), (0.0, 1.0), (0.5, 1.0)]
    learnt = []
    for taste, style in tastes:
        stack, no = podium.Stack(*words, f"algo.style={taste}"), np.zeros(3, bool)
        for _ in range(4):
            stack.act(np.full((3, 10), 0.5))
            stack.store(np.zeros(3), no, no, np.full((3, 10), 0.5), None if style is None else np.array([1, -1, 1.0]))
        stack.learn()
        learnt.append(tree.flatten(stack.algorithm.learnt()["weights"]))
    same, other = ([torch.equal(learnt[0][k], found[k]) for k in learnt[0]] for found in learnt[1:])
    assert all(same) and not all(other)
    stack = podium.Stack(*words, "algo.style=0.5")
    stack.act(np.full((3, 10), 0.5))
    with pytest.raises(PodiumError, match=r"store: style is missing, and algo.style counts it \(\[0.5\]\)"):
        stack.store(np.zeros(3), no, no, np.full((3, 10), 0.5))
