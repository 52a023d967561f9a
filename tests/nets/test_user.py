"""A user's own module: stacked, it is what the modules are apart; inside a policy and critic it trains like any net."""

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from podium.core import tree
from podium.core.errors import ConfigError
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.envs.native.cartpole import CartPole
from podium.envs.native.pendulum import Pendulum
from podium.nets.policy_critic import PolicyCritic
from podium.nets.settings import NetSettings
from podium.nets.user import Stacked
from stacks import build, rows, same

IN, A, B = 4, 2, 6


class Waves(nn.Module):
    """Random features, kept in a buffer, under a linear head."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.register_buffer("waves", torch.randn(n_in, 16))
        self.head = nn.Linear(16, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.sin(x @ self.waves))


def plain(n_in: int, n_out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_in, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, n_out))


def module_of(stacked: Stacked, factory, m: int) -> nn.Module:
    module = factory(IN, A)
    weights = {name: t.detach()[m].clone() for name, t in (stacked.named | stacked._buffers).items()}
    module.load_state_dict(weights)
    return module


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("factory", [plain, Waves])
def test_a_stack_equals_its_modules(factory, members: int) -> None:
    stacked, x = Stacked(Streams(0, range(members)).agent, factory, IN, A), torch.randn(members, B, IN)
    out = stacked(x)
    assert out.shape == (members, B, A)
    weight = torch.randn(members, B, A)
    (out * weight).sum().backward()
    for m in range(members):
        module = module_of(stacked, factory, m)
        expected = module(x[m])
        assert torch.allclose(out[m], expected, atol=1e-6)
        (expected * weight[m]).sum().backward()
        for name, p in module.named_parameters():
            assert torch.allclose(stacked.named[name].grad[m], p.grad, atol=1e-5), name


def test_a_modules_first_weights_come_from_the_members_own_stream() -> None:
    before = torch.random.get_rng_state()
    together = Stacked(Streams(0, [4, 7]).agent, Waves, IN, A)
    alone = Stacked(Streams(0, [7]).agent, Waves, IN, A)
    assert torch.equal(torch.random.get_rng_state(), before), "torch's global stream was touched"
    assert torch.equal(together.named["head.weight"][1], alone.named["head.weight"][0])
    assert torch.equal(together._buffers["waves"][1], alone._buffers["waves"][0])
    assert not torch.equal(together._buffers["waves"][0], together._buffers["waves"][1])


def net(factory: str, members: int, action, seed: int = 0) -> PolicyCritic:
    spec = Spec(Box(-1, 1, (IN,)), action, members, 1)
    return PolicyCritic(spec, NetSettings(module=f"{__name__}:{factory}"), Streams(seed, range(members)).agent, -0.5)


@pytest.mark.parametrize("factory", ["plain", "Waves"])
@pytest.mark.parametrize("action", [Discrete(3), Box(-1, 1, (2,))])
def test_a_member_is_moved_whole(factory: str, action) -> None:
    """What `state` holds, written into another stack, acts as it did: parameters, log σ and buffers."""
    source, target, obs = net(factory, 3, action), net(factory, 2, action, seed=9), torch.randn(1, B, IN)
    tree.copy(target.state(), tree.take(source.state(), torch.tensor([2, 0])))
    wide = obs.expand(3, -1, -1), obs.expand(2, -1, -1)
    for a, b in zip(source.policy(wide[0]), target.policy(wide[1]), strict=True):
        assert torch.allclose(a[[2, 0]], b, atol=1e-6)
    assert torch.allclose(source.value(wide[0])[[2, 0]], target.value(wide[1]), atol=1e-6)


@pytest.mark.parametrize("module", ["plain", None])
@pytest.mark.parametrize("action", [Discrete(3), Box(-1, 1, (2,))])
def test_gradients_are_pulled_back_to_all_parameters(module: str | None, action) -> None:
    spec, obs = Spec(Box(-1, 1, (IN,)), action, 2, 1), torch.randn(2, B, IN)
    settings = NetSettings(module=module and f"{__name__}:{module}", hidden=(8,))
    made = PolicyCritic(spec, settings, Streams(0, range(2)).agent)
    params, value = made(obs)
    weights = [torch.randn_like(x) for x in (*params, value)]
    torch.autograd.backward([*params, value], weights)
    expected = [p.grad for p in made.params]
    for p in made.params:
        p.grad = torch.full_like(p, 7)  # is set, not added to
    out, out_value, pull = made.vjp(obs)
    for a, b in zip((*out, out_value), (*params, value), strict=True):
        assert torch.equal(a, b) and not a.requires_grad
    pull(tuple(weights[:-1]), weights[-1])
    for p, g in zip(made.params, expected, strict=True):
        assert torch.allclose(p.grad, g, atol=1e-5)


@pytest.mark.parametrize("name", ["ppo", "a2c"])
@pytest.mark.parametrize("env", [CartPole, Pendulum])
@pytest.mark.parametrize("members", [1, 2])
def test_a_user_module_trains(name: str, env, members: int) -> None:
    plan = {"steps": 8} | ({"batch": 16, "epochs": 2} if name == "ppo" else {})
    stack = build(name, env, range(members), net=NetSettings(module=f"{__name__}:plain"), **plan)
    before = stack.learnt()["weights"]
    metrics = stack.update(2)
    after = stack.learnt()["weights"]
    assert metrics["finite"].all()
    for key in before:  # every parameter of every member moved
        assert (before[key] != after[key]).flatten(1).any(1).all()


def test_a_user_modules_members_do_not_meet() -> None:
    def run(poison: bool):
        stack = build("a2c", CartPole, range(3), net=NetSettings(module=f"{__name__}:plain"), steps=5)
        batch = stack.collector.collect()
        if poison:
            batch["reward"][1, 2, 0] = torch.nan
        return stack.algorithm.learn(batch)["finite"], stack.learnt()

    (fine, clean), (finite, poisoned) = run(False), run(True)
    assert fine.all() and finite.tolist() == [True, False, True]
    assert same(rows(clean, 0, 2), rows(poisoned, 0, 2))


def test_a_path_that_names_nothing_is_refused() -> None:
    for path in ("nowhere.at.all:Net", "torch:nothing_here", "torch"):
        spec = Spec(Box(-1, 1, (IN,)), Discrete(2), 1, 1)
        with pytest.raises(ConfigError, match=r"net\.module"):
            PolicyCritic(spec, NetSettings(module=path), Streams(0, [0]).agent)
