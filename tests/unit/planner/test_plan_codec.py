import pytest

from executor.spark.plan_codec import MAGIC, decode, digest, encode
from executor.spark.stage_plan import (
    ExchangeInput,
    HashOutput,
    LeafInput,
    ResultOutput,
    RoundRobinOutput,
    SingleOutput,
    SortedOutput,
    StagePlan,
)
from onager.errors import VersionMismatchError

SINGLE = SingleOutput()


def plan(output=SINGLE, **fields):
    known = {
        "fragment": b"\x00fragment\xff",
        "inputs": (
            ExchangeInput(3, reads_all=True),
            LeafInput(b"\x01\x02", "parquet /data (2 files)"),
            ExchangeInput(1, False, 7),
            ExchangeInput(2, False, 7, is_alone=True),
        ),
        "output": output,
        "partitions": 4,
        "column_names": ("a", "a", "größe"),
        "conf": {"spark.sql.ansi.enabled": "true", "b": ""},
    }
    return StagePlan(**(known | fields))


@pytest.mark.parametrize(
    "output",
    [
        SingleOutput(),
        ResultOutput(),
        RoundRobinOutput(5),
        HashOutput(9, b"\x80expression"),
        SortedOutput(b"\x80ordering", 256),
    ],
)
def test_round_trip(output):
    assert decode(encode(plan(output))) == plan(output)


def test_an_input_by_ranges():
    inputs = (ExchangeInput(1, reads_all=False, partitions=4, ordering=b"\x80ordering"),)
    encoded = encode(plan(inputs=inputs))
    assert decode(encoded) == plan(inputs=inputs)
    assert b'"kind":"exchange"' not in encoded  # who does not know of ranges would read buckets


def test_a_stage_without_inputs():
    assert decode(encode(plan(inputs=(), conf={}, fragment=b""))) == plan(inputs=(), conf={}, fragment=b"")


def test_equal_plans_have_equal_bytes_whatever_the_order_of_their_settings():
    one = encode(plan(conf={"a": "1", "b": "2"}))
    other = encode(plan(conf={"b": "2", "a": "1"}))
    assert digest(one) == digest(other)
    assert digest(one) != digest(encode(plan(conf={"a": "1", "b": "3"})))


def test_of_an_input_of_which_nothing_is_said_others_may_read_too():
    said = encode(plan(inputs=(ExchangeInput(2, False, 7, is_alone=True),)))
    unsaid = said.replace(b'"is_alone":true,', b"")
    length = int.from_bytes(said[10:14], "big") - (len(said) - len(unsaid))
    unsaid = unsaid[:10] + length.to_bytes(4, "big") + unsaid[14:]
    assert decode(unsaid).inputs == (ExchangeInput(2, False, 7),)


def test_another_version_is_refused():
    encoded = bytearray(encode(plan()))
    encoded[len(MAGIC) + 1] = 2
    with pytest.raises(VersionMismatchError, match="version 2, this executor reads version 1"):
        decode(bytes(encoded))


@pytest.mark.parametrize("data", [b"", b"short", b"not a stage plan at all"])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="stage plan"):
        decode(data)
