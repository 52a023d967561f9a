"""Tensor files: what is saved comes back bit for bit, or is refused by name and reason."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from podium.core.errors import CheckpointError
from podium.core.tree import Tree, flatten
from podium.store import tensors

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64, torch.float16, torch.bfloat16]
SMALL: Tree = {"w": torch.tensor([[1.5, -2.0]]), "on": torch.tensor([True]), "empty": {}}


@st.composite
def leaves(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    seed, dtype = draw(st.integers(0, 99)), draw(st.sampled_from(DTYPES))
    leaf = torch.randint(0, 256, (*shape, 8), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    leaf = leaf.view(dtype)[..., 0] if dtype != torch.bool else leaf[..., 0] > 127  # any bits, NaN payloads too
    return leaf.transpose(0, -1) if leaf.ndim > 1 and draw(st.booleans()) else leaf


names = st.text(min_size=1, max_size=4)
trees = st.recursive(
    st.dictionaries(names, leaves(), max_size=3),
    lambda inner: st.dictionaries(names, st.one_of(leaves(), inner), max_size=3),
    max_leaves=8,
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
infos = st.dictionaries(st.text(max_size=4), st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=4))


def same(a: Any, b: Any) -> bool:
    """Equal trees: keys in order, dtypes, shapes and every bit."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    bits = [x.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8) for x in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees, info=infos)
def test_round_trip(tmp_path: Path, tree: Tree, info: dict[str, Any]) -> None:
    if len(flatten(tree)) != tensors._count(tree):  # {"a": {"b": x}, "a.b": y}
        with pytest.raises(ValueError, match="same dotted path"):
            tensors.save(tmp_path / "t", tree, info, "member")
        return
    tensors.save(tmp_path / "t", tree, info, "member")
    loaded, back = tensors.load(tmp_path / "t", "member")
    assert same(tree, loaded)
    assert back == info


def test_any_safetensors_reader_reads_it(tmp_path: Path) -> None:
    tree = {"net": {"w": torch.arange(6.0).reshape(2, 3).t(), "n": torch.tensor(7)}, "on": torch.tensor([True, False])}
    tensors.save(tmp_path / "t", tree, {}, "member")
    flat = load_file(tmp_path / "t")
    assert set(flat) == {"net.w", "net.n", "on"}
    assert torch.equal(flat["net.w"], tree["net"]["w"])  # type: ignore[index]


def test_leaves_may_share_memory_and_need_grad(tmp_path: Path) -> None:
    w = torch.randn(4, 3, requires_grad=True)
    tensors.save(tmp_path / "t", {"a": w, "b": w, "c": w[1:]}, {}, "member")
    loaded, _ = tensors.load(tmp_path / "t", "member")
    assert torch.equal(loaded["b"], w) and torch.equal(loaded["c"], w[1:])


def test_one_element_with_a_stride_and_an_offset(tmp_path: Path) -> None:
    w = torch.arange(12.0).reshape(3, 4)[1:2, 2:3]  # contiguous by torch's rule, strides (4, 1)
    tensors.save(tmp_path / "t", {"w": w, "v": torch.arange(8.0)[5::8]}, {}, "member")
    loaded, _ = tensors.load(tmp_path / "t", "member")
    assert loaded["w"].tolist() == [[6.0]] and loaded["v"].tolist() == [5.0]


def test_equal_trees_give_equal_bytes(tmp_path: Path) -> None:
    for name in "ab":
        tensors.save(tmp_path / name, SMALL, {"x": 1, "y": 2}, "member")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tensors.save(path, SMALL, {"step": 12}, "member")
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match=re.escape(str(path))):
                tensors.load(path, "member")
    path.write_bytes(whole)
    tensors.load(path, "member")


def test_every_truncation_is_refused_as_truncated(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tensors.save(path, SMALL, {}, "member")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="truncated"):
            tensors.load(path, "member")
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="damaged, it has"):
        tensors.load(path, "member")


def test_damage_in_the_data_is_a_checksum_error(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tensors.save(path, SMALL, {}, "member")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="checksum"):
        tensors.load(path, "member")


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tensors.save(path, SMALL, {}, "member")
    path.write_bytes(path.read_bytes().replace(b'"podium":"2"', b'"podium":"7"', 1))
    with pytest.raises(CheckpointError, match="version 7, this Podium reads 2"):
        tensors.load(path, "member")


@pytest.mark.parametrize("content", [b"hello, this is text and no tensor file at all", b"\0" * 400, b"PK\3\4" * 90])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a tensor file"):
        tensors.load(path, "member")


def test_missing_and_wrong_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file"):
        tensors.load(tmp_path / "t", "member")
    tensors.save(tmp_path / "t", SMALL, {}, "member")
    with pytest.raises(CheckpointError, match="member file, not a checkpoint"):
        tensors.load(tmp_path / "t", "checkpoint")


@pytest.mark.parametrize(
    ("old", "new"), [(b'\\"w\\":null', b'\\"v\\":null'), (b'"shape":[1,2]', b'"shape":[1,9]'), (b"layout", b"lay0ut")]
)
def test_a_well_summed_file_that_contradicts_itself_is_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "t"
    tensors.save(path, SMALL, {}, "member")
    data = path.read_bytes()
    assert data.count(old) == 1
    data = data.replace(old, new)
    digest = re.search(rb'"sha256":"([0-9a-f]{64})"', data)
    assert digest is not None
    begin, end = digest.span(1)
    data = data[:begin] + hashlib.sha256(data[:begin] + data[end:]).hexdigest().encode() + data[end:]
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="not a tensor file"):
        tensors.load(path, "member")


def test_a_dtype_that_cannot_be_held_names_its_tensor(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a\.b.*complex64"):
        tensors.save(tmp_path / "t", {"a": {"b": torch.zeros(2, dtype=torch.complex64)}}, {}, "member")
    assert not list(tmp_path.iterdir())


def test_match_names_the_first_tensor_that_differs() -> None:
    like = {"a": {"w": torch.zeros(4, 2), "b": torch.zeros(4)}}
    path = Path("c.safetensors")
    tensors.match({"a": {"b": torch.ones(4), "w": torch.ones(4, 2)}}, like, path)
    cases: list[tuple[Tree, str]] = [
        (
            {"a": {"w": torch.zeros(4, 3), "b": torch.zeros(5)}},
            r"a\.w is \[4, 3\] float32 in the file, \[4, 2\] float32",
        ),
        ({"a": {"w": torch.zeros(4, 2), "b": torch.zeros(4).long()}}, r"a\.b is \[4\] int64 .*\[4\] float32"),
        ({"a": {"w": torch.zeros(4, 2)}}, r"a\.b is absent in the file, \[4\]"),
        ({"a": {**like["a"], "z": torch.zeros(1)}}, r"a\.z is \[1\] float32 in the file, absent"),
    ]
    for tree, message in cases:
        with pytest.raises(CheckpointError, match=r"c\.safetensors: wrong shape: tensor " + message):
            tensors.match(tree, like, path)
