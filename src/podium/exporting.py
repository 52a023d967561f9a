"""A member, or the best of them together, as an ONNX file. onnx and onnxruntime are imported here and nowhere else.

The graph is what torch's exporter sees when the member acts, so that an algorithm or a network needs no second
description. Before the file is written onnxruntime must act as Podium does: see `export_check.py`.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from podium import __version__
from podium.agent import Agent, load
from podium.algos.on_policy import OnPolicy
from podium.core.errors import ConfigError, MissingExtra, PodiumError
from podium.export_check import Outputs, check, reason, sizes
from podium.ops.dist import Normal
from podium.store import files
from podium.store.run import Run

OPSET = 18  # what torch's exporter is written in; onnxruntime reads it since 1.14


@dataclass(frozen=True)
class Value:
    """An input or an output of the graph."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Exported:
    """What was written, of which members, and how far onnxruntime was from Podium on the observations `checked`."""

    path: Path
    size: int
    members: tuple[int, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    checked: int
    difference: float


@contextmanager
def _one_thread() -> Iterator[None]:
    """Batches this small gain nothing from a second thread, and on a busy machine wait for it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def export(
    run: str | Path, member: int | None = None, ensemble: str | None = None, out: str | Path | None = None
) -> Exported:
    """Write the champion, the member of that id, or with `ensemble="top:K"` the best K, to `out` (else RUN.onnx)."""
    path = Path(out) if out is not None else Path(f"{Path(run).resolve().name}.onnx")
    _admit(path)
    onnx, onnxruntime = _packages()
    if ensemble is not None and member is not None:
        raise ConfigError("--ensemble", ensemble, "--member and --ensemble exclude each other")
    ids = [member] if ensemble is None else _best(Path(run), ensemble)
    loaded = [load(run, id) for id in ids]
    agents = [agent for agent in loaded if isinstance(agent, Agent)]
    if len(agents) < len(loaded):
        raise PodiumError(f"{run}: an agent of another library is exported by that library: podium.load(RUN).guest")
    outputs = _one(agents[0]) if ensemble is None else _together(agents)
    model = _model(outputs, agents[0].obs_space)
    onnx.helper.set_model_props(model, _about(agents))
    data = model.SerializeToString(deterministic=True)
    checked, difference = check(onnxruntime, data, outputs, agents)
    try:
        files.write_atomic(path, data)
    except OSError as error:
        raise PodiumError(f"{path}: cannot be written ({error})") from error
    inputs, told = (tuple(_value(onnx, value) for value in end) for end in (model.graph.input, model.graph.output))
    return Exported(path, len(data), tuple(agent.member for agent in agents), inputs, told, checked, difference)


def _admit(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is loaded."""
    if path.suffix.lower() != ".onnx":
        raise ConfigError("-o", str(path), "a file that ends in .onnx")
    if not path.absolute().parent.is_dir():
        raise ConfigError("-o", str(path), "there is no such folder")


def _packages() -> tuple[Any, Any]:
    """onnx and onnxruntime."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", "export") from error
    return onnx, onnxruntime


def _best(run: Path, text: str) -> list[int]:
    """Ids of the best K members that have a snapshot; `text` is top:K."""
    found = re.fullmatch(r"top:([1-9][0-9]*)", text)
    if found is None:
        raise ConfigError("--ensemble", text, "top:K, the best K of the leaderboard")
    with Run.open(run) as folder:
        ranked = [int(row["id"]) for row in folder.ledger.top() if row["fitness"] is not None]
        ids = [id for id in ranked if folder.snapshot_path(id).exists()]
    if int(found[1]) > len(ids):
        raise ConfigError("--ensemble", text, f"K is at most {len(ids)}: so many members of this run have a snapshot")
    return ids[: int(found[1])]


def _about(agents: Sequence[Agent]) -> dict[str, str]:
    """For whoever comes upon the file."""
    members, steps = (", ".join(str(getattr(agent, name)) for agent in agents) for name in ("member", "step"))
    return {"env": agents[0].env, "members": members, "steps": steps}


# ---- what is traced


def _decide(agent: Agent, obs: Tensor) -> dict[str, Tensor]:
    """A member's most likely `action`, as its algorithm has it, and the parameters of its distribution, if any."""
    algorithm: Any = agent._algorithm
    core, x = getattr(algorithm, "core", None), obs[None]
    if not (isinstance(core, OnPolicy) and algorithm.act == core.act):
        return {"action": algorithm.act(x, {}, explore=False)[0]["action"][0]}
    params = core.net.policy(core._inputs(x))  # as its `act` does, once for both
    action, first = core.net.dist.mode(params)[0], params[0][0]
    if isinstance(core.net.dist, Normal):
        return {"action": action, "mean": first, "std": params[1].exp().expand_as(first)}
    return {"action": action, "logits": first}


def _one(agent: Agent) -> Outputs:
    """One member by itself: the action, and `logits`, or `mean` and `std`."""
    for_env = _for_env(agent.action_space)

    def outputs(obs: Tensor) -> dict[str, Tensor]:
        decided = _decide(agent, obs)
        return decided | {"action": for_env(decided["action"])}

    return outputs


def _together(agents: Sequence[Agent]) -> Outputs:
    """Several members: in a Box the mean of their actions, else the best choice by the mean of their probabilities."""
    space = agents[0].action_space
    for_env, options = _for_env(space), sizes(space)
    exact = _dtype(np.result_type(np.float32, space.dtype))

    def mean(obs: Tensor) -> dict[str, Tensor]:
        actions = torch.stack([for_env(_decide(agent, obs)["action"]) for agent in agents])
        return {"action": actions.mean(0, dtype=exact).to(actions.dtype)}

    def vote(obs: Tensor) -> dict[str, Tensor]:
        logits = torch.stack([_logits(agent, obs) for agent in agents])
        choices = [part.softmax(-1).mean(0) for part in logits.split(options, -1)]
        action = torch.stack([choice.argmax(-1) for choice in choices], -1)
        return {"action": for_env(action.reshape(-1, *(space.shape or ()))), "probabilities": torch.cat(choices, -1)}

    return mean if isinstance(space, Box) else vote


def _logits(agent: Agent, obs: Tensor) -> Tensor:
    decided = _decide(agent, obs)
    if "logits" not in decided:
        raise PodiumError(f"member {agent.member} has no probabilities to average, so it cannot be in an ensemble")
    return decided["logits"]


def _for_env(space: Any) -> Callable[[Tensor], Tensor]:
    """From an algorithm's action `[B, ...]` to what the env takes, as `Agent.act` has it."""
    if not isinstance(space, Box):
        start = torch.as_tensor(space.start)
        return lambda action: action + start
    exact, dtype = _dtype(np.result_type(np.float32, space.dtype)), _dtype(space.dtype)
    low, high = (torch.as_tensor(bound).to(exact) for bound in (space.low, space.high))
    return lambda action: action.to(exact).clamp(low, high).to(dtype)


def _dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


class _Traced(nn.Module):
    """Outputs in the form that the exporter takes."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__()
        self._outputs = outputs

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._outputs(obs).values())


@torch.no_grad()
def _model(outputs: Outputs, space: gym.Space[Any]) -> Any:
    """The graph for any number of observations, with nothing in it of the machine it was made on."""
    obs = torch.zeros(2, *(space.shape or ()), dtype=_dtype(space.dtype))
    names, shapes = list(outputs(obs)), {"obs": {0: torch.export.Dim.DYNAMIC}}
    try:
        with _quiet():
            program = torch.export.export(_Traced(outputs).eval(), (obs,), dynamic_shapes=shapes)
            written = torch.onnx.export(
                program,
                dynamo=True,
                input_names=["obs"],
                output_names=names,
                dynamic_shapes={"obs": {0: "batch"}},
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as error:  # a user's own network may hold anything
        raise PodiumError(f"this network cannot be written as ONNX ({reason(error)})") from error
    assert written is not None
    model = written.model_proto
    model.producer_name, model.producer_version = "podium", __version__
    for item in (model.graph, *model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output):
        item.ClearField("metadata_props")  # paths and lines of source
        item.ClearField("doc_string")
    model.graph.ClearField("value_info")
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's remarks on packages it could use, tensors it takes for constants, and graphs it gives up."""
    before = logging.root.manager.disable
    logging.disable()  # each part of torch has a logger and a handler of its own
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _value(onnx: Any, value: Any) -> Value:
    kind = value.type.tensor_type
    shape = tuple(d.dim_param or int(d.dim_value) for d in kind.shape.dim)
    return Value(value.name, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name, shape)
