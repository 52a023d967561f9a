"""A Ray of the run's own, whatever other cluster there is."""

import pytest

pytest.importorskip("ray")
from podium.fleet import on_ray


@pytest.mark.slow
def test_another_cluster_is_neither_joined_nor_in_the_way(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # as inside a job of that cluster, which is gone
    with on_ray.group("fleet_nodes:Counter", 1) as made:
        assert made.one(0, "add").result() == 1
    assert not on_ray.ray.is_initialized()
