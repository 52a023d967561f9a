"""Envs in worker processes: the same as in this one, and one that breaks costs itself."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import podium
import whole
from podium.core import machine
from podium.core.errors import ConfigError, EnvFailed, PodiumError
from podium.core.streams import Streams
from podium.envs.workers import Limits, Workers
from podium.roles.evaluator import Evaluator
from worlds import make

HERE = Path(__file__).parent
PARENT = f"{HERE / 'broken_envs.py'}:Parent"
SICK, GO = f"{HERE / 'broken_envs.py'}:Sick", torch.zeros(1, 4, dtype=torch.int64)
Build = Callable[..., Workers]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Four envs, one of which breaks, in two processes."""
    made = []

    def sick(how: str, workers: int = 2, timeout: float = 30, max_failures: int = 5, **kwargs: Any) -> Workers:
        named = {"how": how, "folder": str(tmp_path), **kwargs}
        env = Workers(SICK, 1, 4, kwargs=named, limits=Limits(workers, timeout, max_failures))
        made.append(env)
        return env

    yield sick
    for env in made:
        env.close()


def processes(env: Workers) -> list[int]:
    return [worker._process.pid for worker in env._workers if worker is not None]


def gone(*pids: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while any(map(running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(running, pids))


def running(pid: int) -> bool:
    """A zombie that nobody has asked for yet runs no more."""
    stat = Path(f"/proc/{pid}/stat")
    return machine.alive(pid) and stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def everything(env: Any, actions: Tensor) -> list[list[Tensor]]:
    seen = [[env.reset(Streams(3, [5, 9])).clone()]]
    for action in actions:
        step = env.step(action)
        done = step.terminated | step.truncated
        totals = [step.episode.reward * done, step.episode.length * done, step.episode.objectives]
        seen.append([x.clone() for x in (*step[:5], *totals)])
    return seen


@pytest.mark.parametrize(
    ("id", "kwargs"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {}),
        ("FrozenLake-v1", {"is_slippery": True}),
    ],
)
def test_it_is_bitwise_what_this_process_would_do(id: str, kwargs: dict[str, Any]) -> None:
    there = make(id, 2, 3, "workers", kwargs=kwargs, workers=2)
    here = make(id, 2, 3, "gymnasium", kwargs=kwargs)
    assert (there.obs_space, there.action_space) == (here.obs_space, here.action_space)
    g, space = torch.Generator().manual_seed(0), here.action_space
    if isinstance(space, spaces.Discrete):
        actions = torch.randint(int(space.n), (250, 2, 3), generator=g)
    else:
        actions = torch.randn(250, 2, 3, *space.shape, generator=g) * 3
        actions[7, 1, 1] = torch.nan
    for mine, theirs in zip(everything(there, actions), everything(here, actions), strict=True):
        assert all(map(torch.equal, mine, theirs))
    there.close()


def test_measures_become_objectives(build: Build) -> None:
    env = make(SICK, 1, 4, "workers", measures=["cost"], workers=2)
    env.reset(Streams(0, [0]))
    assert env.objectives == ("cost",) and (env.step(GO).episode.objectives == 1).all()
    env.close()
    other = make(SICK, 1, 4, "workers", measures=["price"], workers=2)
    other.reset(Streams(0, [0]))
    with pytest.raises(PodiumError, match=r"env.measures: 'price'.*cost"):
        other.step(GO)
    other.close()


def test_an_error_whose_text_is_not_unicode_costs_one_env(build: Build) -> None:
    env = build("bad text")
    env.reset(Streams(0, [0]))
    for _ in range(3):
        env.step(GO)
    assert env.dropped == 1 and "no file \\udc80" in "\n".join(env.notes())


@pytest.mark.parametrize("how", ["raise", "obs", "reward"])
def test_what_raises_or_is_no_number_costs_one_env(how: str, build: Build) -> None:
    env = build(how)
    env.reset(Streams(0, [0]))
    before = [env.step(GO) for _ in range(2)][1].obs.clone()
    step = env.step(GO)
    lost = step.truncated[0]
    assert lost.sum() == 1 and not step.terminated.any() and env.dropped == 1
    assert torch.equal(step.last[0, lost], before[0, lost]) and (step.reward[0] == (~lost)).all()
    assert step.obs[0, lost, 0] == 0 and (step.obs[0, ~lost, 0] == 3).all()
    assert step.obs[0, lost, 1] != before[0, lost, 1], "it starts elsewhere"
    assert step.episode.length[0, lost] == 0 and step.episode.reward[0, lost] == 0
    said = "\n".join(env.notes())
    assert {"raise": "the dog ate it", "obs": "holds a NaN", "reward": "reward is nan"}[how] in said
    assert "Traceback" in said and "of row 0" in said and not env.notes()
    ends = [env.step(GO) and env._outs[env._turn].step.terminated[0].clone() for _ in range(6)]
    assert torch.stack(ends).sum(0).tolist() == [1] * 4, "all go on, each in its own time"
    assert env.dropped == 1 and not env._board.failures.any(), "a whole episode makes up for it"


@pytest.mark.parametrize(
    ("how", "timeout", "said"),
    [("abort", 30, "SIGABRT"), ("exit", 30, "exit code 3"), ("hang", 2, "no answer in 2 s")],
)
def test_a_process_that_dies_or_hangs_costs_its_own_envs(how: str, timeout: float, said: str, build: Build) -> None:
    env = build(how, timeout=timeout)
    env.reset(Streams(0, [0]))
    before, old = [env.step(GO) for _ in range(2)][1].obs.clone(), processes(env)
    step = env.step(GO)
    lost = step.truncated[0]
    assert lost.tolist() in ([True, True, False, False], [False, False, True, True]) and env.dropped == 2
    assert torch.equal(step.last[0, lost], before[0, lost]) and (step.reward[0] == (~lost)).all()
    assert (step.obs[0, lost, 0] == 0).all() and (step.obs[0, ~lost, 0] == 3).all()
    assert (step.episode.length[0, lost] == 0).all()
    note = "\n".join(env.notes())
    assert said in note and (how == "exit" or "in maybe" in note), note
    new = processes(env)
    assert len(set(old) - set(new)) == 1 and gone(*(set(old) - set(new)))
    ends = [env.step(GO) and env._outs[env._turn].step.terminated[0].clone() for _ in range(6)]
    assert torch.stack(ends).sum(0).tolist() == [1] * 4


def test_the_time_is_for_each_call_of_an_env() -> None:
    env = Workers(f"{HERE / 'broken_envs.py'}:Slow", 1, 1, kwargs={"seconds": 0.7}, limits=Limits(1, 1.2))
    env.reset(Streams(0, [0]))
    lengths = [int(env.step(GO[:, :1]).episode.length) for _ in range(2)]
    assert lengths == [1, 0], "a step and a reset; a step, a close, a new object and a reset"
    assert [note.splitlines()[-1] for note in env.notes()] == ["RuntimeError: every other time"]
    env.close()


@pytest.mark.parametrize("how", ["reset", "build"])
def test_a_start_that_fails_is_tried_again(how: str, tmp_path: Path, build: Build) -> None:
    files = [tmp_path / str(i) for i in range(2)]
    for file in files:
        file.touch()  # so that the object that only tells the spaces can be built
    env = build(how, times=2)
    for file in files:
        file.unlink()
    obs = env.reset(Streams(0, [0]))
    assert (obs[..., 0] == 0).all() and env.dropped == 0 and env.notes()
    assert (env.step(GO).obs[..., 0] == 1).all()


@pytest.mark.parametrize(("how", "said"), [("raise", "the dog ate it"), ("obs", "holds a NaN"), ("abort", "SIGABRT")])
def test_an_env_that_never_ends_an_episode_ends_the_run(how: str, said: str, build: Build) -> None:
    env = build(how, workers=1, max_failures=2, times=100, step=1)
    env.reset(Streams(0, [0]))
    with pytest.raises(EnvFailed, match=rf"(?s)broken_envs.py:Sick: env \d of row 0 failed 2 times.*{said}") as failed:
        for _ in range(10):
            env.step(GO)
    assert failed.value.failures == 2 and said in failed.value.trace
    if how == "abort":  # its process is gone
        with pytest.raises(PodiumError, match="reset"):
            env.step(GO)


def test_failures_are_repeated_with_the_seed(tmp_path: Path, build: Build) -> None:
    runs = []
    for _ in range(2):
        env = build("raise", workers=1)
        runs.append([x for step in everything_of_one(env) for x in step])
        for file in tmp_path.iterdir():
            file.unlink()
    assert all(map(torch.equal, *runs))


def everything_of_one(env: Workers) -> list[list[Tensor]]:
    seen = [[env.reset(Streams(3, [5])).clone()]]
    return seen + [[x.clone() for x in env.step(GO)[:5]] for _ in range(20)]


def test_an_evaluator_repeats_what_was_lost(build: Build) -> None:
    evaluator = Evaluator(lambda members, envs: build("abort", length=6), 0, 4, 100)
    result = evaluator.evaluate(lambda obs: GO, ["one"], 4)
    assert result.returns.tolist() == [[6.0] * 4] and result.lengths.tolist() == [[6.0] * 4]
    assert "SIGABRT" in "\n".join(evaluator.notes())


def test_it_has_no_state(build: Build) -> None:
    env = build("no")
    with pytest.raises(PodiumError, match="cannot be put back"):
        env.load({})
    assert env.state() is None


def test_close_leaves_nothing(tmp_path: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    file = tmp_path / "pids"
    env = Workers(PARENT, 1, 2, kwargs={"file": str(file)}, limits=Limits(1))
    mine = int(file.read_text().split()[1])  # of the object that only tells the spaces
    env.reset(Streams(0, [0]))
    watches = [worker._watch.pid for worker in env._workers if worker is not None]
    pids = [*processes(env), *map(int, file.read_text().split()), *watches]
    assert all(map(running, pids))
    maps = Path(f"/proc/{pids[0]}/maps").read_text()
    assert "memfd:podium" in maps and "/dev/shm" not in maps, "what is shared has no name to be left behind"
    env.close()
    assert gone(*pids), "nor what an env had started"
    env.close()
    with pytest.raises(PodiumError, match="closed"):
        env.reset(Streams(0, [0]))
    del env
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    os.kill(mine, signal.SIGKILL)


def test_an_env_that_does_not_let_go_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.envs.workers.GRACE", 0.3)
    env = Workers(f"{HERE / 'broken_envs.py'}:Deaf", 1, 2, limits=Limits(1))
    env.reset(Streams(0, [0]))
    pids, start = processes(env), time.monotonic()
    env.close()
    assert gone(*pids) and time.monotonic() - start < 20


def test_forgotten_it_ends_by_itself() -> None:
    env = make("CartPole-v1", 1, 2, "workers", workers=1)
    env.reset(Streams(0, [0]))
    assert isinstance(env, Workers)
    pids = processes(env)
    del env
    gc.collect()
    assert gone(*pids)


SCRIPT = f"""
import sys, time, torch
from podium.core.streams import Streams
from podium.envs.workers import Limits, Workers

how, folder = sys.argv[1:]
kwargs = {{"how": how, "folder": folder, "file": f"{{folder}}/pids"}}
env = Workers({PARENT!r}, 1, 4, kwargs=kwargs, limits=Limits(2))
first = open(f"{{folder}}/pids").read()
env.reset(Streams(0, [0]))
watches = [worker._watch.pid for worker in env._workers]
print(first, *(worker._process.pid for worker in env._workers), *watches, open(f"{{folder}}/pids").read(), flush=True)
for _ in range(10**9):
    env.step(torch.zeros(1, 4, dtype=torch.int64))
    time.sleep(0.001)
"""


@pytest.mark.parametrize("how", ["no", "hang", "stopped"])
def test_a_killed_parent_leaves_nobody(how: str, tmp_path: Path) -> None:
    words = ["no" if how == "stopped" else how, str(tmp_path)]
    parent = subprocess.Popen([sys.executable, "-c", SCRIPT, *words], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    _, mine, *pids = map(int, parent.stdout.readline().split())
    os.kill(mine, signal.SIGKILL)  # of the object that only tells the spaces
    assert len(set(pids)) == 2 + 2 + 1 and all(map(running, pids)), "workers, what watches over them, an env's own"
    time.sleep(0.2)
    for pid in [parent.pid, *pids[:2], pids[4]] if how == "stopped" else []:  # the watches can be relied on
        os.kill(pid, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(*pids)


def elsewhere(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a folder, with Podium on no path but what the code adds."""
    begin = f"import sys; sys.path.insert(0, {str(Path(podium.__file__).parent.parent)!r})\n"
    (folder / "script").mkdir()
    script = folder / "script" / "code.py"
    script.write_text(begin + code)
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, timeout=100)


ONE_STEP = """
import torch
from podium.core.streams import Streams
from podium.envs.workers import Limits, Workers

env = Workers("CartPole-v1", 1, 1, limits=Limits(1, max_failures=2))
env.reset(Streams(0, [0]))
env.step(torch.zeros(1, 1, dtype=torch.int64))
env.close()
print("fine")
"""


def test_a_worker_takes_no_modules_from_the_folder_that_it_starts_in(tmp_path: Path) -> None:
    for name in ("numbers", "podium", "gymnasium", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not me')")
    done = elsewhere(tmp_path, ONE_STEP)
    assert (done.stdout, done.stderr, done.returncode) == ("fine\n", "", 0)


def test_a_worker_that_cannot_begin_says_why(tmp_path: Path) -> None:
    (tmp_path / "numbers.py").write_text("raise RuntimeError('not me')")
    late = ONE_STEP.replace("env = ", "import os; os.environ['PYTHONPATH'] = os.getcwd()\nenv = ")
    done = elsewhere(tmp_path, late)
    said = done.stderr.partition("failed 2 times")[2]
    assert done.returncode == 1 and "numbers.py" in said and "RuntimeError: not me" in said and "exit code 1" in said


def test_what_another_process_cannot_build_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"env.kwargs.*plain data"):
        make(SICK, 1, 1, "workers", kwargs={"folder": object()})
    with pytest.raises(ConfigError, match=r"env.source: 'workers'.*VecEnv"):
        make("probes:ObsReward", 1, 1, "workers")
    gym.register("Nameless-v0", lambda: gym.make("CartPole-v1"))
    with pytest.raises(ConfigError, match=r"env.id: 'Nameless-v0'.*entry point"):
        make("Nameless-v0", 1, 1, "workers")
    del gym.registry["Nameless-v0"]


def test_images_vectors_of_choices_and_ids_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    gym.register("Choices-v0", "broken_envs:Choices", max_episode_steps=9)
    env = make("Choices-v0", 1, 2, "workers", workers=1)
    del gym.registry["Choices-v0"]  # of this process; the worker was told all of it
    env.reset(Streams(0, [0]))
    step = env.step(torch.tensor([[[0, 1], [2, 0]]]))
    assert step.obs.dtype == torch.uint8 and step.obs[0, :, 0, :].tolist() == [[5, 1], [7, 0]]
    env.close()


def test_a_run_goes_on_and_its_log_tells(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    kwargs = f'env.kwargs={{how: abort, length: 20, folder: "{tmp_path / "files"}", times: 2}}'
    words = ("ppo", f"env={SICK}", kwargs, "env.source=workers", "env.workers=2", "env.num=4", "algo.steps=32")
    code, out, _ = whole.command("train", *words, "stop.steps=256", "eval.episodes=4", "-o", tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert code == 0 and log.count("SIGABRT") == 2 and "in maybe" in log
    assert re.search(r"\d notes on what went wrong on the way are in .*log.txt", " ".join(out.split()))


def test_a_run_that_an_env_ends_says_why_in_its_log(tmp_path: Path) -> None:
    kwargs = f'env.kwargs={{how: raise, folder: "{tmp_path}", times: 99}}'
    words = ("ppo", f"env={SICK}", kwargs, "env.source=workers", "env.num=2", "env.workers=1", "algo.steps=32")
    code, _, said = whole.command("train", *words, "stop.steps=256", "-o", tmp_path / "run")
    assert code == 2 and "failed 5 times" in said and said.count("\n") > 4, "a traceback has lines"
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "ended by an error: " in log and "the dog ate it" in log and "in maybe" in log
    code, out, _ = whole.command("top", tmp_path / "run")
    assert code == 0 and "stopped before its end" in out


def test_an_env_that_raises_in_this_process_points_to_workers(tmp_path: Path) -> None:
    kwargs = f'env.kwargs={{how: raise, folder: "{tmp_path}", times: 99}}'
    words = ("ppo", f"env={SICK}", kwargs, "env.num=2", "algo.steps=32", "stop.steps=256")
    code, _, said = whole.command("train", *words, "-o", tmp_path / "run")
    assert code == 2 and said.startswith("podium: error: Sick: Traceback") and "RuntimeError: the dog ate it\n" in said
    assert "in maybe" in said and "With env.source=workers it would cost one episode" in said
    assert said.count('File "') < 5, "the traceback is that of the env alone"
    assert "ended by an error: Sick: Traceback" in (tmp_path / "run" / "log.txt").read_text()
