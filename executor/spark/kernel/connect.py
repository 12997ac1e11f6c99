"""Sessions of Spark Connect."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import JavaObject, Jvm, jvm_session, to_list


class JavaConnect:
    """A session of Spark Connect in the JVM: see Java's `ConnectSession`. Messages of Spark's protocol are bytes."""

    def __init__(self, session: SparkSession, user: str) -> None:
        """Make it of *session*, which is nobody else's."""
        self._jvm = Jvm.of(session)
        self._session = session
        self._java = self._jvm.java_class("onager.plan.ConnectGuard").session(jvm_session(session), user)
        self._reads = self._jvm.java_class("onager.plan.ConnectReads")
        self._plans = self._jvm.java_class("onager.spark43.WriterPlans")
        self._checkpoints = self._jvm.java_class("onager.plan.Checkpoints")

    def analyze(self, request: bytes) -> bytes:
        """Return the AnalyzePlanResponse to an AnalyzePlanRequest."""
        return bytes(self._java.analyze(request))

    def plan(self, relation: bytes) -> JavaObject:
        """Return the plan of a Relation before its analysis: nothing of it has run, not even a command."""
        return self._java.plan(relation)

    def writing(self, command: bytes) -> JavaObject:
        """Return the plan of a Command that writes, as Spark's writers make it, before its analysis."""
        return self._java.writing(command)

    def written(self, command: JavaObject) -> tuple[JavaObject, str]:
        """Return the query that *command*, of `writing`, writes to a path, and its format; "": it writes nothing."""
        planned = self._plans.dataset(jvm_session(self._session), command)
        return planned.query(), str(planned.format())

    def dataset(self, plan: JavaObject) -> JavaObject:
        """Return the dataset of a plan, which has not run, but for commands in it."""
        return self._java.dataset(plan)

    def cached(self, relation: bytes) -> JavaObject:
        """Return the dataset of a Relation; its analysis counts wherever the same DataFrame is in what comes next."""
        return self._java.cached(relation)

    def execute(self, request: bytes) -> list[bytes]:
        """Carry out an ExecutePlanRequest, and return the ExecutePlanResponses but the last, ResultComplete."""
        return [bytes(response) for response in to_list(self._java.execute(request))]

    def reads(self, kind: str, message: bytes, *, has_variables: bool) -> set[str]:
        """Return kind and name of what a Command, Relation or AnalyzePlanRequest reads, such as ``view sales``.

        ``*`` stands for all that there is: a statement that shows, or a name that only a run could tell. If it
        *has_variables*, each name of a column may be that of a variable.
        """
        found = self._reads.of(jvm_session(self._session), kind, message, has_variables)
        return {str(name) for name in to_list(found)}

    def check_result(self, dataset: JavaObject) -> None:
        """Raise Spark's error for a column of a result of a type that is switched off."""
        self._java.checkResult(dataset)

    def keep(self, relation_id: str, folder: str, schema: str) -> None:
        """Have the relation *relation_id* stand for the checkpoint in *folder*, of *schema*, as JSON."""
        self._java.keep(relation_id, self._checkpoints.read(jvm_session(self._session), folder, schema))

    def check_kept(self, schema: str) -> None:
        """Raise Spark's error for a column of *schema*, as JSON, that no checkpoint can have."""
        self._checkpoints.check(jvm_session(self._session), schema)

    def level(self, parsed: JavaObject) -> bytes:
        """Return the StorageLevel that a parsed CACHE TABLE names, b"" for none; Spark's error if there is no such."""
        return bytes(self._java.level(parsed))

    def ddl(self, schema: bytes) -> str:
        """Return the columns of a DataType, a struct, as CREATE TABLE has them."""
        return str(self._java.ddl(schema))

    def add_artifact(self, name: str, path: Path) -> None:
        """Take a file into the session under the client's *name*."""
        self._java.addArtifact(name, str(path))

    def use(self, database: str) -> None:
        """Make *database* the current one, which may have been dropped since."""
        self._java.use(database)

    def temporary_views(self) -> set[str]:
        """Return the names of the session's temporary views."""
        return {str(name) for name in to_list(self._java.temporaryViews())}

    def close(self) -> None:
        """Forget it; the session stays."""
        self._java.close()


@contextmanager
def files_given(session: SparkSession, digest: str, includes: Sequence[str]) -> Iterator[None]:
    """Give *session*, within the context this thread's, the files of a program: see Java's `ProgramFiles`."""
    jvm = Jvm.of(session)
    java = jvm.java_class("onager.spark43.ProgramFiles")
    java.give(jvm_session(session), digest, jvm.java_list(includes))
    java.enter(jvm_session(session))
    try:
        yield
    finally:
        java.leave()


def connect_settings(session: SparkSession) -> list[dict[str, Any]]:
    """Return ``key``, ``value`` (None: undefined), ``is_fixed`` and ``is_set`` of all settings that sessions have."""
    java = Jvm.of(session).java_class("onager.spark43.ConnectSession")
    found: list[dict[str, Any]] = json.loads(str(java.settings(jvm_session(session))))
    return found


def connect_error(session: SparkSession, error: JavaObject, most: int) -> tuple[str, str, str, bytes]:
    """Return condition, SQL state, message of a Throwable, and a FetchErrorDetailsResponse of at most *most* bytes."""
    java = Jvm.of(session).java_class("onager.spark43.ConnectSession")
    condition, state, message, details = java.describe(error, most)
    return str(condition), str(state), str(message), bytes(details)
