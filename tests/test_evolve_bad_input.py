"""What a user may get wrong about evolution is refused before it starts: exit code 2, one line, no file touched."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import podium
import whole
from podium import entrants
from podium.compose import compose
from podium.core.errors import ConfigError
from whole import refused

TINY = (
    "cartpole",
    "ppo",
    "evolve.members=4",
    "evolve.interval=256",
    "stop.steps=512",
    "stop.fitness=null",
    "eval.episodes=2",
    "eval.max_steps=50",
    "algo.epochs=1",
    "algo.batch=256",
    "train.checkpoint=256",
)


SETTINGS = {
    # a gene's range
    "algo.lr=[1e-9, 1e-2]": "algo.lr: [1e-09, 0.01] is not allowed; a number of at least 0, a range [low, high] within",
    "algo.discount=[0.9, 1]": "algo.discount: [0.9, 1] is not allowed; a number from 0 to 1, a range [low, high] with",
    "algo.clip=[0.5, 0.1]": "algo.clip: [0.5, 0.1] is not allowed",
    "algo.lr=[1e-3]": "algo.lr: [0.001] is not allowed",
    "algo.lr=[1e-3, null]": "algo.lr: [0.001, None] is not allowed",
    # a value that is wrong is refused, though a range would take its place
    "algo.lr=fast": "algo.lr: 'fast' is not allowed; a number of at least 0",
    "algo.lr=-1": "algo.lr: -1 is not allowed; a number of at least 0",
    "algo.lr={each: [1, 2]}": "2 values for 4 members",
    # its own fields
    "evolve.strategy=truncate": "evolve.strategy: 'truncate' is not allowed; one of tournament, truncation, wta",
    "evolve=truncate": "evolve.strategy: 'truncate' is not allowed",
    "evolve=": "evolve.strategy: None is not allowed",
    "evolve.members=1": "evolve.members: 1 is not allowed; a whole number of at least 2",
    "evolve.members=many": "evolve.members: 'many' is not allowed; a whole number of at least 2",
    "evolve.members=2.5": "evolve.members: 2.5 is not allowed",
    "evolve.members=true": "evolve.members: True is not allowed",
    "evolve.members=": "evolve.members: None is not allowed",
    "evolve.interval=0": "evolve.interval: 0 is not allowed; a whole number of at least 1",
    "evolve.interval=513": "evolve.interval: 513 is not allowed; at most the run's length, stop.steps=512",
    "algo.steps=96": "algo.steps: 96 is not allowed; at most 64: a rollout, algo.steps x env.num = 96 x 8 = 768 steps, "
    "is longer than the run, stop.steps=512",
    "env.num=1024": "algo.steps: 32 is not allowed; fewer env.num: a rollout",
    "evolve.entrants=[ppo, {algo: {name: ppo, steps: 96}}]": "evolve.entrants[1]: algo.steps: 96 is not allowed; at",
    "evolve.burn_in=512": "evolve.burn_in: 512 is not allowed; less than the run's length, stop.steps=512",
    "evolve.burn_in=-1": "evolve.burn_in: -1 is not allowed",
    "evolve.seconds=0": "evolve.seconds: 0 is not allowed; a number of more than 0 or null",
    "evolve.slice=0": "evolve.slice: 0 is not allowed",
    "evolve.window=0": "evolve.window: 0 is not allowed",
    "evolve.confirm=maybe": "evolve.confirm: 'maybe' is not allowed; true or false",
    "evolve.fraction=0.51": "evolve.fraction: 0.51 is not allowed; a number of more than 0 and at most 0.5",
    "evolve.fraction=0": "evolve.fraction: 0 is not allowed",
    "evolve.rivals=1": "evolve.rivals: 1 is not allowed; a whole number of at least 2",
    "evolve.alpha=0": "evolve.alpha: 0 is not allowed; a number of more than 0 and less than 1",
    "evolve.alpha=1": "evolve.alpha: 1 is not allowed",
    "evolve.mutate=some": "evolve.mutate: 'some' is not allowed; one of changed, all",
    "evolve.factors=[0, 1.2]": "evolve.factors: [0.0, 1.2] is not allowed; two numbers above 0",
    "evolve.factors=[-0.8, 1.2]": "evolve.factors: [-0.8, 1.2] is not allowed; two numbers above 0",
    "evolve.factors=[.nan, 1.2]": "evolve.factors: nan is not allowed; a list of 2, each a number",
    "evolve.factors=[.inf, 1.2]": "evolve.factors: inf is not allowed",
    "evolve.factors=[1.2]": "evolve.factors: [1.2] is not allowed; a list of 2, each a number\n",
    "evolve.factors=2": "evolve.factors: 2 is not allowed; a list of 2",
    "evolve.resample=1.5": "evolve.resample: 1.5 is not allowed; a number of at least 0 and at most 1",
    "evolve.generator=best": "evolve.generator: 'best' is not allowed; one of softmax, top-k, tournament",
    "evolve.top=0": "evolve.top: 0 is not allowed",
    "evolve.fresh=2": "evolve.fresh: 2 is not allowed; a number of at least 0 and at most 1",
    "evolve.updater=any": "evolve.updater: 'any' is not allowed; one of score, strictly-better",
    "evolve.board=1": "evolve.board: 1 is not allowed; a whole number of at least 2 or null",
    "evolve.intervall=3": "evolve.intervall: no such setting; did you mean evolve.interval?",
    # what to search
    "evolve.genes=[lrr]": "evolve.genes: there is no 'lrr'; did you mean 'lr'?",
    "evolve.genes=[epochs]": "evolve.genes: there is no 'epochs'; allowed: clip, critic, discount",
    "evolve.genes=lr": "evolve.genes: 'lr' is not allowed; one of auto or a list, each a word",
    "evolve.genes=5": "evolve.genes: 5 is not allowed",
    "evolve.genes=": "evolve.genes: None is not allowed",
    # the sections beside it
    "train.members=8": "train.members: 8 is not allowed; evolve.members, 4, sets the population",
    "train=5": "train: 5 is not allowed; a mapping of settings",
    "train.schedule=[{step: 0, genes: {lr: 1}}]": "train.schedule: 'a schedule' is not allowed; none",
    "stop.generations=0": "stop.generations: 0 is not allowed; a whole number of at least 1 or null",
    # entrants
    "evolve.entrants=ppo": "evolve.entrants: 'ppo' is not allowed; a list, for example [ppo, a2c]",
    "evolve.entrants={ppo: 1}": "evolve.entrants: {'ppo': 1} is not allowed; a list",
    "evolve.entrants=[pppo]": "evolve.entrants: there is no 'pppo'; did you mean 'ppo'?",
    "evolve.entrants=[ppo, zzz]": "evolve.entrants: there is no 'zzz'; names of algorithms, or mappings with algo",
    "evolve.entrants=[3]": "evolve.entrants: there is no '3'",
    "evolve.entrants=[null]": "this one names no algorithm",
    "evolve.entrants=[{net: {hidden: [8]}}]": "this one names no algorithm",
    "evolve.entrants=[{algo: ppo, env: CartPole-v1}]": "is not allowed; names of algorithms, or mappings with algo",
    "evolve.entrants=[ppo, ppo, ppo, ppo, ppo]": "evolve.members: 4 is not allowed; at least one for each of 5",
    "evolve.entrants=[{algo: {name: ppo, lr: fast}}]": "evolve.entrants[0]: algo.lr: 'fast' is not allowed",
    "evolve.entrants=[{algo: {name: ppo, batch: 100}}]": "evolve.entrants[0]: algo.batch: 100 is not allowed",
    "evolve.entrants=[{algo: ppo, net: {hiden: [8]}}]": "evolve.entrants[0]: net.hiden: no such setting; did you mean",
    "evolve.entrants=[ppo, {algo: {name: ppo, lr: [1e-9, 1]}}]": "evolve.entrants[1]: algo.lr: [1e-09, 1] is not",
    "evolve.entrants=[{algo: {name: ppo, lr: {each: [1, 1]}}}, ppo]": "evolve.entrants[0]: algo.lr: {'each': [1, 1]}",
}


@pytest.mark.parametrize("word", SETTINGS)
def test_a_setting(word: str, tmp_path: Path) -> None:
    assert SETTINGS[word] in refused(tmp_path, "evolve", *TINY, word, "-o", tmp_path / "run")


OBJECTIVES = "evolve.objectives=[return,-length]"
ONLY_A2C = ("CartPole-v1", "stop.steps=8192")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*TINY, "nsga2"), "evolve.objectives: [] is not allowed; two or more for nsga2"),
        ((*TINY, "nsga2", "evolve.objectives=[return]"), "evolve.objectives: ['return'] is not allowed; two or more"),
        ((*TINY, "nsga2", "evolve.objectives=return"), "evolve.objectives: 'return' is not allowed; a list"),
        ((*TINY, "nsga2", "evolve.objectives=[return,-speed]"), "'speed' is not allowed; this env reports return, len"),
        ((*TINY, "nsga2", "evolve.objectives=[return,return]"), "['return', 'return'] is not allowed; each objective"),
        (
            (*TINY, "nsga2", "evolve.objectives=[return,-return]"),
            "['return', '-return'] is not allowed; each obj",
        ),
        ((*TINY, "nsga2", OBJECTIVES, "evolve.members=3"), "evolve.members: 3 is not allowed; at least 4 for nsga2"),
        (
            (*TINY, "tournament-selection", "evolve.rivals=5"),
            "evolve.rivals: 5 is not allowed; at most evolve.members, 4",
        ),
        ((*TINY, "t-test", "eval.episodes=1"), "eval.episodes: 1 is not allowed; at least 2, since evolve.strategy is"),
        ((*TINY, "tournament", "wta"), "tournament wta: two names of one group; name one evolve, not two"),
        ((*TINY, "algo.lr={each: [1, 1, 1, 1]}", "evolve.genes=[lr]"), "since evolve.genes names it"),
        (
            (*TINY, "evolve.entrants=[a2c, ppo]"),
            "evolve.entrants[0]: algo.epochs=1: algo.epochs is a setting of",
        ),
        (
            (*ONLY_A2C, "evolve.entrants=[a2c, ppo]", "algo.clip=[0.1, 0.2]"),
            "evolve.entrants[0]: algo.clip=[0.1,",
        ),
        (
            (*ONLY_A2C, "evolve.entrants=[ppo, a2c]", "evolve.genes=[clip]"),
            "evolve.entrants[1]: evolve.genes: there",
        ),
        (("ppo", "tournament"), "env.id: missing"),
        (("cartpole", "turnament"), "there is no 'turnament'; did you mean 'tournament'?"),
    ],
)
def test_words_that_do_not_go_together(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, "evolve", *words, "-o", tmp_path / "run")


NAMES = ("tournament", "truncation", "wta", "tournament-selection", "t-test", "softmax", "nsga2")
ONLY = {  # what is for some strategies only: another value than its default, the default, and those that take it
    "seconds=5": ("5.0", "null", ["tournament"]),
    "generator=top-k": ("'top-k'", '"softmax"', ["tournament"]),
    "fresh=0.5": ("0.5", "0.0", ["tournament"]),
    "top=2": ("2", "4", []),
    "rivals=3": ("3", "2", ["tournament-selection"]),
    "fraction=0.5": ("0.5", "0.25", ["truncation"]),
    "alpha=0.1": ("0.1", "0.05", ["t-test"]),
    "objectives=[return,-length]": ("['return', '-length']", "[]", ["nsga2"]),
    "crossover=0.5": ("0.5", "1.0", ["nsga2"]),
    "eta=3": ("3.0", "20.0", ["nsga2"]),
    "mutate=all": ("'all'", '"changed"', NAMES[1:6]),
    "factors=[0.5,2]": ("[0.5, 2.0]", "[0.8, 1.25]", NAMES[:6]),
    "resample=0.5": ("0.5", "0.05", NAMES[:6]),
    "updater=strictly-better": ("'strictly-better'", '"score"', NAMES[:6]),
    "board=9": ("9", "null", NAMES[:6]),
}


def settled(*words: str) -> None:
    """As far as `podium evolve WORDS` goes before it writes anything."""
    entrants.validate(entrants.complete(compose(words)))


@pytest.mark.parametrize("strategy", NAMES)
def test_a_setting_that_the_strategy_does_not_use(strategy: str) -> None:
    words = (*TINY, strategy, *([OBJECTIVES] if strategy == "nsga2" else []))
    settled(*words, "evolve.window=2", "evolve.confirm=false", "evolve.burn_in=256", "evolve.slice=2")  # all use these
    for word, (value, default, users) in ONLY.items():
        if strategy in users:
            settled(*words, f"evolve.{word}")
        else:
            message = f"evolve.{word.partition('=')[0]}: {value} is not allowed; {default}: it is for "
            with pytest.raises(ConfigError, match=re.escape(message)):
                settled(*words, f"evolve.{word}")


def test_a_setting_that_the_generator_does_not_use() -> None:
    settled(*TINY, "evolve.generator=top-k", "evolve.top=2")
    settled(*TINY, "evolve.generator=tournament", "evolve.rivals=3")
    for words in (["evolve.top=2"], ["evolve.generator=tournament", "evolve.top=2"]):
        with pytest.raises(ConfigError, match=r"evolve\.top: 2 is not allowed; 4: it is for generator top-k only"):
            settled(*TINY, *words)
    with pytest.raises(ConfigError, match="2: it is for tournament-selection, generator tournament only"):
        settled(*TINY, "evolve.generator=top-k", "evolve.rivals=3")


def test_a_setting_without_use_is_refused_in_one_line(tmp_path: Path) -> None:
    said = refused(tmp_path, "evolve", *TINY, "wta", "evolve.fraction=0.5", "-o", tmp_path / "run")
    assert "evolve.fraction: 0.5 is not allowed; 0.25: it is for truncation only" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tournament"], "evolve: these settings are for podium evolve"),
        (["evolve.members=8"], "evolve: these settings are for podium evolve"),
        (["evolve=truncation"], "evolve: these settings are for podium evolve"),
        (["stop.generations=3"], "stop.generations: 3 is not allowed; null: only podium evolve has generations"),
    ],
)
def test_training_does_not_evolve(words: list[str], message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, "train", "cartpole", *words, "-o", tmp_path / "run")


SCHEDULES = {
    '[{"step": 0, "genes": {"lrr": 1}}]': "train.schedule: there is no 'lrr'; did you mean 'lr'?",
    '[{"step": 0, "genes": {"lr": -1}}]': "train.schedule.lr: -1.0 is not allowed; a number of at least 0",
    '[{"step": 5, "genes": {"lr": 1}}]': "step: 5 is not allowed; steps are whole numbers, begin with 0",
    '[{"step": 0, "genes": {"lr": "fast"}}]': "lr: 'fast' is not allowed; a finite number",
    "[]": "the schedule is empty",
    "": "the schedule is empty",
    "lr,0.1": "neither JSON nor CSV",
}


@pytest.mark.parametrize("text", SCHEDULES)
def test_a_schedule(text: str, tmp_path: Path) -> None:
    (tmp_path / "schedule").write_text(text)
    words = ("train", "cartpole", "ppo", "--schedule", tmp_path / "schedule", "-o", tmp_path / "run")
    assert SCHEDULES[text] in refused(tmp_path, *words)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that evolved, and one that only trained."""
    folder = tmp_path_factory.mktemp("done")
    podium.evolve(*TINY, "truncation", out=folder / "evolved")
    words = [word for word in TINY if not word.startswith("evolve.")]
    podium.train(*words, "eval.every=256", out=folder / "trained")
    return folder


CHANGES = {
    "evolve=wta": "evolve.strategy: 'wta' is not allowed; a resumed run keeps 'truncation'",
    "evolve.members=8": "evolve.members: 8 is not allowed; a resumed run keeps 4",
    "evolve.genes=[lr]": "evolve.genes: ['lr'] is not allowed; a resumed run keeps 'auto'",
    "evolve.entrants=[a2c]": "evolve.entrants: ['a2c'] is not allowed; a resumed run keeps []",
    "evolve.objectives=[return]": "evolve.objectives: ['return'] is not allowed; a resumed run keeps []",
    "train.members=8": "train.members: 8 is not allowed; a resumed run keeps 4",
    "algo.lr=[1e-4, 1e-3]": "algo.lr: [0.0001, 0.001] is not allowed; a resumed run keeps [1e-05, 0.01]",
    "algo.epochs=3": "algo.epochs: 3 is not allowed; a resumed run keeps 1",
    "algo=a2c": "algo.",
    "seed=3": "seed: 3 is not allowed; a resumed run keeps 0",
    "env.num=4": "env.num: 4 is not allowed; a resumed run keeps 8",
    "stop.steps=256": "stop.steps: 256 is not allowed; more than the 512 steps that the run has already",
    "evolve.interval=0": "evolve.interval: 0 is not allowed",
    "evolve.seconds=3": "evolve.seconds: 3.0 is not allowed; a resumed run keeps None",
    "evolve.fraction=0.7": "evolve.fraction: 0.7 is not allowed",
}


@pytest.mark.parametrize("word", CHANGES)
def test_what_a_resumed_run_keeps(word: str, done: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(done / "evolved", tmp_path / "run"))
    assert CHANGES[word] in refused(tmp_path, "resume", run, word)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("evolve=tournament", "evolve: these settings are for a run of podium evolve"),
        ("evolve.interval=64", "evolve: these settings are for a run of podium evolve"),
        ("stop.generations=3", "stop.generations: 3 is not allowed; null: only podium evolve has generations"),
    ],
)
def test_a_run_that_trained_does_not_go_on_evolving(word: str, message: str, done: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(done / "trained", tmp_path / "run"))
    assert message in refused(tmp_path, "resume", run, word)


def test_what_a_resumed_run_may_change(done: Path, tmp_path: Path) -> None:
    """How it goes on: intervals, mutation, selection's numbers; the rest of the run follows them."""
    run = Path(shutil.copytree(done / "evolved", tmp_path / "run"))
    words = ("evolve.interval=512", "evolve.factors=[0.5, 2]", "evolve.board=4", "evolve.window=2", "stop.steps=1024")
    assert whole.command("resume", run, *words, "-q") == (0, "", "")
    top = json.loads(whole.command("top", run, "--json")[1])
    assert len(top) <= 4
    assert {score[1] for score in whole.scores(run)} == {"256", "512", "768", "1024"}
