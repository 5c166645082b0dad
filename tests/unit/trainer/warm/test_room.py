"""How much memory there is room for in a container."""

import pytest

from elasticjob_torch.warm.room import anonymous_bytes, cpus, free_bytes


@pytest.fixture
def machine(tmp_path):
    """Files as the kernel has them; returns what is free."""

    def read(**files):
        for name, text in {"meminfo": "MemTotal: 9 kB\nMemAvailable:  4 kB\n", **files}.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return free_bytes(str(tmp_path / "v2"), str(tmp_path / "v1"), str(tmp_path / "meminfo"))

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
    assert free_bytes(str(tmp_path), str(tmp_path), str(tmp_path / "none")) is None
    assert anonymous_bytes(0) is None


def test_cpus_are_those_of_the_quota(tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert cpus(str(tmp_path)) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpus(str(tmp_path)) >= 1
