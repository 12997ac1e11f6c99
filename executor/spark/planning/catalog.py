"""The catalog that one planning sees: read through a scheduler as Spark needs it, changed in a private copy.

Spark asks for a record in a thread of the JVM, which waits until a thread of this process has fetched it. What one
planning has read is of one revision of the store, or the planning is repeated.
"""

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from onager.errors import CatalogConflictError, OnagerError, StateCorruptError
from onager.executor.foreign import ForeignTables, ForeignWrite, WriteLayout
from onager.executor.foreign.iceberg import ANSWER_S, FILES_S, awaited
from onager.executor.spark.jvm import JavaObject, jvm_error, jvm_session, session_over
from onager.executor.spark.kernel.catalog import JavaCatalog
from onager.executor.spark.kernel.classes import CATALOG_MOVED
from onager.executor.spark.place_checks import NoteRead
from onager.executor.work import CatalogReader
from onager.protocol import onager_pb2 as pb

T = TypeVar("T")

MAX_PLANNINGS: Final = 5
"""How often a job is planned while what it reads keeps changing."""
_READERS: Final = ThreadPoolExecutor(1 << 16, thread_name_prefix="catalog reads")
"""A thread for each planning that goes on, used again: the first call of a new thread into the JVM takes half a ms."""
_PAGES: Final = "pages/"
_MAX_PAGE_BYTES: Final = 16 * 1024 * 1024


class CatalogMovedError(Exception):
    """What a planning has read of the catalog has changed meanwhile: it is to be repeated."""


@dataclass(frozen=True, slots=True)
class TableWrite:
    """What a statement writes into a table."""

    query: JavaObject
    """Its plan."""
    names: Sequence[str]
    """The columns, as they are called in the table."""
    sink: pb.Sink
    foreign: WriteLayout | None = None
    """Given if it is a table of another catalog: then there is no sink yet."""


class PlanningCatalog:
    """The catalog of one planning; a context manager, within which its session can be used."""

    def __init__(
        self,
        base: SparkSession,
        reader: CatalogReader,
        foreign: ForeignTables | None = None,
        on_read: NoteRead | None = None,
    ) -> None:
        """Make it with a session like *base*; managed tables lie in the same warehouse. *foreign*: of others.

        At the end, *on_read* gets the locations of tables that were looked up, and what queries have read, even if
        their results are all that is left of them.
        """
        self._on_read = on_read
        self._reader = reader
        self._foreign = (foreign or ForeignTables()).planning()
        self._java = JavaCatalog(base)
        self._base = base
        self._lock = threading.Lock()
        self._reading: Future[Any] | None = None
        self._is_over = False
        self._error: OnagerError | None = None

    @property
    def session(self) -> SparkSession:
        """A session over this catalog, like the one that it was made with otherwise."""
        return session_over(self._base, self._java.session)

    def __enter__(self) -> Self:
        _READERS.submit(self._serve)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            places = self._close()
            if self._on_read is not None:
                self._on_read(places)
        except (Py4JError, OSError) as gone:  # the JVM, and the planning with it
            if error is None:
                raise OnagerError(f"it is unknown what was read: {gone}") from gone
        if error is not None:
            self._tell(error)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let statements change the catalog within the context."""
        self._java.allow_changes(may=True)
        try:
            yield
        finally:
            self._java.allow_changes(may=False)

    def table_write(self, command: JavaObject) -> TableWrite | None:
        """Change the catalog as *command* does, which writes a table, and return what it writes; None: nothing.

        *command* is a parsed statement, or what a writer of DataFrames has made, before its analysis. Raises Spark's
        errors, and what the kernel says of tables that cannot be written.
        """
        planned = self._java.table_write(command)
        if (query := planned.query()) is None:
            return None
        facts = json.loads(planned.facts())
        if (foreign := facts["foreign"]) is not None:
            layout = self._foreign.layout(ForeignWrite(**{**foreign, "identifier": tuple(foreign["identifier"])}))
            return TableWrite(query, facts["names"], pb.Sink(), layout)
        return TableWrite(query, facts["names"], pb.Sink(**facts["sink"]))

    def truncate(self, parsed: JavaObject) -> None:
        """Change the catalog as a parsed statement does that truncates a table; Spark's errors."""
        self._java.truncate(parsed)

    def other_catalog(self, parsed: JavaObject) -> str:
        """Return the name of a catalog besides this one that a parsed statement names, or ""."""
        return self._java.other_catalog(parsed)

    def settle(self, query: JavaObject = None) -> None:
        """Raise `CatalogMovedError` unless all that was read is of one revision, or the error of a failed read.

        *query*: a dataset to plan before, which may read more.
        """
        is_settled = self._java.is_of_one_revision(query)
        if self._error is not None:
            raise self._error
        if not is_settled:
            raise CatalogMovedError

    def changes(self) -> pb.CatalogChanges | None:
        """Return what has changed, with what it needs to be unchanged; None: nothing."""
        changes = self._java.changes()
        if not changes["puts"] and not changes["partitions"]:
            return None
        return pb.CatalogChanges(
            puts=[pb.CatalogPut(**{**put, "value": put["value"].encode()}) for put in changes["puts"]],
            partitions=[pb.PartitionChange(**change) for change in changes["partitions"]],
            reads=[pb.CatalogRecord(key=key, revision=revision) for key, revision in changes["reads"].items()],
            folders_made=changes["folders_made"],
            folders_retired=changes["folders_retired"],
        )

    # ------------------------------------------------------------ reads

    def _serve(self) -> None:
        """Answer requests until there are no more, or one cannot be answered."""
        try:
            while (request := self._java.take()) is not None:
                self._java.answer(self._read(request))
        except (Py4JError, OSError, CancelledError):
            self._end_java()  # the JVM is gone, or the planning has ended
        except OnagerError as e:
            self._error = e
            self._end_java()
        except Exception as e:  # noqa: BLE001 - the planning must not wait for an answer that never comes
            self._error = OnagerError(f"the catalog could not be read: {type(e).__name__}: {e}")
            self._end_java()

    def _read(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "foreign" in request:
            asked: Mapping[str, Any] = request["foreign"]
            within_s = FILES_S if asked["what"] == "files" else ANSWER_S
            return awaited(str(asked["catalog"]), self._begun(lambda: self._foreign.ask(asked)), within_s)
        answer = self._begun(lambda: self._reader.read(pb.ReadCatalogRequest(**request))).result()
        records = [
            {"key": record.key, "value": _text_of(record) or None, "revision": record.revision}
            for record in answer.records
        ]
        return {"records": records, "truncated": answer.truncated}

    def _begun(self, begin: Callable[[], Future[T]]) -> Future[T]:
        """Begin a read that the end of the planning cancels."""
        with self._lock:
            if self._is_over:
                raise CancelledError
            self._reading = reading = begin()
            return reading

    def _close(self) -> list[str]:
        """End the reads, and the use of the session; return what was read. The thread that reads ends by itself."""
        with self._lock:
            self._is_over = True
            if self._reading is not None:
                self._reading.cancel()
        return self._java.close()

    def _end_java(self) -> None:
        try:
            self._java.end()
        except (Py4JError, OSError):
            return  # it is gone, and who waits in it with it

    def _tell(self, error: BaseException) -> None:
        """Raise what is behind *error*: that a read has failed, or that the catalog has changed."""
        if self._error is not None and error is not self._error:
            raise self._error from error
        if not isinstance(error, CatalogMovedError) and _is_moved(error):
            raise CatalogMovedError from error


def with_catalog(
    base: SparkSession,
    reader: CatalogReader | None,
    work: Callable[[SparkSession, PlanningCatalog | None], T],
    *,
    foreign: ForeignTables | None = None,
    on_read: NoteRead | None = None,
    what: str,
) -> T:
    """Do *work* in a new session like *base*, again while what it reads of the catalog changes.

    Without a *reader* the tables are those of the executor's own Spark. *what* was done, for the
    message of a `CatalogConflictError`.
    """
    if reader is None:
        return work(session_over(base, jvm_session(base).newSession()), None)
    for _ in range(MAX_PLANNINGS):
        try:
            with PlanningCatalog(base, reader, foreign, on_read) as tables:
                done = work(tables.session, tables)
                tables.settle()
                return done
        except CatalogMovedError:
            continue
    raise CatalogConflictError("the catalog", f"it changed each of the {MAX_PLANNINGS} times that {what}")


def _text_of(record: pb.CatalogRecord) -> str:
    if not record.key.startswith(_PAGES):
        return record.value.decode()
    if not record.value:
        return ""
    try:
        inflate = zlib.decompressobj()
        content = inflate.decompress(record.value, _MAX_PAGE_BYTES)
        if not inflate.eof:
            raise StateCorruptError(f"{record.key} of the catalog is no whole page of partitions")
        return content.decode()
    except (zlib.error, UnicodeDecodeError) as e:
        raise StateCorruptError(f"{record.key} of the catalog cannot be read: {e}") from e


def _is_moved(error: BaseException) -> bool:
    origin = jvm_error(error)
    while origin is not None:
        if origin.getClass().getName() == CATALOG_MOVED:
            return True
        origin = origin.getCause()
    return False
