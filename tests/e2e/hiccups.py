"""A test that has failed is run once more where the machine has failed it, as the events in its report show.

On a machine without time to spare runc may not get a container's processes frozen, as it does when it starts one; the
kubelet starts the container again seconds later. What is counted, timed or named by then is another.
"""

import pytest
from _pytest.runner import runtestprotocol

OF_RUNC = "error setting cgroup config for procHooks process: unable to freeze"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(map(is_the_machines, reports)):
        print(f"once more, as runc could not freeze a container: {item.nodeid}", flush=True)
        item.user_properties.clear()
        item._initrequest()  # type: ignore[attr-defined]  # as pytest-rerunfailures does: fixtures are made anew
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def is_the_machines(report: pytest.TestReport) -> bool:
    return report.failed and any(OF_RUNC in text for _, text in report.sections)
