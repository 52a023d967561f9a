"""A member, or the best of them together, as an ONNX file. onnx and onnxruntime are imported here and nowhere else.

The graph is what torch's exporter sees when the member acts, so that an algorithm or a network needs no second
description. Before the file is written onnxruntime must act as Podium does: see `export_check.py`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from podium import __version__
from podium.agent import Agent, Player, load
from podium.core.errors import ArgumentError, MissingExtra, PodiumError
from podium.ensemble import Ensemble, best
from podium.export_check import Outputs, check, reason
from podium.ops.actions import ToEnv, dtype_of
from podium.store import files

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
    run: str | Path,
    member: int | None = None,
    ensemble: str | None = None,
    out: str | Path | None = None,
    trust: bool = False,
) -> Exported:
    """Write the champion, the member of that id, or with `ensemble="top:K"` the best K, to `out` (else RUN.onnx).

    `trust` as in `podium.load`.
    """
    path = Path(out) if out is not None else Path(f"{Path(run).resolve().name}.onnx")
    _admit(path)
    onnx, onnxruntime = _packages()
    if ensemble is not None and member is not None:
        raise ArgumentError(
            "ensemble",
            ensemble,
            "member= and ensemble= exclude each other",
            "--member and --ensemble exclude each other",
        )
    agents = [_alone(run, member, trust)] if ensemble is None else best(Path(run), ensemble, trust)
    # Each with an algorithm of its own: a graph cannot hold a user's module that was stacked.
    player = agents[0] if ensemble is None else Ensemble(agents, stacked=False)
    outputs = _outputs(player)
    model = _model(outputs, player.obs_space)
    onnx.helper.set_model_props(model, _about(agents))
    data = model.SerializeToString(deterministic=True)
    checked, difference = check(onnxruntime, data, outputs, player)
    try:
        files.write_atomic(path, data, linked=True)
    except OSError as error:
        raise PodiumError(f"{path}: cannot be written ({error})") from error
    inputs, told = (tuple(_value(onnx, value) for value in end) for end in (model.graph.input, model.graph.output))
    return Exported(path, len(data), tuple(agent.member for agent in agents), inputs, told, checked, difference)


def _admit(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is loaded."""
    if path.suffix.lower() != ".onnx":
        raise ArgumentError("out", str(path), "a file that ends in .onnx")
    if not path.absolute().parent.is_dir():
        raise ArgumentError("out", str(path), "there is no such folder")


def _packages() -> tuple[Any, Any]:
    """onnx and onnxruntime."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", "export") from error
    return onnx, onnxruntime


def _alone(run: str | Path, member: int | None, trust: bool) -> Agent:
    agent = load(run, member, trust)
    if not isinstance(agent, Agent):
        raise PodiumError(f"{run}: an agent of another library is exported by that library: podium.load(RUN).guest")
    return agent


def _about(agents: Sequence[Agent]) -> dict[str, str]:
    """For whoever comes upon the file."""
    members, steps = (", ".join(str(getattr(agent, name)) for agent in agents) for name in ("member", "step"))
    return {"env": agents[0].env, "members": members, "steps": steps}


# ---- what is traced


def _outputs(player: Player) -> Outputs:
    """The action as the env takes it, and what else is told: `logits`, `mean` and `std`, or `probabilities`."""
    to_env = ToEnv(player._actions.source)

    def outputs(obs: Tensor) -> dict[str, Tensor]:
        told = player.decide(obs)
        return told | {"action": to_env(told["action"])}

    return outputs


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
    obs = torch.zeros(2, *(space.shape or ()), dtype=dtype_of(space.dtype))
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
