import pytest

from onager.errors import VersionMismatchError
from onager.executor.spark import plan_codec
from onager.executor.spark.plan_codec import MAGIC, decode, digest, encode
from onager.executor.spark.stage_plan import (
    ExchangeInput,
    HashOutput,
    LeafInput,
    MadeBy,
    ResultOutput,
    RoundRobinOutput,
    SingleOutput,
    SortedOutput,
    StagePlan,
)

SINGLE = SingleOutput()


def plan(output=SINGLE, **fields):
    known = {
        "fragment": b"\x00fragment\xff",
        "inputs": (
            ExchangeInput(3, reads_all=True),
            LeafInput(b"\x01\x02", "parquet /data (2 files)"),
            ExchangeInput(1, False, 7),
            ExchangeInput(2, False, 7, is_sole_reader=True),
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
    said = encode(plan(inputs=(ExchangeInput(2, False, 7, is_sole_reader=True),)))
    unsaid = said.replace(b'"is_sole_reader":true,', b"")
    length = int.from_bytes(said[10:14], "big") - (len(said) - len(unsaid))
    unsaid = unsaid[:10] + length.to_bytes(4, "big") + unsaid[14:]
    assert decode(unsaid).inputs == (ExchangeInput(2, False, 7),)


def test_another_version_is_refused():
    encoded = bytearray(encode(plan()))
    encoded[len(MAGIC) + 1] = 2
    with pytest.raises(
        VersionMismatchError, match=r"version 2, made by Spark 4\.3.*; this executor .* reads version 1"
    ):
        decode(bytes(encoded))


@pytest.mark.parametrize("data", [b"", b"short", b"not a stage plan at all"])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="stage plan"):
        decode(data)


OTHER = MadeBy("4.3.9", "9.9-12345678")


def with_header(encoded, old, new):
    length = int.from_bytes(encoded[10:14], "big") + len(new) - len(old)
    assert encoded.count(old) == 1
    return encoded[:10] + length.to_bytes(4, "big") + encoded[14:].replace(old, new)


def test_a_plan_says_who_made_it():
    assert decode(encode(plan())).made_by == plan_codec.here()
    assert decode(encode(plan(made_by=OTHER))).made_by == OTHER
    here = plan_codec.here()
    said = f'"made_by":{{"kernel":"{here.kernel}","spark":"{here.spark}"}},'.encode()
    assert decode(with_header(encode(plan()), said, b"")).made_by is None, "they did not always"


def test_one_of_another_version_that_cannot_be_read_names_both():
    unknown = with_header(encode(plan(made_by=OTHER)), b'"kind":"single"', b'"kind":"dealt"')
    with pytest.raises(VersionMismatchError) as raised:
        decode(unknown)
    assert "planned by Spark 4.3.9 with kernel 9.9-12345678" in str(raised.value)
    assert str(plan_codec.here()) in str(raised.value)
    with pytest.raises(ValueError, match="unknown kind 'dealt'"):
        decode(with_header(encode(plan()), b'"kind":"single"', b'"kind":"dealt"'))


def test_which_metrics_are_reported_is_kept_and_rows_is_what_earlier_plans_mean():
    encoded = encode(plan(metrics="off"))
    assert decode(encoded).metrics == "off"
    assert decode(encoded.replace(b'"metrics":"off"', b'"metricx":"off"')).metrics == "rows"
