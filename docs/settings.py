"""Writes the tables of settings into docs/config.md, from the classes that define them: python docs/settings.py"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from podium import foreign_names, lookup, settings
from podium.core import config, hyper

PAGE = Path(__file__).parent / "config.md"
MEANING = {
    "seed": "all random numbers of the run follow from it and the members' ids",
    "env.source": "`native`: on tensors; `mujoco`, `atari`: batches of their own; `gymnasium`: its own objects; "
    "`workers`: those in processes of their own; `auto`: see [environments](environments.md)",
    "env.normalise_obs": "shift and scale observations by their running mean and deviation, for each member",
    "env.normalise_reward": "divide rewards by the running deviation of the return, for each member",
    "env.kwargs": "keywords for the env's constructor",
    "net.activation": "between the layers",
    "net.layer_norm": "layer normalisation before each activation",
    "train.device": "where tensors live, as torch names it",
    "eval.episodes": "episodes of each evaluation; fitness is their mean return",
    "stop.seconds": "seconds of the run, evaluations included, over all resumes; see [environments](environments.md)",
    "algo.name": "the algorithm",
    "algo.lr": "learning rate",
    "algo.discount": "γ",
    "algo.lam": "λ of generalised advantage estimation",
    "algo.clip": "ε: how far the ratio of probabilities may move",
    "algo.entropy": "weight of the entropy bonus",
    "algo.critic": "weight of the critic's loss",
    "algo.max_norm": "gradients are scaled to a norm of at most this; with a replay those of the critics",
    "algo.style": "worth of how a step was done, beside its reward, where an env tells it, as Vector Pong does",
    "algo.target_kl": "a member whose KL divergence exceeds 1.5 times this stops its epochs; null: never",
    "algo.epochs": "passes over each rollout",
    "algo.normalise_advantage": "standardise the advantages of each batch",
    "algo.optimiser": "the rule that applies gradients",
    "algo.tau": "τ: how far the targets move towards the critics at each of their updates",
    "algo.alpha": "how much priorities count, for `replay.prioritised=true`; 0: not at all",
    "algo.beta": "how much of the bias that priorities bring is corrected; 1: all of it",
    "algo.policy_lr": "learning rate of the policy; null: `algo.lr`",
    "algo.noise": "deviation of the noise on actions, in units of half their range",
    "algo.target_noise": "deviation of the noise on the targets' actions",
    "algo.target_clip": "the largest noise on the targets' actions",
    "algo.delay": "updates of the critics for each one of the policy",
    "algo.temperature": "α, the weight of the entropy: fixed, or where members begin",
    "algo.target_entropy": "the entropy that α is learnt for; null: minus the size of an action, or 98 % of the most",
    "algo.epsilon": "share of random actions at the beginning",
    "algo.epsilon_end": "share of random actions in the end",
    "algo.epsilon_steps": "steps of a member from one to the other",
}
"""For settings that carry no description of their own."""


def tables() -> str:
    """One table a section; one of `algo` for each algorithm."""
    parts = [_table("seed", "", {"seed": settings.Experiment.model_fields["seed"]})]
    for name, field in settings.Evolution.model_fields.items():
        if name == "algo":
            for algo, cls in lookup.ALGORITHMS.items():
                parts.append(_table(f"algo: {algo}", "algo.", cls.Settings.model_fields))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            parts.append(_table(name, f"{name}.", field.annotation.model_fields))
    return "\n".join(parts)


def _table(title: str, prefix: str, fields: dict[str, FieldInfo]) -> str:
    rows = "\n".join(_rows(prefix, fields))
    return f"### {title}\n\n| setting | default | allowed | meaning |\n|---|---|---|---|\n{rows}\n"


def _rows(prefix: str, fields: dict[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        meaning = field.description or MEANING[prefix + name]
        yield f"| `{prefix}{name}` | {_default(field)} | {_allowed(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return ""
    text = f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`"


def _allowed(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    gene = extra.get("gene") if isinstance(extra, dict) else None
    if isinstance(gene, hyper.Gene):
        return f"gene, {gene.scale}, `[{gene.low:g}, {gene.high:g}]`" + (" or null" if gene.optional else "")
    return config.allowed(field)


def names() -> str:
    """What other libraries call the settings."""
    rows = [
        f"| `{name}` | {library} | {_here(entry)} |"
        for library, entries in foreign_names.LIBRARIES.items()
        for name, entry in entries.items()
    ]
    return "| name | library | in Podium |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _here(entry: foreign_names.Entry) -> str:
    return entry if isinstance(entry, str) else " or ".join(f"`{target}`" for target in entry)


def page() -> str:
    """docs/config.md as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    for mark, made in (("settings", tables()), ("names", names())):
        pattern = rf"(<!-- {mark} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda m, made=made: f"{m[1]}\n{made}\n{m[2]}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
