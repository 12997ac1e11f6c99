"""Thin access to the executor's JVM: classes by name, and Scala sequences."""

from collections.abc import Iterable
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaMember
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql.profiler import AccumulatorProfilerCollector

JavaObject = Any
"""An object of the JVM."""


class Jvm:
    """Classes and collections of the JVM, over one SparkSession's gateway.

    A call costs 0.1 to 0.3 ms, so callers may walk plans, but not rows, and expression trees only where they must.
    """

    _known: ClassVar["WeakKeyDictionary[Any, Jvm]"] = WeakKeyDictionary()

    @classmethod
    def of(cls, spark: Any) -> "Jvm":
        """Return the access to the JVM of *spark*; sessions over one gateway share it, and its cached look-ups."""
        gateway = spark.sparkContext._gateway  # noqa: SLF001
        found = cls._known.get(gateway)
        if found is None:
            found = cls._known[gateway] = cls(spark._jvm)  # noqa: SLF001
        return found

    def __init__(self, view: Any) -> None:
        self._view = view
        self._classes: dict[str, Any] = {}

    def java_class(self, name: str) -> Any:
        """Return the JVM class with the fully qualified *name*, looked up once.

        Attribute access part by part (``jvm.java.util…``) is slow: py4j searches for the first part in every package
        that PySpark imports, that is in every jar of Spark, and does so on each access.
        """
        if name not in self._classes:
            self._classes[name] = _Class(getattr(self._view, name))
        return self._classes[name]

    def seq(self, items: Iterable[Any]) -> Any:
        """Return an immutable Scala ``Seq`` of *items*."""
        return self.java_class("org.apache.spark.api.python.PythonUtils").toSeq(list(items))

    def java_list(self, items: Iterable[Any]) -> Any:
        """Return a Java ``List`` of *items*."""
        made = self.java_class("java.util.ArrayList")()
        for item in items:
            made.add(item)
        return made

    def items(self, seq: Any) -> list[Any]:
        """Return the items of a Scala ``Seq``, one call each."""
        return [seq.apply(i) for i in range(seq.size())]


class _Class:
    """A class whose static methods are looked up once; py4j asks the JVM for a method before each call of it."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __call__(self, *arguments: Any) -> Any:
        return self._found(*arguments)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._found, name)
        if isinstance(member, JavaMember):
            self.__dict__[name] = member
        return member


def to_list(found: Any) -> list[Any]:
    """Return the items of a Java ``List``, one call each.

    To iterate over it takes milliseconds more: its end is an exception of Java's.
    """
    return [found.get(i) for i in range(found.size())]


def class_name(thing: Any) -> str:
    """Return the simple class name of a JVM object, such as ``FilterExec``."""
    return str(thing.getClass().getSimpleName())


def jvm_error(error: BaseException) -> JavaObject | None:
    """Return the JVM's exception that *error* wraps; None for an error of Python.

    PySpark turns what it knows, `IllegalArgumentException` among it, into errors of its own; py4j wraps the rest.
    """
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return error._origin if isinstance(error, CapturedException) else None  # noqa: SLF001 - PySpark hides it


def jvm_session(session: SparkSession) -> JavaObject:
    """Return the JVM object of *session*."""
    return session._jsparkSession  # noqa: SLF001  (PySpark has no public way to it)


def jvm_context(session: SparkSession) -> JavaObject:
    """Return the JVM's SparkContext of *session*."""
    return session.sparkContext._jsc.sc()  # noqa: SLF001  (as above)


def session_over(base: SparkSession, java: JavaObject) -> SparkSession:
    """Return PySpark's session of the JVM's *java*, in the context of *base*, which is one of PySpark's, too.

    Its constructor does the same, and five calls that change nothing once there is a session.
    """
    made = object.__new__(SparkSession)
    made._sc, made._jsc, made._jvm = base._sc, base._jsc, base._jvm  # noqa: SLF001  (PySpark has no public way to it)
    made._jsparkSession = java
    made._profiler_collector = AccumulatorProfilerCollector()
    return made
