"""What a user may get wrong with a learner that has a replay is refused at once, with field and value."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from gymnasium.spaces import Box

import podium
from podium import entrants
from podium.compose import compose, own, said
from podium.envs.native.pendulum import Pendulum
from whole import command, refused

DISCRETE = "it takes Discrete actions, and this env"
BOX = "it takes Box actions, and this env"
CASES = {
    # algorithms and spaces
    "dqn Pendulum-v1": f"algo.name: 'dqn' is not allowed; {DISCRETE} Box(-2.0, 2.0, (1,), float32)",
    "rainbow Pendulum-v1": f"algo.name: 'dqn' is not allowed; {DISCRETE} Box",
    "sac-discrete Pendulum-v1": f"algo.name: 'sac-discrete' is not allowed; {DISCRETE} Box",
    "sac CartPole-v1": f"algo.name: 'sac' is not allowed; {BOX} Discrete(2); for those there are dqn, rainbow, "
    "sac-discrete, ppo and a2c",
    "sac-discrete pendulum": "(1,), float32); for those there are ddpg, td3, sac, redq, ppo and a2c",
    "td3 CartPole-v1": f"algo.name: 'td3' is not allowed; {BOX} Discrete(2)",
    "ddpg CartPole-v1": f"algo.name: 'ddpg' is not allowed; {BOX} Discrete(2)",
    "redq CartPole-v1": f"algo.name: 'redq' is not allowed; {BOX} Discrete(2)",
    "dqn env=stacks:TwoDials": f"algo.name: 'dqn' is not allowed; {DISCRETE} MultiDiscrete([3 2]); for "
    "those there are ppo and a2c",
    "sac env=stacks:TwoDials": f"algo.name: 'sac' is not allowed; {BOX} MultiDiscrete([3 2])",
    "sac env=test_replay_bad_input:Unbounded": "algo.name: 'sac' is not allowed; it needs bounds of its actions",
    # the replay
    "dqn CartPole-v1 algo.batch=200 replay.capacity=100": "algo.batch: 200 is not allowed; at most what the replay "
    "holds, 96 steps",
    "dqn CartPole-v1 replay.capacity=7": "replay.capacity: 7 is not allowed; at least one step of each env; env.num: 8",
    "dqn CartPole-v1 replay.capacity=15 replay.shared=true train.members=2": "replay.capacity: 15 is not allowed; at "
    "least one step of each env; the envs of all 2 members: 16",
    "dqn CartPole-v1 replay.capacity=0": "replay.capacity: 0 is not allowed; a whole number of at least 1",
    "dqn CartPole-v1 replay.bytes=100000": "replay.bytes: 100000 is not allowed; 48000000 bytes (45.8 MiB) are needed "
    "for replay.capacity=1000000; replay.capacity=2080 is the largest that fits",
    "dqn CartPole-v1 replay.bytes=100000 train.members=2": "replay.capacity=1040 is the largest that fits",
    "dqn CartPole-v1 replay.bytes=10": "replay.bytes: 10 is not allowed; 48000000 bytes (45.8 MiB) are needed for "
    "replay.capacity=1000000; 384 are the least",
    "dqn CartPole-v1 replay.capacity=1000000000000": "replay.capacity: 1000000000000 is not allowed; half of the",
    "dqn CartPole-v1 replay.capacity=100000000000 replay.bytes=999999999999999": "replay.capacity: 100000000000 is not "
    "allowed; the memory is",
    "dqn CartPole-v1 replay.ratio=8 algo.updates=2": "algo.updates: 2 is not allowed; leave it out: replay.ratio=8",
    "dqn CartPole-v1 replay.ratio=0": "replay.ratio: 0 is not allowed; a number of more than 0 and at most 1e+06",
    "dqn CartPole-v1 replay.save_bytes=-1": "replay.save_bytes: -1 is not allowed",
    "dqn CartPole-v1 replay.capcity=5": "replay.capcity: no such setting; did you mean replay.capacity?",
    # a run that would never learn
    "dqn CartPole-v1 algo.warmup=1000 stop.steps=1000": "algo.warmup: 1000 is not allowed; less than stop.steps, 1000",
    "dqn CartPole-v1 algo.warmup=2000 stop.steps=1000": "algo.warmup: 2000 is not allowed; less than stop.steps, 1000",
    "dqn CartPole-v1 algo.warmup=1001 replay.capacity=1000": "algo.warmup: 1001 is not allowed; at most what "
    "replay.capacity=1000 holds, 1000 steps",
    "dqn CartPole-v1 algo.warmup=100 replay.capacity=100": "algo.warmup: 100 is not allowed; at most what "
    "replay.capacity=100 holds, 96 steps",
    "dqn CartPole-v1 algo.batch=1000 stop.steps=500": "algo.batch: 1000 is not allowed; at most stop.steps, 500",
    # critics
    "sac Pendulum-v1 critic.target=subset critic.subset=3": "critic.subset: 3 is not allowed; at most critic.count, 2",
    "dqn CartPole-v1 critic.target=subset": "critic.subset: 2 is not allowed; at most critic.count, 1",
    "sac Pendulum-v1 critic.subset=5": "critic.subset: 5 is not allowed; 2, unless critic.target is subset: with min",
    "dqn CartPole-v1 critic.count=0": "critic.count: 0 is not allowed; a whole number of at least 1",
    "dqn CartPole-v1 critic.target=median": "critic.target: 'median' is not allowed; one of min, mean, subset",
    "dqn CartPole-v1 critic.policy=last": "critic.policy: 'last' is not allowed; one of min, mean, first",
    "ppo CartPole-v1 replay.capacity=100": "replay.capacity: 100 is not allowed; leave it out: ppo learns without",
    "ppo CartPole-v1 critic.count=1": "critic.count: 1 is not allowed; leave it out: ppo learns without",
    "a2c CartPole-v1 critic.target=mean": "critic.target: 'mean' is not allowed; leave it out: a2c learns without",
    # settings of the algorithms
    "dqn CartPole-v1 'algo.alpha=[0.1,0.9]'": "algo.alpha: [0.1, 0.9] is not allowed; a number: without "
    "replay.prioritised=true it means nothing",
    "sac Pendulum-v1 algo.learn_temperature=false 'algo.target_entropy=[-2,-1]'": "algo.target_entropy: [-2, -1] "
    "is not allowed; a number: without algo.learn_temperature=true it means nothing",
    "sac-discrete CartPole-v1 algo.learn_temperature=false 'algo.target_entropy=[0.1,1]'": "algo.target_entropy: [0.1",
    "sac Pendulum-v1 'train.schedule=[{step: 0, genes: {alpha: 0.5}}]'": "train.schedule.alpha: 0.5 is not allowed; "
    "leave it out, or set replay.prioritised=true",
    "sac env=test_replay_bad_input:Endless": "algo.name: 'sac' is not allowed; it needs bounds of its actions",
    "dqn CartPole-v1 'algo.beta=[0.1,0.9]'": "algo.beta: [0.1, 0.9] is not allowed",
    "dqn CartPole-v1 algo.low=3 algo.high=3": "algo.low: 3.0 is not allowed; less than algo.high, 3",
    "dqn CartPole-v1 algo.low=20": "algo.low: 20.0 is not allowed; less than algo.high, 10",
    "dqn CartPole-v1 algo.distribution=c52": "algo.distribution: 'c52' is not allowed; one of none, c51, qr",
    "dqn CartPole-v1 algo.atoms=1": "algo.atoms: 1 is not allowed; a whole number of at least 2",
    "dqn CartPole-v1 algo.n_step=0": "algo.n_step: 0 is not allowed; a whole number of at least 1",
    "dqn CartPole-v1 algo.target_every=0": "algo.target_every: 0 is not allowed; a whole number of at least 1",
    "dqn CartPole-v1 algo.epsilon=1.5": "algo.epsilon: 1.5 is not allowed; a number from 0 to 1",
    "dqn CartPole-v1 algo.epsilon_steps=0": "algo.epsilon_steps: 0 is not allowed; a number of at least 1",
    "dqn CartPole-v1 algo.anneal=[epsilon]": "algo.anneal: 'epsilon' is not allowed; a list, each one of lr, beta",
    "dqn CartPole-v1 algo.anneal=[beta] stop.steps=null": "stop.steps: None is not allowed; a number of steps, since",
    "dqn CartPole-v1 algo.lam=0.9": "algo.lam is a setting of ppo and a2c; dqn does not have it",
    "ddpg Pendulum-v1 algo.process=pink": "algo.process: 'pink' is not allowed; one of gaussian, ou",
    "td3 Pendulum-v1 algo.delay=0": "algo.delay: 0 is not allowed; a whole number of at least 1",
    "td3 Pendulum-v1 algo.delay=1.5": "algo.delay: 1.5 is not allowed; a whole number of at least 1",
    "sac Pendulum-v1 algo.tau=1.5": "algo.tau: 1.5 is not allowed; a number from 0 to 1",
    "sac Pendulum-v1 algo.temperature=-1": "algo.temperature: -1 is not allowed; a number of at least 0",
    "sac Pendulum-v1 algo.temperature=0": "algo.temperature: 0 is not allowed; more than 0, or "
    "algo.learn_temperature=false",
    "sac Pendulum-v1 train.members=2 'algo.temperature={each: [1, 0]}'": "algo.temperature: {'each': [1, 0]} is not "
    "allowed; more than 0",
    "sac Pendulum-v1 algo.temperature=1e-46": "algo.temperature: 1e-46 is not allowed; more than 0",
    "sac-discrete CartPole-v1 algo.temperature=0": "algo.temperature: 0 is not allowed; more than 0",
}
FAST = ("eval.episodes=2", "eval.max_steps=50", "net.hidden=[8]", "train.threads=1", "stop.fitness=null")


class Unbounded(Pendulum):
    """Any number may be an action."""

    action_space = Box(-np.inf, np.inf, (1,))


class Endless(Pendulum):
    """The bounds are numbers, the distance between them is none."""

    action_space = Box(-3e38, 3e38, (1,))


@pytest.mark.parametrize("words", CASES)
def test_a_setting(words: str, tmp_path: Path) -> None:
    assert CASES[words] in refused(tmp_path, "train", *shlex.split(words), "-o", tmp_path / "run")


EVOLVING = {
    "evolve.entrants=[ppo,sac]": "evolve.entrants[1]: algo.name: 'sac' is not allowed; it takes Box",
    "evolve.entrants=[ppo,{algo: {name: dqn}, critic: {count: 0}}]": "critic.count: 0 is not allowed",
    "evolve.entrants=[ppo,{algo: {name: dqn, batch: 200}, replay: {capacity: 100}}]": "algo.batch: 200 is not allowed",
}


@pytest.mark.parametrize("word", EVOLVING)
def test_an_entrant(word: str, tmp_path: Path) -> None:
    assert EVOLVING[word] in refused(tmp_path, "evolve", "CartPole-v1", "tournament", word, "-o", tmp_path / "run")


NONE = "is not allowed; leave it out: ppo learns without a replay"
REPLAYLESS = {
    "[dqn, {algo: ppo, replay: {capacity: 1000}}]": f"evolve.entrants[1]: replay.capacity: 1000 {NONE}",
    "[{algo: ppo, critic: {count: 3}}, dqn]": f"evolve.entrants[0]: critic.count: 3 {NONE}",
    "[dqn, {algo: ppo, replay: {capcity: 1000}}]": "evolve.entrants[1]: replay.capcity: no such setting; did you",
    "[ppo, a2c] replay.capacity=5000": f"evolve.entrants[0]: replay.capacity: 5000 {NONE}",
    "[ppo, a2c] critic.cout=5": "critic.cout: no such setting; did you mean critic.count?",
}


@pytest.mark.parametrize("words", REPLAYLESS)
def test_an_entrant_without_a_replay_has_no_settings_of_one(words: str, tmp_path: Path) -> None:
    kinds, _, more = words.partition("] ")
    given = ("CartPole-v1", f"evolve.entrants={kinds.removesuffix(']')}]", *more.split())
    assert REPLAYLESS[words] in refused(tmp_path, "evolve", *given, "-o", tmp_path / "run")


def test_what_is_said_of_all_entrants_is_for_those_with_a_replay(tmp_path: Path) -> None:
    """Also where the settings of such a run are replayed."""
    words = ("CartPole-v1", "evolve.entrants=[ppo, dqn]", "replay.capacity=5000", "evolve.members=2")
    tree = entrants.complete(compose(words), said(words), own(words))
    found = entrants.validate(tree)
    assert [kind.replay.capacity for kind in entrants.kinds(found)] == [1_000_000, 5000]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(found.model_dump(mode="json")))
    again = (str(tmp_path / "config.yaml"),)
    replayed = entrants.validate(entrants.complete(compose(again), said(again), own(again)))
    assert replayed.model_dump()["evolve"] == found.model_dump()["evolve"]


def test_a_fixed_temperature_of_zero_is_fine(tmp_path: Path) -> None:
    words = ("sac", "Pendulum-v1", "algo.temperature=0", "algo.learn_temperature=false", "stop.steps=500", *FAST)
    code, _, err = command("train", *words, "algo.batch=8", "-o", tmp_path / "run", "-q")
    assert (code, err) == (0, "")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done") / "run"
    podium.train("dqn", "CartPole-v1", "stop.steps=400", "algo.batch=16", *FAST, out=path)
    return path


def test_a_resumed_run_with_a_replay_keeps_its_batch(done: Path) -> None:
    said = refused(done, "resume", done, "algo.batch=8", "stop.steps=800")
    assert "algo.batch: 8 is not allowed; a resumed run keeps 16" in said


OVERRIDES = ("critic.count=2", "replay.capacity=99", "replay.prioritised=true", "algo.batch=8", "algo.dueling=true")


@pytest.mark.parametrize("word", OVERRIDES)
def test_an_override_on_resume_that_does_not_fit_what_was_saved(word: str, done: Path) -> None:
    """It says which word is to blame."""
    assert word.split("=")[0] in refused(done, "resume", done, word, "stop.steps=800")
