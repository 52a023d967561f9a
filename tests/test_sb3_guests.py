"""Every agent of Stable-Baselines3 and sb3-contrib as a member: by itself, its genes, and all that it has learnt."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv

from podium import compose, entrants, lookup
from podium import experiment as experiments
from podium.core import hyper, tree
from podium.core.errors import MissingExtra, PodiumError
from podium.envs.settings import EnvSettings
from podium.guests.sb3 import SB3

ROLLOUT = {"lr": 1e-3, "discount": 0.98, "lam": 0.9}
CLIPPED = ROLLOUT | {"entropy": 0.01, "critic": 0.4, "max_norm": 0.4, "clip": 0.1}
REPLAY = {"steps": 2, "gradient_steps": 2, "batch": 8, "warmup": 16, "capacity": 500}
GREEDY = {"lr": 1e-3, "discount": 0.9, "tau": 0.5, "max_norm": 0.7}
GREEDY |= {"epsilon": 0.9, "epsilon_end": 0.1, "epsilon_steps": 96}
SOFT = {"lr": 1e-3, "discount": 0.9, "target_entropy": -0.5}
NAMES = {"lr": "learning_rate", "discount": "gamma", "lam": "gae_lambda", "clip": "clip_range", "entropy": "ent_coef"}
NAMES |= {"critic": "vf_coef", "max_norm": "max_grad_norm", "damping": "cg_damping", "delay": "policy_delay"}
NAMES |= {"target_noise": "target_policy_noise", "target_clip": "target_noise_clip", "temperature": "ent_coef"}
NAMES |= {"epsilon": "exploration_initial_eps", "epsilon_end": "exploration_final_eps"}
NAMES |= {"drop": "top_quantiles_to_drop_per_net"}
STEPS = 48
"""Of a training; half of it comes before a gene changes."""


@dataclass(frozen=True)
class Case:
    """An agent with genes and a plan that are not the library's defaults."""

    name: str
    genes: dict[str, float]
    plan: dict[str, Any]

    @property
    def env(self) -> str:
        return "Pendulum-v1" if gym.spaces.Box in self.cls.Settings.actions[:1] else "CartPole-v1"

    @property
    def cls(self) -> type[SB3]:
        return lookup.algorithm(self.name)


CASES = [
    Case("sb3-ppo", CLIPPED, {"steps": 8, "batch": 8, "epochs": 2}),
    Case("sb3-a2c", {k: v for k, v in CLIPPED.items() if k != "clip"}, {"steps": 4}),
    Case("sb3-recurrent-ppo", CLIPPED, {"steps": 8, "batch": 8, "epochs": 2}),
    Case("sb3-trpo", ROLLOUT | {"target_kl": 0.02, "damping": 0.2}, {"steps": 8, "batch": 8, "critic_updates": 2}),
    Case("sb3-dqn", GREEDY, REPLAY | {"target_every": 4}),
    Case("sb3-qrdqn", GREEDY, REPLAY | {"target_every": 4, "n_step": 2}),
    Case("sb3-ddpg", {"lr": 1e-3, "discount": 0.9, "tau": 0.1, "noise": 0.3}, REPLAY | {"n_step": 3}),
    Case(
        "sb3-td3",
        {"lr": 1e-3, "discount": 0.9, "tau": 0.1, "noise": 0.3, "target_noise": 0.1, "target_clip": 0.2, "delay": 3},
        REPLAY,
    ),
    Case("sb3-sac", SOFT | {"tau": 0.1}, REPLAY),
    Case("sb3-tqc", SOFT | {"tau": 0.1, "drop": 3}, REPLAY),
    Case("sb3-crossq", SOFT | {"delay": 2}, REPLAY),
]
FIXED = [
    Case(case.name, {k: v for k, v in case.genes.items() if k != "target_entropy"} | {"temperature": 0.3}, plan)
    for case in CASES
    if "target_entropy" in case.genes
    for plan in [case.plan | {"learn_temperature": False}]
]
EVERY = pytest.mark.parametrize("case", CASES + FIXED, ids=lambda c: c.name + "-fixed" * ("temperature" in c.genes))


def agent(case: Case, seed: int = 0, normalise: bool = False, **genes: float) -> Any:
    env = EnvSettings(id=case.env, num=2, normalise_obs=normalise, normalise_reward=normalise)
    return case.cls(env, case.cls.Settings(**case.plan), case.genes | genes, seed)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for value in model.policy.state_dict().values()])


def online(made: SB3) -> torch.Tensor:
    """Weights that gradients move; a DQN's target follows them at steps of its own."""
    groups = [group for optimiser in made._optimisers().values() for group in optimiser.param_groups]
    return torch.cat([p.detach().flatten() for group in groups for p in group["params"]])


def native(case: Case, seed: int) -> Any:
    """The library's own model with the same numbers, in its own words."""
    given = {NAMES.get(name, name): int(v) if name in ("delay", "drop") else v for name, v in case.genes.items()}
    settings = case.cls.Settings(**case.plan)
    given |= {keyword: getattr(settings, name) for name, keyword in settings.keywords.items()}
    if (steps := given.pop("epsilon_steps", None)) is not None:
        given["exploration_fraction"] = steps / STEPS
    if (noise := given.pop("noise", None)) is not None:
        given["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, noise))
    envs = DummyVecEnv([lambda: gym.make(case.env)] * 2)
    return case.cls.Model(settings.policy, envs, seed=seed, device="cpu", **given)


def test_every_name_is_tried_here_and_has_a_preset() -> None:
    assert {case.name for case in CASES} == lookup.GUESTS.keys()
    assert all(compose.presets()[name][1]["algo"] == {"name": name} for name in lookup.GUESTS)


@EVERY
def test_it_trains_as_it_does_by_itself(case: Case) -> None:
    """All genes and plan numbers reach the model: it learns the very weights that the library learns without us."""
    alone = native(case, 3)
    alone.learn(STEPS)
    ours = agent(case, 3)
    ours.train(STEPS)
    assert torch.equal(weights(ours.model), weights(alone))
    assert not torch.equal(weights(ours.model), weights(agent(case, 3).model))


@cache
def trained(name: str, fixed: bool, changed: str | None) -> torch.Tensor:
    """Weights after a training in the midst of which one gene changes, or none."""
    case = next(c for c in CASES + FIXED if c.name == name and ("temperature" in c.genes) == fixed)
    made = agent(case, 5)
    made.train(STEPS // 2)
    if changed is not None:
        small = {"clip": 1e-4, "max_norm": 1e-3, "target_clip": 1e-3, "discount": 0.6, "lam": 0.3, "epsilon": 0.0}
        made.genes = case.genes | {changed: small.get(changed, case.genes[changed] * 3)}
    made.train(STEPS // 2)
    return weights(made.model)


LIVE = [
    pytest.param(case.name, "temperature" in case.genes, name, id=f"{case.name}-{name}")
    for case in CASES + FIXED
    for name in case.genes
    if case not in FIXED or name == "temperature"
]


@pytest.mark.parametrize(("name", "fixed", "gene"), LIVE)
def test_a_perturbed_gene_changes_the_next_update(name: str, fixed: bool, gene: str) -> None:
    """From equal weights and equal dice: only the gene differs, and it is set after the agent has learnt."""
    assert not torch.equal(trained(name, fixed, None), trained(name, fixed, gene))


@EVERY
def test_every_gene_is_tried_here(case: Case) -> None:
    settings = case.cls.Settings(**case.plan)
    assert hyper.genes(settings).keys() - settings.dead(False, False).keys() == case.genes.keys()
    torch.testing.assert_close(
        trained.__wrapped__(case.name, case in FIXED, None), trained(case.name, case in FIXED, None)
    )


@pytest.mark.parametrize("normalise", [False, True])
@EVERY
def test_all_that_was_learnt_travels(case: Case, normalise: bool) -> None:
    """Into another agent, with the same shapes at all times; the optimisers' moments count."""
    one, other = agent(case, 1, normalise), agent(case, 2, normalise)
    untrained = tree.flatten(one.state())
    one.train(STEPS)
    state = copy.deepcopy(one.state())
    assert {k: v.shape for k, v in tree.flatten(state).items()} == {k: v.shape for k, v in untrained.items()}
    learnt = {k: v for k, v in tree.flatten(state).items() if not k.startswith(("weights", "optimisers"))}
    same = {k for k, v in learnt.items() if torch.equal(untrained[k], v)}
    assert same == ({"variables.ent_coef_tensor"} if case in FIXED else set())
    other.load(tree.unflatten(tree.flatten(state)))  # by way of a file
    found, wanted = tree.flatten(other.state()), tree.flatten(state)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    for made in (one, other):  # with the same gradients the next steps are the same
        torch.manual_seed(0)
        made.model._update_learning_rate(list(made._optimisers().values()))
        for optimiser in made._optimisers().values():
            for weight in (p for group in optimiser.param_groups for p in group["params"]):
                weight.grad = torch.randn(weight.shape)
            optimiser.step()
    assert torch.equal(weights(one.model), weights(other.model))
    assert all(torch.equal(v, other._variables()[k]) for k, v in one._variables().items())
    assert len(other.evaluate(2)["return"]) == 2


REPLAYED = [case for case in CASES if "warmup" in case.plan]


@pytest.mark.parametrize("case", REPLAYED, ids=lambda case: case.name)
def test_an_empty_replay_is_filled_before_an_agent_learns_again(case: Case) -> None:
    """By the policy as it is: only new agents act at random."""
    one = agent(case, 1)
    one.train(STEPS)
    other = agent(case, 2)
    other.load(one.state())
    before, acted = online(other), []
    predict = other.model.predict
    other.model.predict = lambda *a, **k: acted.append(1) or predict(*a, **k)
    other.train(12)
    assert torch.equal(online(other), before) and len(acted) == 6
    assert other.model.replay_buffer.size() * 2 == 12 and other.model.num_timesteps == STEPS + 12
    other.train(12)  # four more steps fill it, eight are learnt from
    assert not torch.equal(online(other), before)
    assert other.model.replay_buffer.size() * 2 == 24 and other.model.gradient_steps == case.plan["gradient_steps"]


def test_a_child_keeps_the_replay_of_its_row() -> None:
    case = next(c for c in CASES if c.name == "sb3-sac")
    one, other = agent(case, 1), agent(case, 2)
    one.train(STEPS)
    other.train(STEPS)
    held = other.model.replay_buffer.observations.copy()
    other.load(one.state())
    assert np.array_equal(other.model.replay_buffer.observations, held)
    before = weights(other.model)
    other.train(4)  # learns at once
    assert not torch.equal(weights(other.model), before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cartpole", "sb3-sac"], r"sb3-sac takes Box actions, but the env has Discrete\(2\). Choose sb3-dqn"),
        (["pendulum", "sb3-dqn"], r"sb3-dqn takes Discrete actions, but the env has Box.* Choose sb3-sac"),
        (["cartpole", "sb3-dqn", "algo.warmup=200", "stop.steps=100"], "algo.warmup"),
        (["cartpole", "sb3-dqn", "algo.warmup=200", "algo.capacity=100"], r"at most algo.capacity \(100\), got 200"),
        (["cartpole", "sb3-a2c", "algo.anneal=[lr]"], "algo.anneal has no effect with sb3-a2c"),
        (["cartpole", "sb3-a2c", "train.schedule=[{step: 0, genes: {lr: 0.1}}]"], "train.schedule has no effect"),
        (["pendulum", "sb3-sac", "algo.temperature=[0.1,1]"], "algo.learn_temperature=false"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(words: list[str], message: str) -> None:
    with pytest.raises(PodiumError, match=message) as refused:
        entrants.validate(compose.compose(words))
    assert "\n" not in str(refused.value)


def test_nobody_is_compared_before_it_has_learnt() -> None:
    kind = entrants.validate(compose.compose(["pendulum", "sb3-sac", "algo.warmup=300"]))
    assert experiments.first_update(kind) == (300, "algo.warmup")
    assert experiments.first_update(entrants.validate(compose.compose(["pendulum", "sb3-a2c"])))[0] == 0


def test_an_evaluation_follows_from_the_seed() -> None:
    case = CASES[0]
    first, again, other = (agent(case, seed).evaluate(8)["return"] for seed in (1, 1, 2))
    assert first == again and first != other


@pytest.mark.parametrize(("name", "package"), [("sb3-sac", "stable_baselines3"), ("sb3-tqc", "sb3_contrib")])
def test_a_missing_package_names_its_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("podium.guests.sb3", "podium.guests.contrib"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"podium-rl\[sb3\]"):
        lookup.algorithm(name)
