# SPDX-License-Identifier: Apache-2.0
"""Which incarnation of the sidecar this is."""

from pathlib import Path

import pytest

from elasticjob_sidecar.incarnation import new_incarnation


def test_each_start_in_a_pod_is_another(tmp_path: Path) -> None:
    assert [new_incarnation("9f3c01d2", tmp_path) for _ in range(3)] == ["9f3c01d2.0", "9f3c01d2.1", "9f3c01d2.2"]


def test_a_start_that_was_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "starts.new").write_text("")
    assert new_incarnation("9f3c01d2", tmp_path) == "9f3c01d2.0"


@pytest.mark.parametrize("held", ["", "x"])
def test_nonsense_is_no_number_of_starts(tmp_path: Path, held: str) -> None:
    (tmp_path / "starts").write_text(held)
    with pytest.raises(ValueError, match="invalid literal"):
        new_incarnation("9f3c01d2", tmp_path)
