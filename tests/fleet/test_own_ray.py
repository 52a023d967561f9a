"""A Ray of the run's own, whatever other cluster there is."""

import os

import pytest

pytest.importorskip("ray")
from podium.fleet import on_ray
from podium.fleet.errors import NodeLost


@pytest.mark.slow
def test_another_cluster_is_neither_joined_nor_in_the_way(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # as inside a job of that cluster, which is gone
    with on_ray.group("fleet_nodes:Counter", 1) as made:
        assert made.one(0, "add").result() == 1
    assert not on_ray.ray.is_initialized()


@pytest.mark.slow
def test_a_node_that_dies_while_it_starts_can_be_replaced(monkeypatch, tmp_path):
    """As on processes, its first call says so. A long folder for temporary files is no trouble to Ray, either."""

    class Dying:
        def bind(self, frames):
            os._exit(1)

        def serve(self):
            pass

    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with monkeypatch.context() as patch:
        patch.setattr(on_ray, "Host", Dying)
        made = on_ray.group("fleet_nodes:Counter", 1)
    with made:
        with pytest.raises(NodeLost, match="did not start"):
            made.one(0, "add").result()
        made.restart(0)
        made.whole()
        assert made.one(0, "add").result() == 1
