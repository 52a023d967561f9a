"""What a run says before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from podium.report import heading


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ({"steps": 100_000, "fitness": None}, "ends at 100,000 steps"),
        ({"steps": 1000, "fitness": 475.0}, "ends at 1,000 steps or every member's fitness 475, whichever comes first"),
        ({"seconds": 90.5, "generations": 3}, "ends at 90.5 seconds or 3 generations, whichever comes first"),
        ({}, "ends when you stop it (Ctrl-C)"),
    ],
)
def test_when_it_ends(stop: dict[str, Any], text: str) -> None:
    assert heading.stop({"stop": stop}) == text


def test_when_evolution_ends() -> None:
    assert heading.stop({"evolve": {}, "stop": {"fitness": -200.0}}) == "ends at the champion's fitness -200"


def test_a_schedule() -> None:
    def said(*steps: int) -> str | None:
        return heading.scheduled({"train": {"schedule": [{"step": step, "genes": {}} for step in steps]}})

    assert said() is None and heading.scheduled({}) is None
    assert said(0) == "genes follow a schedule (train.schedule): 0 changes"
    assert said(0, 9000) == "genes follow a schedule (train.schedule): 1 change, the last at step 9,000"


def kinds(*entrants: dict[str, Any]) -> list[str]:
    names = [entrant["algo"]["name"] for entrant in entrants]
    members = [{"kind": f"{name}-{i}", "origin": "start"} for i, name in enumerate(names) for _ in range(2 - i % 2)]
    return heading.kinds({"evolve": {"entrants": entrants}}, [*members, {"kind": "ppo-0", "origin": "copy"}])


def test_kinds_are_told_apart_by_what_differs() -> None:
    ppo = {"algo": {"name": "ppo", "lr": [1e-5, 0.01], "steps": 32}, "net": {"hidden": [64, 64], "module": None}}
    small = {"algo": ppo["algo"], "net": {**ppo["net"], "hidden": [32]}}
    long = {"algo": {**ppo["algo"], "steps": 64}, "net": ppo["net"]}
    a2c = {"algo": {"name": "a2c", "lr": [1e-4, 0.01], "steps": 5}, "net": ppo["net"]}
    assert kinds(ppo) == [] and heading.kinds({}, []) == []
    assert kinds(ppo, a2c) == ["ppo-0  2 members", "a2c-1  1 member"]
    assert kinds(ppo, small) == ["ppo-0  2 members  net.hidden=[64,64]", "ppo-1  1 member  net.hidden=[32]"]
    assert kinds(ppo, long, a2c) == [
        "ppo-0  2 members  algo.steps=32",
        "ppo-1  1 member  algo.steps=64",
        "a2c-2  2 members",
    ]


PPO = {"name": "ppo", "lr": [1e-5, 0.01], "discount": [0.8, 0.999], "clip": 0.2, "steps": 512, "anneal": []}
A2C = {"name": "a2c", "lr": [1e-4, 0.01], "steps": 5, "betas": [0.9, 0.99]}


def evolving(*algos: dict[str, Any], **evolve: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The config and the members of a run with those kinds."""
    genes = {"lr": 1e-3, "discount": 0.9, "clip": 0.2}
    members = [{"kind": f"{algo['name']}-{i}", "origin": "start", "genes": genes} for i, algo in enumerate(algos)]
    entrants = [{"algo": algo, "net": {}} for algo in algos] if len(algos) > 1 else []
    config = {"algo": algos[0], "env": {"num": 8}, "evolve": {"strategy": "tournament", "entrants": entrants, **evolve}}
    return config, members


def test_what_is_searched() -> None:
    assert heading.searched({"algo": PPO}, []) == []
    ranges = "lr [1e-5, 0.01], discount [0.8, 0.999]"
    assert heading.searched(*evolving(PPO)) == [f"searches {ranges}"]
    assert heading.searched(*evolving(PPO, PPO)) == [f"searches {ranges}"]
    assert heading.searched(*evolving(PPO, A2C)) == [f"ppo-0 searches {ranges}", "a2c-1 searches lr [1e-4, 0.01]"]
    nothing = "searches nothing: members only copy weights"
    assert heading.searched(*evolving({**PPO, "lr": 0.1, "discount": {"each": [0.8, 0.9]}})) == [nothing]
    assert heading.searched(*evolving(PPO, {**A2C, "lr": 0.1}))[1] == f"a2c-1 {nothing}"
    config, members = evolving(PPO)
    assert heading.lines(config, members) == [f"searches {ranges}", "ends when you stop it (Ctrl-C)"]


def test_how_often_members_are_evaluated() -> None:
    said = "evaluated every 4,096 steps (a rollout), not every 1,024"
    assert heading.paced(*evolving(PPO, interval=1024)) == [said]
    assert heading.paced(*evolving(PPO, interval=4096)) == heading.paced({}, []) == []
    assert heading.paced(*evolving(PPO, interval=1024, seconds=3.0)) == []
    assert heading.paced(*evolving(PPO, A2C, interval=1024)) == [said]  # a tournament keeps them in step
    assert heading.paced(*evolving(PPO, A2C, interval=1024, strategy="wta")) == [f"ppo-0 {said}"]
