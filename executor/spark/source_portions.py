"""Partitions of a Python data source, portion by portion, as the workers in which Spark plans its reads find them.

A reader that has ``partitions_after(last)`` is asked for some partitions at a time: those after *last*, None: from the
beginning on. The kernel (Java's `PagedSources`) has Spark plan with the sources made here in place of the job's own.
Imports little, since workers are many; nothing made here is a part of what tasks read with.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from time import monotonic
from typing import Any, Final

from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

MIB: Final = 1024 * 1024
MAX_PARTITIONS: Final = 2_000
MAX_BYTES: Final = 4 * MIB
MAX_S: Final = 1.0
"""What ends a portion; if it took longer to go on where the last one ended, it goes on for as long again."""
MAX_PARTITION_BYTES: Final = 16 * MIB
"""A larger partition would not fit a report, with the rest of its portion."""

_pickles = CPickleSerializer()


def growing(source: bytes, mark: str) -> DataSource:
    """Return the pickled *source*, but if its reader can, it has only the first portion of its partitions.

    If there are more, two that are none follow: the reader, pickled, and one that begins with *mark*.
    """
    return _Growing(_pickles.loads(source), mark)


def next_portion(reader: bytes, mark: str, first: bytes, after: bytes) -> DataSource:
    """Return a source of the partitions that the pickled *reader* gives after the partition *after*.

    *first* is the first of all. The last one is none: *mark*, then ``+`` if there are more.
    """
    given = _pickles.loads(_pickles.loads(reader).value)
    return _Read(_Portion(given, mark, _pickles.loads(first), _pickles.loads(after)))


def whole(reader: bytes) -> DataSource:
    """Return a source of all partitions of the pickled *reader*."""
    return _Read(_pickles.loads(_pickles.loads(reader).value))


class _Growing(DataSource):  # type: ignore[misc]
    def __init__(self, inner: DataSource, mark: str) -> None:
        self._inner = inner
        self._mark = mark

    def name(self) -> str:
        return str(self._inner.name())

    def reader(self, schema: StructType) -> DataSourceReader:
        reader = self._inner.reader(schema)
        if not callable(getattr(reader, "partitions_after", None)):
            return reader
        named_alike: type[_Portion] = type(type(reader).__name__, (_Portion,), {})
        return named_alike(reader, self._mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return _as(self._inner)


class _Read(DataSource):  # type: ignore[misc]
    """A source with a reader that is there already."""

    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return self._reader


class _Portion(DataSourceReader):  # type: ignore[misc]
    """A reader with some of the partitions of another one."""

    def __init__(
        self,
        inner: DataSourceReader,
        mark: str,
        first: InputPartition | None = None,
        after: InputPartition | None = None,
    ) -> None:
        self._inner: Any = inner
        self._mark = mark
        self._first = first
        self._after = after
        if type(inner).pushFilters is not DataSourceReader.pushFilters:
            self.pushFilters = inner.pushFilters  # Spark asks whether a reader has it

    def partitions(self) -> list[InputPartition]:
        reader = _pickles.dumps(self._inner)
        found, has_ended = self._found()
        if self._after is not None:
            return [*found, InputPartition(self._mark + ("" if has_ended else "+"))]
        return found if has_ended else [*found, InputPartition(reader), InputPartition(f"{self._mark}+")]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._inner.read(partition)  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return _as(self._inner)

    def _found(self) -> tuple[list[InputPartition], bool]:
        """Return the next partitions, and whether they are the last ones."""
        begun = monotonic()
        found: list[InputPartition] = []
        size = 0
        until = 0.0
        for partition in self._given():
            self._check(partition, found)
            if not found:
                now = monotonic()
                until = now + max(MAX_S, now - begun)
            found.append(partition)
            size += self._size(partition)
            if len(found) == MAX_PARTITIONS or size >= MAX_BYTES or monotonic() >= until:
                return found, False
        return found, True

    def _given(self) -> Iterable[Any]:
        if type(self._inner).partitions is DataSourceReader.partitions:
            raise self._type_error(
                "has partitions_after and no partitions, which plain Spark calls, and Onager where no stage can get "
                "more tasks while it runs: let it return list(self.partitions_after(None))"
            )
        given = self._inner.partitions_after(self._after)
        if not isinstance(given, Iterable):
            raise self._type_error(
                f"returned {_kind(given)} from partitions_after: let it yield each InputPartition after the given one"
            )
        return given

    def _check(self, partition: Any, found: list[InputPartition]) -> None:
        if not isinstance(partition, InputPartition):
            raise self._type_error(
                f"gave {_kind(partition)} as partition {len(found)} of what partitions_after yields: "
                "let it yield InputPartition objects"
            )
        last = found[-1] if found else self._after
        first = self._first if self._first is not None else next(iter(found), None)
        for other, which in ((last, "the one before it"), (first, "the first one of all")):
            if other is not None and _is_same(partition, other):
                raise ValueError(
                    f"{type(self._inner).__name__}.partitions_after gave {_shown(partition)} again, which is "
                    f"{which}: let it yield only what comes after the partition that it is given, each different"
                )

    def _size(self, partition: InputPartition) -> int:
        size = len(_pickles.dumps(partition))
        if size > MAX_PARTITION_BYTES:
            raise ValueError(
                f"{type(self._inner).__name__}.partitions_after gave a partition of {size:,} bytes, more than "
                f"{MAX_PARTITION_BYTES:,}: let it only name what to read, such as a path or a range of keys"
            )
        return size

    def _type_error(self, what: str) -> TypeError:
        return TypeError(f"{type(self._inner).__name__} {what}")


def _as(inner: Any) -> tuple[Any, ...]:
    """Pickle as *inner* alone, which needs no module of Onager where it is read."""
    return itemgetter(0), ((inner,),)


def _is_same(one: InputPartition, other: InputPartition) -> bool:
    """Return whether both read the same, as far as one can see: their classes may have come in different pickles."""
    if type(one).__qualname__ != type(other).__qualname__:
        return False
    try:
        return bool(vars(one) == vars(other))
    except Exception:  # noqa: BLE001 - the job's own values say what they like
        return False


def _kind(thing: Any) -> str:
    return "None" if thing is None else f"an object of type {type(thing).__name__}"


def _shown(partition: InputPartition) -> str:
    return repr(partition)[:200]
