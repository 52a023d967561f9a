"""Names that a user knows from another library, or without their section, are answered with Podium's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium import entrants, foreign_names, lookup, naming
from podium.compose import compose
from podium.core import config
from podium.core.errors import PodiumError
from podium.settings import Evolution
from whole import command, refused

SETTINGS = {name for name in config.names(Evolution) if not name.startswith("algo.")}
SETTINGS |= {f"algo.{name}" for cls in lookup.ALGORITHMS.values() for name in cls.Settings.model_fields}
WANTED = re.findall(
    r"\S+",
    """
    learning_rate gamma n_steps batch_size n_epochs gae_lambda ent_coef vf_coef clip_range max_grad_norm total_timesteps
    n_envs buffer_size learning_starts tau train_freq gradient_steps target_update_interval exploration_fraction
    exploration_initial_eps exploration_final_eps policy_kwargs net_arch activation_fn pbt
    lr lambda lambda_ entropy_coeff vf_loss_coeff clip_param grad_clip train_batch_size minibatch_size
    sgd_minibatch_size num_sgd_iter num_epochs rollout_fragment_length num_env_runners num_workers
    num_envs_per_env_runner num_envs_per_worker num_gpus framework evaluation_interval evaluation_duration
    num_samples perturbation_interval hyperparam_mutations quantile_fraction resample_probability
    perturbation_factors time_total_s training_iteration max_concurrent_trials metric mode
    num_envs num_steps update_epochs num_minibatches total-timesteps
    POP_SIZE BATCH_SIZE EVO_STEPS TARGET_SCORE LR GAMMA MEMORY_SIZE LEARN_STEP MAX_STEPS TAU
    """,
)


def refusal(*words: str, evolves: bool = False) -> str:
    with pytest.raises(PodiumError) as caught:
        tree = compose(words)
        entrants.validate(entrants.complete(tree) if evolves else tree)
    return str(caught.value)


@pytest.mark.parametrize("name", foreign_names.NAMES)
def test_every_entry_leads_to_settings_that_there_are(name: str) -> None:
    entry = foreign_names.NAMES[name]
    dotted = r"\b(?:env|algo|net|critic|replay|train|eval|stop|evolve|fleet)\.[a-z_]+"
    targets = re.findall(dotted, entry) if isinstance(entry, str) else entry
    assert targets or isinstance(entry, str)
    assert set(targets) <= SETTINGS


def test_no_entry_takes_the_place_of_a_setting() -> None:
    """Of a name that is a setting as well, the entry must lead to that setting; `policy` is a critic's here."""
    leaves = {name.rpartition(".")[2] for name in SETTINGS}
    for name in {*foreign_names.NAMES} & leaves - {"policy"}:
        assert foreign_names.NAMES[name][0].rpartition(".")[2] == name


@pytest.mark.parametrize("name", WANTED)
def test_a_name_is_understood_wherever_it_stands(name: str, tmp_path: Path) -> None:
    """Bare, with a right or a wrong section, in a file, and alone: with what to write, and never a mere neighbour."""
    (tmp_path / "my.yaml").write_text(f"{name}: 0.5")
    ways = (f"{name}=0.5", f"algo.{name}=0.5", f"train.{name}=0.5", str(tmp_path / "my.yaml"), name)
    entry = foreign_names.NAMES.get(name) or foreign_names.FOLDED.get(foreign_names.folded(name), ("algo.lr",))
    answers = [entry] if isinstance(entry, str) else entry
    for way in ways:
        if way != "algo.lr=0.5":  # which is right
            text = refusal("cartpole", "ppo", way)
            assert "did you mean" not in text and any(answer in text for answer in answers), text


def test_the_value_is_filled_in() -> None:
    assert (
        refusal("cartpole", "learning_rate=1e-3") == "learning_rate=1e-3: Podium calls it algo.lr; write algo.lr=1e-3"
    )
    assert refusal("cartpole", "gamma=[0.9,0.99]").endswith("write algo.discount=[0.9,0.99]")
    assert refusal("cartpole", "activation_fn=relu").endswith("net.activation; it is tanh, relu or elu")
    assert refusal("cartpole", "n_envs=4", evolves=True).endswith("write env.num=4")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((1e-3, "1e-3"), (0.95, "0.95"), (3e-4, "3e-4"), (2e6, "2e6"), (1 / 3, "0.333333333333333")),
        *((64, "64"), (True, "true"), (None, "null"), ("relu", "relu"), ([64, 0.5], "[64,0.5]"), ({"a": 1}, "VALUE")),
    ],
)
def test_a_value_is_written_as_one_would_type_it(value: object, text: str) -> None:
    assert naming.brief(value) == text


@pytest.mark.parametrize("word", ["algo.zzz=1", "zzz=1", "stop.zzz=1", "algo.qwertz=1"])
def test_no_near_name_no_guess(word: str) -> None:
    assert "did you mean" not in refusal("cartpole", word)


def test_lists_are_short(tmp_path: Path) -> None:
    for words in (["cartpole", "algo.zzz=1"], ["cartpole", "dqn", "algo.zzz=1"], ["zzzqqq"]):
        assert len(refused(tmp_path, "train", *words, "-o", tmp_path / "run")) < 300


def test_an_option_without_a_meaning_is_the_parsers_matter() -> None:
    code, _, err = command("train", "cartpole", "--frobnicate", "3")
    assert code == 2 and "No such option" in err


def test_a_guest_is_asked_what_its_own_library_says() -> None:
    pytest.importorskip("stable_baselines3")
    for word, right in (("buffer_size=5000", "algo.capacity=5000"), ("gradient_steps=2", "algo.gradient_steps=2")):
        _, _, err = command("train", "CartPole-v1", "sb3-dqn", word)
        assert f"write {right}" in err
