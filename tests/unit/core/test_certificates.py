# SPDX-License-Identifier: Apache-2.0
"""What TLS takes for a certificate."""

from itertools import repeat

import pytest

from elasticjob.certificates import CHECKED_AT_ONCE, check_certificate, der_of
from support.pod_life import new_credentials


def test_each_of_many_is_judged_by_itself() -> None:
    """They share what checks them: no good one vouches for a bad one, nor is one refused for having come before."""
    good = der_of(new_credentials().certificate)
    for one in repeat(good, 2 * CHECKED_AT_ONCE):
        check_certificate(one)
        for bad in (b"", one[:-1], b"\x30\x03\x02\x01\x01"):
            with pytest.raises(ValueError, match=r"no X\.509 certificate"):
                check_certificate(bad)
