import torch
from torch import Tensor

from podium.core import tree
from podium.core.streams import Streams
from podium.envs.native.cartpole import CartPole
from podium.replay.rollout import Rollout
from podium.roles.collector import finished
from stacks import TwoDials, build


def test_a_rollout_holds_what_happened_step_by_step() -> None:
    """Against the same envs stepped by hand with the recorded actions, over several rollouts."""
    made, twin = build("ppo", TwoDials, [4, 9], steps=10, batch=40), TwoDials(2, 4)
    obs = twin.reset(Streams(0, [4, 9]))
    for _ in range(3):
        batch = made.collector.collect()
        for t in range(10):
            assert torch.equal(batch["obs"][:, t], obs)
            step = twin.step(batch["action"][:, t])
            for name in ("reward", "terminated", "truncated", "last"):
                assert torch.equal(batch[name][:, t], getattr(step, name)), name
            done = step.terminated | step.truncated
            assert torch.equal(batch["episode_reward"][:, t][done], step.episode.reward[done])
            assert torch.equal(batch["episode_length"][:, t][done], step.episode.length[done])
            obs = step.obs.clone()
        assert torch.equal(made.collector.obs, obs)


def test_the_next_rollout_goes_on_where_the_last_one_ended() -> None:
    made = build("a2c", CartPole, [0, 1], steps=7)
    first = tree.clone(made.collector.collect())
    second = made.collector.collect()
    done = (first["terminated"] | first["truncated"])[:, -1]
    assert torch.equal(second["obs"][:, 0][~done], first["last"][:, -1][~done])
    assert not torch.equal(second["obs"][:, 0], first["obs"][:, 0])


def test_what_was_last_is_where_the_next_action_is_taken_unless_the_episode_ended() -> None:
    batch = build("a2c", TwoDials, [0, 1], steps=30).collector.collect()
    done = (batch["terminated"] | batch["truncated"])[:, :-1]
    following, last = batch["obs"][:, 1:], batch["last"][:, :-1]
    assert torch.equal(following[~done], last[~done])
    assert done.any() and not torch.equal(following[done], last[done])


def test_restart_begins_new_episodes_from_the_members_streams() -> None:
    made, twin = build("a2c", CartPole, [0, 1], steps=5), build("a2c", CartPole, [0, 1], steps=5)
    made.collector.collect(), twin.collector.collect()
    before = made.collector.obs.clone()
    made.collector.restart(), twin.collector.restart()
    assert not torch.equal(made.collector.obs, before)
    assert torch.equal(made.collector.obs, twin.collector.obs)
    assert made.collector.obs.abs().max() <= 0.05


def test_finished_counts_episodes_and_their_returns() -> None:
    def row(*values: float) -> Tensor:
        return torch.tensor(values).view(2, 3, 1)

    batch = {
        "terminated": row(1, 0, 0, 0, 0, 0).bool(),
        "truncated": row(0, 0, 1, 0, 0, 1).bool(),
        "episode_reward": row(5, torch.nan, 7, 100, torch.inf, 100),  # meaningful only at an end
        "episode_length": row(1, 1, 1, 1, 1, 0),  # 0: lost to a failure of its env
    }
    count, total = finished(batch)
    assert count.tolist() == [2, 0] and total.tolist() == [12, 0]


def test_a_rollout_copies() -> None:
    rollout, x = Rollout(2), torch.zeros(3, 4)
    rollout.write(0, a=x, b=x > 0)
    x += 1
    rollout.write(1, a=x, b=x > 0)
    assert rollout.data["a"].shape == (3, 2, 4) and rollout.data["b"].dtype == torch.bool
    assert rollout.data["a"][:, 0].sum() == 0 and rollout.data["a"][:, 1].sum() == 12
