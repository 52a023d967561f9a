"""Classes that tests put on nodes."""

import os
import signal
import time

import torch

from podium.fleet.link import Handle, Wired


class Counter:
    """Counts; remembers what it was told."""

    def __init__(self, start=0, step=1):
        self.value, self._step, self._secret = start, step, "secret"

    def add(self, by=None):
        self.value += self._step if by is None else by
        return self.value

    def echo(self, value):
        return value

    def where(self):
        return {"pid": os.getpid(), "threads": torch.get_num_threads(), "value": self.value}

    def fail(self, text):
        raise ValueError(text)

    def fail_with_bad_text(self):
        raise FileNotFoundError(os.fsdecode(b"no file \x80"))

    def leave(self, kind):
        raise {e.__name__: e for e in (SystemExit, KeyboardInterrupt, GeneratorExit)}[kind]("enough")

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds

    def die(self, how=signal.SIGKILL):
        os.kill(os.getpid(), how)
        time.sleep(60)

    def unpicklable(self):
        return lambda: 0

    def weights(self, size):
        """Always the same tensor, changed in place by each call."""
        if not hasattr(self, "_weights"):
            self._weights = torch.zeros(size)
        self._weights += 1
        return self._weights

    def ask(self, address, method):
        """Call another node."""
        link = Wired(Handle("another", address))
        try:
            return link.call(method, timeout=5).result()
        finally:
            link.close()

    def _hidden(self):
        return self._secret


class Broken:
    def __init__(self):
        raise RuntimeError("cannot be made")

    def echo(self, value):
        return value
