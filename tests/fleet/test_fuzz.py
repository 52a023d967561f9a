"""Whatever comes in at a node's socket: the node lives, runs no code, and goes on answering."""

import os
import random
import socket as sockets
from pathlib import Path

import numpy as np
import pytest
import zmq

from podium.fleet import processes, wire
from podium.fleet.errors import RemoteError
from podium.fleet.keys import Keys
from podium.fleet.link import request


def memory(pid):
    """Resident, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def rubbish(dice):
    """Random bytes, or a true request that is bent, cut or padded."""
    if dice.random() < 0.3:
        return [dice.randbytes(dice.randrange(200)) for _ in range(dice.randrange(1, 5))]
    method = dice.choice(["echo", "add", "_hidden", "__init__", "nothing"])
    frames = [bytearray(frame) for frame in request(method, [np.arange(4.0), {"a": [1, "x"]}], {})]
    frames[0][:0] = dice.randbytes(8) if dice.random() < 0.5 else dice.randrange(2**16).to_bytes(8)
    for _ in range(dice.randrange(4)):
        victim = dice.choice(frames)
        if victim and dice.random() < 0.7:
            victim[dice.randrange(len(victim))] = dice.randrange(256)
        else:
            del victim[dice.randrange(len(victim) + 1) :]
    return frames


def bombarded(number):
    """Send so many; memory of the node before and after. It has to answer on the way, and in the end."""
    dice = random.Random(number)
    with processes.group("fleet_nodes:Counter", 1) as group:
        pid = group.one(0, "where").result()["pid"]
        address = group._links[0].handle.address
        before = memory(pid)
        with zmq.Context() as context:
            for batch in range(number // 500):
                with context.socket(zmq.DEALER) as socket:
                    socket.linger = 1000
                    socket.connect(address)
                    for _ in range(500):
                        frames = rubbish(dice)
                        if bytes(frames[0][:8]) != b"\xff" * 8:  # to end is anyone's right who may talk to it
                            socket.send_multipart(frames)
                if batch % 10 == 0:
                    assert group.one(0, "echo", batch).result() == batch
        assert group.one(0, "echo", "still here").result() == "still here"
        assert group.one(0, "where").result()["pid"] == pid
        return before, memory(pid)


@pytest.mark.parametrize("number", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_random_and_mutated_frames(number):
    before, after = bombarded(number)
    assert after < before + 100


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
COMMAND = b"\x06"
"""As ZMTP 3 has them: how a connection begins, and what the handshake consists of, with 8 bytes of size."""


def test_who_has_no_keys_cannot_fill_the_memory():
    """ZeroMQ takes in a whole frame before it looks at the keys."""
    with processes.group("fleet_nodes:Counter", 1, tcp=True, keys=Keys.new()) as group:
        pid = group.one(0, "where").result()["pid"]
        port = int(group._links[0].handle.address.rpartition(":")[2])
        before = memory(pid)
        with sockets.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(GREETING)
            assert stranger.recv(64)
            with pytest.raises(OSError):  # it hangs up at once
                stranger.sendall(COMMAND + (1 << 30).to_bytes(8))
                for _ in range(100):
                    stranger.sendall(bytes(1 << 20))
        assert memory(pid) < before + 20
        assert group.one(0, "echo", "still here").result() == "still here"


def test_a_request_of_many_frames_is_bounded(monkeypatch):
    """A caller who is let in may send up to the limit, however it is cut; more is an error that it is told of."""
    with processes.group("fleet_nodes:Counter", 1) as group:
        value = np.ones(3 * wire.FRAME // 2, np.uint8)
        assert np.array_equal(group.one(0, "echo", value).result(), value)
        monkeypatch.setattr(wire, "FRAMES", 1 << 20)  # here, not there
        with pytest.raises(RemoteError, match="70001 frames are not allowed; at most"):
            group.one(0, "echo", [np.ones(1, np.uint8)] * 70_000).result()
        assert group.one(0, "echo", 1).result() == 1
