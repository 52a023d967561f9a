"""Attack run folders: what a stranger may have written into them, and what a disk may have done to them.

    python bench/attack.py folders --cases 5000      hostile values in every field of every file
    python bench/attack.py bits --cases 1000         single flipped bits, in every file

Every case is a copy of a small run, changed in one place (a tenth of the hostile ones in two), on which one command is
run in a process of its own, in a sandbox with canaries: modules that leave a mark when they are imported, and files
that must stay as they are. Prints one JSON document; the exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import io
import json
import math
import os
import random
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

import podium
from podium import agent, cli, ensemble, exporting, resuming, training
from podium.core import tree
from podium.report import plots, tables
from podium.store import checkpoint, run_config, schema, seal, tensors

IMPORTED = (podium, agent, ensemble, exporting, plots, tables, training)  # once, not in every process
SECONDS = 10.0
"""That a command may take."""
ASK = 3.3
"""Seconds after which a run that trains is asked to stop."""
TINY = "env.num=2", "algo.steps=16", "algo.batch=32", "eval.episodes=2", "eval.every=128", "train.threads=1"
RUNS = {
    "train": ("train", "CartPole-v1", "ppo", "train.members=2", "stop.steps=384", "train.checkpoint=128", *TINY),
    "evolve": (
        *("evolve", "CartPole-v1", "ppo", "tournament", "evolve.members=4", "evolve.interval=128", "stop.steps=512"),
        *("train.checkpoint=128", "algo.lr=[1e-4,1e-2]", *TINY),
    ),
    "front": (
        *("evolve", "CartPole-v1", "ppo", "nsga2", "evolve.members=4", "evolve.interval=128", "stop.steps=256"),
        *("evolve.objectives=[return,-switching]", "train.checkpoint=128", "algo.lr=[1e-4,1e-2]", *TINY),
    ),
}
READING = (
    ("top", "RUN"),
    ("top", "RUN", "--json"),
    ("lineage", "RUN", "--json"),
    ("lineage", "RUN", "--plot", "lineage.png"),
    ("front", "RUN", "--plot", "front.png"),
    ("eval", "RUN", "--episodes", "2"),
    ("eval", "RUN", "--ensemble", "top:2", "--episodes", "2"),
    ("export", "RUN", "-o", "out.onnx"),
    ("play", "RUN", "-o", "out.gif"),
    ("resume", "RUN"),
    ("resume", "RUN", "stop.steps=640"),
    ("train", "RUN/config.yaml", "-o", "again", "stop.steps=64"),
    ("train", "CartPole-v1", "ppo", "-o", "RUN", "-D", "stop.steps=64", *TINY),
)
EVIL = "open({mark!r}, 'w').close()\nclass Env: pass\nclass Algo: pass\ndef Net(*a, **k): pass\n"
MODULES = ("evil", "dill", "pynvml", "cupy", "tabulate", "psutil_extra", "sitecustomize", "usercustomize")


class Told(NamedTuple):
    """What came of a command: its exit code (None: it had to be killed), what it printed, and how long it took."""

    code: int | None
    out: str
    err: str
    seconds: float


def command(words: tuple[str, ...], folder: Path, ask_after: float | None = None) -> Told:
    """A command in a process of its own, in a folder; after `ask_after` seconds it is asked to stop."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _become(words, folder, out.fileno(), err.fileno())
        asked, code = False, None
        while time.monotonic() - start < SECONDS:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            if ask_after is not None and not asked and time.monotonic() - start > ask_after:
                os.kill(child, signal.SIGTERM)
                asked = True
            time.sleep(0.005)
        else:
            os.kill(child, signal.SIGABRT)  # says on stderr where it hangs
            os.waitpid(child, 0)
        out.seek(0), err.seek(0)
        said = [file.read().decode(errors="replace") for file in (out, err)]
    return Told(code, said[0], said[1], time.monotonic() - start)


def _become(words: tuple[str, ...], folder: Path, out: int, err: int) -> None:
    """The child: the command, and nothing of the parent's clean-up."""
    code = 70
    try:
        os.dup2(out, 1), os.dup2(err, 2)
        os.setsid()
        faulthandler.enable(sys.__stderr__)
        os.chdir(folder)
        sys.argv = ["podium", *words]
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def made(folder: Path) -> dict[str, Path]:
    """One small run of each sort, and of one a copy as a kill leaves it, with its log."""
    found = {}
    for name, words in RUNS.items():
        told = command((*words, "-o", str(folder / name), "-q"), folder)
        assert told.code == 0, told
        found[name] = folder / name
    return found


# ---- hostile values


def hostile(rng: random.Random, evil: Path) -> Any:
    """A value that nobody expects."""
    deep: Any = 1
    for _ in range(rng.choice((3, 200))):
        deep = [deep]
    return rng.choice(
        (
            *(None, "", " ", "x" * 5000, -1, 0, 1, 7, 2**31, 2**53, 2**63, 2**64, 10**30, -(2**63), 0.5, 1e308, -1e308),
            *(math.nan, math.inf, -math.inf, True, [], [[]], {}, {"each": []}, {"each": [1, 2, 3]}, {"a": {"b": []}}),
            *([1] * 1000, [1e-5, 1e-2], [10**9, 10**9], deep, "\x1b[31m", "a\nb", "../../x", "/dev/zero", "/dev/stdin"),
            *("evil:Env", "evil:Algo", "evil:Net", "evil.py:Env", f"{evil}/evil.py:Env", f"{evil}/evil.py:Net"),
            *("os:system", "builtins:print", "podium.bench._still:Still", "evil:CartPole-v1", "CartPole-v1", "ppo"),
            *(
                "Pendulum-v1",
                "sac",
                "dqn",
                "ray",
                "mpi",
                "processes",
                "127.0.0.1:1",
                "cuda",
                "meta",
                "auto",
                "tournament",
            ),
            *(
                "GymV26Environment-v0",
                {"env_id": "evil:Env"},
                {"command": "touch /tmp/x"},
                "nsga2",
                ["ppo", "evil:Algo"],
            ),
        )
    )


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of nested dicts and lists, inner ones included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from leaves(inner, (*path, key))


def change(rng: random.Random, value: Any, evil: Path) -> None:
    """One value somewhere inside of `value` becomes another, or goes, or gets company."""
    path = rng.choice(list(leaves(value)))
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    how = rng.random()
    if how < 0.1 and isinstance(holder, dict):
        del holder[path[-1]]
    elif how < 0.15 and isinstance(holder, dict):
        holder[rng.choice(("evil", "evil:Env", "0", ""))] = hostile(rng, evil)
    else:
        holder[path[-1]] = hostile(rng, evil)


def in_config(rng: random.Random, run: Path, evil: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_bytes())
    if rng.random() < 0.3:  # what is looked for most
        field = rng.choice(("env.id", "algo.name", "net.module", "fleet.address", "evolve.entrants", "train.start"))
        section, _, name = field.partition(".")
        config.setdefault(section, {})[name] = hostile(rng, evil)
    else:
        change(rng, config, evil)
    with contextlib.suppress(RecursionError):
        (run / "config.yaml").write_bytes(run_config.text(config))


def in_text(rng: random.Random, run: Path, evil: Path) -> None:
    """YAML that is not what `safe_dump` writes, with the right checksum."""
    bombs = (
        "a: &a [x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
        "- " * 5000,
        "[" * 5000,
        "{a: " * 3000,
        "a: !!python/name:os.system\n",
    )
    body = rng.choice((*bombs, "\x00", "%YAML 9.9\n---\n", "a: 1\na: 2\n", "seed: 2020-99-99\n", "1: 2\n")).encode()
    seal_line = b"# sha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n"
    (run / "config.yaml").write_bytes(body + seal_line)


def in_tensors(rng: random.Random, run: Path, evil: Path) -> None:
    """The info or a tensor of a checkpoint or of a member."""
    kind = rng.choice(("checkpoint", "member"))
    folder = run / ("members" if kind == "member" else "checkpoint")
    path = rng.choice(sorted(folder.iterdir()))
    state, info = tensors.load(path, kind)
    how = rng.random()
    if how < 0.6 and info:
        change(rng, info, evil)
    else:
        name, holder = rng.choice([(n, h) for h, n in _places(state)])
        holder[name] = _other(rng, holder[name])
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        real = json.dumps
        tensors.json.dumps = lambda *a, **k: real(*a, **(k | {"allow_nan": True}))  # type: ignore[attr-defined]
        try:
            tensors.save(path, state, info, kind)
        finally:
            tensors.json.dumps = real  # type: ignore[attr-defined]


def _places(state: tree.Tree) -> Iterator[tuple[tree.Tree, str]]:
    for name, value in state.items():
        if isinstance(value, dict):
            yield from _places(value)
        else:
            yield state, name


def _other(rng: random.Random, leaf: torch.Tensor) -> torch.Tensor:
    like = torch.empty_like(leaf)
    if leaf.is_floating_point():
        fill = rng.choice((math.nan, math.inf, 1e30, 0.0))
        return rng.choice((like.fill_(fill), leaf[:0], leaf[None], leaf.double(), torch.zeros(3), leaf.flatten()[:1]))
    fill = rng.choice((0, -1, 1)) if leaf.dtype != torch.int64 else rng.choice((0, -1, 2**62, 10**12))
    return rng.choice((like.fill_(fill), leaf[:0], leaf[None], leaf.float(), torch.zeros(3)))


def in_ledger(rng: random.Random, run: Path, evil: Path) -> None:
    """A value of a row, sealed as Podium seals it; or other tables altogether."""
    link = schema.writer(run / "ledger.sqlite")
    with contextlib.closing(link), contextlib.suppress(Exception):
        link.execute("PRAGMA ignore_check_constraints = ON")
        link.execute("PRAGMA foreign_keys = OFF")
        if rng.random() < 0.1:
            endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id FROM n"
            link.execute("ALTER TABLE members RENAME TO others")
            link.execute(f"CREATE VIEW members AS {endless}")
            return
        table = rng.choice(list(seal.COLUMNS))
        column = rng.choice(list(seal.COLUMNS[table]))
        value = hostile(rng, evil)
        plain = value if isinstance(value, str | float | int | None) else json.dumps(value)
        plain = rng.choice((plain, json.dumps(value), b"\xff\x00", json.dumps({"lr": value}), f"[{json.dumps(value)}]"))
        some = "" if rng.random() < 0.5 else f"WHERE rowid = (SELECT min(rowid) FROM {table})"
        link.execute(f'UPDATE {table} SET "{column}" = ? {some}', (plain,))


def in_files(rng: random.Random, run: Path, evil: Path) -> None:
    """Something else in the place of a file or folder: a link, a pipe, a folder, nothing, or anything."""
    names = [str(path.relative_to(run)) for path in run.rglob("*")]
    more = (
        "lock",
        "log.txt",
        "ledger.sqlite-wal",
        "ledger.sqlite-shm",
        "ledger.sqlite-journal",
        "members",
        "checkpoint",
    )
    path = run / rng.choice([*names, *more, *more])
    how = rng.choice(("link", "zero", "pipe", "folder", "gone", "noise", "hard", "huge", "loop"))
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    outside = evil.parent / "outside"
    if how == "link":
        path.symlink_to(rng.choice((outside, outside / "precious.txt", outside / "members", Path("/etc/passwd"))))
    elif how == "zero":
        path.symlink_to("/dev/zero")
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "noise":
        path.write_bytes(rng.randbytes(rng.choice((0, 1, 100, 5000))))
    elif how == "hard":
        os.link(outside / "precious.txt", path)
    elif how == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif how == "loop":
        path.symlink_to(path.name)


ATTACKS: tuple[tuple[float, Callable[[random.Random, Path, Path], None]], ...] = (
    (4, in_config),
    (0.3, in_text),
    (3, in_tensors),
    (3, in_ledger),
    (2, in_files),
)


def stranger(number: int, runs: dict[str, Path], sandbox: Path) -> dict[str, Any] | None:
    """One case of hostile values; what was found, if anything."""
    rng = random.Random(f"stranger {number}")
    evil, outside, run = sandbox / "evil", sandbox / "outside", sandbox / "here" / "run"
    shutil.rmtree(sandbox, ignore_errors=True)
    for folder in (evil, outside / "members", sandbox / "here"):
        folder.mkdir(parents=True)
    (outside / "precious.txt").write_text("precious " * 100)
    (outside / "members" / "0.safetensors").write_text("precious")
    for folder in (evil, sandbox / "here"):
        for name in MODULES:
            (folder / f"{name}.py").write_text(EVIL.format(mark=str(sandbox / "mark")))
    name = rng.choice(list(runs))
    shutil.copytree(runs[name], run)
    weights, attacks = zip(*ATTACKS, strict=True)
    chosen = rng.choices(attacks, weights, k=2 if rng.random() < 0.1 else 1)
    for attack in chosen:
        with contextlib.suppress(Exception):  # the second may find nothing left to attack
            attack(rng, run, evil)
    words = READING[number % len(READING)]
    before = _seen(outside)
    typed = tuple(word.replace("RUN", "run") for word in words)
    told = command(typed, sandbox / "here", ASK if words[0] in ("resume", "train") else None)
    wrong = []
    if (sandbox / "mark").exists():
        wrong.append("code")
    if _seen(outside) != before:
        wrong.append("outside")
    if told.code is None:
        wrong.append("hang")
    if "Traceback" in told.err + told.out or "unexpected" in told.err or told.code not in (None, 0, 1, 2):
        wrong.append("traceback")
    if not wrong:
        return None
    told = told._replace(err=told.err + _log(told.err))
    case = {"case": number, "run": name, "attacks": [attack.__name__ for attack in chosen], "words": words}
    return case | {"found": wrong, "code": told.code, "said": (told.out[-300:], told.err[-3000:])}


def _log(said: str) -> str:
    """The traceback that an unforeseen error is kept in."""
    found = re.search(r"the traceback is in (\S+?)[;,.]? ", f"{said} ")
    return Path(found[1]).read_text()[-2000:] if found and Path(found[1]).exists() else ""


def _seen(folder: Path) -> list[tuple[str, int, float, bytes]]:
    found = []
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        found.append(
            (str(path), about.st_mode, about.st_mtime, path.read_bytes() if stat.S_ISREG(about.st_mode) else b"")
        )
    return found


# ---- flipped bits

CHECKS = (("top", "RUN", "--json"), ("lineage", "RUN", "--json"), ("eval", "RUN", "--episodes", "5", "--json"))


def killed(runs: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Copies of runs as a kill leaves them: with a log of the ledger beside it."""
    for name in ("train", "evolve"):
        words = (*RUNS[name], "-o", str(folder / f"{name}-killed"), "-q", "stop.steps=100000")
        child = os.fork()
        if child == 0:
            _become(words, folder, 1, 2)
        while len(checkpoint.found(folder / f"{name}-killed")) < 2:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        runs = {**runs, f"{name}-killed": folder / f"{name}-killed"}
    return runs


def after(run: Path) -> dict[str, Any]:
    """What a resumed run has come to: every tensor of its last checkpoint."""
    state, _ = tensors.load(checkpoint.found(run)[0], "checkpoint")
    return {name: leaf.numpy().tobytes() for name, leaf in tree.flatten(state["pods"]).items()}


def goal(run: Path) -> str:
    return f"stop.steps={checkpoint.step_of(checkpoint.found(run)[0]) + 64}"


def truth(run: Path, sandbox: Path) -> dict[str, Any]:
    """What commands say of a run that nobody has touched."""
    shutil.rmtree(sandbox, ignore_errors=True)
    sandbox.mkdir(parents=True)
    shutil.copytree(run, sandbox / "run")
    found: dict[str, Any] = {
        words: command(tuple(w.replace("RUN", "run") for w in words), sandbox).out for words in CHECKS
    }
    told = command(("resume", "run", goal(run), "-q"), sandbox)
    assert told.code == 0, told
    return found | {"resumed": after(sandbox / "run")}


def bit(number: int, runs: dict[str, Path], truths: dict[str, Any], sandbox: Path) -> dict[str, Any] | None:
    """One flipped bit; what was found, if anything."""
    rng = random.Random(f"bit {number}")
    name = sorted(runs)[number % len(runs)]
    files = sorted(path for path in runs[name].rglob("*") if path.is_file() and path.stat().st_size)
    file = rng.choice(files).relative_to(runs[name])
    where = rng.randrange(8 * (runs[name] / file).stat().st_size)
    wrong, said = [], {}
    for words in (*CHECKS, ("resume", "RUN", goal(runs[name]))):
        shutil.rmtree(sandbox, ignore_errors=True)
        sandbox.mkdir(parents=True)
        shutil.copytree(runs[name], sandbox / "run")
        data = bytearray((sandbox / "run" / file).read_bytes())
        data[where // 8] ^= 1 << where % 8
        (sandbox / "run" / file).write_bytes(data)
        told = command(tuple(w.replace("RUN", "run") for w in words), sandbox)
        said[words[0]] = told.code, told.err[-2000:]
        if told.code is None or "Traceback" in told.err + told.out or "unexpected" in told.err:
            wrong.append(f"traceback or hang: {words[0]}")
        elif words[0] == "resume":
            if told.code != 0:
                wrong.append("not resumable")
            elif after(sandbox / "run") != truths[name]["resumed"]:
                wrong.append("wrong: resume")
        elif told.code == 0 and not told.err and told.out != truths[name][words]:
            wrong.append(f"wrong: {words[0]}")
    return (
        {"case": number, "run": name, "file": str(file), "bit": where, "found": wrong, "said": said} if wrong else None
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("folders", "bits"))
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a command may take")
    given = parser.parse_args()
    globals()["SECONDS"] = given.seconds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="podium-attack-") as folder:
        print(
            json.dumps(attack(given.what, range(given.first, given.first + given.cases), Path(folder), given.at_once))
        )
    return 0


def attack(what: str, cases: range, folder: Path, at_once: int = 1) -> dict[str, Any]:
    """All cases; how many of each fault, and the faults."""
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    (folder / "runs").mkdir()
    runs = made(folder / "runs")
    exporting.export(runs["train"], out=folder / "warm.onnx")  # what these import is imported once
    next(agent.load(runs["train"]).play())
    if what == "bits":
        runs = killed(runs, folder / "runs")
        truths = {name: truth(run, folder / "truth") for name, run in runs.items()}
    if at_once > 1:  # threads that fork would hold each other's locks: a process each
        parts, found, pipes = [range(cases.start + i, cases.stop, at_once) for i in range(at_once)], [], []
        for i, part in enumerate(parts):
            read, write = os.pipe()
            if os.fork() == 0:
                os.close(read)
                mine = [_one(what, n, runs, truths if what == "bits" else {}, folder / f"sandbox-{i}") for n in part]
                with open(write, "w") as file:
                    json.dump([case for case in mine if case], file)
                os._exit(0)
            os.close(write)
            pipes.append(read)
        with ThreadPoolExecutor(at_once) as pool:
            for text in pool.map(_all_of, pipes):
                found += json.loads(text)
    else:
        every = [_one(what, n, runs, truths if what == "bits" else {}, folder / "sandbox") for n in cases]
        found = [case for case in every if case]
    kinds = sorted({kind.partition(":")[0] for case in found for kind in case["found"]})
    count = {kind: sum(any(k.startswith(kind) for k in case["found"]) for case in found) for kind in kinds}
    return {"cases": len(cases), "found": count, "details": sorted(found, key=lambda case: case["case"])}


def _all_of(pipe: int) -> str:
    with open(pipe) as file:
        return file.read()


def _one(what: str, number: int, runs: dict[str, Path], truths: dict[str, Any], sandbox: Path) -> dict[str, Any] | None:
    return stranger(number, runs, sandbox) if what == "folders" else bit(number, runs, truths, sandbox)


assert resuming  # imported before the first fork

if __name__ == "__main__":
    sys.exit(main())
