import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from podium.core.errors import PodiumError
from podium.core.streams import Streams
from podium.envs.native.base import Simulator
from podium.roles.evaluator import KEPT, LOST, MEASURES, Evaluator, Interrupted


class Count(Simulator):
    """An episode lasts as many steps as its draw says (1 to 5); reward is the number of the step: 1, 2, 3 ..."""

    obs_space = Box(0.0, 9.0, (2,))
    action_space = Discrete(2)
    names = ("step", "length")
    numbers = 1
    longest = 5

    def start(self, u):
        return {"step": 0 * u[0], "length": torch.floor(u[0] * self.longest) + 1}

    def advance(self, s, action):
        s["step"] += 1
        return s["step"].clone(), s["step"] >= s["length"]


class Forever(Count):
    """Never ends; reward is the action."""

    def advance(self, s, action):
        s["step"] += 1
        return action.double(), s["step"] < 0


class Threes(Count):
    """Every episode lasts 3 steps."""

    def start(self, u):
        return {"step": 0 * u[0], "length": 0 * u[0] + 3}


def zero(obs):
    return torch.zeros(obs.shape[:2], dtype=torch.int64)


def run(env, names, episodes, envs=4, max_steps=100, act=zero):
    made = []

    def make(members: int, n: int) -> Simulator:
        made.append((members, n))
        return env(members, n)

    evaluator = Evaluator(make, 0, envs, max_steps)
    returns, lengths, objectives = evaluator.evaluate(act, names, episodes)
    assert returns.shape == lengths.shape == (len(names), episodes)
    assert objectives.shape == (len(names), episodes, 0)
    return returns, made, evaluator


@pytest.mark.parametrize(("episodes", "envs", "used"), [(8, 4, 4), (6, 4, 3), (7, 4, 1), (3, 8, 3), (1, 4, 1)])
def test_every_episode_is_whole_and_all_envs_run_as_many(episodes: int, envs: int, used: int) -> None:
    returns, made, _ = run(Count, ["a", "b"], episodes, envs)
    assert made == [(2, used)]
    assert set(returns.flatten().tolist()) <= {1.0, 3.0, 6.0, 10.0, 15.0}


def test_short_episodes_count_no_more_than_long_ones() -> None:
    returns, _, _ = run(Count, ["a"], 400, envs=400)
    many, _, _ = run(Count, ["a"], 400, envs=4)  # four envs, a hundred episodes each
    for found in (returns, many):
        frequency = [(found == r).float().mean().item() for r in (1, 3, 6, 10, 15)]
        assert frequency == pytest.approx([0.2] * 5, abs=0.08)


def test_a_name_decides_the_episodes_and_not_its_neighbours() -> None:
    together, _, evaluator = run(Count, ["a", "b", "c"], 8)
    alone, _, _ = run(Count, ["b"], 8)
    assert torch.equal(together[1:2], alone)
    assert torch.equal(evaluator.evaluate(zero, ["a", "b", "c"], 8)[0], together), "envs are used again, from the start"
    assert not torch.equal(together[0], together[1])


def test_an_episode_that_lasts_too_long_is_cut_and_counts_as_it_stands() -> None:
    for episodes, envs in ((4, 4), (4, 1), (6, 2)):
        returns, _, _ = run(Forever, ["a"], episodes, envs, max_steps=10, act=lambda obs: zero(obs) + 1)
        assert returns.tolist() == [[10.0] * episodes]


def test_no_episode_counts_twice() -> None:
    returns, _, _ = run(Threes, ["a"], 3, envs=1, max_steps=3)
    assert returns.tolist() == [[6, 6, 6]]
    returns, _, _ = run(Threes, ["a"], 4, envs=1, max_steps=2)  # 1 + 2, and the 3 that is left of it
    assert returns.tolist() == [[3, 3, 3, 3]]


def test_policies_are_told_apart() -> None:
    def act(obs):
        return zero(obs) + torch.tensor([[0], [1]])

    returns, _, _ = run(Forever, ["a", "a"], 4, max_steps=5, act=act)
    assert returns.tolist() == [[0.0] * 4, [5.0] * 4]


def test_lengths_are_those_of_the_episodes() -> None:
    evaluator = Evaluator(Count, 0, 4, 100)
    returns, lengths, _ = evaluator.evaluate(zero, ["a", "b"], 40)
    assert set(lengths.flatten().tolist()) == {1, 2, 3, 4, 5}
    assert torch.equal(returns, lengths * (lengths + 1) / 2)  # 1 + 2 + 3 + ...
    assert Evaluator(Forever, 0, 2, 10).evaluate(zero, ["a"], 4).lengths.tolist() == [[10] * 4], "cut"
    assert Evaluator(Threes, 0, 1, 2).evaluate(zero, ["a"], 4).lengths.tolist() == [[2, 1, 2, 1]]


def test_it_stops_when_it_is_told_to() -> None:
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 7

    evaluator = Evaluator(Forever, 0, 4, 100)
    with pytest.raises(Interrupted):
        evaluator.evaluate(zero, ["a"], 4, stop)
    assert len(asked) == 8, "asked at every step"
    assert evaluator.evaluate(zero, ["a"], 4, lambda: False).lengths.tolist() == [[100] * 4], "the next one is whole"


class Lossy(Threes):
    """Loses as many episodes as `losses` says before each that counts, in its first env."""

    losses, ended = 0, 0

    def step(self, action):
        step = super().step(action)
        if step.terminated[0, 0]:
            self.ended += 1
            if self.ended % (self.losses + 1):
                step.episode.length[0, 0] = 0
        return step


def test_lost_episodes_are_played_again_but_not_for_ever() -> None:
    few = type("Few", (Lossy,), {"losses": LOST - 1})
    found = Evaluator(few, 0, 2, 100).evaluate(zero, ["a", "b"], 4)
    assert found.lengths.tolist() == [[3] * 4] * 2
    never = type("Never", (Lossy,), {"losses": 10**9})
    with pytest.raises(PodiumError, match=r"Never: 100 episodes .* episode.length has to count the steps"):
        Evaluator(never, 0, 2, 100).evaluate(zero, ["a", "b"], 4)


# ---- objectives


def of_discrete(obs):
    return (obs[..., 0] // 2 + obs[..., 1]).long() % 2


def of_multi(obs):
    return torch.stack([obs[..., 0] // 3, (obs[..., 0] + obs[..., 1]) // 2], -1).long() % torch.tensor([3, 2])


def of_box(obs):
    return torch.stack([obs[..., 0] // 2, 0 * obs[..., 0] - 0.5, obs[..., 1] * (obs[..., 0] > 2)], -1)


ACTIONS = {
    "discrete": (Discrete(2), of_discrete),
    "multi-discrete": (MultiDiscrete([3, 2]), of_multi),
    "box": (Box(-9.0, 9.0, (3,)), of_box),
}


class Weighed(Count):
    """Reports two objectives of its own."""

    objectives = ("weight", "half")

    def measure(self, s, total, length):
        return 7 * total, length / 2


def behave(steps: list[tuple[float, list[float]]]) -> dict[str, float]:
    """The measures of one episode, from the reward and the action of each step: as they are defined."""
    actions = [action for _, action in steps]
    changes = sum(one != other for one, other in zip(actions[1:], actions[:-1], strict=True))
    squares = [x * x for action in actions for x in action]
    return {
        "return": sum(reward for reward, _ in steps),
        "length": len(steps),
        "switching": changes / len(steps),
        "effort": sum(squares) / len(squares),
    }


def slowly(env, act, names, episodes, envs, max_steps):
    """Each env by itself, a list of steps an episode."""
    obs = env.reset(Streams(0, [f"evaluate/{name}" for name in names]))
    running = [[[] for _ in range(envs)] for _ in names]
    found = [[[] for _ in range(envs)] for _ in names]
    for _ in range(max_steps * episodes):
        action = act(obs)
        step = env.step(action)
        obs = step.obs
        for m in range(len(names)):
            for e in range(envs):
                running[m][e].append((float(step.reward[m, e]), action[m, e].reshape(-1).double().tolist()))
                if step.terminated[m, e] or step.truncated[m, e] or len(running[m][e]) == max_steps:
                    found[m][e].append(behave(running[m][e]))
                    running[m][e] = []
    return [[episode for one in row for episode in one[: episodes // envs]] for row in found]


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize(("episodes", "envs", "max_steps"), [(12, 4, 100), (6, 1, 3), (5, 5, 4)])
def test_measures_equal_their_slow_twin(kind: str, episodes: int, envs: int, max_steps: int) -> None:
    env = type("Env", (Count,), {"action_space": ACTIONS[kind][0], "longest": 9})
    act, names = ACTIONS[kind][1], ["a", "b", "c"]
    order = ("effort", "return", "switching", "length")
    assert set(order) == set(MEASURES)
    found = Evaluator(env, 0, envs, max_steps, order).evaluate(act, names, episodes)
    expected = slowly(env(len(names), envs), act, names, episodes, envs, max_steps)
    for m, row in enumerate(expected):
        for i, episode in enumerate(row):
            assert found.objectives[m, i].tolist() == pytest.approx([episode[name] for name in order], rel=1e-6)
            assert (found.returns[m, i], found.lengths[m, i]) == (episode["return"], episode["length"])
    switching = found.objectives[..., 2]
    assert switching.min() < switching.max() < 1, "some episodes change more than others"


def test_measures_can_be_asked_for_by_name() -> None:
    plain = Evaluator(Weighed, 0, 4, 100, ()).evaluate(zero, ["a", "b"], 8)
    every = Evaluator(Weighed, 0, 4, 100).evaluate(zero, ["a", "b"], 8)
    mixed = Evaluator(Weighed, 0, 4, 100, ("half", "length", "weight")).evaluate(zero, ["a", "b"], 8)
    assert plain.objectives.shape == (2, 8, 0)
    assert torch.equal(every.objectives, torch.stack([7 * every.returns, every.lengths / 2], -1)), (
        "all of the env's own"
    )
    assert torch.equal(mixed.objectives, torch.stack([plain.lengths / 2, plain.lengths, 7 * plain.returns], -1))
    for other in (every, mixed):
        assert torch.equal(plain.returns, other.returns) and torch.equal(plain.lengths, other.lengths)


def test_a_measure_does_not_depend_on_the_neighbours() -> None:
    together = Evaluator(Count, 0, 4, 100, MEASURES).evaluate(of_discrete, ["a", "b", "c"], 8)
    alone = Evaluator(Count, 0, 4, 100, MEASURES).evaluate(of_discrete, ["b"], 8)
    assert torch.equal(together.objectives[1:2], alone.objectives)


# ---- stacks of envs


class Open(Count):
    """Counts the envs that are open."""

    count = 0

    def __init__(self, members: int, envs: int) -> None:
        super().__init__(members, envs)
        Open.count += members * envs

    def close(self) -> None:
        Open.count -= self.members * self.envs


def test_few_stacks_of_envs_are_kept() -> None:
    made, names, Open.count = [], [str(i) for i in range(9)], 0

    def make(members: int, envs: int) -> Open:
        made.append(members)
        return Open(members, envs)

    evaluator = Evaluator(make, 0, 4, 100)
    whole = evaluator.evaluate(zero, names, 8).returns
    for rows in range(1, 10):
        assert torch.equal(evaluator.evaluate(zero, names[:rows], 8).returns, whole[:rows])
        evaluator.evaluate(zero, names, 8)  # used again and again, it stays
    assert made == [9, 1, 2, 3, 4, 5, 6, 7, 8]
    assert Open.count == 4 * (9 + 8 + 7) and KEPT == 3, "those that were used last"
    evaluator.evaluate(zero, names[:7], 8), evaluator.evaluate(zero, names[:2], 8)
    assert made[9:] == [2]
    evaluator.close()
    assert Open.count == 0


# ---- limits of time


def test_an_evaluation_that_runs_out_of_time_counts_episodes_as_they_stand() -> None:
    evaluator = Evaluator(Forever, 0, 4, max_steps=10**6)
    ones = evaluator.evaluate(lambda obs: zero(obs) + 1, ["a", "b"], 8, seconds=0.05)
    assert evaluator.cut == (0, 16), "none of all episodes had ended"
    assert ones.lengths.isnan().sum() == 8, "four envs for eight episodes each: half of them had not begun"
    played = ~ones.lengths.isnan()
    assert torch.equal(played, ~ones.returns.isnan())
    assert (ones.lengths[played] > 1).all() and torch.equal(ones.returns[played], ones.lengths[played])


def test_finished_episodes_count_beside_those_that_are_cut() -> None:
    now = iter(range(10**6))
    evaluator = Evaluator(Threes, 0, 2, max_steps=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("podium.roles.evaluator.time.perf_counter", lambda: next(now))
        found = evaluator.evaluate(zero, ["a"], 6, seconds=4)  # five steps: a whole episode, and two steps of the next
    assert evaluator.cut == (2, 6)
    assert found.lengths[0].view(2, 3).nan_to_num(-1).tolist() == [[3, 2, -1]] * 2
    assert found.returns[0].view(2, 3).nan_to_num(-1).tolist() == [[6, 3, -1]] * 2


def test_an_evaluation_in_time_is_the_same_with_and_without_a_limit() -> None:
    found = [Evaluator(Count, 0, 4, 100).evaluate(zero, ["a", "b"], 8, seconds=s) for s in (1e9, float("inf"))]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    Evaluator(Threes, 0, 2, 100).evaluate(zero, ["a"], 4, progress=lambda done, all_: seen.append((done, all_)))
    assert seen == [(0, 4), (0, 4), (2, 4), (2, 4), (2, 4), (4, 4)]
