"""Whole runs of learners with a replay: what they leave, and that stopping, killing and extending changes nothing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import podium
import whole
import worlds
from killing import killed_and_resumed
from podium import checks
from podium import experiment as experiments
from podium.compose import compose
from podium.core import tree
from podium.core.errors import PodiumError
from podium.core.streams import Streams
from podium.core.tree import Tree
from podium.ensemble import ensemble
from podium.envs.base import VecEnv
from podium.evolve.turn import Refill
from podium.pod_node import forgotten
from podium.replay import memory
from podium.store import checkpoint
from podium.store.run import Run
from test_evolve_runs import consistent
from test_evolve_runs import same as same_books
from test_runs import same

SMALL = (
    "env.num=4",
    "net.hidden=[16,16]",
    "train.threads=1",
    "eval.every=256",
    "eval.episodes=2",
    "eval.max_steps=60",
    "train.checkpoint=256",
    "algo.batch=16",
    "algo.updates=0.25",
    "algo.warmup=64",
    "replay.capacity=600",
    "stop.fitness=null",
)
SUBSET = ("critic.count=4", "critic.target=subset", "critic.subset=2")
RUNS: dict[str, tuple[str, ...]] = {
    "dqn": ("CartPole-v1", "dqn", "algo.target_every=7"),
    "rainbow": ("CartPole-v1", "rainbow", "algo.atoms=11", "algo.anneal=[lr,beta]"),
    "dqn-qr": ("CartPole-v1", "dqn", "algo.distribution=qr", "algo.atoms=5", "replay.ratio=3", *SUBSET),
    "sac-discrete": ("CartPole-v1", "sac-discrete", "replay.prioritised=true"),
    "ddpg": ("Pendulum-v1", "ddpg"),
    "ddpg-ou": ("Pendulum-v1", "ddpg", "algo.process=ou", "env.normalise_reward=true"),
    "td3": ("Pendulum-v1", "td3", "algo.n_step=3", "env.normalise_obs=true"),
    "sac": ("Pendulum-v1", "sac", "replay.prioritised=true"),
    "sac-shared": ("Pendulum-v1", "sac", "replay.shared=true"),
    "redq": ("Pendulum-v1", "redq", "algo.updates=0.75", "algo.delay=3", *SUBSET),
}
TWO = ("train.members=2", "algo.lr={each: [1e-3, 1e-2]}", "algo.discount=[0.9,0.99]")
EACH = pytest.mark.parametrize("name", RUNS)


def words(name: str, *more: str) -> tuple[str, ...]:
    own = (*RUNS[name][2:], *TWO, "stop.steps=1024", *more)
    ratio = any(word.startswith("replay.ratio=") for word in own)
    return (*RUNS[name][:2], *(word for word in SMALL if not (ratio and word.startswith("algo.updates="))), *own)


def latest(run: Path) -> Tree:
    """The state of the only pod."""
    return checkpoint.read(checkpoint.found(run)[0])[0]["pods"]["0"]


def bits(state: Tree, row: int | None = None) -> dict[str, bytes]:
    return {k: (v if row is None else v[row]).numpy().tobytes() for k, v in tree.flatten(state).items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Finished runs by name, each trained once."""
    folder, done = tmp_path_factory.mktemp("runs"), set[str]()

    def run(name: str) -> Path:
        if name not in done:
            podium.train(*words(name), out=folder / name)
            done.add(name)
        return folder / name

    return run


@EACH
def test_it_learns_and_goes_on_from_any_checkpoint_bit_for_bit(name: str, runs: Callable, tmp_path: Path) -> None:
    """With all that the replay holds, and all numbers that were drawn ahead."""
    state = latest(runs(name))
    assert (state["learnt"]["updates"] >= 0.15 * 960).all() and not state["slot"]["failed"].any()
    assert state["slot"]["learner"]["replay"]["ring"]["size"].unique().numel() == 1
    run = Path(shutil.copytree(runs(name), tmp_path / "copy"))
    code, out, err = whole.command("resume", run, "--step", 768)
    assert (code, err) == (0, "") and "statistical" not in out and "resumed from step 768" in out
    same(runs(name), run)


def test_a_resume_whose_capacity_does_not_fit_says_so(runs: Callable, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs("dqn"), tmp_path / "copy"))
    code, _, err = whole.command("resume", run, "stop.steps=2000", "replay.capacity=900")
    assert code == 2 and "it does not fit replay.capacity as changed (position" in err, err
    assert "not a checkpoint" not in err and "ValueError" not in err and "Traceback" not in err


@EACH
def test_its_champion_is_loaded_evaluated_and_exported(name: str, runs: Callable, tmp_path: Path) -> None:
    agent = podium.load(runs(name))
    obs = np.stack([agent.obs_space.sample() for _ in range(5)]) / 100
    assert np.array_equal(agent.act(obs), podium.load(runs(name)).act(obs)), "without noise"
    code, out, err = whole.command("eval", runs(name), "--episodes", 2, "--json")
    assert (code, err) == (0, "") and json.loads(out)["episodes"] == 2
    code, _, err = whole.command("export", runs(name), "-o", tmp_path / "agent.onnx")
    assert (code, err) == (0, "") and (tmp_path / "agent.onnx").exists()


def test_agents_with_different_critics_decide_together(tmp_path: Path) -> None:
    for count in (1, 2):
        podium.train(*words("dqn", f"critic.count={count}", "stop.steps=128"), out=tmp_path / str(count))
    agents = [podium.load(tmp_path / str(count)) for count in (1, 2)]
    obs = np.linspace(-0.2, 0.2, 32, dtype=np.float32).reshape(8, 4)
    assert ensemble([*agents, agents[0]]).act(obs).shape == (8,)
    assert np.array_equal(ensemble([agents[1]]).act(obs), agents[1].act(obs))


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_extended_it_equals_a_longer_run(name: str, runs: Callable, tmp_path: Path) -> None:
    podium.train(*words(name, "stop.steps=512"), out=tmp_path / "short")
    podium.resume(tmp_path / "short", "stop.steps=1024")
    same(runs(name), tmp_path / "short")


@pytest.mark.parametrize("name", ["rainbow", "ddpg-ou", "sac-shared"])
def test_killed_before_the_first_checkpoint_it_begins_anew(name: str, runs: Callable, tmp_path: Path) -> None:
    """From step 0, when no number was drawn ahead and the replay is empty."""
    podium.train(*words(name, "stop.steps=128", "train.checkpoint=128"), out=tmp_path / "run")
    podium.resume(tmp_path / "run", "stop.steps=1024", "train.checkpoint=256", step=0)
    same(runs(name), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rainbow", "sac", "ddpg-ou"])
def test_killed_at_any_moment_it_goes_on_as_if_it_were_not(name: str, tmp_path: Path) -> None:
    started = time.monotonic()
    podium.train(*words(name), out=tmp_path / "whole")
    length = time.monotonic() - started
    same(tmp_path / "whole", killed_and_resumed(tmp_path, 1, length, "train", *words(name)))


@pytest.mark.parametrize("name", ["rainbow", "ddpg-ou"])
def test_of_envs_that_cannot_be_saved_it_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    """Each checkpoint ends all episodes, in the uninterrupted run, too, and the replay knows of it."""
    podium.train(*words(name, "env.source=gymnasium", "stop.steps=768"), out=tmp_path / "run")
    run = Path(shutil.copytree(tmp_path / "run", tmp_path / "copy"))
    code, out, err = whole.command("resume", run, "--step", 512)
    assert (code, err) == (0, "") and "statistical" not in out
    same(tmp_path / "run", run)


def test_where_envs_are_restarted_nothing_goes_on() -> None:
    """No return of several steps leads from one episode into the next, and no sum of rewards does."""
    mine = words("td3", "env.normalise_reward=true")
    pod = experiments.build_pod(checks.validate(compose(mine)))
    pod.train(30)
    ring = pod.learner.replay.ring
    ends = ring.layout.part(ring.data[:, :30], "ends")
    assert ends.sum() == 0 and (pod.algorithm.slot()["carried"] != 0).all()
    pod.restart()
    assert (ends[:, -1] == 1).all() and ends[:, :-1].sum() == 0
    assert (pod.algorithm.slot()["carried"] == 0).all()


def test_a_replay_that_was_not_saved_fills_anew(tmp_path: Path) -> None:
    podium.train(*words("sac", "replay.save_bytes=0", "stop.steps=512"), out=tmp_path / "run")
    before = latest(tmp_path / "run")
    assert "replay" not in before["slot"]["learner"]
    code, out, err = whole.command("resume", tmp_path / "run", "stop.steps=560")
    said = " ".join(out.split())
    assert (code, err) == (0, "") and "resume is statistical" in said and "replay.save_bytes" in said
    assert "sac has learnt nothing since step 512, when its replay was empty: it begins at step 576 (" in said
    after = latest(tmp_path / "run")
    assert torch.equal(before["learnt"]["updates"], after["learnt"]["updates"]), "48 of 64 steps: it waits"
    podium.resume(tmp_path / "run", "stop.steps=768", "replay.save_bytes=10000000")
    full = latest(tmp_path / "run")
    assert (full["learnt"]["updates"] > after["learnt"]["updates"]).all()
    assert (full["slot"]["learner"]["replay"]["ring"]["size"] * 4 == 768 - 560).all(), "the rest was never seen"


# ---- before members learn


def test_a_run_that_never_came_to_learn_says_so(tmp_path: Path) -> None:
    given = words("sac", "stop.steps=null", "stop.seconds=0.2", "algo.warmup=50000", "replay.capacity=50000")
    code, out, err = whole.command("train", *given, "train.members=1", "algo.lr=1e-3", "-o", tmp_path / "run")
    said = [line for line in out.splitlines() if line.startswith("sac has learnt nothing by step ")]
    assert (code, err, len(said)) == (0, "", 1) and said[0].endswith("it begins at step 50,000 (algo.warmup)")
    assert said[0] in (tmp_path / "run" / "log.txt").read_text()


def test_a_run_that_learnt_does_not_say_so(tmp_path: Path) -> None:
    _, out, _ = whole.command("train", *words("sac", "stop.steps=256"), "-o", tmp_path / "run")
    assert "learnt nothing" not in out and "4 envs each" in out


@pytest.mark.parametrize("strategy", ["truncation", "tournament"])
def test_nobody_is_exchanged_before_the_warm_up_is_over(strategy: str, tmp_path: Path) -> None:
    """What networks score that have learnt nothing is no reason to copy them."""
    given = [word for word in words("dqn", "algo.warmup=300", "stop.steps=640") if word not in TWO]
    evolving = (strategy, "evolve.members=4", "evolve.interval=64")
    podium.evolve(*given, *evolving, out=tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        born = [row["born_step"] for row in run.ledger.members() if row["origin"] == "copy"]
    assert born and min(born) >= 300


# ---- a member that fails


@pytest.mark.parametrize("what", ["obs", "reward"])
@pytest.mark.parametrize("name", ["dqn", "rainbow", "sac-discrete"])
def test_a_nan_fails_its_own_member_and_no_other(name: str, what: str, tmp_path: Path) -> None:
    mine = (*words(name)[1:], "env=whole:Faulty", "train.members=3", "algo.lr=1e-3", "stop.steps=512")
    podium.train(*mine, out=tmp_path / "sound")
    podium.train(*mine, "env.kwargs.row=1", f"env.kwargs.what={what}", out=tmp_path / "ill")
    members = whole.members(tmp_path / "ill")
    assert [row["status"] for row in members] == ["finished", "failed", "finished"]
    came = (
        "the reward of env 0 was nan (step 1" if what == "reward" else "the observation of env 0 was nan (at the start"
    )
    assert members[1]["reason"] == f"{came} of the rollout)"
    sound, ill = latest(tmp_path / "sound"), latest(tmp_path / "ill")
    assert ill["slot"]["failed"].tolist() == [False, True, False]
    for row in (0, 2):
        one, two = bits(sound, row), bits(ill, row)
        assert one.keys() == two.keys() and not [key for key in one if one[key] != two[key]]
    assert bits(sound, 1) != bits(ill, 1)


def test_an_infinite_reward_fails_its_member_though_no_gradient_shows_it(tmp_path: Path) -> None:
    """Huber's gradient is bounded, and what has an error without end would be all that is drawn."""
    mine = (*words("dqn")[1:], "env=whole:Faulty", "train.members=2", "stop.steps=512", "replay.prioritised=true")
    podium.train(*mine, "env.kwargs={row: 1, what: reward, value: .inf}", out=tmp_path / "run")
    assert latest(tmp_path / "run")["slot"]["failed"].tolist() == [False, True]
    assert whole.members(tmp_path / "run")[1]["reason"] == "the reward of env 0 was inf (step 1 of the rollout)"


def test_who_does_not_learn_yet_keeps_the_priorities_of_new_steps() -> None:
    pod = experiments.build_pod(checks.validate(compose(words("rainbow", "train.members=2"))))
    pod.train(40)
    pod.learner.replay.clear([0])
    pod.train(3)
    leaves = pod.learner.replay.priorities.tree.leaves
    assert set(leaves[0].tolist()) == {0.0, 1.0} and len(set(leaves[1].tolist())) > 2


def test_runs_with_and_without_priorities_decide_together_in_any_order(tmp_path: Path) -> None:
    for name in ("true", "false"):
        podium.train(*words("dqn", f"replay.prioritised={name}", "stop.steps=128"), out=tmp_path / name)
    agents = [podium.load(tmp_path / name) for name in ("true", "false")]
    obs = np.linspace(-0.2, 0.2, 32, dtype=np.float32).reshape(8, 4)
    assert np.array_equal(ensemble(agents).act(obs), ensemble(agents[::-1]).act(obs))


def test_observations_may_be_single_numbers(tmp_path: Path) -> None:
    podium.train(*words("dqn")[1:], "env=whole:Thermometer", "stop.steps=128", out=tmp_path / "run")
    assert latest(tmp_path / "run")["learnt"]["updates"].min() > 0


def test_what_a_member_did_that_sees_nan_does_no_harm_to_those_who_share_its_replay(tmp_path: Path) -> None:
    mine = (*words("dqn")[1:], "env=whole:Faulty", "train.members=3", "algo.lr=1e-3", "stop.steps=512")
    podium.train(*mine, "replay.shared=true", "env.kwargs.row=1", out=tmp_path / "run")
    state = latest(tmp_path / "run")
    assert not state["slot"]["learner"]["replay"]["ring"]["data"].isfinite().all(), "it is there"
    assert state["learnt"]["critic"]["0"].isfinite().flatten(1).all(1)[[0, 2]].all()
    assert not state["slot"]["failed"][[0, 2]].any()


@pytest.mark.parametrize("name", ["rainbow", "sac", "redq"])
def test_a_failed_row_that_is_filled_begins_with_an_empty_replay(name: str) -> None:
    a, b = (experiments.build_pod(checks.validate(compose(words(name, "train.members=3", "algo.lr=1e-3"))))
            for _ in range(2))  # fmt: skip
    for pod in (a, b):
        pod.train(40)
    weights = a.algorithm.learnt()["critic"]["0"]
    weights[1] = torch.nan
    a.train(1), b.train(1)
    assert a.failed.tolist() == [False, True, False]
    genes = {gene: float(row[0]) for gene, row in a.algorithm.genes.items()}
    a.exchange([Refill(1, 7, 0, genes)])
    assert a.learner.replay.size.tolist() == [164, 0, 164]
    updates = a.algorithm.updates.clone()
    a.train(4), b.train(4)
    assert (a.algorithm.updates - updates)[1] == 0, "it has less than it needs"
    a.train(30), b.train(30)
    assert not a.failed.any() and (a.algorithm.updates - updates)[1] > 0
    for row in (0, 2):
        assert bits(a.state(), row) == bits(b.state(), row)
    assert all(x[1].isfinite().all() for x in tree.flatten(a.read([0, 1, 2])["critic"]).values())


# ---- evolution

PACE = ("evolve.members=4", "evolve.interval=192", "stop.steps=768", "eval.episodes=3", "eval.max_steps=60")
NET = ("net.hidden=[16,16]", "env.num=4", "train.threads=1", "train.checkpoint=192", "stop.fitness=null")
REPLAY = ("algo.batch=16", "algo.warmup=64", "replay.capacity=600")
DQN = "{algo: {name: dqn, batch: 16, warmup: 64}, replay: {capacity: 500}}"
PPO = "{algo: {name: ppo, steps: 16, batch: 32, epochs: 1}}"
EVOLVING: dict[str, tuple[str, ...]] = {
    "dqn-truncation": ("CartPole-v1", "dqn", "truncation", *REPLAY),
    "dqn-tournament": ("CartPole-v1", "dqn", "tournament", "replay.prioritised=true", *REPLAY),
    "sac-truncation": ("Pendulum-v1", "sac", "truncation", *REPLAY),
    "sac-tournament": ("Pendulum-v1", "sac", "tournament", "replay.shared=true", *REPLAY),
    "mixed-tournament": ("CartPole-v1", "tournament", f"evolve.entrants=[{PPO},{DQN}]"),
}


@pytest.mark.parametrize("name", EVOLVING)
def test_members_evolve_and_a_stop_changes_nothing(name: str, tmp_path: Path) -> None:
    mine = (*EVOLVING[name], *PACE, *NET)
    podium.evolve(*mine, out=tmp_path / "long")
    books = consistent(tmp_path / "long")
    assert any(row["parent"] is not None for row in books["members"])
    assert {row["algo"] for row in books["members"]} == ({"ppo", "dqn"} if "mixed" in name else {name.split("-")[0]})
    podium.evolve(*mine, "stop.steps=384", out=tmp_path / "short")
    podium.resume(tmp_path / "short", "stop.steps=768")
    same_books(tmp_path / "long", tmp_path / "short", turns=False)


def test_presets_of_different_algorithms_compete(tmp_path: Path) -> None:
    mine = ("cartpole", "tournament", "evolve.entrants=[ppo,dqn]", "evolve.members=4", "evolve.interval=512")
    result = podium.evolve(*mine, "stop.steps=1024", "eval.episodes=2", "stop.fitness=null", out=tmp_path / "run")
    assert result.reason == "steps" and {row["algo"] for row in whole.members(tmp_path / "run")} == {"ppo", "dqn"}


# ---- settings of whole runs


@pytest.mark.parametrize(("ratio", "updates"), [(1.0, 60), (3.0, 180), (0.5, 30), (8.0, 480)])
def test_the_ratio_says_how_many_samples_are_drawn_for_a_step(ratio: float, updates: int) -> None:
    """60 rounds of 4 x 4 steps learn, each with `ratio` samples a step, 16 samples an update."""
    mine = words("dqn", f"replay.ratio={ratio}", "algo.steps=4", "algo.warmup=16")
    pod = experiments.build_pod(checks.validate(compose(mine)))
    pod.train(60)
    assert pod.algorithm.updates.tolist() == [updates] * 2


@pytest.mark.parametrize(("warmup", "updates"), [(0, 3 * 37), (64, 3 * 25), (100, 3 * 16)])
def test_learning_begins_after_the_warm_up(warmup: int, updates: int) -> None:
    """Rounds of 4 steps; a batch takes four of them."""
    mine = words("dqn", f"algo.warmup={warmup}", "algo.updates=0.75")
    pod = experiments.build_pod(checks.validate(compose(mine)))
    pod.train(40)
    assert pod.algorithm.updates.tolist() == [updates] * 2
    assert pod.algorithm.acted.tolist() == [160] * 2


def test_a_run_starts_from_a_member_of_another(runs: Callable, tmp_path: Path) -> None:
    """With its weights, targets, optimisers and ages, and a replay that is empty."""
    kept, _ = Run.open(runs("sac")).read_snapshot(1)
    mine = words("sac", "algo.lr={each: [0, 0]}", "algo.tau=0", "stop.steps=128", f"train.start={runs('sac')}:1")
    podium.train(*mine, out=tmp_path / "run")
    state = latest(tmp_path / "run")
    for row in (0, 1):
        for part in ("policy", "critic", "target", "log_temperature"):
            found, expected = (tree.flatten({part: learnt[part]}) for learnt in (state["learnt"], kept))
            assert all(torch.equal(found[key][row], expected[key][0]) for key in expected), part
    assert (state["learnt"]["acted"] == kept["acted"] + 128).all()
    assert (state["slot"]["learner"]["replay"]["ring"]["size"] == 32).all()


def test_genes_follow_a_schedule(tmp_path: Path) -> None:
    schedule = [
        {"step": 0, "genes": {"lr": 0.01, "epsilon_end": 0.5}},
        {"step": 256, "genes": {"lr": 0.0, "epsilon_end": 0.1}},
    ]
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"train": {"schedule": schedule}}))
    mine = (*RUNS["dqn"], *SMALL, str(tmp_path / "plan.yaml"))
    podium.train(*mine, "stop.steps=256", out=tmp_path / "half")
    podium.train(*mine, "stop.steps=512", out=tmp_path / "run")
    half, state = latest(tmp_path / "half"), latest(tmp_path / "run")
    genes = [{name: float(part["learnt"]["genes"][name]) for name in ("lr", "epsilon_end")} for part in (half, state)]
    assert genes[0] == pytest.approx(schedule[0]["genes"]) and genes[1] == pytest.approx(schedule[1]["genes"])
    assert torch.equal(half["learnt"]["critic"]["0"], state["learnt"]["critic"]["0"]), "lr 0 from step 256 on"
    assert state["learnt"]["updates"] > half["learnt"]["updates"]


# ---- own loops


def drive(stack: podium.Stack, env: VecEnv, obs: np.ndarray, rounds: int) -> np.ndarray:
    """A user's loop over a VecEnv, in numpy."""
    for _ in range(rounds):
        while not stack.ready:
            step = env.step(torch.as_tensor(stack.act(obs)))
            stack.store(*(x.numpy().copy() for x in (step.reward, step.terminated, step.truncated, step.last)))
            obs = step.obs.numpy().copy()
        stack.learn()
    return obs


@EACH
def test_a_stack_in_an_own_loop_equals_a_pod_and_goes_on_from_a_file(name: str, tmp_path: Path) -> None:
    mine, id = words(name), RUNS[name][0]
    pod = experiments.build_pod(checks.validate(compose(mine)))
    pod.train(60)
    one, env = podium.Stack(*mine), worlds.make(id, 2, 4)
    obs = drive(one, env, env.reset(Streams(0, range(2))).numpy().copy(), 45)
    one.save(tmp_path / "stack.safetensors")
    two, again = podium.Stack(*mine), worlds.make(id, 2, 4)
    two.load(tmp_path / "stack.safetensors", goes_on=True)
    again.reset(Streams(0, range(2)))
    again.load(tree.clone(env.state()))
    drive(one, env, obs, 15)
    drive(two, again, obs, 15)
    assert one.steps == two.steps == int(pod.steps[0])
    expected = bits(pod.algorithm.learnt())
    assert bits(one.algorithm.learnt()) == expected
    assert bits(two.algorithm.learnt()) == expected


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_stack_whose_envs_begin_anew_joins_no_episodes(goes_on: bool, tmp_path: Path) -> None:
    """What an n-step return sums up ends where the stack was loaded."""
    mine = words("rainbow")
    one, env = podium.Stack(*mine), worlds.make(RUNS["rainbow"][0], 2, 4)
    drive(one, env, env.reset(Streams(0, range(2))).numpy().copy(), 20)
    one.save(tmp_path / "stack.safetensors")
    two = podium.Stack(*mine)
    two.load(tmp_path / "stack.safetensors", goes_on=goes_on)
    newest = [s._learner.replay.ring.data[:, 19] for s in (one, two)]
    ends = [one._learner.replay.ring.layout.part(step, "ends") for step in newest]
    assert torch.equal(ends[1], ends[0] if goes_on else torch.ones_like(ends[0])) and (ends[0] == 0).any()


def test_a_stack_that_lost_steps_joins_no_others(tmp_path: Path) -> None:
    """Steps that were stored and not learnt from are not saved, so what comes next follows nothing."""
    mine = words("rainbow", "algo.steps=4")
    one, env = podium.Stack(*mine), worlds.make(RUNS["rainbow"][0], 2, 4)
    obs = drive(one, env, env.reset(Streams(0, range(2))).numpy().copy(), 5)
    step = env.step(torch.as_tensor(one.act(obs)))
    one.store(*(x.numpy().copy() for x in (step.reward, step.terminated, step.truncated, step.last)))
    one.save(tmp_path / "stack.safetensors")
    two = podium.Stack(*mine)
    two.load(tmp_path / "stack.safetensors", goes_on=True)
    ring = two._learner.replay.ring
    assert (ring.layout.part(ring.data[:, 19], "ends") == 1).all()


def test_a_pod_with_a_shared_replay_is_split_without_it() -> None:
    pod = experiments.build_pod(checks.validate(compose(words("td3", "replay.shared=true"))))
    own = experiments.build_pod(checks.validate(compose(words("td3"))))
    for each in (pod, own):
        each.train(5)
    shared, apart = tree.clone(pod.state()), tree.clone(own.state())
    assert forgotten(shared) and "replay" not in shared["slot"]["learner"]
    assert not forgotten(apart) and "replay" in apart["slot"]["learner"]


def test_an_agent_is_loaded_where_its_replay_would_not_fit(
    runs: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs("td3")
    monkeypatch.setattr(memory, "memory", lambda device: 1000)
    assert podium.load(run).act(np.zeros(3)).shape == (1,)
    with pytest.raises(PodiumError, match=r"replay\.capacity"):
        podium.train(*words("td3"), out=tmp_path / "run")


def test_the_replays_of_all_kinds_must_fit_together(tmp_path: Path) -> None:
    few = ("evolve.entrants=[sac, td3]", "evolve.members=2", "replay.capacity=1000", "evolve.interval=500")
    with pytest.raises(PodiumError, match=r"replay\.bytes"):
        podium.evolve("pendulum", "tournament", *few, "replay.bytes=60000", out=tmp_path / "run")
    podium.evolve("pendulum", "tournament", *few, "replay.bytes=90000", "stop.seconds=1", out=tmp_path / "run")
