import pytest

from onager.errors import InvalidSettingError
from onager.executor.spark.planning.nodes import KNOWN, Tasks
from onager.executor.spark.planning.partitions import combined
from onager.executor.spark.planning.sizing import (
    MIB,
    is_single_stage,
    metrics_wanted,
    samples_of_run,
    setting_bytes,
    shuffle_partitions,
    sizes,
)


@pytest.mark.parametrize(
    ("input_bytes", "slots", "expected"),
    [
        (0, 8, 1),
        (MIB // 2, 8, 1),
        (3 * MIB, 8, 3),
        (100 * MIB, 8, 8),
        (6400 * MIB, 8, 104),
        (12_800 * MIB, 64, 200),
        (10**13, 8, 200),
        (-1, 8, 8),
        (100 * MIB, 0, 2),
    ],
)
def test_buckets_follow_the_bytes_and_fill_the_slots(input_bytes, slots, expected):
    assert shuffle_partitions(input_bytes, 64 * MIB, slots) == expected


def test_what_the_user_sets_is_kept():
    made = sizes({}, {"spark.sql.shuffle.partitions": "17"}, 10**9, 4)
    assert "spark.sql.shuffle.partitions" not in made
    assert made["spark.sql.leafNodeDefaultParallelism"] == made["spark.sql.files.minPartitionNum"] == "4"


@pytest.mark.parametrize(("runs", "expected"), [(0, 1024), (4, 1024), (600, 872), (1000, 524), (100_000, 64)])
def test_keys_of_sorted_runs_are_an_even_number_and_never_too_many_together(runs, expected):
    assert samples_of_run(runs) == expected


WORDS = [
    ("", 16 * MIB),
    ("0", 0),
    ("1024", 1024),
    ("64m", 64 * MIB),
    ("1g", 1024 * MIB),
    ("2 KiB", None),
    ("8kb", 8192),
]


@pytest.mark.parametrize(("text", "expected"), WORDS)
def test_sizes_in_words(text, expected):
    conf = {"onager.fusion.maxBytes": text}
    if expected is None:
        with pytest.raises(InvalidSettingError):
            setting_bytes(conf, "onager.fusion.maxBytes")
    else:
        assert setting_bytes(conf, "onager.fusion.maxBytes") == expected


@pytest.mark.parametrize(("text", "expected"), [("", "rows"), ("off", "off"), (" FULL ", "full"), ("some", None)])
def test_which_metrics_are_wanted(text, expected):
    conf = {"onager.metrics": text}
    if expected is None:
        with pytest.raises(InvalidSettingError, match="give off, rows or full"):
            metrics_wanted(conf)
    else:
        assert metrics_wanted(conf) == expected


def test_small_queries_are_fused_unless_that_is_off_or_their_size_unknown():
    assert is_single_stage({}, 16 * MIB)
    assert not is_single_stage({}, 16 * MIB + 1)
    assert not is_single_stage({}, -1)
    assert not is_single_stage({"onager.fusion.maxBytes": "0"}, 0)


@pytest.mark.parametrize(
    ("rule", "counts", "most", "expected"),
    [
        (Tasks.CHILD, [4], 0, 4),
        (Tasks.SUM, [4, 3, 0], 0, 7),
        (Tasks.PRODUCT, [4, 3], 0, 12),
        (Tasks.EQUAL, [5, 5], 0, 5),
        (Tasks.COALESCED, [5], 2, 2),
        (Tasks.COALESCED, [5], 9, 5),
        (Tasks.COALESCED, [0], 1, 1),
    ],
)
def test_partitions_of_operators(rule, counts, most, expected):
    assert combined(rule, counts, most) == expected


def test_every_operator_that_runs_python_minds_the_order_of_its_rows():
    python = [operator for name, operator in KNOWN.items() if "Python" in operator.label]
    assert python
    assert all(operator.is_order_sensitive for operator in python)
