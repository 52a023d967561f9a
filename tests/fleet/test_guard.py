"""The guard of a Ray of our own: when its driver is gone, so is all that was started, stopped or not."""

import os
import signal
import subprocess
import sys
import time

from podium.fleet import guard

TREE = "sleep 600 & sh -c 'sleep 600 & sleep 600 & echo up; wait' & wait"


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_whole_tree_ends_with_the_driver(tmp_path):
    root = subprocess.Popen(["/bin/sh", "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert root.stdout.read(3) == b"up\n"
    tree = guard.below({root.pid})
    assert len(tree) == 4
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    (tmp_path / "folder").mkdir()
    command = [sys.executable, "-S", "-E", guard.__file__, str(root.pid)]
    watching = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    watching.communicate(f"{tmp_path / 'folder'}\n".encode(), timeout=10)  # as a driver that dies lets go of it
    root.wait(5)
    ends = time.monotonic() + 5
    while any(map(running, tree)):
        assert time.monotonic() < ends
        time.sleep(0.02)
    assert not (tmp_path / "folder").exists()
