"""The contract of every engine, in one file: the four ways to call, deadlines, errors, and what is never done twice."""

import os
import time

import numpy as np
import pytest
import torch

from podium.core.errors import PodiumError
from podium.fleet import engines
from podium.fleet.errors import FleetError, Late, NodeLost, RemoteError

MPI = os.environ.get("OMPI_COMM_WORLD_SIZE") is not None  # then test_on_mpi.py runs this file, on rank 0
ENGINES = ["mpi"] if MPI else ["inline", "processes", "ray"]
APART = ["mpi"] if MPI else ["processes", "ray"]  # nodes that run beside the caller
mortal = pytest.mark.skipif(MPI, reason="a rank that dies ends the job")


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster that all groups of this file join."""
    ray = pytest.importorskip("ray")
    home = {"address": "local", "_node_ip_address": "127.0.0.1"}  # not the cluster of a test beside this one
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, **home)
    yield
    ray.shutdown()


def made(request):
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return engines.engine(request.param)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    return made(request)


@pytest.fixture(scope="module", params=APART)
def apart(request):
    return made(request)


@pytest.fixture(scope="module")
def nodes(engine):
    with engine("fleet_nodes:Counter", 3, each=[[10], [20], [30]]) as made:
        yield made


@pytest.fixture(scope="module")
def workers(apart):
    with apart("fleet_nodes:Counter", 2) as made:
        made.all("where")
        yield made


def test_one(nodes):
    before = nodes.one(1, "where").result()["value"]
    assert nodes.one(1, "add").result() == before + 1
    assert nodes.one(1, "add", by=5).result() == before + 6


def test_all_answers_in_order(nodes):
    pids = [there["pid"] for there in nodes.all("where")]
    assert pids == [nodes.one(i, "where").result()["pid"] for i in range(3)]
    assert [v // 10 for v in (there["value"] for there in nodes.all("where"))] == [1, 2, 3]


def test_any_and_map(nodes):
    assert nodes.any("echo", 7).result() == 7
    assert nodes.map("echo", [[i] for i in range(50)]) == list(range(50))


def test_gather_takes_all_nodes_in(nodes):
    stream, seen, ends = nodes.gather("where"), set(), time.monotonic() + 10
    while seen != {0, 1, 2} and time.monotonic() < ends:  # on a busy machine one may answer often before another does
        seen.add(next(stream)[0])
    assert seen == {0, 1, 2}
    nodes.all("where")  # what gather left in flight is answered, and nothing hangs


def test_values_of_all_kinds(nodes):
    value = {"t": torch.arange(6.0).reshape(2, 3), "n": np.ones(3), "p": [1, 2.5, "x", None, True, b"y"]}
    for back in nodes.all("echo", value):
        assert torch.equal(back["t"], value["t"]) and np.array_equal(back["n"], value["n"]) and back["p"] == value["p"]


def test_arguments_and_answers_are_copies(nodes):
    sent = torch.zeros(50_000)
    call = nodes.one(0, "echo", sent)
    sent += 1
    assert call.result().sum() == 0
    first = nodes.one(0, "weights", 50_000).result()
    value = float(first[0])
    nodes.one(0, "weights", 50_000).result()
    assert bool((first == value).all())


def test_errors_carry_what_happened(nodes):
    with pytest.raises(RemoteError, match="ValueError: no luck") as caught:
        nodes.one(2, "fail", "no luck").result()
    assert caught.value.kind == "ValueError" and "in fail" in caught.value.trace and "node 2" in str(caught.value)
    with pytest.raises(RemoteError, match="no luck"):
        nodes.all("fail", "no luck")
    assert nodes.one(2, "echo", 1).result() == 1  # it lives on


def test_errors_whose_text_is_not_unicode(nodes):
    with pytest.raises(RemoteError, match=r"FileNotFoundError: no file \\udc80"):
        nodes.one(1, "fail_with_bad_text").result()
    assert nodes.one(1, "echo", 1).result() == 1


@pytest.mark.parametrize("kind", ["SystemExit", "GeneratorExit"])
def test_a_method_that_wants_to_leave_is_an_error(nodes, kind):
    with pytest.raises(RemoteError, match=f"{kind}: enough"):
        nodes.one(1, "leave", kind).result()
    assert nodes.one(1, "echo", 1).result() == 1


def test_a_method_that_raises_a_keyboard_interrupt(workers):
    with pytest.raises(RemoteError, match="KeyboardInterrupt: enough"):
        workers.one(1, "leave", "KeyboardInterrupt").result()
    assert workers.one(1, "echo", 1).result() == 1


@pytest.mark.parametrize("method", ["_hidden", "__init__", "value", "nothing", "__class__"])
def test_only_public_methods_are_called(nodes, method):
    with pytest.raises(RemoteError, match=f"has no method '{method}'; it has add"):
        nodes.one(0, method).result()


def test_what_the_wire_does_not_carry_is_refused_on_both_sides(nodes):
    with pytest.raises(PodiumError, match="not allowed"):
        nodes.one(0, "echo", object())
    with pytest.raises(RemoteError, match="not allowed"):
        nodes.one(0, "unpicklable").result()


def test_no_such_node(nodes):
    with pytest.raises(FleetError, match="node 3: there are 3"):
        nodes.one(3, "echo", 1)


def test_a_lost_answer_is_answered_from_memory(nodes):
    call = nodes.one(0, "add")
    value = call.result()
    again = call.again()
    assert again.result() == value and nodes.one(0, "where").result()["value"] == value


def test_a_class_that_cannot_be_made(engine):
    with engine("fleet_nodes:Broken", 1) as made, pytest.raises(RemoteError, match="cannot be made"):
        made.one(0, "echo", 1).result()


def test_classes_are_found_by_other_processes_or_refused(engine):
    class Local:
        pass

    with pytest.raises(PodiumError, match="other processes can import"):
        engine(Local, 1)


def test_deadlines(workers):
    start = time.monotonic()
    call = workers.one(0, "sleep", 0.6, timeout=0.2)
    with pytest.raises(Late, match=r"node 0: no answer within 0.2 s"):
        call.result()
    assert time.monotonic() - start < 0.5
    assert call.again(timeout=5).result() == 0.6  # it was at work all the time, and did it once
    with pytest.raises(Late, match="no node was free"):
        blocked = [workers.one(i, "sleep", 0.5) for i in range(2)]
        workers.any("echo", 1, timeout=0.1).result()
    assert [b.result() for b in blocked] == [0.5, 0.5]


def test_any_takes_whoever_is_free(workers):
    busy = workers.one(0, "sleep", 0.8)
    other = workers.one(1, "where").result()["pid"]
    assert {workers.any("where").result()["pid"] for _ in range(5)} == {other}
    assert not busy.done
    busy.result()


def test_nodes_work_side_by_side(workers):
    start = time.monotonic()
    workers.all("sleep", 0.4)
    assert time.monotonic() - start < 0.75


def test_gather_holds_nodes_back(workers):
    """One answer a node is kept, no more, however slow the caller is."""
    stream = workers.gather("add")
    for _ in range(4):
        next(stream)
        time.sleep(0.1)
    workers.all("where")
    values = [there["value"] for there in workers.all("where")]
    assert sum(values) <= 4 + 2


def test_a_thousand_calls_in_flight(workers):
    calls = [workers.one(i % 2, "echo", i) for i in range(1000)]
    assert [call.result() for call in calls] == list(range(1000))


@mortal
def test_a_node_that_dies_is_noticed_and_replaced(apart):
    with apart("fleet_nodes:Counter", 2, each=[[5], [6]]) as made:
        made.all("add")
        start = time.monotonic()
        with pytest.raises(NodeLost, match=r"node 1: was (killed by signal 9|lost)"):
            made.one(1, "die").result()
        assert time.monotonic() - start < 2
        with pytest.raises(NodeLost):
            made.one(1, "add").result()
        assert list(made.lost()) == [1] and made.any("where").result()["value"] == 6
        made.restart(1)
        made.whole()
        assert made.lost() == {} and made.all("add") == [7, 7]  # the second began anew


@mortal
def test_a_restart_is_not_waited_for(apart):
    """The fifth in a row is due only after a pause; the other node is called meanwhile, and that one cannot be."""
    with apart("fleet_nodes:Counter", 2) as made:
        made.all("where")
        for _ in range(5):
            start = time.monotonic()
            made.restart(1)
            took = time.monotonic() - start
        assert made.coming() == {1} and made.lost() == {} and took < 0.4
        assert made.any("add").result() == 1
        with pytest.raises(NodeLost, match="node 1: is not up yet"):
            made.one(1, "add").result()
        made.whole()
        assert made.coming() == set() and made.one(1, "add").result() == 1 and time.monotonic() - start > 0.8


@mortal
def test_a_group_that_grows(apart):
    with apart("fleet_nodes:Counter", 1, each=[[5]]) as made:
        assert made.add(9) == 1 and len(made) == 2
        made.whole()
        assert made.all("add") == [6, 10]
        made.change(1, 20)
        made.restart(1)
        made.whole()
        assert made.all("add") == [7, 21]


@mortal
def test_calls_for_anybody_wait_for_a_node_that_is_on_its_way(apart):
    with apart("fleet_nodes:Counter", 1) as made:
        made.restart(0), made.restart(0)
        assert made.coming() == {0} and made.any("echo", 3, timeout=30).result() == 3


@mortal
def test_when_all_nodes_are_gone(apart):
    with apart("fleet_nodes:Counter", 1) as made:
        made.one(0, "die")
        with pytest.raises(NodeLost):
            made.map("echo", [[1], [2]])
