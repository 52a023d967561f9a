"""Who may talk to a node: keys, their files, and addresses that need them."""

import os
import stat
import time

import pytest
import zmq

from podium.core.errors import ConfigError, PodiumError
from podium.fleet import keys, processes
from podium.fleet.errors import Late, NodeLost
from podium.fleet.keys import Keys, Pair
from podium.fleet.link import Handle, Wired


def test_keys_are_written_for_their_owner_alone_and_read_back(tmp_path):
    path, made = tmp_path / "fleet.keys", Keys.new()
    keys.write(path, made)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and keys.read(path) == made
    with pytest.raises(PodiumError, match="never overwritten"):
        keys.write(path, Keys.new())
    os.chmod(path, 0o644)
    with pytest.raises(PodiumError, match="others may read these keys"):
        keys.read(path)


@pytest.mark.parametrize("text", ["", "podium keys 1\nshort\n", "other\n" + "\n".join(["x" * 40] * 4), "\x00" * 200])
def test_other_files_are_no_keys(tmp_path, text):
    path = tmp_path / "keys"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(PodiumError, match=r"not a file that `podium keys` wrote"):
        keys.read(path)


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("ipc:///tmp/x", True),
        ("tcp://127.0.0.1:*", True),
        ("tcp://[::1]:5", True),
        ("tcp://0.0.0.0:*", False),
        ("tcp://*:5555", False),
        ("tcp://10.0.0.3:5555", False),
        ("tcp://example.org:5555", False),
        ("udp://127.0.0.1:1", False),
    ],
)
def test_a_public_address_needs_keys(address, private):
    assert keys.private(address) == private
    if not private:
        allowed = pytest.raises(ConfigError, match=r"a path \(ipc://\) or a loopback address, or with keys any")
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket, allowed:
            keys.bind(socket, address, None)


@pytest.fixture(scope="module")
def locked():
    made = Keys.new()
    with processes.group("fleet_nodes:Counter", 1, tcp=True, keys=made) as group:
        assert group.one(0, "add").result() == 1
        yield group, made


def address(group):
    return group._links[0].handle.address


def test_who_has_the_keys_is_answered(locked):
    group, made = locked
    link = Wired(Handle("it", address(group)), made)
    assert link.call("echo", "hello", timeout=5).result() == "hello"
    link.close()


def test_who_has_others_is_refused_in_seconds(locked):
    group, made = locked
    for wrong in (Keys(made.nodes, Pair.new()), Keys(Pair.new(), made.callers), Keys.new()):
        start, link = time.monotonic(), Wired(Handle("it", address(group)), wrong)
        with pytest.raises((NodeLost, Late)) as caught:
            link.call("add", timeout=3).result()
        assert time.monotonic() - start < 4, caught.value
        link.close()
    bare = Wired(Handle("it", address(group)))
    with pytest.raises(Late):
        bare.call("add", timeout=0.5).result()
    bare.close()
    assert group.one(0, "where").result()["value"] == 1  # nobody else was let in
