"""SQLite's write-ahead log, checked: SQLite itself takes a damaged entry for the end of the log, and says nothing.

The log is a header of 32 bytes and frames of 24 bytes and a page. Every frame carries the salts of the header and a
checksum of all that came before it: with x a pair of words,  s0 += x0 + s1,  s1 += x1 + s0.  That is linear, so what a
frame adds is one product with weights that are the same for all frames.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

HEADER, FRAME = 32, 24
_MAGIC = 0x377F0682

Words = NDArray[np.uint32]


def damage(data: bytes) -> tuple[str | None, bool]:
    """Finds what is wrong with a log, and tells whether only its last frame is, as a power failure leaves it.

    None where it is whole, or was cut off in the middle of a frame, as a kill may do.
    """
    if len(data) <= HEADER:
        return None, False
    head: Words = np.frombuffer(data[:HEADER], ">u4").astype(np.uint32)
    order, page = ("<u4", ">u4")[int(head[0]) & 1], int(head[2])
    if head[0] & ~np.uint32(1) != _MAGIC or page not in (1 << n for n in range(9, 17)):
        return "its header is damaged", False
    state = _after(np.frombuffer(data[:24], order).astype(np.uint32)[None], np.zeros(2, np.uint32))[0]
    if tuple(state) != tuple(head[6:8]):
        return "its header is damaged", False
    size = FRAME + page
    count = (len(data) - HEADER) // size
    frames = np.frombuffer(data[HEADER : HEADER + count * size], np.uint8).reshape(count, size)
    heads = frames[:, :FRAME].copy().view(">u4").astype(np.uint32)
    summed = np.concatenate([frames[:, :8], frames[:, FRAME:]], 1).view(order).astype(np.uint32)
    right = _right(summed, heads[:, 4:6], state)
    wrong = int(np.argmin(right)) if not right.all() else count
    near = _bits(heads[wrong:, 2:4] ^ head[4:6]) <= 1  # a frame of an earlier round has quite different salts
    if not near.any():
        return None, False
    return f"its entry {wrong + 1} of {wrong + int(near.sum())} is damaged", int(near.sum()) == 1


def _right(summed: Words, checks: Words, state: Words) -> NDArray[np.bool_]:
    """Which frames have the checksum that they should have, if all before them do."""
    before = np.concatenate([state[None], checks[:-1]])  # the checksum of a frame is where the next one begins
    found: NDArray[np.bool_] = (_after(summed, before) == checks).all(1)
    return found


def _after(words: Words, state: Words) -> Words:
    """The sums after `words` `[n, 2k]`, from `state` `[n, 2]` or `[2]` on; modulo 2^32, as the words are."""
    added, power = _weights(words.shape[1] // 2)
    with np.errstate(over="ignore"):
        found: Words = words @ added + np.broadcast_to(state, (len(words), 2)) @ power
    return found


@lru_cache(4)
def _weights(pairs: int) -> tuple[Words, Words]:
    """What each word adds to both sums in the end, `[2 * pairs, 2]`, and what the sums before do, `[2, 2]`."""
    mask, power = 0xFFFFFFFF, [[1, 0], [0, 1]]  # rows: what was there; columns: what comes of it
    added = np.zeros((2 * pairs, 2), np.uint32)
    for i in reversed(range(pairs)):
        second = power[1]
        first = [(power[0][j] + second[j]) & mask for j in (0, 1)]  # x0 enters s0, and with it s1
        added[2 * i], added[2 * i + 1] = first, second
        power = [first, [(first[j] + second[j]) & mask for j in (0, 1)]]  # so does s1; s0 enters both by itself
    return added, np.array(power, np.uint32)


def _bits(words: Words) -> NDArray[np.int64]:
    """How many bits are set, row by row."""
    found: NDArray[np.int64] = np.unpackbits(words.astype(">u4").view(np.uint8).reshape(len(words), 8), axis=1).sum(
        1, dtype=np.int64
    )
    return found
