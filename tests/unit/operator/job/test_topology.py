# SPDX-License-Identifier: Apache-2.0
"""Where workers are, read from the labels of their nodes; only of jobs whose ranks are laid out by it."""

from elasticjob.reading import Node
from elasticjob_operator.job.observe import Observer, topology_of
from support.operator_objects import job, pod, record, see, trainer, view_of

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"


def test_a_topology_is_what_the_node_says_for_each_key_and_its_name() -> None:
    assert topology_of("n", {ZONE: "a", RACK: "r", "other": "x"}, (ZONE, RACK)) == ("a", "r", "n")
    assert topology_of("n", {RACK: "r"}, (ZONE, RACK)) == ("", "r", "n")
    assert topology_of("", {}, (ZONE,)) == ("", "")


def test_nothing_is_kept_where_nobody_asks() -> None:
    assert topology_of("n", {ZONE: "a"}, ()) == ()


def test_a_node_may_have_no_labels() -> None:
    assert Node.read({"metadata": {"name": "n"}}).labels == {}


def test_a_worker_is_where_its_node_is_and_that_may_change() -> None:
    observer, view = Observer("trainer", topology_keys=(ZONE,)), view_of(job())
    body = pod(0, phase="Running", containerStatuses=[trainer(running={})])
    body["spec"]["nodeName"] = "n"
    see(view, {"digits-0-0": body}, {"digits-0-0": record(0)})
    for labels, topology in (({}, ("", "n")), ({ZONE: "a"}, ("a", "n")), ({ZONE: "b"}, ("b", "n"))):
        view.nodes = {"n": Node("n", 1, labels, ()), "other": Node("other", 1, {ZONE: "x"}, ())}
        (worker,), _ = observer.observe(view)
        assert worker.topology == topology
