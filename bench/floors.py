"""Measure every number that Podium promises, and write bench/RESULTS.md: `make floors`, or for some of them

    .venv/bin/python bench/floors.py --only cartpole --only bench-env-64

What has been measured is kept in bench/floors.json, part by part (a seed, a benchmark), and is not measured again as
long as the files in src/ are the same; --fresh measures anew. The exit code is 1 if a floor does not hold. Nothing else
should run on the machine: every part notes the load that it found.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT, RESULTS, SCRATCH = ROOT / "bench/floors.json", ROOT / "bench/RESULTS.md", ROOT / "bench/scratch"
PODIUM, PYTHON = str(Path(sys.executable).with_name("podium")), sys.executable
SHOWN = {PODIUM: "podium", PYTHON: "python"}

Result = dict[str, Any]


class Verdict(NamedTuple):
    """What is said of a floor: the number, whether floor and aim hold, and what lies behind it."""

    measured: str
    holds: bool
    aim: bool
    details: str = ""


@dataclass(frozen=True)
class Part:
    """What is measured, and kept, at one go. Floors may share a part."""

    key: str
    measure: Callable[[], Result]


@dataclass(frozen=True)
class Floor:
    """A promise, the command that shows it, the parts it is measured in, and the judgement of their results."""

    name: str
    what: str
    floor: str
    aim: str
    command: str
    parts: Sequence[Part]
    judge: Callable[[list[Result]], Verdict]


# ---- commands


def run(*command: str, timeout: float = 3600) -> str:
    """The standard output of a command; an error says what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT)
    if done.returncode:
        shown = " ".join(SHOWN.get(word, word) for word in command)
        raise RuntimeError(f"{shown}: exit code {done.returncode}: {(done.stderr or done.stdout)[-800:].strip()}")
    return done.stdout


def trained(words: Sequence[str], env: str, seed: int, command: str = "train", episodes: int = 100) -> Result:
    """Train with a seed, then evaluate in Gymnasium's env: wall-clock seconds of the whole command, score, steps."""
    path = SCRATCH / "-".join([command, *words[:2], str(seed)])
    shutil.rmtree(path, ignore_errors=True)
    start = time.perf_counter()
    run(PODIUM, command, *words, f"seed={seed}", "-o", str(path))
    seconds = time.perf_counter() - start
    score = json.loads(run(PODIUM, "eval", str(path), "--env", env, "--episodes", str(episodes), "--json"))
    top = json.loads(run(PODIUM, "top", str(path), "--json"))[0]
    with sqlite3.connect(path / "ledger.sqlite") as ledger:
        (total,) = ledger.execute("SELECT max(step) FROM scores").fetchone()
    shutil.rmtree(path)
    return {"seed": seed, "seconds": seconds, "mean": score["mean"], "steps": top["steps"], "total_steps": total}


def stacked(words: Sequence[str], env: str, members: int, episodes: int) -> Result:
    """Train so many members, which never meet, in one stack; what each scores in Gymnasium's env."""
    path = SCRATCH / "-".join(["stacked", *words[:2]])
    shutil.rmtree(path, ignore_errors=True)
    start = time.perf_counter()
    run(PODIUM, "train", *words, f"train.members={members}", "-o", str(path), timeout=4 * 3600)
    seconds, results = time.perf_counter() - start, []
    steps = {row["id"]: row["steps"] for row in json.loads(run(PODIUM, "top", str(path), "--json"))}
    for member in range(members):
        one = ("--member", str(member), "--env", env, "--episodes", str(episodes), "--json")
        score = json.loads(run(PODIUM, "eval", str(path), *one))
        results.append({"seed": member, "mean": score["mean"], "steps": steps[member]})
    shutil.rmtree(path)
    return {"members": results, "seconds": seconds}


def pong(seed: int) -> Result:
    """The fitness of what 240 s of training make, over 200 episodes."""
    path = SCRATCH / f"pong-{seed}"
    shutil.rmtree(path, ignore_errors=True)
    start = time.perf_counter()
    run(PODIUM, "train", "pong", "ppo", f"seed={seed}", "-o", str(path))
    seconds = time.perf_counter() - start
    score = json.loads(run(PODIUM, "eval", str(path), "--episodes", "200", "--json"))
    shutil.rmtree(path)
    return {"seed": seed, "mean": score["mean"], "seconds": seconds}


def behaviour() -> Result:
    """How the members of the front play that 600 s of evolution make."""
    path = SCRATCH / "behaviour"
    shutil.rmtree(path, ignore_errors=True)
    run(PODIUM, "evolve", "pong", "ppo", "pong-behaviour", "-o", str(path))
    found = json.loads(run(PYTHON, "bench/behaviour.py", str(path)).splitlines()[-1])
    shutil.rmtree(path)
    return {"front": found}


WIDE = ("algo.lr=[1e-6,1.0]", "algo.discount=[0.5,0.9999]", "algo.lam=[0.0,1.0]", "algo.clip=[0.01,1.0]")
WIDE += ("algo.entropy=[0.0,1.0]", "algo.batch=256", "algo.epochs=20")
"""Genes over all that they may be."""


def alone() -> Result:
    """How many of 16 members with wide ranges fail if they never meet."""
    path, steps = SCRATCH / "alone", 40_000
    shutil.rmtree(path, ignore_errors=True)
    settings = ("train.members=16", f"stop.steps={steps}", "stop.fitness=null", "eval.every=5000", "seed=0")
    run(PODIUM, "train", "cartpole", "ppo", *WIDE, *settings, "-o", str(path))
    top = json.loads(run(PODIUM, "top", str(path), "--json"))
    shutil.rmtree(path)
    return {"members": len(top), "failed": sum((row["fitness"] or 0) < 475 for row in top), "steps": steps}


def bench(name: str) -> Part:
    command = (PODIUM, "bench", name, "--json")
    return Part(f"bench {name}", lambda: {"rows": {row["key"]: row for row in json.loads(run(*command))}})


def tested(gaps: str, *files: str) -> Part:
    """The tests of these files, and the largest differences that they find (bench/gaps.py)."""

    def measure() -> Result:
        said = run(PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *files).strip().splitlines()[-1]
        return {"said": said, "gaps": json.loads(run(PYTHON, "bench/gaps.py", gaps).splitlines()[-1])}

    return Part(f"tests {gaps}", measure)


def fleet(*words: str, timeout: float = 1800) -> Part:
    """What bench/fleet.py finds."""
    command = (PYTHON, "bench/fleet.py", *words)
    return Part(f"fleet {' '.join(words)}", lambda: json.loads(run(*command, timeout=timeout).splitlines()[-1]))


# ---- judgements


def in_time(results: list[Result], score: float, limit: float, aim: float, needed: int) -> Verdict:
    good = [r for r in results if r["mean"] >= score]
    fast, faster = (sum(r["seconds"] <= s for r in good) for s in (limit, aim))
    seconds = [r["seconds"] for r in results]
    measured = f"{fast} of {len(results)}; median {median(seconds):.1f} s, worst {max(seconds):.1f} s"
    return Verdict(measured, fast >= needed, faster >= needed, _seeds(results))


def within_steps(results: list[Result], score: float, budget: int, needed: int) -> Verdict:
    good = sum(r["mean"] >= score and r["steps"] <= budget for r in results)
    means = [r["mean"] for r in results]
    measured = f"{good} of {len(results)}; median {median(means):.1f}, worst {min(means):.1f}"
    return Verdict(measured, good >= needed, good == len(results), _seeds(results))


def each_within(results: list[Result], score: float, aim: float, budget: int, half: int, needed: int) -> Verdict:
    """Members of one stack: how many reach a score within so many steps; the aim is a higher one, or fewer steps."""
    members = results[0]["members"]
    good = sum(m["mean"] >= score and m["steps"] <= budget for m in members)
    better = sum(m["mean"] >= aim and m["steps"] <= half for m in members)
    means = [m["mean"] for m in members]
    said = "; ".join(f"member {m['seed']}: {m['mean']:.1f}, best at step {m['steps']:,}" for m in members)
    measured = f"{good} of {len(members)}; median {median(means):.1f}, worst {min(means):.1f}"
    return Verdict(measured, good >= needed, better >= needed, f"{results[0]['seconds']:.0f} s in all; {said}")


def plays(results: list[Result], floor: float, aim: float) -> Verdict:
    """The worst seed counts."""
    worst = min(r["mean"] for r in results)
    said = "; ".join(f"seed {r['seed']}: {r['mean']:.3f}, {r['seconds']:.0f} s from start to exit" for r in results)
    return Verdict(", ".join(f"{r['mean']:.3f}" for r in results), worst >= floor, worst >= aim, said)


def behaves(results: list[Result], floor: float, aim: float) -> Verdict:
    """The two ends of the front: who has most of fitness + stop, and who of fitness + moved."""
    front = results[0]["front"].values()
    lazy, busy = max(front, key=lambda p: p["lazy"]), max(front, key=lambda p: p["busy"])
    apart, worse = lazy["stop"] >= 0.6 and busy["moved"] >= 0.8, min(lazy["fitness"], busy["fitness"])
    measured = f"laziest stops {lazy['stop']:.2f} with fitness {lazy['fitness']:.2f}, "
    measured += f"busiest moves {busy['moved']:.2f} with fitness {busy['fitness']:.2f}"
    said = "; ".join(f"fitness {p['fitness']:.2f}, stop {p['stop']:.2f}, moved {p['moved']:.2f}" for p in front)
    return Verdict(measured, apart and worse >= floor, apart and worse >= aim, f"front of {len(front)}: {said}")


def _seeds(results: list[Result]) -> str:
    said = "seed {seed}: {mean:.4g} in {seconds:.1f} s, best at step {steps:,} of {total_steps:,}"
    return "; ".join(said.format(**r) for r in results)


def ratio(results: list[Result], key: str, floor: float, aim: float) -> Verdict:
    """Also against the peer's best number of threads and by itself, and only if both sides have learnt as much."""
    row = results[0]["rows"][key]
    worst = min(row["ratio"], row["ratio_best"], row.get("ratio_alone", math.inf))
    details = (
        f"{row['name']}: {row['ours']:,.0f} against {row['peer']:,.0f} {row['unit']}, {row['threads']} thread(s), "
    )
    details += f"{row['rounds']} rounds, ready after {row['cold']:.2f} s and {row['peer_cold']:.2f} s; "
    details += f"the peer's best is {row['peer_best']:,.0f} on {row['peer_best_threads']} thread(s), "
    details += f"ratio {row['ratio_best']:.2f}"
    if "peer_alone" in row:
        details += f"; by itself {row['peer_alone']:,.0f} on {row['peer_alone_threads']} threads, "
        details += f"ratio {row['ratio_alone']:.2f}"
    if "peer_helped" in row:
        details += "; not counted: in podium's process, where the peer has its allocator and thread settings, "
        details += f"{row['ours_helped']:,.0f} against {row['peer_helped']:,.0f}, "
        details += f"ratio {row['ratio_helped']:.2f} [{row['low_helped']:.2f}, {row['high_helped']:.2f}]"
    learnt = True
    if "learn_steps" in row:
        ours, peer = row["ours_scores"], row["peer_scores"]
        learnt = median(ours) >= 0.9 * median(peer)
        details += f"; scores after {row['learn_steps']:,} steps: ours {_list(ours)}, peer {_list(peer)}"
    measured = f"{row['ratio']:.2f}x [{row['low']:.2f}, {row['high']:.2f}]"
    return Verdict(measured, worst >= floor and learnt, worst >= aim and learnt, details)


def least(results: list[Result], keys: Sequence[str], floor: float, aim: float) -> Verdict:
    """The smallest ratio of some rows."""
    rows = [results[0]["rows"][key] for key in keys]
    worst = min(row["ratio"] for row in rows)
    measured = ", ".join(f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]" for row in rows)
    details = "; ".join(f"{row['name']}: {row['ours']:.4g} against {row['peer']:.4g} {row['unit']}" for row in rows)
    return Verdict(measured, worst >= floor, worst >= aim, details)


def fewest(results: list[Result], keys: Sequence[str], floor: float, aim: float) -> Verdict:
    """The smallest of our numbers in some rows, where more is better."""
    rows = [results[0]["rows"][key] for key in keys]
    worst = min(row["ours"] for row in rows)
    measured = ", ".join(f"{row['ours']:.4g}" for row in rows)
    return Verdict(measured, worst >= floor, worst >= aim, "; ".join(f"{r['name']}: {r['unit']}" for r in rows))


def most(results: list[Result], keys: Sequence[str], floor: float, aim: float) -> Verdict:
    """The largest of our numbers in some rows, where less is better."""
    rows = [results[0]["rows"][key] for key in keys]
    worst = max(row["ours"] for row in rows)
    measured = ", ".join(f"{row['ours']:.3g} {row['unit']}" for row in rows)
    return Verdict(measured, worst <= floor, worst <= aim, "; ".join(f"{r['name']}: {r.get('note', '')}" for r in rows))


def evolved(results: list[Result]) -> Verdict:
    """Champions of runs in time, and how the first run's members do without evolution."""
    *runs, alone = results
    found = in_time(runs, 475, 90, 30, 9)
    said = (
        f"{alone['failed']} of {alone['members']} members of seed 0 stay below 475 alone, in {alone['steps']:,} steps"
    )
    return found._replace(
        holds=found.holds and alone["failed"] > alone["members"] / 2, details=f"{said}; {found.details}"
    )


def memory(results: list[Result]) -> Verdict:
    row = results[0]["rows"]["stack/memory"]
    each = row["each"]["podium"]
    measured = f"{row['ours']:.2f} MB [{min(each):.2f}, {max(each):.2f}]"
    return Verdict(measured, row["ours"] <= 5, row["ours"] <= 1, f"{row['note']}; SB3: {row['peer']:.2f} MB")


def gap(results: list[Result], floor: float, aim: float) -> Verdict:
    gaps = results[0]["gaps"]
    measured = ", ".join(f"{name} {value:.1e}" for name, value in gaps.items())
    worst = max(gaps.values())
    return Verdict(measured, worst < floor, worst < aim, f"{results[0]['said']}; at the sizes of the tests, one thread")


def _list(numbers: Sequence[float], digits: int = 0) -> str:
    return ", ".join(f"{x:.{digits}f}" for x in numbers)


def survived(results: list[Result]) -> Verdict:
    """Killed again and again, a run ends as it should, with a champion and exact books."""
    holds, said = True, []
    for r in results:
        exact = not r["wrong"] and r["finished"] == 16 and r["lost_members"] == 8 * r["lost"]
        holds &= exact and r["reason"] == "seconds" and r["kills"] >= 10 and r["champion"] >= 475 and not r["left"]
        said.append(
            f"{r['kills']} kills, ended by {r['reason']}, {r['members']} members, {r['failed']} of them failed, "
            f"{r['finished']} finished, {r['scores']} scores, {r['left']} left behind"
            + "".join(f"; {wrong}" for wrong in r["wrong"])
        )
    return Verdict(f"champions {_list([r['champion'] for r in results])}", holds, holds, " / ".join(said))


def soon(results: list[Result], keys: Sequence[str], floor: float, aim: float) -> Verdict:
    """The worst of some times."""
    each = [r[key] for r in results for key in keys]
    worst = max(max(times) for times in each)
    measured = "; ".join(f"median {median(times):.2f} s, worst {max(times):.2f} s" for times in each)
    late = sorted({name for r in results for name in r.get("late", ())})
    details = "; ".join(_list(times, 2) for times in each) + (f"; late: {', '.join(late)}" if late else "")
    return Verdict(measured, worst <= floor, worst <= aim, details)


HELD = ("processes", "threads", "shared", "folders", "files")


def flat(results: list[Result]) -> Verdict:
    """What two cycles have left is what many have; but for Ray's own threads, of which there may be some more."""
    grown = []
    for i, r in enumerate(results):
        more = {key: r[key][1] - r[key][0] for key in HELD}
        grown += [f"{n:+} {key}" for key, n in more.items() if n > (r["cycles"] // 2 if i and key == "threads" else 0)]
    measured = f"{' and '.join(str(r['cycles']) for r in results)} cycles: {', '.join(grown) or 'flat'}"
    keys = (*HELD, "sockets", "memory")
    details = "; ".join(", ".join(f"{key} {r[key][0]:.4g} -> {r[key][1]:.4g}" for key in keys) for r in results)
    return Verdict(
        measured, not grown, not grown, f"{details}; sockets are TCP, of which Ray keeps some, memory is in MB"
    )


def learnt(results: list[Result]) -> Verdict:
    champions = [r["champion"] for r in results]
    good = sum(champion >= 475 for champion in champions)
    measured = f"{good} of {len(results)}; worst {min(champions):.1f}"
    return Verdict(
        measured, good == len(results), good == len(results), f"in {_list([r['seconds'] for r in results])} s"
    )


def unmoved(results: list[Result], floor: float, aim: float) -> Verdict:
    (r,) = results
    more = r["after"] - r["before"]
    said = f"{r['frames']:,} frames in {r['seconds']:.0f} s: {r['before']:.0f} MB before, {r['after']:.0f} MB after"
    return Verdict(f"{more:.1f} MB more", more <= floor, more <= aim, said)


def nothing_left(results: list[Result]) -> Verdict:
    (r,) = results
    good = not r["details"]
    said = f"{r['cases']} cases: {r['orphans']} orphans, {r['unreadable']} folders that could not be used"
    return Verdict(f"{len(r['details'])} faults", good, good, said)


def harmless(results: list[Result]) -> Verdict:
    (r,) = results
    good = not r["details"]
    return Verdict(f"{len(r['details'])} faults", good, good, f"{r['cases']} cases: {r['found'] or 'nothing found'}")


def cheap(results: list[Result], floor: float, aim: float) -> Verdict:
    (r,) = results
    worst = max(side["more"] for side in r.values())
    said = "; ".join(f"{name}: {side['with']:.2f} s against {side['without']:.2f} s" for name, side in r.items())
    return Verdict(f"{worst:+.1%}", worst < floor, worst < aim, said)


def told(results: list[Result], seconds: float) -> Verdict:
    (r,) = results
    good = not r["wrong"] and r["cases"] >= 75 and r["slowest_seconds"] < seconds
    return Verdict(
        f"{len(r['wrong'])} wrong of {r['cases']}", good, good, f"the slowest took {r['slowest_seconds']:.1f} s"
    )


def script(name: str, *words: str) -> Part:
    """A script in bench/ that prints one JSON document, and says by its exit code whether it found a fault."""

    def measure() -> Result:
        command = [PYTHON, f"bench/{name}.py", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10_800)
        found: Result = json.loads(done.stdout.splitlines()[-1])
        return found

    return Part(" ".join([name, *words]), measure)


# ---- the promises


def _preset(preset: str, env: str, score: float, budget: int) -> Floor:
    parts = [Part(f"{preset} seed {s}", lambda s=s: trained((preset, "ppo"), env, s)) for s in range(5)]
    return Floor(
        preset,
        f"`{preset} ppo` reaches {score:g} on {env} in {budget:,} steps",
        "4 of 5 seeds",
        "5 of 5",
        f"podium train {preset} ppo seed=N; podium eval RUN --env {env} --episodes 100",
        parts,
        lambda results: within_steps(results, score, budget, 4),
    )


def _first(preset: str, env: str, score: float, episodes: int = 500) -> Floor:
    """A preset for one's first run: the score within minutes, with every seed."""
    words = (preset, "ppo")
    parts = [Part(f"{preset} seed {s}", lambda s=s: trained(words, env, s, episodes=episodes)) for s in range(3)]
    return Floor(
        preset,
        f"`podium train {preset} ppo`, from start to exit, then {score:g} on {env}, mean of {episodes:,} episodes",
        "3 of 3 seeds in 600 s",
        "3 of 3 in 120 s",
        f"podium train {preset} ppo seed=N; podium eval RUN --env {env} --episodes {episodes}",
        parts,
        lambda results: in_time(results, score, 600, 120, 3),
    )


def _ratio(name: str, what: str, key: str, floor: float, aim: float) -> Floor:
    which = key.partition("/")[0]
    return Floor(
        name,
        what,
        f"{floor:g}x",
        f"{aim:g}x",
        f"podium bench {which}",
        [bench(which)],
        lambda results: ratio(results, key, floor, aim),
    )


def _rows(
    name: str, what: str, keys: Sequence[str], judge: Callable[..., Verdict], floor: float, aim: float, unit: str = ""
) -> Floor:
    which, command = keys[0].partition("/")[0], f"podium bench {keys[0].partition('/')[0]}"
    said = (f"{floor:g}{unit}", f"{aim:g}{unit}")
    return Floor(name, what, *said, command, [bench(which)], lambda results: judge(results, keys, floor, aim))


def _stack(
    words: tuple[str, str],
    env: str,
    score: float,
    aim: float,
    budget: int,
    half: int,
    members: int,
    needed: int,
    episodes: int = 100,
) -> Floor:
    preset, algo = words
    said = f"{aim:g}" if aim != score else f"in {half:,} steps"
    return Floor(
        f"{preset}-{algo}",
        f"`{preset} {algo}` reaches {score:g} on {env} in {budget:,} steps, mean of {episodes} episodes",
        f"{needed} of {members} seeds",
        said,
        f"podium train {preset} {algo} train.members={members}; podium eval RUN --member N --env {env}",
        [Part(f"stack {preset} {algo}", lambda: stacked(words, env, members, episodes))],
        lambda results: each_within(results, score, aim, budget, half, needed),
    )


FLOORS = [
    Floor(
        "cartpole",
        "`podium train cartpole ppo`, from start to exit, then 475 on CartPole-v1",
        "9 of 10 seeds in 15 s",
        "9 of 10 in 7 s",
        "podium train cartpole ppo seed=N; podium eval RUN --env CartPole-v1 --episodes 100",
        [Part(f"cartpole seed {s}", lambda s=s: trained(("cartpole", "ppo"), "CartPole-v1", s)) for s in range(10)],
        lambda results: in_time(results, 475, 15, 7, 9),
    ),
    _preset("pendulum", "Pendulum-v1", -250, 200_000),
    _preset("acrobot", "Acrobot-v1", -100, 500_000),
    _preset("mountaincar-continuous", "MountainCarContinuous-v0", 85, 200_000),
    _first("taxi", "Taxi-v4", 7),
    _first("cliffwalking", "CliffWalking-v1", -15),
    _first("frozenlake", "FrozenLake-v1", 0.7),
    _first("mountaincar", "MountainCar-v0", -110),
    _first("blackjack", "Blackjack-v1", -0.06, 20_000),
    _stack(("pendulum", "sac"), "Pendulum-v1", -200, -160, 20_000, 20_000, 10, 8, 50),
    _stack(("pendulum", "td3"), "Pendulum-v1", -200, -160, 20_000, 20_000, 10, 8, 50),
    _stack(("cartpole", "dqn"), "CartPole-v1", 475, 475, 50_000, 25_000, 5, 4),
    _stack(("lunarlander", "rainbow"), "LunarLander-v3", 200, 200, 300_000, 150_000, 3, 2),
    _stack(("lunarlander", "ppo"), "LunarLander-v3", 200, 250, 500_000, 500_000, 3, 3),
    _stack(("halfcheetah", "ppo"), "HalfCheetah-v5", 2000, 4000, 1_000_000, 1_000_000, 3, 3, 20),
    _rows(
        "offpolicy-one",
        "one agent, 256x256, batch 256: updates/s against SB3 (SAC, TD3)",
        ["offpolicy/sac-one", "offpolicy/td3-one"],
        least,
        1.3,
        2,
        "x",
    ),
    _rows(
        "offpolicy-small",
        "32 members, 64x64, batch 64, against 32 SB3 agents one after another (SAC, TD3)",
        ["offpolicy/sac-stack-small", "offpolicy/td3-stack-small"],
        least,
        8,
        20,
        "x",
    ),
    _rows(
        "offpolicy-large",
        "32 members, 256x256, batch 256, against the same (SAC, TD3)",
        ["offpolicy/sac-stack-large", "offpolicy/td3-stack-large"],
        least,
        1.2,
        1.6,
        "x",
    ),
    _rows(
        "replay",
        "prioritised replay, a million items: insert 8; sample 512 and update; against tianshou or torchrl",
        ["replay/insert", "replay/sample"],
        least,
        1,
        1.5,
        "x",
    ),
    _ratio("bench-ppo", "one PPO agent against SB3, our fastest env", "ppo/fastest", 1.6, 5),
    _ratio("bench-ppo-same-envs", "one PPO agent against SB3, same env objects", "ppo/same-envs", 1.2, 2.5),
    _ratio("bench-atari", "one PPO agent from Pong's pixels against SB3 as installed", "atari/fastest", 1.3, 1.7),
    _ratio("bench-atari-same-envs", "the same, both with ale-py's vector env", "atari/same-envs", 1.3, 1.7),
    _ratio("bench-stack", "32 agents against SB3, RL-Zoo settings", "stack/rl-zoo", 9, 30),
    _ratio("bench-stack-defaults", "32 agents against SB3, its defaults", "stack/sb3-defaults", 15, 40),
    _ratio("bench-env-64", "CartPole against Gymnasium, 64 envs", "env/gymnasium-64", 2.5, 5),
    _ratio("bench-env-1024", "CartPole against Gymnasium, 1024 envs", "env/gymnasium-1024", 20, 60),
    _ratio("bench-env-4096", "CartPole against EnvPool, 4096 envs", "env/envpool-4096", 5, 15),
    _rows("bench-pong", "Vector Pong, 1024 envs: steps/s", ["env/pong-1024"], fewest, 1e6, 3e6),
    Floor(
        "pong",
        "`podium train pong ppo`, 240 s of training: fitness against the rule over 200 episodes, worst of 2 seeds",
        "0.8",
        "0.95",
        "podium train pong ppo seed=N; podium eval RUN --episodes 200",
        [Part(f"pong seed {s}", lambda s=s: pong(s)) for s in range(2)],
        lambda results: plays(results, 0.8, 0.95),
    ),
    Floor(
        "pong-behaviour",
        "16 members, 600 s: of the front's ends one stops >= 0.6 of its steps, the other moves >= 0.8, with fitness",
        "0.5 each",
        "0.8 each",
        "podium evolve pong ppo pong-behaviour; python bench/behaviour.py RUN",
        [Part("pong behaviour", behaviour)],
        lambda results: behaves(results, 0.5, 0.8),
    ),
    _ratio("bench-cheetah", "HalfCheetah against Gymnasium, 64 envs", "mujoco/halfcheetah-gymnasium", 1.7, 2.5),
    _ratio("bench-cheetah-pool", "HalfCheetah against EnvPool, 64 envs", "mujoco/halfcheetah-envpool", 0.75, 1),
    _ratio("bench-ant", "Ant against Gymnasium, 64 envs", "mujoco/ant-gymnasium", 1.7, 3),
    Floor(
        "evolve",
        "16 members, genes over all that they may be: the champion of a tournament reaches 475 on CartPole-v1",
        "9 of 10 seeds in 90 s",
        "9 of 10 in 30 s",
        f"podium evolve cartpole ppo {' '.join(WIDE)} seed=N; podium eval RUN --env CartPole-v1 --episodes 100",
        [
            *(
                Part(f"evolve seed {s}", lambda s=s: trained(("cartpole", "ppo", *WIDE), "CartPole-v1", s, "evolve"))
                for s in range(10)
            ),
            Part("evolve alone", alone),
        ],
        evolved,
    ),
    _ratio(
        "evolve-mpi", "16 members that evolve against 16 SB3 agents under MPI, SB3's defaults", "evolve/sb3-mpi", 10, 40
    ),
    _ratio("evolve-one", "16 members that evolve against one SB3 agent, RL-Zoo settings", "evolve/sb3-one", 8, 20),
    _rows("evolve-event", "one exploit-and-explore event inside a stack", ["evolve/event"], most, 5, 0.5, " ms"),
    _rows(
        "evolve-overhead",
        "a run of 16 members: neither training nor evaluation (tournament, truncation)",
        ["evolve/overhead-tournament", "evolve/overhead-truncation"],
        most,
        5,
        1,
        " %",
    ),
    _rows(
        "tournament",
        "tournament against generations, log-normal turns: share of what an always-busy pool gains, 2 and 16 pods",
        ["orchestrator/busy-2", "orchestrator/busy-16"],
        least,
        0.95,
        0.99,
    ),
    _rows(
        "orchestrator", "10,000 simulated pods: completions a second", ["orchestrator/completions"], fewest, 500, 5000
    ),
    _rows(
        "pareto", "NSGA-II's hypervolume against pymoo's: ZDT1, DTLZ2", ["pareto/zdt1", "pareto/dtlz2"], least, 0.98, 1
    ),
    _rows("rpc-call", "one small call after another, against Ray actor calls", ["rpc/call"], least, 3, 5, "x"),
    _rows("rpc-flight", "1000 small calls in flight, against Ray's", ["rpc/flight"], least, 7, 15, "x"),
    _rows("rpc-broadcast", "1.2 MB to 8 nodes, against ray.put and 8 calls", ["rpc/broadcast"], least, 3, 6, "x"),
    _rows("rpc-gather", "256 KB from each of 4 nodes, against Ray's", ["rpc/gather"], least, 6, 12, "x"),
    _rows("rpc-curve", "256 KB over TCP with CURVE, against without", ["rpc/curve"], least, 0.25, 0.5, "x"),
    _rows("fleet-scaling", "2 process pods against 1, HalfCheetah-v5", ["fleet/processes-2"], least, 1.7, 1.95, "x"),
    Floor(
        "fleet-kills",
        "a pod killed every 5 s of a minute, on processes and on Ray: 475 on CartPole-v1, every member accounted for",
        "both",
        "-",
        "python bench/fleet.py kills processes; python bench/fleet.py kills ray",
        [fleet("kills", "processes"), fleet("kills", "ray")],
        survived,
    ),
    Floor(
        "fleet-recovery",
        "from the kill of a pod until the run is at 90 % of its pace, worst of 5",
        "8 s",
        "3 s",
        "python bench/fleet.py recovery",
        [fleet("recovery")],
        lambda results: soon(results, ["seconds"], 8, 3),
    ),
    Floor(
        "fleet-orphans",
        "from the kill of the driver until its processes, ports and files are gone, worst of 3; processes, then Ray",
        "5 s",
        "1 s",
        "python bench/fleet.py orphans processes; python bench/fleet.py orphans ray",
        [fleet("orphans", "processes"), fleet("orphans", "ray")],
        lambda results: soon(results, ["all"], 5, 1),
    ),
    Floor(
        "fleet-cycles",
        "groups started and closed, 100 on processes, 10 on Ray: files, threads, shared memory and folders",
        "flat",
        "-",
        "python bench/fleet.py cycles processes; python bench/fleet.py cycles ray",
        [fleet("cycles", "processes"), fleet("cycles", "ray")],
        flat,
    ),
    Floor(
        "fleet-mpi",
        "truncation on MPI, 4 ranks x 8 members, p2p and collective: the champion reaches 475 on CartPole-v1",
        "6 of 6 runs",
        "-",
        "python bench/fleet.py mpi p2p SEED; python bench/fleet.py mpi collective SEED",
        [fleet("mpi", exchange, str(seed)) for exchange in ("p2p", "collective") for seed in range(3)],
        learnt,
    ),
    Floor(
        "fleet-fuzz",
        "100,000 random and mutated frames at a node's socket: it lives on, and its memory",
        "100 MB more",
        "10 MB more",
        "python bench/fleet.py fuzz",
        [fleet("fuzz")],
        lambda results: unmoved(results, 100, 10),
    ),
    Floor(
        "signals",
        "SIGKILL, SIGTERM, SIGHUP and SIGSTOP at 200 random moments: processes left after 5 s, runs that cannot go on",
        "none",
        "-",
        "python bench/signals.py",
        [script("signals")],
        nothing_left,
    ),
    Floor(
        "strangers",
        "hostile values in 5,000 run folders, all fields: code run, files touched outside, hangs over 10 s, tracebacks",
        "none",
        "-",
        "python bench/attack.py folders --cases 5000",
        [script("attack", "folders", "--cases", "5000")],
        harmless,
    ),
    Floor(
        "bits",
        "1,000 flipped bits over every file of a run: wrong without a word, traceback, not resumable",
        "none",
        "-",
        "python bench/attack.py bits --cases 1000",
        [script("attack", "bits", "--cases", "1000")],
        harmless,
    ),
    Floor(
        "checks",
        "`podium top` and `podium eval`: how much the checks of the run's folder make them slower",
        "less than 10 %",
        "less than 5 %",
        "python bench/checks.py",
        [script("checks")],
        lambda results: cheap(results, 0.10, 0.05),
    ),
    Floor(
        "inputs",
        "wrong commands, at least 75: exit code 2 and a message with field, value and what is allowed",
        "all, each under 4 s",
        "-",
        "python bench/inputs.py",
        [script("inputs")],
        lambda results: told(results, 4),
    ),
    Floor(
        "memory",
        "memory of one more member, 64x64, 8 envs",
        "5 MB",
        "1 MB",
        "podium bench stack",
        [bench("stack")],
        memory,
    ),
    Floor(
        "population",
        "a population equals its members apart, every algorithm",
        "1e-5",
        "-",
        "pytest tests/test_population.py tests/test_replay_population.py",
        [tested("population", "tests/test_population.py", "tests/test_replay_population.py")],
        lambda results: gap(results, 1e-5, 1e-5),
    ),
    Floor(
        "sb3-losses",
        "PPO's loss and gradients equal SB3's",
        "1e-5",
        "1e-6",
        "pytest tests/algos/test_against_sb3.py",
        [tested("sb3", "tests/algos/test_against_sb3.py")],
        lambda results: gap(results, 1e-5, 1e-6),
    ),
    Floor(
        "sb3-off-policy",
        "losses, targets and weights of DQN, DDPG, TD3 and SAC equal SB3's after each of six updates",
        "1e-5",
        "-",
        "pytest tests/algos/test_off_policy_against_sb3.py",
        [tested("off-policy", "tests/algos/test_off_policy_against_sb3.py")],
        lambda results: gap(results, 1e-5, 1e-5),
    ),
]


# ---- measuring, keeping, writing


class Kept:
    """Results in bench/floors.json, written after each part."""

    def __init__(self, fresh: bool) -> None:
        self.sources, self._fresh, self._now = sources(), fresh, set[str]()
        self._all: list[Result] = json.loads(KEPT.read_text()) if KEPT.exists() else []

    def find(self, part: Part) -> Result | None:
        found = [e for e in self._all if e["key"] == part.key and e["sources"] == self.sources]
        return found[-1] if found else None

    def last(self, part: Part) -> Result | None:
        """The newest entry, of whatever sources."""
        return next((e for e in reversed(self._all) if e["key"] == part.key), None)

    def get(self, part: Part) -> Result:
        """The part's entry; measures it if need be."""
        if (found := self.find(part)) and (not self._fresh or part.key in self._now):
            return found
        load, start = os.getloadavg()[0], time.perf_counter()
        print(f"  {part.key} ...", end=" ", flush=True)
        result = part.measure()
        took = time.perf_counter() - start
        print(f"{took:.1f} s", flush=True)
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
        entry = {"key": part.key, "sources": self.sources, "commit": commit(), "date": date, "load": round(load, 2)}
        self._all.append(entry | {"took": round(took, 1), "machine": machine(), "result": result})
        self._now.add(part.key)
        fresh = KEPT.with_suffix(".new")
        fresh.write_text(json.dumps(self._all, indent=1))
        fresh.replace(KEPT)
        return self._all[-1]


def sources() -> str:
    """A name for what is in src/: the same as long as no file there changes, whatever else is committed."""
    digest = hashlib.sha256()
    for file in sorted(ROOT.glob("src/podium/**/*")):
        if file.suffix in (".py", ".yaml"):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def commit() -> str:
    try:
        changed = run("git", "status", "--porcelain", "--", "src")
        return run("git", "rev-parse", "--short", "HEAD").strip() + ("+" if changed.strip() else "")
    except (RuntimeError, OSError):
        return "unknown"


def machine() -> str:
    cpu = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if "model name" in line]
        if cpu.exists()
        else []
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{p} {metadata.version(p)}" for p in ("torch", "gymnasium", "stable-baselines3", "envpool"))
    return (
        f"{names[0] if names else platform.processor()}, {cores} cores, Python {platform.python_version()}, {versions}"
    )


def judged(floor: Floor, entries: Sequence[Result | None]) -> Verdict | None:
    """None where a part has not been measured."""
    results = [e["result"] for e in entries if e is not None]
    return floor.judge(results) if len(results) == len(entries) else None


def write(kept: Kept, failures: dict[str, str]) -> None:
    """The page of all promises. What was measured elsewhere stays as the page has it."""
    before = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    lines, details = [], []
    for floor in FLOORS:
        entries = [kept.find(part) or kept.last(part) for part in floor.parts]
        verdict = judged(floor, entries)
        start, note = f"| {floor.what} | {floor.floor} | {floor.aim} |", f"- **{floor.name}**:"
        if floor.name in failures:
            lines.append(f"{start} failed | **no** | | `{floor.command}` |")
            details.append(f"{note} {failures[floor.name]}")
        elif verdict is None:
            lines += [line for line in before if line.startswith(start)] or [
                f"{start} not measured | **no** | | `{floor.command}` |"
            ]
            details += [line for line in before if line.startswith(note)]
        else:
            holds = ("yes, and the aim" if verdict.aim and floor.aim != "-" else "yes") if verdict.holds else "**no**"
            when = ", at ".join([max(e["date"] for e in entries if e), *sorted({e["commit"] for e in entries if e})])
            lines.append(f"{start} {verdict.measured} | {holds} | {when} | `{floor.command}` |")
            details.append(f"{note} {verdict.details}; found a load of {max(e['load'] for e in entries if e):.1f}")
    machines = {f"Machine: {e['machine']}." for f in FLOORS for p in f.parts if (e := kept.last(p))}
    head = [
        "# Measured",
        "",
        "What Podium promises, as `make floors` found it. A floor is what must hold, an aim what we hope for.",
        "A ratio is a median over rounds with a bootstrap interval (95 %), and holds only if it also does against the",
        "peer's best number of threads, and against the peer in a process without podium's thread settings.",
        "",
        *sorted(machines | {line for line in before if line.startswith("Machine: ")}),
        "",
        "| what | floor | aim | measured | holds | when (UTC), at which commit | command |",
        "|---|---|---|---|---|---|---|",
    ]
    RESULTS.write_text("\n".join([*head, *lines, "", "## Behind the numbers", "", *details, ""]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what Podium promises.")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"one of {', '.join(f.name for f in FLOORS)}")
    parser.add_argument("--fresh", action="store_true", help="measure anew what has been measured")
    asked = parser.parse_args()
    names = {f.name for f in FLOORS}
    if unknown := set(asked.only or ()) - names:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")
    chosen = [f for f in FLOORS if not asked.only or f.name in asked.only]
    kept, failures, held = Kept(asked.fresh), dict[str, str](), True
    for floor in chosen:
        print(f"{floor.name}: {floor.what} ({floor.floor})", flush=True)
        try:
            verdict = floor.judge([kept.get(part)["result"] for part in floor.parts])
            print(f"  {verdict.measured}: {'holds' if verdict.holds else 'DOES NOT HOLD'}", flush=True)
            held &= verdict.holds
        except (RuntimeError, subprocess.TimeoutExpired, KeyError) as error:
            failures[floor.name] = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"  failed: {error}", flush=True)
            held = False
        write(kept, failures)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
