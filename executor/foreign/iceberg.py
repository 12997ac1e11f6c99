"""Connections to Iceberg catalogs, and their errors in our words.

PyIceberg is imported late: it is optional, and executors without such a catalog do not wait for it.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from onager.errors import CatalogUnavailableError, InvalidSettingError, OnagerError
from onager.executor.foreign.catalogs import FLAG, ForeignCatalog
from onager.executor.foreign.schemas import UnmappedError
from onager.redaction import shown_text

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

T = TypeVar("T")

ANSWER_S: Final = 60.0
"""How long a catalog may take to answer a planning."""
FILES_S: Final = 600.0
"""How long a table's list of files may take, or the footers of new ones and a commit. A late one is found again."""
_SYNCED: Final = "onager.executor.foreign.synced_files.SyncedFileIO"
_WHY_CHARS: Final = 300


class MissingError(Exception):
    """A table or a namespace is not there."""


class IcebergCatalogs:
    """The Iceberg catalogs of this executor, each connected at its first use; for any thread."""

    def __init__(self, catalogs: Sequence[ForeignCatalog] = ()) -> None:
        """Raise `InvalidSettingError` if there are some, and PyIceberg is not installed."""
        self._settings = {catalog.name: catalog for catalog in catalogs}
        self._connected: dict[str, Catalog] = {}
        self._connecting = {name: threading.Lock() for name in self._settings}
        if catalogs:
            try:
                import pyiceberg  # noqa: F401
            except ImportError as error:
                raise InvalidSettingError(
                    FLAG, catalogs[0].name, "PyIceberg is not installed: pip install 'onager[iceberg]'"
                ) from error

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the catalogs."""
        return tuple(self._settings)

    def catalog(self, name: str) -> "Catalog":
        """Return the catalog *name*; `CatalogUnavailableError` if it cannot be reached, or is not given here."""
        settings = self._settings.get(name)
        if settings is None:
            raise CatalogUnavailableError(
                name, f"this executor was started without it; start all executors with the same {FLAG}"
            )
        from pyiceberg.catalog import load_catalog
        from pyiceberg.io import PY_IO_IMPL

        with self._connecting[name], asking(name):
            if name not in self._connected:
                connected = self._connected[name] = load_catalog(name, **settings.properties)
                connected.properties.setdefault(PY_IO_IMPL, _SYNCED)
            return self._connected[name]

    def close(self) -> None:
        """Close all connections."""
        while self._connected:
            self._connected.popitem()[1].close()

    def table(self, name: str, identifier: tuple[str, ...]) -> "Table":
        """Return a table as it is now; `MissingError`, `CatalogUnavailableError`."""
        catalog = self.catalog(name)
        with asking(name):
            return catalog.load_table(identifier)


@contextmanager
def asking(name: str) -> Iterator[None]:
    """Turn what a catalog's client raises into `MissingError` or `CatalogUnavailableError`."""
    from pyiceberg import exceptions

    try:
        yield
    except (OnagerError, MissingError, UnmappedError):
        raise
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError, exceptions.NoSuchIdentifierError) as error:
        raise MissingError(str(error)) from error
    except Exception as error:  # each catalog's client raises its own, and those of what it is built on
        raise CatalogUnavailableError(name, error_text(error)) from error


def error_text(error: BaseException) -> str:
    """Return the first line of *error*, short enough for a message."""
    line = shown_text((str(error).strip() or type(error).__name__).splitlines()[0])
    return line if len(line) <= _WHY_CHARS else f"{line[: _WHY_CHARS - 1]}…"


def begun(work: Callable[[], T]) -> Future[T]:
    """Return the outcome of *work*, which a thread of its own does; whoever waits for it can give up, or cancel it."""
    future: Future[T] = Future()

    def act() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - whoever waits has it
            _settle(future.set_exception, error)
        else:
            _settle(future.set_result, result)

    threading.Thread(target=act, name="other catalog", daemon=True).start()
    return future


def _settle(settle: Callable[[T], None], outcome: T) -> None:
    try:
        settle(outcome)
    except InvalidStateError:
        return  # cancelled meanwhile


def awaited(name: str, future: Future[T], within_s: float) -> T:
    """Return what *future* gives; `CatalogUnavailableError` if that takes longer than *within_s*."""
    try:
        return future.result(within_s)
    except TimeoutError as error:
        if future.done():
            raise  # it is the work's own
        future.cancel()
        raise CatalogUnavailableError(name, f"it did not answer within {within_s:g} s") from error
