# SPDX-License-Identifier: Apache-2.0
"""How much memory there is room for in a container."""

import pytest

from elasticjob_torch.warm.room import anonymous_bytes, cpus, rooms


@pytest.fixture
def machine(tmp_path):
    """Files as the kernel has them; returns the least that is free."""

    def read(**files):
        for name, text in {"meminfo": "MemTotal: 9 kB\nMemAvailable:  4 kB\n", **files}.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return min(rooms(str(tmp_path / "v2"), str(tmp_path / "v1"), str(tmp_path / "meminfo"))).free

    return read


def test_without_a_limit_it_is_the_machines(machine):
    assert machine(v2__memory_DOT_max="max\n", v2__memory_DOT_current="100\n") == 4096


def test_the_limit_of_the_container(machine):
    assert machine(v2__memory_DOT_max="1000\n", v2__memory_DOT_current="900\n") == 100


def test_page_cache_that_is_not_in_use_is_free(machine):
    stat = "anon 700\ninactive_file 150\n"
    assert machine(v2__memory_DOT_max="1000", v2__memory_DOT_current="900", v2__memory_DOT_stat=stat) == 250


def test_the_older_cgroups(machine):
    stat = "inactive_file 1\ntotal_inactive_file 50\n"
    used = {"v1__memory_DOT_usage_in_bytes": "900\n", "v1__memory_DOT_stat": stat}
    assert machine(v1__memory_DOT_limit_in_bytes="1000\n", **used) == 150
    assert machine(v1__memory_DOT_limit_in_bytes="9223372036854771712\n", **used) == 4096


def test_where_nothing_says_it(tmp_path):
    assert rooms(str(tmp_path), str(tmp_path), str(tmp_path / "none")) == []
    assert anonymous_bytes(0) is None


def test_cpus_are_those_of_the_quota(tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert cpus(str(tmp_path)) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpus(str(tmp_path)) >= 1


def test_what_is_kept_for_the_training_is_a_part_of_the_limit_and_of_the_machine_no_more_than_a_gibibyte(tmp_path):
    (tmp_path / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: {9 << 20} kB\n")
    for name, text in (("memory.max", str(32 << 30)), ("memory.current", "0")):
        (tmp_path / name).write_text(text)
    container, machine = rooms(str(tmp_path), str(tmp_path / "none"), str(tmp_path / "meminfo"))
    assert container == (32 << 30, 4 << 30)
    assert machine == (9 << 30, 1 << 30)
    (tmp_path / "memory.max").write_text(str(1 << 30))
    assert rooms(str(tmp_path), str(tmp_path / "none"), str(tmp_path / "none")) == [(1 << 30, 256 << 20)]
