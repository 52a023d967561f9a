import pytest
import torch

from podium.core import streams
from podium.core.streams import Block, Streams

DRAWS = {
    "uniform": lambda g: streams.uniform(g, 5, 7),
    "normal": lambda g: streams.normal(g, 5, 7),
    "gumbel": lambda g: streams.gumbel(g, 5, 7),
    "permutations": lambda g: streams.permutations(g, 3, 33),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_members_numbers_do_not_depend_on_its_neighbours(draw) -> None:
    together, fewer, alone = Streams(5, [3, 8, 1, 4]), Streams(5, [4, 8]), Streams(5, [8])
    for _ in range(3):  # also after the neighbours have drawn
        many, two, one = draw(together.agent), draw(fewer.agent), draw(alone.agent)
        assert torch.equal(many[1], one[0])
        assert torch.equal(two[1], one[0])
        assert torch.equal(many[3], two[0])
    draw(together.env)
    assert torch.equal(draw(together.agent)[1], draw(alone.agent)[0])


def test_streams_differ_between_members_seeds_and_uses() -> None:
    rows = [streams.uniform(Streams(seed, [0, 1, 10]).__dict__[use], 8) for seed in (0, 1) for use in ("env", "agent")]
    assert len({tuple(row.tolist()) for row in torch.cat(rows)}) == 12


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_state_and_load_are_exact(draw) -> None:
    a = Streams(0, [0, 1, 2])
    draw(a.agent), streams.normal(a.env, 3)  # an odd count: a normal generator may hold a spare number
    saved = a.state()
    expected = [draw(a.agent), draw(a.env)]
    b = Streams(99, [7, 8, 9])
    b.load(saved)
    assert all(torch.equal(x, y) for x, y in zip(expected, [draw(b.agent), draw(b.env)], strict=True))
    a.load(saved)  # `saved` was a copy
    assert torch.equal(draw(a.agent), expected[0])


def test_a_generator_is_a_function_of_its_path() -> None:
    one, same, other = (streams.generator(0, 3, "gene", name) for name in ("lr", "lr", "lam"))
    first = torch.rand(4, generator=one)
    assert torch.equal(first, torch.rand(4, generator=same))
    assert not torch.equal(first, torch.rand(4, generator=other))


def test_moments() -> None:
    generators = Streams(0, [0, 1]).agent
    u, z, g = (draw(generators, 100_000) for draw in (streams.uniform, streams.normal, streams.gumbel))
    assert ((u >= 0) & (u < 1)).all()
    for x, mean, std in ((u, 0.5, 12**-0.5), (z, 0, 1), (g, 0.5772, torch.pi / 6**0.5)):
        assert torch.allclose(x.mean(1), torch.tensor(float(mean)), atol=0.02)
        assert torch.allclose(x.std(1), torch.tensor(float(std)), atol=0.02)
    assert g.isfinite().all()


def test_argmax_of_logits_plus_gumbel_is_a_sample() -> None:
    p = torch.tensor([0.05, 0.15, 0.8])
    noise = streams.gumbel(Streams(0, [0]).agent, 50_000, 3)[0]
    frequency = (p.log() + noise).argmax(-1).bincount(minlength=3) / 50_000
    assert torch.allclose(frequency, p, atol=0.01)


def test_permutations_are_permutations_each_another() -> None:
    out = streams.permutations(Streams(0, [0, 1]).agent, 4, 50)
    assert out.dtype == torch.int64
    assert torch.equal(out.sort(-1).values, torch.arange(50).expand(2, 4, 50))
    assert len({tuple(row.tolist()) for row in out.flatten(0, 1)}) == 8


def counting() -> Block:
    """Blocks of 3 steps for 2 members; step k of member m is 10 m + k."""
    at = iter(range(0, 99, 3))
    return Block(lambda: torch.arange(3)[None] + torch.tensor([[0], [10]]) + next(at))


def test_a_block_hands_out_step_by_step_and_draws_anew() -> None:
    block = counting()
    assert [block.next().tolist() for _ in range(7)] == [[k, 10 + k] for k in range(7)]


def test_what_is_left_of_a_block_can_be_kept_and_put_back() -> None:
    block = counting()
    assert block.rest() is None
    block.next()
    rest = block.rest()
    assert rest is not None and rest.tolist() == [[1, 2], [11, 12]]
    other = Block(lambda: torch.full((2, 3), -1))
    other.refill(rest)
    assert [other.next()[0].item() for _ in range(3)] == [1, 2, -1]
    other.refill(None)
    assert other.next()[0].item() == -1
    block.next(), block.next()
    assert block.rest() is None
    assert block.next()[0].item() == 3


def test_a_dropped_block_draws_anew() -> None:
    block = counting()
    block.next()
    block.drop()
    assert block.rest() is None
    assert block.next()[0].item() == 3
