"""Scripts of SQL with control flow (BEGIN … END): their trees, and where they are."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import JavaObject, Jvm, jvm_session


class JavaScripts:
    """What Spark knows of a script: see Java's `ScriptTree` and `ScriptScope`. Answers are JSON; Spark's errors."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm = jvm = Jvm.of(session)
        self._tree = jvm.java_class("onager.spark43.ScriptTree")
        self._scope = jvm.java_class("onager.spark43.ScriptScope")
        self._session = jvm_session(session)

    def parse(self, text: str, names: Sequence[str], values: JavaObject) -> str:
        """Return the tree of the script *text*; "": it is something else.

        The columns of the plan *values* are for the places that are called by *names*.
        """
        return str(self._tree.of(self._session, text, self._jvm.java_list(names), values))

    def change(self, text: str) -> str:
        """Carry out a statement that declares, sets, fetches or closes something; return what it has changed."""
        return str(self._scope.change(self._session, text))

    def open(self, text: str) -> str:
        """Return which cursor the OPEN *text* opens, and the query that gives its rows."""
        return str(self._scope.open(self._session, text))

    def immediate(self, text: str) -> str:
        """Return the statement that the EXECUTE IMMEDIATE *text* stands for."""
        return str(self._scope.immediate(self._session, text))

    @contextmanager
    def within(self, frames: list[object]) -> Iterator[None]:
        """Have the session be in *frames*, of Java's `Frame`, within the context, in this thread."""
        self._scope.enter(self._session, json.dumps(frames))
        try:
            yield
        finally:
            self._scope.leave(self._session)
