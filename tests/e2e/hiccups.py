# SPDX-License-Identifier: Apache-2.0
"""What a test's failure shows of a machine that has failed it: such a test is run once more, as one that timed out.

On a machine without time to spare runc may not get a container's processes frozen, as it does when it starts one; the
kubelet starts the container again seconds later. What is counted, timed or named by then is another.
"""

import pytest

OF_RUNC = "error setting cgroup config for procHooks process: unable to freeze"


def is_the_machines(report: pytest.TestReport) -> bool:
    return report.failed and any(OF_RUNC in text for _, text in report.sections)
