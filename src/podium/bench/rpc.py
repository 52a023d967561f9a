"""Calls between processes: our groups of nodes against Ray's own actor calls, on the same machine in the same run.

Small calls one after another and a thousand at a time; the weights of a network to all nodes; trajectories from all of
them. The last row is our own TCP with CURVE against the same without.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from podium.bench._echo import Echo
from podium.bench._side_by_side import Row, Side, Work, compare, effort
from podium.fleet import processes
from podium.fleet.group import Group
from podium.fleet.keys import Keys
from podium.fleet.link import results

FLIGHT = 1000
WEIGHTS, TRAJECTORY = 300_000, 65_536  # floats: 1.2 MB and 256 KB


def main(rounds: int = 5, quick: bool = False) -> list[Row]:
    from podium.fleet import on_ray

    turns, seconds = effort(rounds, quick)
    rows = []
    with ExitStack() as stack:
        few, many = (stack.enter_context(processes.group(Echo, n, threads=1)) for n in (4, 8))
        for group in (few, many):
            group.all("echo", 1)  # started, before Ray has to
        ray, theirs = actors(on_ray, 8)
        stack.callback(on_ray.disconnect)
        for key, name, unit, ours, peer in (
            ("call", "one small call after another", "calls/s", partial(one, few), partial(ray_one, ray, theirs)),
            (
                "flight",
                f"{FLIGHT} small calls in flight, 4 nodes",
                "calls/s",
                partial(flight, few),
                partial(ray_flight, ray, theirs[:4]),
            ),
            (
                "broadcast",
                "1.2 MB to 8 nodes, all answered",
                "broadcasts/s",
                partial(broadcast, many),
                partial(ray_broadcast, ray, theirs),
            ),
            (
                "gather",
                "256 KB from each of 4 nodes",
                "gathers/s",
                partial(gather, few),
                partial(ray_gather, ray, theirs[:4]),
            ),
        ):
            sides = Side("podium", ours), [Side("ray", peer)]
            rows.append(compare(f"{name}; Ray actors", unit, *sides, turns, seconds, key=f"rpc/{key}"))
    with ExitStack() as stack:
        plain, locked = (
            stack.enter_context(processes.group(Echo, 1, threads=1, tcp=True, keys=k)) for k in (None, Keys.new())
        )
        sides = Side("curve", partial(gather, locked)), [Side("plain", partial(gather, plain))]
        name = "256 KB from a node over TCP with CURVE; without"
        rows.append(compare(name, "answers/s", *sides, turns, seconds, key="rpc/curve"))
    return rows


def repeated(once: Callable[[], float]) -> Work:
    def work(pieces: int) -> float:
        return sum(once() for _ in range(pieces))

    return work


def one(group: Group) -> Work:
    return repeated(lambda: group.one(0, "echo", 1).result())


def flight(group: Group) -> Work:
    def once() -> float:
        return float(len(results([group.one(i % len(group), "echo", 1) for i in range(FLIGHT)])))

    return repeated(once)


def broadcast(group: Group) -> Work:
    weights = torch.ones(WEIGHTS)
    return repeated(lambda: len(group.all("take", weights)) / len(group))


def gather(group: Group) -> Work:
    return repeated(lambda: len(group.all("give", TRAJECTORY)) / len(group))


def actors(on_ray: Any, number: int) -> tuple[Any, list[Any]]:
    """Ray by itself, with as many actors of the same class."""
    on_ray.connect(None, number, 1.0)
    made = on_ray.ray.remote(Echo)
    found = [made.options(num_cpus=1).remote() for _ in range(number)]
    on_ray.ray.get([actor.echo.remote(1) for actor in found])
    return on_ray.ray, found


def ray_one(ray: Any, found: list[Any]) -> Work:
    return repeated(lambda: ray.get(found[0].echo.remote(1)))


def ray_flight(ray: Any, found: list[Any]) -> Work:
    return repeated(lambda: sum(ray.get([found[i % len(found)].echo.remote(1) for i in range(FLIGHT)])))


def ray_broadcast(ray: Any, found: list[Any]) -> Work:
    weights = torch.ones(WEIGHTS)

    def once() -> float:
        shared = ray.put(weights)
        return len(ray.get([actor.take.remote(shared) for actor in found])) / len(found)

    return repeated(once)


def ray_gather(ray: Any, found: list[Any]) -> Work:
    return repeated(lambda: len(ray.get([actor.give.remote(TRAJECTORY) for actor in found])) / len(found))
