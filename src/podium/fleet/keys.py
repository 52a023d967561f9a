"""Keys: who may talk to a node. A node that can be reached from elsewhere is bound with CURVE, or not at all.

A fleet has one pair of keys for its nodes and one for its callers. A caller has to know the public key of the nodes, a
node answers only callers that hold the callers' key. On Ray and MPI the driver makes both anew for every run and hands
them over at launch; `podium keys` writes them to files for nodes that are started by hand.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator

from podium.core.errors import ConfigError, PodiumError

TITLE = "podium keys 1"
DOMAIN = "podium"


@dataclass(frozen=True)
class Pair:
    """A key pair as ZeroMQ writes it: 40 characters each."""

    public: bytes
    secret: bytes

    @classmethod
    def new(cls) -> Pair:
        return cls(*zmq.curve_keypair())


@dataclass(frozen=True)
class Keys:
    """What every node and caller of a fleet holds."""

    nodes: Pair
    callers: Pair

    @classmethod
    def new(cls) -> Keys:
        return cls(Pair.new(), Pair.new())

    def plain(self) -> list[bytes]:
        """As the wire carries them, to a place that is safe."""
        return [self.nodes.public, self.nodes.secret, self.callers.public, self.callers.secret]

    @classmethod
    def of(cls, plain: list[bytes]) -> Keys:
        return cls(Pair(*plain[:2]), Pair(*plain[2:]))


def write(path: Path, keys: Keys) -> None:
    """Write keys to a file that only its owner may read."""
    text = "\n".join([TITLE, *(part.decode() for part in keys.plain()), ""])
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except FileExistsError as error:
        raise PodiumError(f"{path}: there is a file already; keys are never overwritten") from error
    except OSError as error:
        raise PodiumError(f"{path}: keys cannot be written there ({error.strerror})") from error


def read(path: Path) -> Keys:
    """Keys from a file; one that others may read is refused."""
    try:
        if os.stat(path).st_mode & 0o077:
            raise PodiumError(f"{path}: others may read these keys; make them yours alone: chmod 600 {path}")
        title, *parts = path.read_text().split("\n")[:5]
    except (OSError, UnicodeDecodeError) as error:
        raise PodiumError(f"{path}: cannot be read as keys ({error})") from error
    if title != TITLE or len(parts) != 4 or any(len(part) != 40 for part in parts):
        raise PodiumError(f"{path}: not a file that `podium keys` wrote")
    return Keys.of([part.encode() for part in parts])


def bind(socket: zmq.Socket[bytes], address: str, keys: Keys | None) -> str:
    """Bind a node's socket; where it is. A public address without keys is refused."""
    if keys is None and not private(address):
        raise ConfigError("fleet.bind", address, "a path (ipc://) or a loopback address, or with keys any")
    if keys is not None:
        gate = ThreadAuthenticator(socket.context)
        gate.start()
        gate.configure_curve_callback(DOMAIN, _Only(keys.callers.public))
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = keys.nodes.public, keys.nodes.secret
        socket.zap_domain = DOMAIN.encode()
    socket.bind(address)
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def private(address: str) -> bool:
    """Whether nobody on another machine can reach an address."""
    scheme, _, rest = address.partition("://")
    if scheme in ("ipc", "inproc"):
        return True
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return scheme == "tcp" and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unlock(socket: zmq.Socket[bytes], keys: Keys | None) -> None:
    """Give a caller's socket the keys, where there are any."""
    if keys is not None:
        socket.curve_serverkey = keys.nodes.public
        socket.curve_publickey, socket.curve_secretkey = keys.callers.public, keys.callers.secret


class _Only:
    """Lets in who holds a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        return hmac.compare_digest(key, self._key)
