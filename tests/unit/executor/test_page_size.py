"""How much memory Spark takes at a time in an executor."""

import pytest

from onager.executor.spark.session import collector, page_size

MIB = 1024**2


@pytest.mark.parametrize(
    ("memory", "slots", "mib"),
    [
        pytest.param("2g", 1, 4, id="a slot as by default"),
        pytest.param("2048m", 1, 4, id="in other words"),
        pytest.param("1g", 1, 2, id="half of it"),
        pytest.param("1024", 4, 1, id="little"),
        pytest.param("128g", 1, 64, id="very much"),
        pytest.param("64g", 64, 16, id="much for one task of many"),
    ],
)
def test_a_page_is_a_small_part_of_the_memory_of_a_slot(memory, slots, mib):
    assert page_size({"spark.driver.memory": memory}, slots, is_cluster=False) == f"{mib * MIB - 16}b"


def test_in_a_cluster_it_is_the_memory_of_its_processes():
    assert page_size({"spark.driver.memory": "64g"}, 1, is_cluster=True) == f"{2 * MIB - 16}b"
    given = {"spark.driver.memory": "1g", "spark.executor.memory": "8g"}
    assert page_size(given, 1, is_cluster=True) == f"{16 * MIB - 16}b"


def test_what_cannot_be_read_is_left_to_spark():
    assert page_size({"spark.driver.memory": "a lot"}, 1, is_cluster=False) is None


@pytest.mark.parametrize(
    ("memory", "given", "chosen"),
    [
        ("1g", "", "-XX:+UseParallelGC"),
        ("4g", "-Xss16m", "-XX:+UseParallelGC"),
        ("5g", "", ""),
        ("1g", "-Xss16m -XX:+UseZGC", ""),
        ("1g", "-XX:-UseParallelGC", ""),
        ("lots", "", ""),
    ],
)
def test_a_small_heap_gets_a_collector_that_has_no_regions(memory, given, chosen, monkeypatch):
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    settings = {"spark.driver.memory": memory, "spark.driver.extraJavaOptions": given}
    assert collector(settings) == chosen
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xshare:auto -XX:+UseSerialGC")
    assert collector(settings) == ""
