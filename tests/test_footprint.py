"""A run that cannot fit into memory is refused before anything is built, with the largest size that would fit."""

from __future__ import annotations

import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import podium
from podium import entrants, footprint
from podium import experiment as experiments
from podium.compose import compose
from podium.core import machine, tree
from podium.core.errors import PodiumError
from podium.footprint import Load
from podium.lookup import spec_of
from whole import command, configure, files, refused

KINDS = {
    "ppo": "cartpole ppo",
    "normalised": "pendulum ppo env.normalise_obs=true env.normalise_reward=true",
    "a2c": "cartpole a2c",
    "dqn": "cartpole dqn",
    "rainbow": "cartpole rainbow",
    "sac-discrete": "CartPole-v1 sac-discrete",
    "ddpg": "pendulum ddpg",
    "td3": "pendulum td3",
    "sac": "pendulum sac",
    "redq": "pendulum redq",
    "images": "ppo env=test_footprint:Screen",
}
PPO = "cartpole ppo"
REFUSED = {
    f"{PPO} train.members=10000000": r"train.members=10000000 needs about [\d.]+ TiB of memory, and this machine has "
    r"[\d.]+ GiB for it; at most train.members=\d+ fits",
    f"{PPO} env.num=1000000000": r"env.num=1000000000 needs .* at most env.num=\d+ fits",
    f"{PPO} algo.steps=1000000000": r"algo.steps=1000000000 needs .* at most algo.steps=\d+ fits",
    f"{PPO} eval.episodes=10000000000": r"eval.episodes=10000000000 needs .* at most eval.episodes=\d+ fits",
    f"{PPO} net.hidden=[1000000,1000000]": r"net.hidden=\[1000000, 1000000\] needs .* layers of at most \d+ fit",
    f"{PPO} net.hidden=[1000000,1000000] env.num=1000000000": "other settings have to be smaller, too",
    f"{PPO} env.num=9000000000000000000": r"env.num=9\d+ needs about [\d.]+ EiB",
    "pendulum sac critic.count=100000000": r"critic.count=100000000 needs .* at most critic.count=\d+ fits",
    "pendulum sac algo.batch=1000000000 replay.capacity=1000000000 stop.steps=null": "replay.capacity: 1000000000 is",
    "cartpole rainbow algo.atoms=1000000000": r"algo.atoms=1000000000 needs .* at most algo.atoms=\d+ fits",
    f"{PPO} env.source=gymnasium env.num=10000000": r"env.num=10000000 needs .* at most env.num=\d+ fits",
    f"{PPO} env.source=workers env.num=800 env.workers=800": r"needs about 5\d.\d GiB of memory",
}


def load_of(words: str) -> Load:
    kind = entrants.validate(compose(words.split()), trains=False)
    return Load(kind, spec_of(kind, 1))


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_too_large_is_refused_with_what_would_fit(words: str, tmp_path: Path) -> None:
    assert re.search(REFUSED[words], refused(tmp_path, "train", *words.split(), "-o", tmp_path / "run"))


@pytest.mark.parametrize("fleet", ["inline", "processes"])
def test_so_it_is_where_members_evolve(fleet: str, tmp_path: Path) -> None:
    words = ("cartpole", "evolve.entrants=[ppo,a2c]", "evolve.members=10000000", f"fleet={fleet}")
    said = refused(tmp_path, "evolve", *words, "-o", tmp_path / "run")
    assert re.search(r"evolve.members=10000000 needs about .* at most evolve.members=\d+ fits", said)


def test_every_process_of_a_fleet_takes_memory(tmp_path: Path) -> None:
    words = ("cartpole", "ppo", "evolve.members=2000", "fleet=processes", "fleet.pods=2000")
    assert "at most fleet.pods=" in refused(tmp_path, "evolve", *words, "-o", tmp_path / "run")


def test_members_of_a_cluster_need_not_fit_into_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory", lambda: 100 << 20)
    words = ["cartpole", "ppo", "evolve.members=400", "fleet.pods=100"]
    tree_ = [entrants.complete(compose([*words, f"fleet={kind}"])) for kind in ("mpi", "processes")]
    assert entrants.validate(tree_[0])
    with pytest.raises(PodiumError, match=r"fleet\.pods=100 needs"):
        entrants.validate(tree_[1])


@pytest.mark.parametrize("name", KINDS)
def test_the_networks_are_as_large_as_estimated(name: str) -> None:
    load = load_of(KINDS[name])
    known = load.measured().known
    assert known is not None and 0.9 < load.learnt / known < (1.6 if name == "a2c" else 1.35)  # it has one moment less


CASES = {
    "members": f"{PPO} train.members=4 algo.epochs=1 eval.episodes=8 eval.max_steps=5",
    "envs": f"{PPO} env.num=2048 algo.batch=4096 algo.epochs=1 eval.max_steps=5",
    "wide": f"{PPO} train.members=4 net.hidden=[512,512] algo.epochs=1 eval.max_steps=5",
    "episodes": f"{PPO} eval.episodes=20000 algo.epochs=1 eval.max_steps=5",
    "replay": "pendulum sac train.members=10 replay.capacity=10000 algo.warmup=8 eval.episodes=4 eval.max_steps=5",
}


@pytest.mark.parametrize("name", CASES)
def test_a_pod_takes_about_what_was_estimated(name: str) -> None:
    load, gauge = load_of(CASES[name]), Gauge()
    with gauge:
        pod = experiments.build_pod(load.kind)
        pod.train(2)
        pod.evaluate(range(load.kind.train.members), load.kind.eval.episodes)
    pod.close()
    assert 0.75 < load.total() / gauge.peak < 2.5


class Gauge(TorchDispatchMode):
    """Counts the bytes of all tensors that are made meanwhile: the most that there were at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        tree_map_only(torch.Tensor, self._count, out)
        return out

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._alive:
            self._alive.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size


class Screen(gym.Env[Any, Any]):
    """Observations are images."""

    observation_space = gym.spaces.Box(0, 255, (40, 44, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros((40, 44, 3), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros((40, 44, 3), np.uint8), 0.0, True, False, {}


@pytest.mark.parametrize("name", ["train.members", "env.num", "eval.episodes"])
def test_the_largest_that_is_named_fits_and_more_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory", lambda: 1 << 30)
    words = ["cartpole", "ppo"]
    with pytest.raises(PodiumError) as refusal:
        entrants.validate(compose([*words, f"{name}=100000000"]))
    most = int(re.search(rf"at most {name}=(\d+) fits", str(refusal.value))[1])  # type: ignore[index]
    assert entrants.validate(compose([*words, f"{name}={most}"]))
    with pytest.raises(PodiumError, match="needs about"):
        entrants.validate(compose([*words, f"{name}={int(most * 1.2)}"]))


def test_a_module_of_the_user_s_own_is_built_once_to_see_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory", lambda: 100 << 20)
    words = ["cartpole", "ppo", "net.module=test_footprint:wide"]
    with pytest.raises(PodiumError, match=r"at most train\.members=1 fits"):
        entrants.validate(compose([*words, "train.members=50"]))


def wide(n_in: int, n_out: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(n_in, 200_000), torch.nn.Linear(200_000, n_out))


def test_a_small_run_is_not_built_to_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "build_algorithm", lambda *_: pytest.fail("it was built"))
    entrants.validate(compose(["cartpole", "ppo"]))


# ---- reading a run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done") / "run"
    small = ("stop.steps=256", "eval.every=256", "eval.episodes=2", "algo.epochs=1", "train.members=2")
    podium.train("cartpole", "ppo", *small, "stop.fitness=null", out=path)
    return path


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("net", "hidden", [1000000, 1000000]),
        ("env", "num", 10**12),
        ("env", "num", 10**30),
        ("algo", "steps", 10**15),
        ("env", "frame_stack", 10**9),
    ],
)
def test_a_hostile_config_is_refused_in_one_line(
    section: str, name: str, value: object, done: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(done, tmp_path / "run"))
    configure(run, {section: {name: value}})
    before = files(run)
    code, _, err = command("eval", run, "--episodes", 1)
    assert code == 2 and len(err.splitlines()) == 1 and f"{section}.{name}" in err
    assert files(run) == before


def test_one_member_of_a_large_run_is_read_where_the_run_would_not_fit(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(done, tmp_path / "run"))
    configure(run, {"train": {"members": 10**6}})
    assert podium.load(run).evaluate(1).shape == (1,)
    monkeypatch.setattr(machine, "memory", lambda: 10_000)
    with pytest.raises(PodiumError, match="needs about"):
        podium.load(run)


def test_flat_trees_have_the_size_that_is_counted() -> None:
    load = load_of(PPO)
    built = experiments.build_single(load.kind)
    assert load.measured().known == sum(leaf.nbytes for leaf in tree.flatten(built.learnt()).values())


def test_sizes_are_told_in_few_digits() -> None:
    assert [footprint._down(n) for n in (0, 7, 99, 123, 27_999)] == [0, 7, 99, 120, 27_000]
    assert [machine.brief(n) for n in (0, 500, 2048, 23 << 30, 2**70)] == [
        "0.0 bytes",
        "500.0 bytes",
        "2.0 KiB",
        "23.0 GiB",
        "1024.0 EiB",
    ]
