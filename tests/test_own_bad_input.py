"""Classes of the user's own that cannot be built, and settings beyond all measure: one line, and nothing is written."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from podium.algos.ppo import PPO
from podium.core.errors import CheckpointError
from podium.envs.native.cartpole import CartPole
from podium.store.run import config_of
from whole import refused

HERE = "test_own_bad_input"
CALLED = "It is called as factory(n_in, n_out)"


def narrow(n_in: int) -> nn.Module:
    return nn.Linear(n_in, 1)


def number(n_in: int, n_out: int) -> Any:
    return 3


def wide(n_in: int, n_out: int) -> nn.Module:
    return nn.Linear(n_in, n_out + 1)


def broken(n_in: int, n_out: int) -> nn.Module:
    raise KeyError("weights")


class Other:
    sizes = iter(range(1, 100))

    def __new__(cls, n_in: int, n_out: int) -> Any:
        width = next(cls.sizes)
        return nn.Sequential(nn.Linear(n_in, width), nn.Linear(width, n_out))


class Algo(PPO):
    def __init__(self, spec: Any) -> None:
        raise AssertionError


class Single(CartPole):
    """An env that can be made only alone."""

    def __init__(self, members: int, envs: int, device: Any = "cpu") -> None:
        if envs > 1:
            raise ValueError("one at a time")
        super().__init__(members, envs, device)


CASES = {
    f"net.module={HERE}:narrow": f"net.module: {HERE}:narrow could not be built: TypeError: narrow() takes 1 "
    f"positional argument but 2 were given. {CALLED}",
    f"net.module={HERE}:number": f"net.module: {HERE}:number must return an nn.Module, got int",
    f"net.module={HERE}:wide": "from [B, 4] it must make [B, 2]",
    f"net.module={HERE}:broken": f"{HERE}:broken could not be built: KeyError: 'weights'. {CALLED}",
    f"net.module={HERE}:HERE": "could not be built: TypeError: 'str' object is not callable",
    f"algo.name={HERE}:Algo": f"algo.name: {HERE}:Algo could not be built: TypeError: Algo.__init__() takes 2",
    f"env.id={HERE}:Single": f"env.id: {HERE}:Single could not be built: ValueError: one at a time",
    "env.num=1000000000000000000000000000000": "env.num is too large: whole numbers must be less than 2^63, got 1000",
    "net.hidden=[1000000000000000000000000000000]": "net.hidden is too large: whole numbers must be less than 2^63",
    "seed=1000000000000000000000000000000": "seed is too large: whole numbers must be less than 2^63",
    "env.num=1e30": "env.num: 1e+30 is not allowed",
    "env.frame_stack=1000000": "env.frame_stack: 1000000 is not allowed; a whole number of at least 1 and at most 1000",
    "env.timeout=1e30": "env.timeout: 1e+30 is not allowed; a number of more than 0 and at most 1e+06",
    "train.threads=1000000000": "train.threads: 1000000000 is not allowed; a whole number of at least 1 and at most",
    "eval.seconds=0": "eval.seconds: 0 is not allowed; a number of more than 0 or null",
    "stop.seconds=.nan": "stop.seconds: nan is not allowed",
    "stop.fitness=.inf": "stop.fitness: inf is not allowed",
    "algo.log_std=.nan": "algo.log_std: nan is not allowed",
    "env.kwargs=" + "[" * 5000 + "]" * 5000: "not YAML: nested too deeply; settings are a few levels deep",
    "a." * 5000 + "b=1": "a setting has at most 20 names with dots between them",
}


@pytest.mark.parametrize("word", CASES, ids=lambda word: word[:60])
def test_a_setting(word: str, tmp_path: Path) -> None:
    words = ("cartpole", "ppo", "train.members=2", word)
    assert CASES[word] in refused(tmp_path, "train", *words, "-o", tmp_path / "run")


@pytest.mark.parametrize("algo", ["dqn", "sac-discrete"])
def test_a_module_of_a_learner_with_a_replay(algo: str, tmp_path: Path) -> None:
    words = ("CartPole-v1", algo, f"net.module={HERE}:narrow", "-o", tmp_path / "run")
    assert f"{HERE}:narrow could not be built: TypeError" in refused(tmp_path, "train", *words)


def test_a_factory_that_makes_other_parameters_for_each_member(tmp_path: Path) -> None:
    words = ("cartpole", "ppo", "train.members=2", f"net.module={HERE}:Other", "-o", tmp_path / "run")
    assert "net.module: its factory must always make the same parameters" in refused(tmp_path, "train", *words)


def test_a_file_that_fails_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "zero.py").write_text("1 / 0")
    said = refused(tmp_path, "train", "cartpole", "ppo", f"net.module={tmp_path}/zero.py:net", "-o", tmp_path / "run")
    assert "zero.py:net cannot be imported: ZeroDivisionError: division by zero" in said


FILES = {
    "deep": "{a: " * 5000 + "1" + "}" * 5000,
    "laughs": "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
}


@pytest.mark.parametrize(("name", "said"), [("deep", "nested too deeply"), ("laughs", "more than 1,000,000 values")])
def test_a_file(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(FILES[name])
    assert said in refused(tmp_path, "train", "cartpole", tmp_path / "my.yaml", "-o", tmp_path / "run")


def test_a_run_whose_config_is_nested_too_deeply(tmp_path: Path) -> None:
    body = FILES["deep"].encode()
    (tmp_path / "config.yaml").write_bytes(body + b"# sha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n")
    with pytest.raises(CheckpointError, match="nested too deeply"):
        config_of(tmp_path)
