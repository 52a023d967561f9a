"""What goes in comes out; what is not a message is refused, whatever it is."""

import contextlib
import random
from dataclasses import dataclass

import hypothesis.extra.numpy as hnp
import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.fleet import wire
from podium.fleet.wire import WireError, copy, pack, unpack

numbers = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
arrays = hnp.arrays(
    st.sampled_from([np.dtype(n) for n in ("bool", "uint8", "int64", "uint16", "float16", "float32", "float64")]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    elements={"allow_nan": False},
)
plain = st.recursive(
    numbers | st.text() | st.binary() | arrays,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape) and np.array_equal(a, b)
    return type(a) is type(b) and a == b


@given(plain)
@settings(max_examples=150, deadline=None)
def test_what_goes_in_comes_out(value):
    assert same(value, copy(value))


@pytest.mark.parametrize("dtype", list(wire._TORCH.values()), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 2), (2, 0, 3)])
def test_tensors_of_every_kind(dtype, shape):
    sent = (torch.rand(shape) * 3).to(dtype)
    found = copy({"x": sent})["x"]
    assert found.dtype == dtype and found.shape == sent.shape and torch.equal(found, sent)


def test_tensors_that_are_not_contiguous_or_need_a_gradient():
    matrix = torch.arange(12.0).reshape(3, 4).requires_grad_()
    for view in (matrix.T, matrix[:, 1], matrix[::2], matrix[:1, 2:3].expand(1, 1)):
        assert torch.equal(copy(view), view) and not copy(view).requires_grad
    assert np.array_equal(copy(np.arange(12).reshape(3, 4).T), np.arange(12).reshape(3, 4).T)


def test_nothing_is_copied():
    sent = torch.zeros(1000)
    frames = pack(sent)
    sent[3] = 7
    assert torch.frombuffer(frames[1], dtype=torch.float32)[3] == 7
    body = bytearray(frames[1])
    received = unpack([frames[0], body])
    body[:4] = np.float32(5).tobytes()
    assert received[0] == 5


@dataclass
class Point:
    x: float
    way: tuple[int, ...]


def test_tuples_arrive_as_lists_and_dataclasses_as_dicts():
    assert copy([Point(1.0, (2, 3)), {4}]) == [{"x": 1.0, "way": [2, 3]}, [4]]


def test_a_copy_can_be_written_to():
    first = copy(torch.zeros(3))
    first += 1
    assert first.sum() == 3


@pytest.mark.parametrize("value", [object(), 2**70, torch.zeros(2, dtype=torch.complex64), np.array(["a"])])
def test_what_the_wire_does_not_carry_is_refused(value):
    with pytest.raises(WireError):
        pack({"x": [value]})


def test_a_message_is_bounded(monkeypatch):
    monkeypatch.setattr(wire, "LARGEST", 100)
    with pytest.raises(WireError, match="at most 100 bytes"):
        pack(torch.zeros(100))
    with pytest.raises(WireError, match="at most 100 bytes"):
        unpack([b"\x92\x01\xc0", bytes(100)])


def test_large_tensors_are_cut_into_frames(monkeypatch):
    monkeypatch.setattr(wire, "FRAME", 100)
    value = {"a": torch.arange(77.0), "b": np.arange(25, dtype=np.int32), "c": torch.zeros(0), "d": torch.ones(3)}
    frames = pack(value)
    assert max(map(len, frames)) <= 100 and len(frames) == 1 + 4 + 1 + 1 + 1
    found = unpack([bytes(frame) for frame in frames])
    assert all(np.array_equal(found[key], value[key]) for key in value)
    found["a"] += 1  # nobody else's memory
    with pytest.raises(WireError, match="no frame 4 in a message of 3"):
        unpack(pack(torch.arange(77.0))[:3])
    with pytest.raises(WireError, match="nothing refers to"):
        unpack([*pack(torch.zeros(77)), b"more"])


def test_what_is_parsed_is_bounded(monkeypatch):
    monkeypatch.setattr(wire, "FRAME", 100)
    with pytest.raises(WireError, match=r"at most 100 bytes, got 110\. Send larger data as a tensor or an array"):
        pack({"text": "x" * 100})
    with pytest.raises(WireError, match="at most 100 bytes"):
        unpack([bytes(101)])


def test_other_versions_are_refused():
    with pytest.raises(WireError, match="version 1"):
        unpack([msgspec.msgpack.encode([2, None])])


def test_a_shape_that_does_not_fit_its_bytes_is_refused():
    header, body = pack(torch.zeros(4))
    for wrong in (b"", bytes(12), bytes(20)):
        with pytest.raises(WireError, match="bytes are no"):
            unpack([header, wrong])
    with pytest.raises(WireError, match="nothing refers to"):
        unpack([header, body, b"more"])
    with pytest.raises(WireError, match="no frame 1"):
        unpack([header])
    leaf = msgspec.msgpack.Ext(1, msgspec.msgpack.encode(["float32", [-2, -2], 1]))
    with pytest.raises(WireError, match="bytes are no"):
        unpack([msgspec.msgpack.encode([1, leaf]), bytes(16)])


def test_one_frame_is_never_two_tensors():
    leaf = msgspec.msgpack.Ext(1, msgspec.msgpack.encode(["float32", [1], 1]))
    with pytest.raises(WireError, match="no frame 1"):
        unpack([msgspec.msgpack.encode([1, [leaf, leaf]]), bytes(4)])


def test_random_and_mutated_frames_are_refused_or_harmless():
    dice = random.Random(0)
    good = [bytes(f) for f in pack({"a": torch.zeros(4), "b": [1, "x", np.ones(2)], "c": {"d": None}})]
    for _ in range(3000):
        frames = [bytearray(f) for f in good]
        for _ in range(dice.randint(1, 4)):
            victim = dice.choice(frames)
            kind = dice.random()
            if kind < 0.6 and victim:
                victim[dice.randrange(len(victim))] = dice.randrange(256)
            elif kind < 0.8:
                del victim[dice.randrange(len(victim) + 1) :]
            else:
                frames.append(bytearray(dice.randbytes(dice.randrange(40))))
        with contextlib.suppress(WireError):
            unpack(frames)
    for _ in range(2000):
        with contextlib.suppress(WireError):
            unpack([dice.randbytes(dice.randrange(60)) for _ in range(dice.randrange(4))])
    deep = b"\x91" * 100_000
    with pytest.raises(WireError):
        unpack([deep])


def test_the_order_of_bytes_is_this_machine_s():
    foreign = np.array([1.0, 2.0], np.dtype("float32").newbyteorder())
    assert copy(foreign).tolist() == [1.0, 2.0]


def test_a_shape_beyond_all_bounds_is_refused():
    leaf = msgspec.msgpack.Ext(1, msgspec.msgpack.encode(["float32", [0, 2**62, 4], 1]))
    with pytest.raises(WireError):
        unpack([msgspec.msgpack.encode([1, leaf]), b""])
