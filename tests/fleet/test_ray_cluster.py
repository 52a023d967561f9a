"""Ray over several nodes: what a node takes with it comes back elsewhere."""

from __future__ import annotations

import time

import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from podium.fleet import on_ray  # noqa: E402
from podium.fleet.errors import NodeLost  # noqa: E402


@pytest.mark.slow
def test_the_loss_of_a_machine() -> None:
    """Two nodes of a real cluster on this machine; one goes, and its nodes are launched again on the other."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "resources": {"stays": 4}})
    goes = cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        with on_ray.group("fleet_nodes:Counter", 6, each=[[10 * i] for i in range(6)]) as group:
            assert group.all("add") == [10 * i + 1 for i in range(6)]
            cluster.remove_node(goes, allow_graceful=False)
            lost: dict[int, str] = {}
            for _ in range(100):
                group.pump(0.2)
                lost = group.lost()
                if len(lost) == 2:
                    break
            assert len(lost) == 2, lost
            for node in lost:
                with pytest.raises(NodeLost):
                    group.one(node, "add").result()
            kept = [node for node in range(6) if node not in lost]
            assert [group.one(node, "add").result() for node in kept] == [10 * node + 2 for node in kept]
            for node in lost:
                group.restart(node)  # there is no room for it
            time.sleep(1)
            assert group.coming() == set(lost) and group.lost() == {}
            cluster.add_node(num_cpus=2)
            group.whole()
            assert [group.one(node, "add").result() for node in lost] == [10 * node + 1 for node in lost]
    finally:
        ray.shutdown()
        cluster.shutdown()
