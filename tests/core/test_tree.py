import torch
from hypothesis import given
from hypothesis import strategies as st

from podium.core import tree

NAMES = st.text("abcd", min_size=1, max_size=3)
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8])


def leaf(members: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randint(0, 99, (members, *shape), generator=torch.Generator().manual_seed(seed)).to(dtype)


@st.composite
def trees(draw: st.DrawFn, members: int = 4) -> tree.Tree:
    leaves = st.builds(
        leaf, st.just(members), st.lists(st.integers(0, 3), max_size=3).map(tuple), DTYPES, st.integers(0, 999)
    )
    nodes = st.recursive(leaves, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=6)
    return draw(st.dictionaries(NAMES, nodes, min_size=1, max_size=3))


def equal(a: tree.Tree, b: tree.Tree) -> bool:
    a, b = tree.flatten(a), tree.flatten(b)
    return list(a) == list(b) and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


@given(trees())
def test_flatten_and_unflatten_are_inverse(t: tree.Tree) -> None:
    assert equal(tree.unflatten(tree.flatten(t)), t)
    assert tree.unflatten(tree.flatten(t)).keys() == t.keys()


@given(trees())
def test_stack_of_single_rows_is_the_tree(t: tree.Tree) -> None:
    assert equal(tree.stack([tree.take(t, torch.tensor([i])) for i in range(4)]), t)


@given(trees(), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_take_picks_rows_in_order(t: tree.Tree, rows: list[int]) -> None:
    taken = tree.flatten(tree.take(t, torch.tensor(rows)))
    for name, x in tree.flatten(t).items():
        assert torch.equal(taken[name], torch.stack([x[r] for r in rows]))


@given(trees(), st.permutations(range(4)), st.integers(1, 4))
def test_put_writes_those_rows_in_place_and_no_others(t: tree.Tree, order: list[int], n: int) -> None:
    rows, before = order[:n], tree.clone(t)
    places = {k: v.data_ptr() for k, v in tree.flatten(t).items()}
    new = tree.map(lambda x: leaf(n, x.shape[1:], x.dtype, 7), t)
    tree.put(t, torch.tensor(rows), new)
    for name, x in tree.flatten(t).items():
        assert x.data_ptr() == places[name]
        for r in range(4):
            expected = tree.flatten(new)[name][rows.index(r)] if r in rows else tree.flatten(before)[name][r]
            assert torch.equal(x[r], expected)


@given(trees())
def test_put_of_what_was_taken_changes_nothing(t: tree.Tree) -> None:
    before, rows = tree.clone(t), torch.tensor([2, 0])
    tree.put(t, rows, tree.take(t, rows))
    assert equal(t, before)


def test_take_and_clone_copy() -> None:
    t = {"a": {"b": torch.zeros(3, 2)}}
    for other in (tree.take(t, torch.arange(3)), tree.clone(t)):
        other["a"]["b"] += 1
        assert not t["a"]["b"].any()


def test_copy_writes_in_place_through_views_of_a_weight() -> None:
    weight = torch.zeros(2, 3, requires_grad=True)
    tree.copy({"w": weight.detach()}, {"w": torch.ones(2, 3)})
    assert torch.equal(weight, torch.ones(2, 3))


def test_map_meets_leaves_in_the_same_place_whatever_their_order() -> None:
    a = {"x": torch.tensor([1]), "y": {"z": torch.tensor([2])}}
    b = {"y": {"z": torch.tensor([20])}, "x": torch.tensor([10])}
    assert equal(tree.map(torch.add, a, b), {"x": torch.tensor([11]), "y": {"z": torch.tensor([22])}})


def test_exploit_is_an_index() -> None:
    learnt = {"w": torch.arange(8.0).view(4, 2), "genes": {"lr": torch.tensor([1.0, 2, 3, 4])}}
    child = tree.take(learnt, torch.tensor([3, 1, 3, 3]))
    assert child["genes"]["lr"].tolist() == [4, 2, 4, 4]
    assert torch.equal(child["w"][2], learnt["w"][3])
