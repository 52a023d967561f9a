"""Commands that a user may get wrong, and what the refusal must name: the field, the value, and what is allowed.

A line is a command, then what its message must hold, in any order. RUN is the folder of a small finished run, LONG a
name of 300 letters; the files of FILES stand in the current folder. `bench/inputs.py` runs each as a process.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

TINY = (
    *("cartpole", "ppo", "stop.steps=512", "eval.every=256", "eval.episodes=2", "train.checkpoint=256"),
    *("algo.epochs=1", "algo.steps=32", "env.num=8", "algo.batch=256", "stop.fitness=null"),
)
"""The words of RUN."""

FILES: dict[str, bytes] = {
    "open.yaml": b"algo: [",
    "zero.yaml": b"\x00\x01",
    "latin.yaml": b"\xff\xfe",
    "words.yaml": b"just words",
    "empty.yaml": b"",
    "list.yaml": b"- 1",
    "ring.yaml": b"a: &a [*a]",
    "typo.yaml": b"algo: {lr: 1, lr_: 2}",
    "number.yaml": b"3: 4",
    "for.yaml": b"for: [ppo]",
    "code.yaml": b"!!python/object/apply:os.system [ls]",
    "date.yaml": b"seed: 2020-99-99",
    "tab.yaml": b"algo:\n\tlr: 1",
    "twice.yaml": b"algo:\n  lr: 1e-3\n  clip: 0.2\nnet:\n  hidden: [8]\nalgo:\n  lr: 1e-4\n",
    "inner.yaml": b"env: CartPole-v1\n\nalgo:\n  lr: 1e-3\n  clip: 0.2\n\n\n\n  lr: 1e-4\n",
    "entrant.yaml": b"for:\n  ppo:\n    algo: {clip: 0.1, clip: 0.2}\n",
    "sb3.yaml": b"algo:\n  learning_rate: 1e-3\n",
    "rllib.yaml": b"training:\n  lambda_: 0.9\n",
    "dotted.yaml": b"algo.lr: 1e-3\n",
}

TABLE = r"""
train cartpole algo.lr=-0.1 | algo.lr | -0.1 | a number of at least 0
train cartpole algo.lr=.inf | algo.lr | inf | a number
train cartpole algo.lr=1e300 | algo.lr | 1e+300 | a number
train cartpole algo.lr=fast | algo.lr | 'fast' | a number of at least 0
train cartpole algo.lr=true | algo.lr | True | a number
train cartpole algo.lr=null | algo.lr | None | a number
train cartpole "algo.lr=[1e-2, 1e-4]" | algo.lr | [0.01, 0.0001] | a range [low, high]
train cartpole "algo.discount=[0.1, 0.9]" | algo.discount | [0.1, 0.9] | within [0.5, 0.9999]
train cartpole "algo.lr={each: [1e-3, 1e-4]}" | algo.lr | 2 values for 1 members
train cartpole "algo.lr={each: [-1]}" | algo.lr | {'each': [-1]} | a number of at least 0
train cartpole "algo.lr={every: [1]}" | algo.lr | {'every': [1]}
train cartpole "algo.epochs=[1, 5]" | algo.epochs | [1, 5] | a whole number of at least 1 | only a gene takes a range
train cartpole algo.epochs=2.5 | algo.epochs | 2.5 | a whole number of at least 1
train cartpole algo.epochs=0 | algo.epochs | 0 | a whole number of at least 1
train cartpole algo.steps=-8 | algo.steps | -8 | a whole number of at least 1
train cartpole algo.batch=512 | algo.batch | 512 | a divisor of the rollout
train cartpole algo.batch=100 | algo.batch | 100 | a divisor of the rollout
train cartpole algo.batch=many | algo.batch | 'many' | a whole number
train cartpole algo.clip_value=maybe | algo.clip_value | 'maybe' | true or false
train cartpole algo.anneal=[lam] | algo.anneal | 'lam' | one of lr, clip, entropy
train cartpole algo.anneal=[lr] stop.steps= | stop.steps | None | since algo.anneal
train cartpole train.members=0 | train.members | 0 | a whole number of at least 1
train cartpole train.members=true | train.members | True | a whole number
train cartpole train.members=two | train.members | 'two' | a whole number of at least 1
train cartpole train.members=1e30 | train.members | 1e+30 | a whole number of at least 1
train cartpole train.device=toaster | train.device | 'toaster' | a device of this machine
train cartpole train.start=nowhere | nowhere: no such run
train cartpole train.threads=0 | train.threads | 0 | at least 1
train cartpole eval.episodes=0 | eval.episodes | 0 | at least 1
train cartpole stop.steps=0 | stop.steps | 0 | a whole number of at least 1 or null
train cartpole stop.seconds=-1 | stop.seconds | -1 | a number of more than 0 or null
train cartpole stop=5 | stop | 5 | a mapping of settings
train cartpole stop.generations=3 | stop.generations | 3 | podium evolve
train cartpole seed=-1 | seed | -1 | a whole number of at least 0
train cartpole seed=1.5 | seed | 1.5 | a whole number
train cartpole seed=100000000000000000000000000 | seed | 100000000000000000000000000 | less than 2^63
train cartpole seed=1e26 | seed | 1e+26 | at most 9223372036854775807
train cartpole seed=10^26 | seed | '10^26' | at most 9223372036854775807
train cartpole "net.hidden=[64, 0]" | net.hidden | 0 | a list, each a whole number of more than 0
train cartpole net.hidden=64 | net.hidden | 64 | a list
train cartpole net.activation=gelu | net.activation | 'gelu' | one of tanh, relu, elu
train cartpole "net.conv=[[8, 3, 1]]" | net.conv | [[8, 3, 1]] | CartPole-v1 shows no images
train cartpole net.module=nowhere:net | net.module | 'nowhere:net' | package.module:name
train cartpole env.num=0 | env.num | 0 | at least 1
train cartpole env.source=envpol | env.source | 'envpol' | one of auto, native, mujoco, atari, envpool, gymnasium
train cartpole env.workers=0 | env.workers | 0 | a whole number of at least 1 or null
train cartpole env.workers=2 | env.workers | 2 | only env.source=workers
train cartpole env.timeout=0 | env.timeout | 0 | a number of more than 0
train cartpole env.max_failures=0 | env.max_failures | 0 | a whole number of at least 1
train cartpole env.sticky=1 | env.sticky | 1 | less than 1
train cartpole env.kwargs.mass=3 | env.kwargs | {'mass': 3} | cannot be made
train cartpole env=CartPole-v9 | env.id | 'CartPole-v9' | did you mean 'CartPole-v1'?
train cartpole env=cartpole-V1 | env.id | 'cartpole-V1' | did you mean 'CartPole-v1'?
train cartpole env=nowhere:Env | env.id | 'nowhere:Env' | package.module:name
train cartpole env=whole:Broken | env.id | 'whole:Broken' | cannot be made (RuntimeError: no licence)
train cartpole env=whole:Note | env.id | 'Note' | Text
train cartpole algo=pp | algo.name | 'pp' | did you mean 'ppo'?
train cartpole algo= | algo.name | None | one of ppo, a2c
train cartpole algo=os:getcwd | algo.name | 'os:getcwd' | Settings
train cartpole algo.lr=[1 | algo.lr=[1 | not YAML
train cartpole =3 | =3 | write key=value
train cartpole "algo={lr: 1, lr: 2}" | algo.lr is given twice
train cartpole "net={hidden: [8], hidden: [4]}" | net.hidden is given twice
train cartpole algo.lrr=1 | algo.lrr | did you mean algo.lr?
train cartpole net.hiden=[3] | net.hiden | did you mean net.hidden?
train cartpole trian.members=2 | trian.members=2 | write train.members=2
train cartpole trian.qqq=2 | trian | did you mean train?
train cartpole stop.qqq=2 | stop.qqq | allowed in stop: steps, seconds, fitness, generations
train cartpole algo.qqq=2 | algo.qqq | ppo has the genes lr, discount | and the plan steps, anneal
train cartpole for.ppo.algo.lr=1 | for | no such setting
train cartpole lr=1e-3 | lr=1e-3 | write algo.lr=1e-3
train cartpole members=8 | members=8 | write train.members=8
evolve cartpole members=8 | members=8 | write evolve.members=8
train cartpole steps=8 | steps=8 | write algo.steps=8 or stop.steps=8
train cartpole train.lr=0.5 | train.lr=0.5 | write algo.lr=0.5
train cartpole lr | lr | write algo.lr=VALUE
train cartpole algo.lr 1e-3 | algo.lr: write algo.lr=VALUE
train cartpole "algo.lr 1e-3" | write algo.lr=1e-3
train cartpole algo.lr | algo.lr: write algo.lr=VALUE
train cartpole learning_rate=1e-3 | learning_rate=1e-3: Podium calls it algo.lr; write algo.lr=1e-3
train cartpole algo.learning_rate=3e-4 | Podium calls it algo.lr; write algo.lr=3e-4
train cartpole train.gamma=0.99 | Podium calls it algo.discount; write algo.discount=0.99
train cartpole gae_lambda | Podium calls it algo.lam; write algo.lam=VALUE
train cartpole --learning-rate 1e-3 | --learning-rate: Podium calls it algo.lr; write algo.lr=1e-3
train cartpole --lr=1e-3 | --lr | write algo.lr=1e-3
train cartpole -lr 1e-3 | -lr | write algo.lr=1e-3
train cartpole --total-timesteps 1000 | write stop.steps=1000
train cartpole --algo a2c | --algo | write algo=a2c
train cartpole dqn clip_range=0.1 | algo.clip, a setting of ppo; dqn does not have it
train cartpole dqn algo.lam=0.9 | algo.lam | a setting of ppo and a2c; dqn does not have it
train cartpole ppo buffer_size=1000 | replay.capacity, a setting of dqn | ppo does not have it
train cartpole dqn n_steps=3 | write algo.n_step=3
train cartpole ppo n_steps=64 | write algo.steps=64
train pendulum sac ent_coef=0.1 | write algo.temperature=0.1
train cartpole num_sgd_iter=4 | write algo.epochs=4
train cartpole net_arch=[64,64] | write net.hidden=[64,64]
train cartpole policy_kwargs.net_arch=[64,64] | policy_kwargs | net.hidden=[64,64]
train cartpole num_workers=4 | num_workers=4 | env.workers | fleet.pods
train cartpole quantile_fraction=0.25 | evolve.fraction, a setting of podium evolve
evolve cartpole quantile_fraction=0.3 | write evolve.fraction=0.3
evolve cartpole algo.gamma=0.9 | write algo.discount=0.9
evolve cartpole evolve.POP_SIZE=8 | write evolve.members=8
train cartpole pbt | pbt | podium evolve ENV ALGO truncation
train cartpole framework=torch | PyTorch
train cartpol | 'cartpol' | did you mean 'cartpole'?
train zzzqqq | 'zzzqqq' | podium presets lists them
train cartpole pendulum | cartpole pendulum | name one env
train cartpole CartPole-v1 | cartpole CartPole-v1 | name one env
train ppo a2c | ppo a2c | name one algo
train ppo | env.id | missing
train nowhere.yaml | nowhere.yaml: cannot be read
train cartpole open.yaml | open.yaml | not YAML
train cartpole zero.yaml | zero.yaml | not YAML
train cartpole latin.yaml | latin.yaml | not YAML
train cartpole words.yaml | words.yaml | not a mapping of settings (found 'just words')
train cartpole empty.yaml | empty.yaml | (found nothing)
train cartpole list.yaml | list.yaml | (found list)
train cartpole ring.yaml | ring.yaml | not YAML
train cartpole typo.yaml | algo.lr_ | did you mean algo.lr?
train cartpole number.yaml | 3: no such setting
train cartpole for.yaml | for.yaml: for | ['ppo'] | a mapping from names of algorithms
train cartpole code.yaml | code.yaml | not YAML
train cartpole date.yaml | date.yaml | not YAML
train cartpole tab.yaml | tab.yaml | not YAML
train cartpole twice.yaml | twice.yaml: algo is given twice (lines 1 and 6)
train cartpole inner.yaml | inner.yaml: algo.lr is given twice (lines 4 and 9)
train cartpole entrant.yaml | entrant.yaml: for.ppo.algo.clip is given twice (lines 3 and 3)
train cartpole sb3.yaml | algo.learning_rate=1e-3 | write algo.lr=1e-3
train cartpole rllib.yaml | training.lambda_=0.9 | write algo.lam=0.9
train cartpole dotted.yaml | algo.lr: write it as algo: {lr: 1e-3}
train cartpole -o RUN | RUN | not empty | -D
train cartpole -D -o . | holds files but no run, so -D will not touch it
train cartpole -o words.yaml | -o | 'words.yaml' | it is a file; name a folder
train cartpole -o words.yaml/run | words.yaml/run | the folder cannot be made
train cartpole -o LONG | File name too long | name another
evolve cartpole evolve.members=1 | evolve.members | 1 | a whole number of at least 2
evolve cartpole evolve=truncate | evolve.strategy | 'truncate' | one of tournament, truncation
evolve cartpole evolve.zzz=1 | evolve.zzz | allowed in evolve: strategy, members
evolve cartpole fleet=cloud | fleet.kind | 'cloud' | one of inline, processes, ray, mpi
train cartpole evolve.members=8 | evolve | podium evolve
resume nowhere | nowhere: no such run
resume RUN --step 7 | --step | 7 | there are checkpoints of steps 256, 512
resume RUN env.num=4 | env.num | 4 | keeps 8
resume RUN seed=3 | seed | 3 | keeps 0
resume RUN "net.hidden=[32, 32]" | net.hidden | [32, 32] | keeps [64, 64]
resume RUN train.members=2 | train.members | 2 | keeps 1
resume RUN env=Acrobot-v1 | env.id | 'Acrobot-v1' | keeps 'CartPole-v1'
resume RUN env.source=gymnasium | env.source | 'gymnasium' | keeps 'auto'
resume RUN env.normalise_obs=true | env.normalise_obs | True | keeps False
resume RUN stop.stepz=1 | stop.stepz | did you mean stop.steps?
resume RUN algo.lr=-1 | algo.lr | -1
resume RUN ppo | ppo | write key=value
resume RUN algo.lr | algo.lr: write algo.lr=VALUE
resume RUN learning_rate=1e-3 | write algo.lr=1e-3
resume RUN stop.steps=100 | stop.steps | 100 | more than the 512 steps
eval nowhere | nowhere: no such run
eval RUN --member 7 | --member | 7 | this run has 0
eval RUN --env Acrobot-v1 | --env | 'Acrobot-v1' | an env with observations
eval RUN --ensemble best | --ensemble | 'best' | top:K
eval RUN --ensemble top:9 | --ensemble | 'top:9' | K is at most 1
eval RUN --how vote | --how | 'vote' | --ensemble
top nowhere | nowhere: no such run
play RUN -o film.avi | -o | 'film.avi' | .gif or .mp4
export RUN -o model.pt | -o | 'model.pt' | .onnx
presets nope | 'nope'
bench nope | 'nope' | ppo
"""


def cases() -> dict[str, tuple[str, ...]]:
    """Command line -> what its message must hold."""
    rows = [[part.strip() for part in line.split(" | ")] for line in TABLE.strip().splitlines()]
    return {command: tuple(parts) for command, *parts in rows}


def words(command: str) -> list[str]:
    """The words of a command line. What would train says where to, so that a wrong case leaves no run elsewhere."""
    found = ["x" * 300 if word == "LONG" else word for word in shlex.split(command)]
    trains = found[0] in ("train", "evolve") and "-o" not in found
    return [*found, "-o", "out"] if trains else found


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_bytes(text)


def as_a_process(command: str, folder: Path) -> tuple[str | None, float]:
    """What is wrong with how a command is refused, if anything is, and the seconds that it took."""
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    argv = [sys.executable, "-m", "podium", *words(command)]
    started = time.monotonic()
    end = subprocess.run(argv, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": paths})
    seconds = time.monotonic() - started
    missing = [part for part in cases()[command] if part not in end.stderr]
    if end.returncode == 2 and end.stdout == "" and len(end.stderr.splitlines()) == 1 and not missing:
        return None, seconds
    return f"podium {command}: exit code {end.returncode}, not named: {missing}; {end.stderr.strip()[-300:]}", seconds
