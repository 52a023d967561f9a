"""DQN with noisy networks: when noise is drawn, whose it is, and that its size is learnt."""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from podium import checks, entrants
from podium.algos.dqn import DQN, DQNSettings
from podium.compose import compose
from podium.core import hyper, tree
from podium.core.errors import PodiumError
from podium.core.spec import Spec
from podium.core.streams import Streams
from podium.nets.critics import CriticSettings
from podium.nets.settings import NetSettings
from probes import ObsActionReward
from stacks import build_replaying

NET = NetSettings(hidden=(16, 16))
BATCH = {"batch": 8, "warmup": 0, "steps": 4}


def make(members: int = 2, space: gym.Space = Box(-1.0, 1.0, (4,)), **plan: object) -> DQN:  # noqa: B008
    settings = DQNSettings(noisy=True, **BATCH | plan)
    genes = hyper.values(settings, 0, range(members))
    spec = Spec(space, Discrete(3), members, 5)
    return DQN(spec, settings, NET, genes, Streams(0, range(members)), CriticSettings(count=2))


def batch(members: int, obs: torch.Tensor) -> dict[str, torch.Tensor]:
    reward = torch.linspace(-1, 1, 8).expand(members, 8)
    return {
        "obs": obs,
        "next_obs": obs,
        "action": torch.zeros(members, 8).long(),
        "reward": reward,
        "decay": reward * 0,
    }


def test_acting_draws_noise_of_every_members_own_at_each_step_and_none_to_evaluate() -> None:
    agent, obs = make(), torch.ones(2, 5, 4)
    with torch.no_grad():  # equal weights: what differs is noise
        for p in agent.critics.online.params:
            p[1] = p[0]

    def seen() -> torch.Tensor:
        return agent.critics.online(obs)[:, :, 0].clone()

    values = []
    for _ in range(2):
        agent.act(obs, {}, explore=True)
        values.append(seen())
    assert not torch.allclose(values[0], values[1]) and not torch.allclose(values[0][0], values[0][1])
    assert not torch.allclose(values[0][:, 0], values[0][:, 1]), "each critic has its own"
    drawn = tree.clone(agent.drawn())
    for quiet in (lambda: agent.act(obs, {}, explore=False), lambda: agent.propose(obs)):
        agent.act(obs, {}, explore=True)
        drawn = tree.clone(agent.drawn())
        quiet()
        agent_rows = seen()
        assert torch.equal(agent_rows[0], agent_rows[1]), "the means alone"
        assert all(torch.equal(drawn[k], v) for k, v in agent.drawn().items()), "it has drawn nothing"


def test_every_update_draws_for_the_target_for_the_choice_and_for_what_is_learnt() -> None:
    for double, draws in ((False, 2), (True, 3)):
        agent = make(double=double)
        agent.blocks["noise"].next()
        before = agent.blocks["noise"].rest().shape[1]
        agent.learn(batch(2, torch.randn(2, 8, 4)))
        assert before - agent.blocks["noise"].rest().shape[1] == draws


@pytest.mark.parametrize("shown", ["numbers", "images"])
def test_deviations_are_learnt_copied_and_followed_by_the_targets(shown: str) -> None:
    """By hand, and under autograd, which images need."""
    image = Box(0, 255, (12, 12, 1), dtype="uint8")
    agent = make(space=image, tau=1.0) if shown == "images" else make(tau=1.0)
    obs = torch.randint(255, (2, 8, 12, 12, 1)).byte() if shown == "images" else torch.randn(2, 8, 4)
    online, target = agent.critics.online.noisy, agent.critics.target.noisy
    means, sigma = online.weight.detach().clone(), online.sigma.detach().clone()
    for _ in range(3):
        agent.learn(batch(2, obs))
    moved = (online.sigma - sigma).abs()
    assert (moved.flatten(1).amax(1) > 1e-4).all() and not torch.equal(online.weight, means)
    assert torch.equal(target.sigma, online.sigma)
    held = [leaf for name, leaf in tree.flatten(agent.learnt()).items() if name.startswith("critic.")]
    assert any(leaf.data_ptr() == online.sigma.data_ptr() for leaf in held), "what is learnt is saved and copied"


def test_it_explores_by_noise_alone_once_it_is_warm() -> None:
    agent, obs = make(warmup=100), torch.ones(2, 5, 4)
    assert agent._epsilon().tolist() == [1, 1]
    agent.acted.fill_(100)
    assert agent._epsilon().tolist() == [0, 0]
    with torch.no_grad():
        agent.critics.online.noisy.sigma.zero_()
    greedy = agent.act(obs, {}, explore=False)[0]["action"]
    assert all(torch.equal(agent.act(obs, {}, explore=True)[0]["action"], greedy) for _ in range(20))
    loud = make(warmup=0, noisy_sigma=20.0)
    assert len({int(loud.act(obs, {}, explore=True)[0]["action"][0, 0]) for _ in range(50)}) > 1


def test_where_it_matters_noise_shrinks() -> None:
    """A task with a certain answer: the head's noise only does harm."""
    plan = {"steps": 4, "updates": 0.25, "batch": 32, "warmup": 64, "tau": 1.0, "target_every": 10, "noisy": True}
    stack = build_replaying("dqn", ObsActionReward, range(2), envs=8, genes={"lr": [0.01, 0.005]}, **plan)
    head = stack.algorithm.critics.online.noisy._layers(stack.algorithm.critics.online.noisy.sigma.detach()[:, 0])[-1]
    before = head.weight.abs().mean((1, 2))
    stack.update(150)
    after = stack.algorithm.critics.online.noisy._layers(stack.algorithm.critics.online.noisy.sigma.detach()[:, 0])[-1]
    assert (after.weight.abs().mean((1, 2)) < 0.8 * before).all()


def test_epsilon_is_dead_and_is_not_searched() -> None:
    words = ("cartpole", "rainbow", "truncation", "evolve.members=4")
    experiment = entrants.validate(entrants.complete(compose(words)))
    assert experiment.algo.noisy and isinstance(experiment.algo.lr, list)
    assert not isinstance(experiment.algo.epsilon_end, list)
    with pytest.raises(PodiumError, match=r"algo\.noisy=false"):
        checks.validate(compose(("cartpole", "rainbow", "algo.epsilon_end=[0.01,0.1]")))
    assert isinstance(
        entrants.validate(entrants.complete(compose((*words, "algo.noisy=false")))).algo.epsilon_end, list
    )


def test_a_module_of_the_users_cannot_be_noisy() -> None:
    with pytest.raises(PodiumError, match=r"net\.module"):
        checks.validate(compose(("cartpole", "dqn", "algo.noisy=true", "net.module=torch.nn:Linear")))
