"""Words become one config tree: which of them wins, and what they may say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from podium import checks, lookup
from podium.compose import GROUPS, compose, preset_text, presets
from podium.core import config
from podium.core.errors import PodiumError


def test_later_trees_win_leaf_by_leaf() -> None:
    assert config.merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"b": 4}) == {"a": {"x": 1, "y": 3}, "b": 4}


def test_each_is_a_value_not_a_section() -> None:
    each = {"algo": {"lr": {"each": [1, 2]}}}
    assert config.merge({"algo": {"lr": {"each": [3]}}}, each) == each
    assert config.merge({"algo": {"lr": 0.1}}, each) == each
    assert config.merge(each, {"algo": {"lr": 0.1}}) == {"algo": {"lr": 0.1}}


def test_merging_changes_none_of_the_trees() -> None:
    one = {"a": {"x": {"y": 1}}}
    config.merge(one, {"a": {"x": {"y": 2}}})
    assert one == {"a": {"x": {"y": 1}}}


@pytest.mark.parametrize(
    ("word", "tree"),
    [
        ("a.b.c=3", {"a": {"b": {"c": 3}}}),
        ("a=1e-3", {"a": 1e-3}),
        ("a=2e6", {"a": 2e6}),
        ("a=[1e-5,1e-2]", {"a": [1e-5, 1e-2]}),
        ("a={each: [1e-3, 2]}", {"a": {"each": [1e-3, 2]}}),
        ("a=null", {"a": None}),
        ("a=", {"a": None}),
        ("a=b=c", {"a": "b=c"}),
        ("algo=a2c", {"algo": {"name": "a2c"}}),
        ("env=Acrobot-v1", {"env": {"id": "Acrobot-v1"}}),
        ("algo={lr: 1}", {"algo": {"lr": 1}}),
        ("seed=3", {"seed": 3}),
    ],
)
def test_override(word: str, tree: object) -> None:
    assert config.override(word) == tree


@pytest.mark.parametrize("word", ["=3", "a..b=3", ".a=3", "a.=3", "a", "a=[1"])
def test_no_override(word: str) -> None:
    with pytest.raises(PodiumError):
        config.override(word)


def test_the_order(tmp_path: Path) -> None:
    """Defaults < env preset < algorithm preset < the env's numbers for it < files < key=value."""
    assert checks.record({"env": {"id": "CartPole-v1"}, "algo": {"name": "ppo"}}).stop.steps == 100_000
    preset = compose(["cartpole", "ppo"])
    assert preset["algo"]["lr"] == 1e-3 and preset["env"]["num"] == 8
    file = tmp_path / "mine.yaml"
    file.write_text("algo: {lr: 0.5, clip: 0.5}\nenv: {num: 16}\nabout: mine\n")
    other = tmp_path / "other.yaml"
    other.write_text("algo: {clip: 0.75}\n")
    mixed = compose(["algo.lr=0.25", str(file), "ppo", str(other), "cartpole", "algo.lr=0.125"])
    assert (mixed["algo"]["lr"], mixed["algo"]["clip"], mixed["env"]["num"]) == (0.125, 0.75, 16)
    assert mixed["algo"]["discount"] == preset["algo"]["discount"]
    assert "about" not in mixed and "for" not in mixed


def test_for_applies_to_the_algorithm_that_is_chosen_in_the_end(tmp_path: Path) -> None:
    assert compose(["cartpole"])["algo"]["steps"] == 32  # PPO is the default
    assert "steps" not in compose(["cartpole", "a2c"])["algo"] or compose(["cartpole", "a2c"])["algo"]["steps"] != 32
    assert compose(["cartpole", "a2c"]) == compose(["cartpole", "algo=a2c"]) == compose(["cartpole", "ppo", "algo=a2c"])
    file = tmp_path / "mine.yaml"
    file.write_text("env: Acrobot-v1\nfor: {a2c: {algo: {lr: 0.5}}, ppo: {algo: {lr: 0.25}}}\n")
    assert compose([str(file), "a2c"]) == {"env": {"id": "Acrobot-v1"}, "algo": {"name": "a2c", "lr": 0.5}}
    assert compose([str(file)])["algo"] == {"name": "ppo", "lr": 0.25}


def test_words_are_presets_files_ids_and_settings(tmp_path: Path) -> None:
    assert compose(["Acrobot-v1"]) == {"algo": {"name": "ppo"}, "env": {"id": "Acrobot-v1"}}
    assert compose(["some.module:Env"])["env"] == {"id": "some.module:Env"}
    folder = tmp_path / "a=b"
    folder.mkdir()
    (folder / "x.yaml").write_text("seed: 7")
    assert compose([str(folder / "x.yaml")])["seed"] == 7
    bare = tmp_path / "settings"
    bare.write_text("algo: a2c")
    assert compose([str(bare)])["algo"] == {"name": "a2c"}


BOX = ("ddpg", "td3", "sac", "redq", "sb3-ddpg", "sb3-td3", "sb3-sac", "sb3-tqc", "sb3-crossq")


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_a_whole_experiment_with_every_algorithm_it_is_tuned_for(name: str) -> None:
    group, tree = presets()[name]
    assert group in GROUPS and tree["about"] and yaml.safe_load(preset_text(name))["about"] == tree["about"]
    for algo in tree.get("for", {}) or lookup.ALGORITHMS:
        fitting = "pong" if name.startswith("pong") else "pendulum" if name in BOX else "cartpole"
        words = [name, algo] if group == "env" else [name, fitting]
        checks.validate(compose(words))


def test_numbers_for_whole_numbers() -> None:
    words = ["cartpole", "stop.steps=2e5", "train.members=3.0", "algo.epochs=1e1"]
    experiment = checks.validate(compose(words))
    assert (experiment.stop.steps, experiment.train.members) == (200_000, 3)
    assert isinstance(experiment.stop.steps, int)


def test_a_complete_config_is_its_own_preset() -> None:
    words = ["cartpole", "train.members=2", "algo.lr=[1e-4, 1e-2]", "algo.entropy={each: [0, 0.1]}"]
    complete = checks.validate(compose(words)).model_dump(mode="json")
    again = config.parse(yaml.safe_dump(complete), "test")
    assert checks.validate(again).model_dump(mode="json") == complete
    assert set(complete) == {"seed", "env", "algo", "net", "critic", "replay", "train", "eval", "stop"}
    assert complete["algo"]["critic"] == 0.5  # a default, written out


def test_leaves() -> None:
    tree = {"a": {"b": 1, "c": {"each": [1]}, "d": {}}, "e": None}
    assert dict(config.leaves(tree)) == {"a.b": 1, "a.c": {"each": [1]}, "a.d": {}, "e": None}
