"""The package as Python sees it: names, words of any kind, messages in Python's words, a hook that ends a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import podium
import whole
from podium.compose import notes
from podium.core.errors import PodiumError

FAST = ("stop.steps=512", "eval.episodes=2", "eval.max_steps=50", "algo.epochs=1", "stop.fitness=null")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("front") / "run"
    podium.train("cartpole", *FAST, "train.members=2", out=path)
    return path


def test_dir_lists_what_there_is() -> None:
    public = [name for name in dir(podium) if not name.startswith("_")]
    assert public == sorted(name for name in podium.__all__ if not name.startswith("_"))
    assert all(getattr(podium, name) is not None for name in public)


def test_a_dictionary_counts_as_a_file(tmp_path: Path) -> None:
    tree = {"env": "CartPole-v1", "algo": {"lr": 0.25, "clip": 0.5}}
    podium.train("cartpole", tree, *FAST, "algo.clip=0.125", out=tmp_path / "run")
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "lr: 0.25" in text and "clip: 0.125" in text
    with pytest.raises(PodiumError, match=r"Podium calls it algo\.lr; write algo\.lr=0\.5"):
        podium.train("cartpole", {"algo": {"learning_rate": 0.5}}, out=tmp_path / "other")
    with pytest.raises(PodiumError, match="keeps 1"):
        podium.resume(tmp_path / "run", {"train": {"members": 3}})


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (gym.make("CartPole-v1"), "pass its id, 'CartPole-v1'"),
        (CartPoleEnv, "pass its name, 'gymnasium.envs.classic_control.cartpole:CartPoleEnv'"),
        (CartPoleEnv(), "pass the name of its class, 'gymnasium.envs.classic_control.cartpole:CartPoleEnv'"),
        (["cartpole", "ppo"], "is a list; pass its words one by one"),
        (3, "3 is not a word"),
        (None, "None is not a word"),
    ],
    ids=["env", "class", "object", "list", "number", "none"],
)
def test_what_is_no_word(word: Any, message: str) -> None:
    for call in (podium.train, podium.evolve, podium.Stack):
        with pytest.raises(PodiumError) as caught:
            call(word)
        assert message in str(caught.value)


def test_messages_speak_python_here_and_options_there(run: Path, tmp_path: Path) -> None:
    agent = podium.load(run)
    for call, python, typed in (
        (
            lambda: podium.train("cartpole", out=run),
            "pass fresh=True to",
            ("train", "cartpole", "-o", run, "pass -D to"),
        ),
        (lambda: podium.load(run, member=9), "member=9 is not", ("eval", run, "--member", 9, "--member: 9 is not")),
        (lambda: podium.resume(run, step=3), "step=3 is not", ("resume", run, "--step", 3, "--step: 3 is not")),
        (lambda: agent.evaluate(env="Acrobot-v1"), "env='Acro", ("eval", run, "--env", "Acrobot-v1", "--env: 'Acro")),
        (lambda: podium.export(run, out="a.pt"), "out='a.pt' is", ("export", run, "-o", "a.pt", "-o: 'a.pt' is")),
        (
            lambda: podium.export(run, 1, "top:2"),
            "member= and ensemble= exclude",
            ("export", run, "--member", 1, "--ensemble", "top:2", "--member and --ensemble exclude"),
        ),
    ):
        with pytest.raises(PodiumError) as caught:
            call()
        assert python in str(caught.value)
        *words, message = typed
        assert message in whole.command(*words)[2]
    with pytest.raises(PodiumError, match=r"^episodes=0 is not allowed"):
        agent.evaluate(episodes=0)


def test_what_things_say_of_themselves(run: Path) -> None:
    agent = podium.load(run, member=1)
    assert repr(agent) == f"Agent(member 1 of {run}, PPO on CartPole-v1, at step {agent.step:,})"
    assert repr(podium.ensemble([agent, agent], "vote")) == "Ensemble(members 1, 1 by vote, on CartPole-v1)"
    stack = podium.Stack("pendulum", "sac", "train.members=3", "env.num=4")
    assert repr(stack) == "Stack(3 members of 4 envs, SAC on Pendulum-v1, at step 0)"


def test_a_result_says_how_it_went(tmp_path: Path) -> None:
    result = podium.train("cartpole", *FAST, out=tmp_path / "run")
    best = result.top[0]["fitness"]
    assert repr(result) == f"Result({tmp_path / 'run'}: stop.steps reached at step 512; best fitness {best:.1f})"


def _false(report: dict[str, Any]) -> bool:
    return False


def _raises(report: dict[str, Any]) -> None:
    raise podium.Stop


@pytest.mark.parametrize("hook", [_false, _raises])
def test_a_hook_ends_the_run(hook: Any, tmp_path: Path) -> None:
    words = ("cartpole", "stop.steps=1e9", "stop.fitness=null", "eval.episodes=2", "eval.max_steps=20")
    result = podium.train(*words, out=tmp_path / "run", on_report=hook)
    assert result.reason == "stopped" and 0 < result.step < 1e9 and "stopped at step" in repr(result)
    again = podium.resume(tmp_path / "run", on_report=hook)
    assert again.reason == "stopped" and again.step > result.step


def test_a_hook_that_returns_nothing_or_something_else_goes_on(tmp_path: Path) -> None:
    result = podium.train("cartpole", *FAST, out=tmp_path / "run", on_report=lambda report: None)
    assert result.reason == "steps"


def test_an_id_with_a_tuned_preset_says_so(tmp_path: Path) -> None:
    said = "a tuned preset exists: podium train walker2d ppo"
    assert notes(["Walker2d-v5", "ppo"], "train") == [said] == notes(["Walker2d-v5"], "train")
    assert notes(["Pendulum-v1", "sac"], "evolve") == ["a tuned preset exists: podium evolve pendulum sac"]
    assert notes(["CartPole-v1", "rainbow"], "train") == ["a tuned preset exists: podium train cartpole rainbow"]
    (tmp_path / "mine.yaml").write_text("algo: {lr: 0.5}")
    for words in (
        ["walker2d", "ppo"],
        ["Walker2d-v5", "ppo", str(tmp_path / "mine.yaml")],
        ["CliffWalkingSlippery-v1", "ppo"],
    ):
        assert notes(words, "train") == []
    assert notes(["Walker2d-v5", "dqn"], "train") == []  # it has no numbers for it
    code, out, _ = whole.command("train", "CartPole-v1", *FAST, "-o", tmp_path / "run")
    assert code == 0 and out.count("a tuned preset exists: podium train cartpole ppo") == 1
    podium.train("CartPole-v1", *FAST, out=tmp_path / "quiet")
    assert "a tuned preset exists" in (tmp_path / "quiet" / "log.txt").read_text()
