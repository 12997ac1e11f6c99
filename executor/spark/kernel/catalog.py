"""The catalog that one planning reads and changes."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import JavaObject, Jvm, jvm_session


class JavaCatalog:
    """The private copy of the catalog that one planning reads and changes, and a session over it."""

    def __init__(self, base: SparkSession) -> None:
        """Make it with a session like *base*; managed tables lie in the same warehouse."""
        jvm = Jvm.of(base)
        self._java = jvm.java_class("onager.catalog.OnagerCatalog").next(jvm_session(base))
        self._statements = jvm.java_class("onager.catalog.Statements")
        self.session: JavaObject = self._java.session()

    def take(self) -> dict[str, Any] | None:
        """Wait for the next request to read, as Java's `OnagerCatalog.take` describes it; None: there will be none."""
        request = self._java.take()
        return None if request is None else dict(json.loads(request))

    def answer(self, answer: Mapping[str, Any]) -> None:
        """Answer the request that was taken last; see Java's `OnagerCatalog.answer`."""
        self._java.answer(json.dumps(answer))

    def end(self) -> None:
        """End all reads: whoever waits for an answer gets an exception."""
        self._java.end()

    def close(self) -> list[str]:
        """End the use of the session; return where lies what has been read, or was looked up to be read, as URIs."""
        return str(self._java.close()).splitlines()

    def allow_changes(self, *, may: bool) -> None:
        """Set whether statements may change the catalog."""
        self._java.allowChanges(may)

    def is_of_one_revision(self, query: JavaObject = None) -> bool:
        """Return whether all that was read was there at once, after *query* is planned; reads again to find out."""
        return bool(self._java.isOfOneRevision() if query is None else self._java.isOfOneRevision(query))

    def changes(self) -> dict[str, Any]:
        """Return what has changed; see Java's `Changes`."""
        return dict(json.loads(self._java.changes()))

    def table_write(self, command: JavaObject) -> JavaObject:
        """Plan a parsed statement, or a command of Spark's writers, that writes a table; see Java's `TableWrite`."""
        return self._statements.write(self._java, command)

    def truncate(self, parsed: JavaObject) -> None:
        """Change the catalog as a statement that truncates a table."""
        self._statements.truncate(self._java, parsed)

    def other_catalog(self, parsed: JavaObject) -> str:
        """Return the name of another catalog that a parsed statement names, or ""."""
        return str(self._statements.otherCatalog(self.session, parsed))
