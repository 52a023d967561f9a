"""`podium export`: onnxruntime acts as Podium does, and a file that would not is never written."""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import podium
import whole
from podium import export_check, exporting
from podium.agent import Agent
from podium.algos.ppo import PPO
from podium.core.errors import ConfigError, PodiumError

HERE = Path(__file__)
SMALL = ("ppo", "env.num=4", "algo.steps=64", "stop.fitness=null", "stop.steps=512", "eval.episodes=2")
SMALL += ("algo.lr=0.01", "train.threads=1")
RUNS = {
    "discrete": ("cartpole", "train.members=3"),
    "box": ("Pendulum-v1", "env.normalise_obs=true", "net.activation=elu", "net.layer_norm=true"),
    "multi": (f"{HERE}:Dials", "env.normalise_obs=true", "net.activation=relu", "train.members=2"),
    "bytes": (f"{HERE}:Picture",),
    "image": (f"{HERE}:View", "net.features=16"),
    "narrow": (f"{HERE}:Narrow", "train.members=2"),
    "switches": (f"{HERE}:Switches",),
    "matrix": (f"{HERE}:Matrix", "train.members=2"),
    "own": ("cartpole", f"net.module={HERE}:Own"),
    "fickle": ("cartpole", f"net.module={HERE}:Fickle"),
    "plain": ("cartpole", f"algo={HERE}:Plain", "train.members=2"),
}


class Dials(gym.Env[Any, Any]):
    """Two dials whose positions are not counted from 0, and an observation far from 0."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.MultiDiscrete([3, 2], start=[4, -1])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.t += 1
        reward = float(action[0] == (4 if self.now[0] > 100 else 6)) + float(
            action[1] == (0 if self.now[1] > 3 else -1)
        )
        return self._look(), reward, False, self.t == 8, {}

    def _look(self) -> Any:
        self.now = (self.np_random.normal(size=2) * [20, 0.1] + [100, 3]).astype(np.float32)
        return self.now


class Picture(Dials):
    """A small picture; actions begin at 5."""

    observation_space = gym.spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = gym.spaces.Discrete(3, start=5)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self._look(), float(action == 6), False, self.t == 8, {}

    def _look(self) -> Any:
        return self.np_random.integers(0, 256, (2, 3), dtype=np.uint8)


class View(Picture):
    """An image, for convolutions."""

    observation_space = gym.spaces.Box(0, 255, (3, 10, 12), np.uint8)

    def _look(self) -> Any:
        return self.np_random.integers(0, 256, (3, 10, 12), dtype=np.uint8)


class Narrow(Dials):
    """Actions in float64 with bounds that cut most of them off, one of which is open."""

    action_space = gym.spaces.Box(np.array([-1e-3, 0.0]), np.array([1e-3, np.inf]), dtype=np.float64)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self._look(), float(action[1]), False, self.t == 8, {}


class Switches(Dials):
    """Four switches in a square."""

    action_space: Any = gym.spaces.MultiBinary([2, 2])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.t += 1
        return self._look(), float(np.sum(action)), False, self.t == 8, {}


class Matrix(Switches):
    """Numbers with two axes."""

    action_space = gym.spaces.Box(-0.5, 0.5, (2, 3))


class Own(nn.Module):
    """A network of a user's own, with a convolution and a buffer."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(1, 4, 3, padding=1), nn.Linear(4 * n_in, n_out)
        self.register_buffer("scale", torch.linspace(0.5, 2, n_in))

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.gelu(self.enter((x * self.scale)[:, None]))
        return self.leave(h.flatten(1))  # type: ignore[no-any-return]


class Fickle(nn.Module):
    """A network whose steps depend on what it sees, which no graph can hold."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n_in, n_out)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if y.sum() > 0 else 2 * y


class Plain(PPO):
    """An algorithm that says what it does and no more: always the other action."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.act = self._other  # type: ignore[method-assign, assignment]

    def _other(self, obs: Tensor, carry: Any, *, explore: bool) -> Any:
        out, carry = self.core.act(obs, carry, explore=explore)
        return ({"action": 1 - out["action"]} if not explore else out), carry


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a run by name, trained when first asked for."""
    base = tmp_path_factory.mktemp("export")

    def get(name: str) -> Path:
        if not (base / name).exists():
            podium.train(*SMALL, *RUNS[name], out=base / name)
        return base / name

    return get


@pytest.fixture(scope="module")
def champion(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What was exported of a run's champion, by the run's name; written when first asked for."""
    folder, made = tmp_path_factory.mktemp("champions"), dict[str, Any]()

    def get(name: str) -> exporting.Exported:
        if name not in made:
            made[name] = podium.export(runs(name), out=folder / f"{name}.onnx")
        return made[name]  # type: ignore[no-any-return]

    return get


@pytest.fixture
def traced(champion: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Spare a test that is not about tracing the time: the graph comes from the champion's file."""

    def use(name: str) -> None:
        model = onnx.load(champion(name).path)
        monkeypatch.setattr(exporting, "_model", lambda *_: model)

    return use


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def run(path: Path, rows: Any) -> dict[str, Any]:
    made = session(path)
    return dict(zip([o.name for o in made.get_outputs()], made.run(None, {"obs": rows}), strict=True))


def observations(agent: Agent, count: int) -> Any:
    shape, dtype = agent.obs_space.shape or (), agent.obs_space.dtype
    rng = np.random.default_rng(count)
    if dtype == np.uint8:
        return rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    return rng.normal(size=(count, *shape)).astype(np.float32) * 2


def params(agent: Agent, rows: Any) -> list[Any]:
    """What the member's networks put out, each `[B, ...]` or, for log σ, `[A]`."""
    core = agent._algorithm.core  # type: ignore[attr-defined]
    with torch.no_grad():
        return [p[0].numpy() for p in core.net.policy(core.inputs(torch.from_numpy(rows)[None]))]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "name, dtypes",
    [
        ("discrete", {"action": "int64", "logits": "float32"}),
        ("box", {"action": "float32", "mean": "float32", "std": "float32"}),
        ("multi", {"action": "int64", "logits": "float32"}),
        ("bytes", {"action": "int64", "logits": "float32"}),
        ("image", {"action": "int64", "logits": "float32"}),
        ("narrow", {"action": "float64", "mean": "float32", "std": "float32"}),
        ("switches", {"action": "int8", "logits": "float32"}),
        ("matrix", {"action": "float32", "mean": "float32", "std": "float32"}),
        ("own", {"action": "int64", "logits": "float32"}),
        ("plain", {"action": "int64"}),
    ],
)
def test_onnxruntime_acts_as_podium_does(name: str, dtypes: dict[str, str], runs: Any, champion: Any) -> None:
    agent, made = podium.load(runs(name)), champion(name)
    path = made.path
    assert (made.size, made.members) == (path.stat().st_size, (agent.member,))
    assert made.checked >= 256 and made.difference < 1e-5 and not list(path.parent.glob(".*"))
    (obs,) = made.inputs
    assert (obs.name, obs.dtype, obs.shape) == ("obs", agent.obs_space.dtype, ("batch", *(agent.obs_space.shape or ())))
    assert {out.name: out.dtype for out in made.outputs} == dtypes
    assert all(out.shape[0] == "batch" for out in made.outputs)
    for count in (1, 7, 64):
        rows = observations(agent, count)
        found, acts = run(path, rows), agent.act(rows)
        np.testing.assert_allclose(found["action"], acts, atol=1e-5, rtol=0)
        assert (found["action"].dtype, found["action"].shape) == (acts.dtype, acts.shape)
        assert all(x.shape[1:] == out.shape[1:] for x, out in zip(found.values(), made.outputs, strict=True))
        if name == "plain":
            continue
        first, *log_std = params(agent, rows)
        np.testing.assert_allclose(found["mean" if log_std else "logits"], first, atol=1e-5, rtol=0)
        for row in log_std:
            np.testing.assert_allclose(found["std"], np.exp(row) + 0 * first, atol=1e-5, rtol=0)


def test_statistics_are_in_the_file(runs: Any, champion: Any) -> None:
    agent = podium.load(runs("multi"))
    stats = agent._algorithm.core.inputs.stats  # type: ignore[attr-defined]
    assert abs(stats.mean[0, 0] - 100) < 10
    rows = (observations(agent, 64) * [20, 0.1] + [100, 3]).astype(np.float32)
    logits = run(champion("multi").path, rows)["logits"]
    np.testing.assert_allclose(logits, params(agent, rows)[0], atol=1e-5)
    stats.mean.zero_()
    assert np.abs(logits - params(agent, rows)[0]).max() > 0.01


def test_bounds_are_in_the_file(runs: Any, champion: Any) -> None:
    found = run(champion("narrow").path, observations(podium.load(runs("narrow")), 64))
    assert (np.abs(found["mean"][:, 0]) > 1e-3).any() and np.abs(found["action"][:, 0]).max() <= 1e-3
    assert (found["mean"][:, 1] < 0).any() and found["action"][:, 1].min() == 0


def test_a_member_by_its_id(runs: Any, tmp_path: Path) -> None:
    other = (podium.load(runs("discrete")).member + 1) % 3
    assert podium.export(runs("discrete"), member=other, out=tmp_path / "other.onnx").members == (other,)
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    logits = [run(tmp_path / "other.onnx", rows)["logits"], params(podium.load(runs("discrete"), other), rows)[0]]
    np.testing.assert_allclose(*logits, atol=1e-5)


# ---- several members


def ranked(path: Path) -> list[Agent]:
    return [podium.load(path, row["id"]) for row in json.loads(whole.command("top", path, "--json")[1])]


@pytest.mark.parametrize("name", ["discrete", "multi"])
def test_an_ensemble_averages_probabilities(name: str, runs: Any, tmp_path: Path) -> None:
    agents = ranked(runs(name))
    made = podium.export(runs(name), ensemble=f"top:{len(agents)}", out=tmp_path / "a.onnx")
    assert made.members == tuple(agent.member for agent in agents) and len(agents) > 1
    rows = observations(agents[0], 200)
    rows = (rows * [20, 0.1] + [100, 3]).astype(np.float32) if name == "multi" else rows
    found, space = run(tmp_path / "a.onnx", rows), agents[0].action_space
    sizes = space.nvec.tolist() if isinstance(space, gym.spaces.MultiDiscrete) else [space.n]  # type: ignore[attr-defined]
    parts = [np.split(params(agent, rows)[0], np.cumsum(sizes)[:-1], -1) for agent in agents]
    means = [np.mean([softmax(p) for p in choice], 0) for choice in zip(*parts, strict=True)]
    np.testing.assert_allclose(found["probabilities"], np.concatenate(means, -1), atol=1e-5)
    best = np.stack([mean.argmax(-1) for mean in means], -1).reshape(found["action"].shape)
    assert (found["action"] == best + space.start).mean() > 0.99  # type: ignore[attr-defined]
    assert any((agent.act(rows) != found["action"]).any() for agent in agents)  # they do not all agree


@pytest.mark.parametrize("name", ["narrow", "matrix"])
def test_an_ensemble_averages_actions(name: str, runs: Any, tmp_path: Path) -> None:
    agents = ranked(runs(name))
    made = podium.export(runs(name), ensemble="top:2", out=tmp_path / "a.onnx")
    assert [out.name for out in made.outputs] == ["action"] and len(made.members) == 2
    for count in (1, 7, 64):
        rows = observations(agents[0], count)
        acts = [agent.act(rows) for agent in agents]
        action = run(tmp_path / "a.onnx", rows)["action"]
        np.testing.assert_allclose(action, np.mean(acts, 0), atol=1e-5)
        assert action.dtype == acts[0].dtype
    assert np.abs(acts[0] - acts[1]).max() > 1e-4


def test_an_ensemble_needs_probabilities(runs: Any, tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match="has no probabilities to average"):
        podium.export(runs("plain"), ensemble="top:2", out=tmp_path / "a.onnx")


# ---- the file


def test_the_file_is_the_same_every_time_and_names_no_paths(runs: Any, champion: Any, tmp_path: Path) -> None:
    path, first = tmp_path / "a.onnx", champion("own").path.read_bytes()
    path.write_text("an older file")
    podium.export(str(runs("own")), out=str(path))
    assert path.read_bytes() == first
    assert b".py" not in first and str(tmp_path.parent).encode() not in first
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    about = {prop.key: prop.value for prop in model.metadata_props}
    agent = podium.load(runs("own"))
    assert about == {"env": "CartPole-v1", "members": str(agent.member), "steps": str(agent.step)}
    assert (model.producer_name, model.producer_version) == ("podium", podium.__version__)


def test_the_command(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = whole.command("export", runs("discrete"))
    size = (tmp_path / "discrete.onnx").stat().st_size
    graph = r"obs float32 \[batch, 4\] -> action int64 \[batch\], logits float32 \[batch, 2\]"
    line = rf"discrete.onnx: {size:,} bytes, {graph}; off by at most \S+ on 512 observations\n"
    assert (code, err) == (0, "") and re.fullmatch(line, out)
    code, out, err = whole.command("export", runs("plain"), "--member", 1, "-o", "one.onnx", "--json")
    row = json.loads(out)
    assert (code, err) == (0, "") and (row["path"], row["size"]) == ("one.onnx", Path("one.onnx").stat().st_size)
    assert (row["members"], row["difference"], row["checked"]) == ([1], 0, 512)
    assert row["inputs"] == [{"name": "obs", "dtype": "float32", "shape": ["batch", 4]}]
    assert row["outputs"] == [{"name": "action", "dtype": "int64", "shape": ["batch"]}]
    assert callable(podium.export)


def test_the_example_of_the_page(champion: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (HERE.parents[1] / "docs" / "cli.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shutil.copy(champion("discrete").path, "champion.onnx")
    names: dict[str, Any] = {}
    exec(block, names)
    assert gym.spaces.Discrete(2).contains(names["action"][0])


# ---- refusals


@pytest.mark.parametrize(
    "words, reason",
    [
        (["--member", "9"], "--member: 9 is not allowed; this run has 0, 1, 2"),
        (["--ensemble", "top:4"], "--ensemble: 'top:4' is not allowed; K is at most 3"),
        (["--ensemble", "top:0"], "--ensemble: 'top:0' is not allowed; top:K"),
        (["--ensemble", "best:2"], "--ensemble: 'best:2' is not allowed; top:K"),
        (["--ensemble", "3"], "--ensemble: '3' is not allowed; top:K"),
        (["--ensemble", "top:2", "--member", "1"], "--member and --ensemble exclude each other"),
        (["-o", "a.pt"], "-o: 'a.pt' is not allowed; a file that ends in .onnx"),
        (["-o", "nowhere/a.onnx"], "there is no such folder"),
    ],
)
def test_refuses(words: list[str], reason: str, runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = whole.command("export", runs("discrete"), *words)
    assert (code, out) == (2, "") and reason in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_refuses_more_members_than_have_snapshots(runs: Any, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs("discrete"), tmp_path / "copy"))
    (copy / "members" / f"{podium.load(copy).member}.safetensors").unlink()
    with pytest.raises(ConfigError, match="K is at most 2: so many members of this run have a snapshot") as error:
        podium.export(copy, ensemble="top:3", out=tmp_path / "a.onnx")
    assert (error.value.field, error.value.value) == ("ensemble", "top:3")
    with pytest.raises(PodiumError, match="has no snapshot"):
        podium.export(copy, out=tmp_path / "a.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_names_the_extra(package: str, runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = whole.command("export", runs("discrete"), "-o", tmp_path / "a.onnx")
    install = "pip install -c constraints.txt 'podium-rl[export]'"
    assert code == 2 and f"{package} is not installed; install it with: {install}" in err and "repository" in err
    assert not list(tmp_path.iterdir())


def test_a_network_that_no_graph_can_hold(runs: Any, tmp_path: Path) -> None:
    code, out, err = whole.command("export", runs("fickle"), "-o", tmp_path / "a.onnx")
    assert (code, out) == (2, "") and "this network cannot be written as ONNX (" in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(runs: Any, traced: Any, tmp_path: Path) -> None:
    traced("own")
    (tmp_path / "a.onnx").mkdir()
    with pytest.raises(PodiumError, match="cannot be written"):
        podium.export(runs("own"), out=tmp_path / "a.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["a.onnx"]


@pytest.mark.parametrize(
    "name, change, reason",
    [
        ("discrete", lambda action: 1 - action, "actions otherwise"),
        ("box", lambda action: action + np.float32(1e-3), "onnxruntime's action differs from Podium's by 0.001"),
        ("box", lambda action: action.astype(np.float64), r"is float32 \[512, 1\], not float64 \[512, 1\]"),
    ],
)
def test_a_file_that_acts_otherwise_is_not_written(
    name: str, change: Any, reason: str, runs: Any, traced: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced(name)
    path, act = tmp_path / "a.onnx", Agent.act
    path.write_text("an older file")
    monkeypatch.setattr(Agent, "act", lambda self, obs: change(act(self, obs)))
    with pytest.raises(PodiumError, match=f"{reason}.*; nothing was written"):
        podium.export(runs(name), out=path)
    assert path.read_text() == "an older file" and len(list(tmp_path.iterdir())) == 1


def test_what_onnxruntime_cannot_run_is_not_written(
    runs: Any, traced: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced("own")
    monkeypatch.setattr(export_check, "observations", lambda agent: np.zeros((9, 5), np.float32))
    with pytest.raises(PodiumError, match=r"onnxruntime cannot run this network \(.*nothing was written"):
        podium.export(runs("own"), out=tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


# ---- what counts as the same


def test_a_tie_may_go_either_way() -> None:
    space = gym.spaces.Discrete(3)
    scores = np.array([[1.0, 1.0 - 5e-6, 0], [1.0, 0.9, 0]], np.float32)
    expected = {"action": np.array([0, 0]), "logits": scores}
    assert export_check.compare({"action": np.array([1, 0]), "logits": scores}, expected, space) == 0
    with pytest.raises(PodiumError, match="1 of 2 actions"):
        export_check.compare({"action": np.array([0, 1]), "logits": scores}, expected, space)
    two = gym.spaces.MultiDiscrete([2, 1])
    expected = {"action": np.array([[0, 0], [0, 0]]), "logits": scores}
    assert export_check.compare({"action": np.array([[1, 0], [0, 0]]), "logits": scores}, expected, two) == 0
    with pytest.raises(PodiumError, match="1 of 4 actions"):
        export_check.compare({"action": np.array([[1, 0], [1, 0]]), "logits": scores}, expected, two)


@pytest.mark.parametrize("size, off, same", [(1, 9e-6, True), (1, 2e-5, False), (100, 5e-4, True), (1, np.nan, False)])
def test_numbers_beyond_one_are_compared_as_shares(size: float, off: float, same: bool) -> None:
    space, wanted = gym.spaces.Box(-1, 1, (1,)), np.array([[0.5]])
    expected = {"action": wanted, "mean": np.array([[float(size)]])}
    found = expected | {"action": wanted + off}
    if same:
        assert export_check.compare(found, expected, space) == pytest.approx(off)
    else:
        with pytest.raises(PodiumError, match="differs from Podium's"):
            export_check.compare(found, expected, space)


def test_what_is_forbidden_widens_no_tolerance() -> None:
    space, logits = gym.spaces.Discrete(3), np.array([[0.5, 0.2, -1e8]], np.float32)
    expected = {"action": np.array([0]), "logits": logits}
    assert export_check.compare(expected, expected, space) == 0
    with pytest.raises(PodiumError, match="1 of 1 actions"):
        export_check.compare(expected | {"action": np.array([1])}, expected, space)
    with pytest.raises(PodiumError, match="differs from Podium's"):
        export_check.compare(expected | {"logits": logits + np.float32([0.1, 0, 0])}, expected, space)


def test_observations_reach_beyond_the_episodes(runs: Any) -> None:
    rows = export_check.observations(podium.load(runs("multi")))
    real, drawn = np.split(rows, 2)
    assert len(real) >= 128 and np.abs(real.mean(0) - [100, 3]).max() < 10
    normal = (drawn - real.mean(0)) / real.std(0)
    assert np.abs(normal).max(0).min() > 10  # where a normaliser clips
    picture = export_check.observations(podium.load(runs("bytes")))
    assert picture.dtype == np.uint8 and picture.min() < 10 and picture.max() > 245
