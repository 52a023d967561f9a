"""Nodes that are started by hand: `podium keys`, `podium serve`, and a group of what is there already."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import whole
from podium.core.errors import PodiumError
from podium.fleet import by_hand, keys
from podium.fleet.errors import NodeLost, RemoteError
from podium.fleet.keys import Keys, Pair

TESTS = Path(__file__).parents[1]


def start(*words: object) -> tuple[subprocess.Popen[str], str]:
    """`podium serve WORDS`, and where it says that it is."""
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "podium", "serve", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": paths}
    served = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert served.stdout is not None
    said = served.stdout.readline()
    found = re.fullmatch(r"fleet_nodes:Counter at (\S+), asks for (no )?keys; Ctrl-C ends it\n", said)
    assert found is not None, (said, served.communicate(timeout=10))
    return served, found[1]


def end(served: subprocess.Popen[str], how: signal.Signals) -> None:
    began = time.monotonic()
    served.send_signal(how)
    out, err = served.communicate(timeout=20)
    assert (served.returncode, out, err) == (0, "", "")
    assert time.monotonic() - began < 5


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "fleet.keys"
    assert whole.command("keys", path)[0] == 0
    return path


@pytest.fixture(scope="module")
def locked(file):
    """A node with keys, and where it is; in the end Ctrl-C."""
    served, where = start("fleet_nodes:Counter", "tcp://127.0.0.1:*", 40, 2, "--keys", file)
    yield where
    end(served, signal.SIGINT)


def test_keys_are_written_once_for_their_owner(tmp_path):
    path = tmp_path / "my keys"
    code, out, err = whole.command("keys", path)
    assert (code, err) == (0, "") and len(out.splitlines()) == 1 and f"--keys '{path}'" in out
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    before = keys.read(path)
    assert "keys are never overwritten" in whole.refused(tmp_path, "keys", path)
    assert keys.read(path) == before
    assert "cannot be written there" in whole.refused(tmp_path, "keys", tmp_path / "nowhere" / "keys")


def test_a_served_class_is_called_with_its_arguments(locked, file):
    with by_hand.group([locked], file) as nodes:
        value = nodes.one(0, "where").result()["value"]
        assert value >= 40 and nodes.all("add") == [value + 2]
        with pytest.raises(RemoteError, match="no luck"):
            nodes.one(0, "fail", "no luck").result()
        with pytest.raises(RemoteError, match="has no method '_hidden'"):
            nodes.one(0, "_hidden").result()


def test_a_node_outlives_its_callers_and_is_the_same_for_the_next(locked, file):
    seen = []
    for _ in range(2):
        with by_hand.group([locked], keys.read(file)) as nodes:
            seen.append((nodes.one(0, "where").result()["pid"], nodes.one(0, "add").result()))
    assert seen[0][0] == seen[1][0] and seen[1][1] == seen[0][1] + 2


def test_to_restart_is_to_connect_again(locked, file):
    with by_hand.group([locked, locked], file) as nodes:
        pid = nodes.one(0, "where").result()["pid"]
        nodes.restart(0)
        assert [there["pid"] for there in nodes.all("where")] == [pid, pid]


def test_wrong_keys_are_refused_in_seconds(locked, file):
    made = keys.read(file)
    for wrong in (Keys.new(), Keys(made.nodes, Pair.new()), Keys(Pair.new(), made.callers)):
        began = time.monotonic()
        with by_hand.group([locked], wrong) as nodes, pytest.raises(NodeLost, match=f"{locked} refused the keys"):
            nodes.one(0, "add").result()
        assert time.monotonic() - began < 3


def test_a_caller_without_keys_is_refused_in_seconds(locked):
    began = time.monotonic()
    with by_hand.group([locked]) as nodes, pytest.raises(NodeLost, match="refused a caller without keys"):
        nodes.one(0, "add").result()
    assert time.monotonic() - began < 3
    with pytest.raises(PodiumError, match=r"tcp://10.0.0.3:7000: a node there asks for keys"):
        by_hand.group(["tcp://10.0.0.3:7000"])


def test_nobody_is_there(monkeypatch):
    monkeypatch.setattr(by_hand, "START", 0.3)
    with by_hand.group(["tcp://127.0.0.1:1"]) as nodes, pytest.raises(NodeLost, match="nobody answers at"):
        nodes.one(0, "add").result()
    with pytest.raises(PodiumError, match="nonsense: not an address to call"):
        by_hand.group(["nonsense"], Keys.new())


def test_on_loopback_without_keys_and_what_follows_its_end(tmp_path):
    served, where = start("fleet_nodes:Counter", f"ipc://{tmp_path}/node")
    with by_hand.group([where]) as nodes:
        assert nodes.one(0, "add").result() == 1
        call = nodes.one(0, "sleep", 0.5)
        time.sleep(0.2)
        end(served, signal.SIGTERM)  # after the call that it is at work on
        assert call.result() == 0.5
        with pytest.raises(NodeLost, match="has hung up"):
            nodes.one(0, "add").result()


def test_a_second_signal_ends_a_node_in_the_middle_of_a_call(tmp_path):
    served, where = start("fleet_nodes:Counter", f"ipc://{tmp_path}/node")
    with by_hand.group([where]) as nodes:
        with pytest.raises(RemoteError, match="KeyboardInterrupt: enough"):  # that is no signal
            nodes.one(0, "leave", "KeyboardInterrupt").result()
        nodes.one(0, "sleep", 60)
        time.sleep(0.3)
        for _ in range(2):
            served.send_signal(signal.SIGHUP)
            time.sleep(0.5)
        served.communicate(timeout=5)
        assert served.returncode not in (0, None)


def test_a_node_that_is_killed_is_noticed(tmp_path):
    served, where = start("fleet_nodes:Counter", "tcp://127.0.0.1:*")
    with by_hand.group([where]) as nodes:
        assert nodes.one(0, "add").result() == 1
        call, began = nodes.one(0, "sleep", 60), time.monotonic()
        served.kill()
        with pytest.raises(NodeLost, match="has hung up"):
            call.result()
        assert time.monotonic() - began < 3 and list(nodes.lost()) == [0]
    served.communicate()


REFUSED = {
    ("fleet_nodes:Counter", "tcp://0.0.0.0:7000"): "tcp://0.0.0.0:7000: others can reach it; give --keys FILE",
    ("fleet_nodes:Counter", "nonsense"): "nonsense: not an address",
    ("fleet_nodes", "tcp://127.0.0.1:*"): "fleet_nodes: not a class as it is named here",
    ("no_such_module:Counter", "tcp://127.0.0.1:*"): "ModuleNotFoundError: No module named 'no_such_module'",
    ("fleet_nodes:Nobody", "tcp://127.0.0.1:*"): "has no attribute 'Nobody'",
    ("fleet_nodes:Counter", "tcp://127.0.0.1:port"): "tcp://127.0.0.1:port: cannot be bound",
    ("fleet_nodes:Counter", "tcp://127.0.0.1:*", "level"): "level: not JSON; a text is written as '\"level\"'",
    ("fleet_nodes:Counter", "tcp://127.0.0.1:*", "1", "2", "3"): "fleet_nodes:Counter: cannot be made (TypeError",
    ("fleet_nodes:Broken", "tcp://127.0.0.1:*"): "cannot be made (RuntimeError: cannot be made)",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_served_is_refused_in_one_line(words, tmp_path):
    assert REFUSED[words] in whole.refused(tmp_path, "serve", *words)


def test_keys_and_ports_that_cannot_be_used(tmp_path, file):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        said = whole.refused(tmp_path, "serve", "fleet_nodes:Counter", where)
        assert f"{where}: cannot be bound" in said and "Address already in use" in said
    public, nowhere = ("fleet_nodes:Counter", "tcp://0.0.0.0:*"), tmp_path / "none"
    assert "cannot be read as keys" in whole.refused(tmp_path, "serve", *public, "--keys", nowhere)
    open_to_all = tmp_path / "open"
    open_to_all.write_bytes(file.read_bytes())
    open_to_all.chmod(0o644)
    assert "others may read these keys" in whole.refused(tmp_path, "serve", *public, "--keys", open_to_all)
