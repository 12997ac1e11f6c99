"""Portions of the partitions of a Python data source: what a reader is asked for, and what it must not give."""

# ruff: noqa: ARG002 - readers take what PySpark gives them

import pickle
import pickletools
from dataclasses import dataclass

import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from onager.executor.spark import source_portions
from onager.executor.spark.source_portions import growing, next_portion, whole

pickles = CPickleSerializer()
MARK = "here it ends"


class Pages(DataSourceReader):
    def __init__(self, count=5):
        self.count = count

    def partitions(self):
        return list(self.partitions_after(None))

    def partitions_after(self, last):
        yield from map(InputPartition, range(0 if last is None else last.value + 1, self.count))

    def read(self, partition):
        yield (partition.value,)


class Source(DataSource):
    def __init__(self, made):
        super().__init__({})
        self.made = made

    def reader(self, schema):
        return self.made


def began(reader):
    """Return the first partitions, and the pickled reader that has more, or None."""
    given = growing(pickles.dumps(Source(reader)), MARK).reader(None).partitions()
    if not given or getattr(given[-1], "value", None) != f"{MARK}+":
        return given, None
    return given[:-2], pickles.dumps(given[-2])


def after(reader, first, last):
    """Return the next partitions, and whether they are the last ones."""
    *found, end = next_portion(reader, MARK, pickles.dumps(first), pickles.dumps(last)).reader(None).partitions()
    assert end.value in (MARK, f"{MARK}+")
    return found, end.value == MARK


def values(partitions):
    return [partition.value for partition in partitions]


@pytest.fixture
def by_two(monkeypatch):
    monkeypatch.setattr(source_portions, "MAX_PARTITIONS", 2)


@pytest.mark.usefixtures("by_two")
def test_each_portion_goes_on_after_the_one_before():
    first, reader = began(Pages())
    second, has_ended = after(reader, first[0], first[-1])
    again, _ = after(reader, first[0], first[-1])
    last, ended_then = after(reader, first[0], second[-1])
    assert [values(each) for each in (first, second, again, last)] == [[0, 1], [2, 3], [2, 3], [4]]
    assert (has_ended, ended_then) == (False, True)
    assert values(whole(reader).reader(None).partitions()) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("by_two")
def test_nothing_may_be_left_after_a_portion():
    first, reader = began(Pages(2))
    assert values(first) == [0, 1]
    assert after(reader, first[0], first[-1]) == ([], True)


def test_a_source_that_ends_at_once_has_no_more_partitions_than_it_gave():
    assert [values(began(Pages(count))[0]) for count in (0, 5)] == [[], [0, 1, 2, 3, 4]]
    assert began(Pages(5))[1] is None


def test_bytes_and_time_end_a_portion(monkeypatch):
    monkeypatch.setattr(source_portions, "MAX_BYTES", 1)
    assert len(began(Pages())[0]) == 1
    monkeypatch.undo()
    moments = iter([0.0, 5.0, 6.0, 7.0, 10.0])
    monkeypatch.setattr(source_portions, "monotonic", lambda: next(moments))
    assert len(began(Pages())[0]) == 3, "it took 5 s until the first one, and goes on for 5 s"


def test_what_tasks_read_with_is_the_jobs_own():
    reader = growing(pickles.dumps(Source(Pages())), MARK).reader(None)
    assert type(reader).__name__ == "Pages"
    content = pickles.dumps((reader, growing(pickles.dumps(Source(Pages())), MARK)))
    mine, source = pickles.loads(content)
    assert (type(mine), type(source)) == (Pages, Source)
    assert not any("onager.executor" in str(arg) for op, arg, _ in pickletools.genops(content) if "UNICODE" in op.name)


def test_a_reader_without_the_method_stays_as_it_is():
    class Plain(Pages):
        partitions_after = None

    given = Plain()
    source = growing(pickle.dumps(source_of := Source(None)), MARK)
    source._inner.made = given
    assert source.reader(None) is given
    assert source_of.made is None


def test_it_is_asked_what_was_pushed_down_only_if_it_says_so():
    class Filtered(Pages):
        def pushFilters(self, filters):  # noqa: N802 - PySpark's
            self.count = 3
            return filters[1:]

    def is_pushed(reader):  # as Spark asks
        return getattr(reader.pushFilters, "__func__", None) is not DataSourceReader.pushFilters

    plain, filtered = (growing(pickles.dumps(Source(each)), MARK).reader(None) for each in (Pages(), Filtered()))
    assert (is_pushed(plain), is_pushed(filtered)) == (False, True)
    assert filtered.pushFilters([1, 2]) == [2]
    assert values(filtered.partitions()) == [0, 1, 2]


@dataclass
class Range(InputPartition):
    start: int
    end: int


class Given(Pages):
    """Gives the same partitions whatever the last one was."""

    def __init__(self, *given):
        self.given = given

    def partitions_after(self, last):
        return iter(self.given)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ((1,), TypeError, "Given gave an object of type int as partition 0 .*: let it yield InputPartition objects"),
        ((InputPartition(1), None), TypeError, "gave None as partition 1"),
        (
            (InputPartition(1), InputPartition(1)),
            ValueError,
            r"gave InputPartition\(value=1\) again, which is the one before",
        ),
        ((Range(1, 2), Range(2, 3), Range(1, 2)), ValueError, r"gave Range\(.*\) again, which is the first one of all"),
        ((InputPartition(bytes(17 * 2**20)),), ValueError, r"a partition of 17,825,\d+ bytes, more than 16,777,216"),
    ],
)
def test_what_it_must_not_give(given, error, says):
    with pytest.raises(error, match=says):
        began(Given(*given))


@pytest.mark.usefixtures("by_two")
def test_one_that_begins_anew_each_time_is_found_out():
    first, reader = began(Given(Range(1, 2), Range(2, 3), Range(3, 4)))
    with pytest.raises(ValueError, match="again, which is the first one of all: let it yield only what comes after"):
        after(reader, first[0], first[-1])
    with pytest.raises(ValueError, match="again, which is the one before it"):
        after(reader, Range(0, 1), Range(1, 2))


def test_one_that_returns_nothing_or_is_of_no_use_to_plain_spark():
    class Nothing(Pages):
        def partitions_after(self, last):
            return None

    class Only(DataSourceReader):
        def partitions_after(self, last):
            yield InputPartition(1)

        def read(self, partition):
            yield ()

    with pytest.raises(TypeError, match="Nothing returned None from partitions_after: let it yield each"):
        began(Nothing())
    with pytest.raises(TypeError, match=r"Only has partitions_after and no partitions.*list"):
        began(Only())


def test_partitions_that_cannot_be_compared_are_taken_as_they_come():
    class Odd:
        def __eq__(self, other):
            raise ArithmeticError

        __hash__ = None

    assert len(began(Given(InputPartition(Odd()), InputPartition(Odd()), Range(1, 2)))[0]) == 3
