"""Sessions of Spark Connect, made anew from what is stored of them for every request.

What they hold is small, and Spark makes it fast; so no executor has to be the one that knows a session.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.errors import PlanningError
from onager.exchange_layout import checkpoint, join, local_path
from onager.executor.exchange import read_description
from onager.executor.spark.connect import entries
from onager.executor.spark.connect.entries import ANYTHING, VARIABLE, VIEW, needed
from onager.executor.spark.connect.program_files import ProgramFiles, artifact_path
from onager.executor.spark.jvm import Jvm, jvm_session
from onager.executor.spark.kernel.access import kept_as
from onager.executor.spark.kernel.connect import JavaConnect, files_given
from onager.executor.spark.planning.caches import Cached, Caches
from onager.executor.spark.planning.job_session import java_session
from onager.executor.spark.planning.names import quoted
from onager.job_settings import PREFIX
from onager.program_files import program_file
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import CACHE, KEPT, AnalyzePlanRequest, Command, ExecutePlanRequest, StorageLevel

USUAL_LEVEL: Final = StorageLevel(use_disk=True, use_memory=True, deserialized=True, replication=1)
"""That of `cache()`."""
_DEFAULT: Final = "default"
_LOST: Final = "__onager_lost_"
"""How the name begins of what stands below a view that could not be made again."""


class ConnectSession:
    """A stored session, in a session of Spark that is nobody else's."""

    def __init__(
        self, stored: pb.ConnectSession, session: SparkSession, connect: JavaConnect, exchange_dir: str
    ) -> None:
        """Make it of what `opened` has; it has no views and functions yet."""
        self.stored = stored
        self.spark = session
        self.connect = connect
        self.slots = 1
        """Those of the cluster, as far as its scheduler knows."""
        self.caches = Caches(session, stored.conf)
        self.levels: dict[str, Any] = {}
        """The StorageLevel of each cache."""
        self._exchange_dir = exchange_dir
        self._lost: dict[str, Exception] = {}

    def make_all(self, command: bytes = b"", *, caches: bool = False) -> None:
        """Make all views, functions and data sources again, and the checkpoints that an encoded *command* names.

        With its *caches*, also what is cached.
        """
        named = self.reads("Command", command) if command else ()
        self.make({ANYTHING, *named, *(entries.caches(self.stored) if caches else ())})

    def reads(self, kind: str, message: bytes) -> set[str]:
        """Return what a Command, Relation or AnalyzePlanRequest reads, as `JavaConnect.reads` does."""
        variables = entries.variables(self.stored)
        found = self.connect.reads(kind, message, has_variables=bool(variables))
        return {read for read in found if read in variables or not read.startswith(f"{VARIABLE} ")}

    def make(self, reads: Iterable[str]) -> None:
        """Make again, once, what is read, as `reads` tells, and what it was made of.

        Each command is carried out under what the session had when it was made. A view of a table that was dropped
        since is an error only for who reads it.
        """
        under: Mapping[str, str] = self.stored.conf
        if not (commands := needed(self.stored, reads)):
            return
        for kind, made in commands:
            under = _settings_changed(self.spark, under, made.conf)
            self.connect.use(made.database or _DEFAULT)
            mark = f"`{_LOST}{made.name}`" if kind == VIEW else made.name if kind == KEPT else f"`{made.name}`"
            try:
                if kind == KEPT and not made.drops:
                    self._keep(made.name)
                elif kind == CACHE:
                    persist = AnalyzePlanRequest.FromString(made.command).persist
                    self.cache(made.name, persist, made.conf, made.slots, made.table)
                elif kind == VARIABLE:
                    java_session(self.spark).set_variable(made.name, made.command.decode())
                else:
                    self.connect.execute(request_of(made.command))
            except (PySparkException, Py4JJavaError, PlanningError) as error:
                self._lost[mark] = error
                if kind == VIEW and not made.drops:
                    _stand_in(self.spark, made.name)
            else:
                self._lost.pop(mark, None)
        _settings_changed(self.spark, under, self.stored.conf)
        self.connect.use(self.stored.database or _DEFAULT)

    def cache(self, cache_id: str, persist: Any, conf: Mapping[str, str], slots: int, table: str) -> bool:
        """Cache what an AnalyzePlanRequest.Persist asks for, unless it is cached; return whether it was not.

        *conf*: what the session had set then, as *slots* the cluster had. Spark's errors.
        """
        frame = self.connect.cached(persist.relation)
        cached = Cached(cache_id, dict(conf), slots)
        if is_new := self.caches.add(cached, frame, persist.storage_level.SerializeToString(), table):
            self.levels[cache_id] = persist.storage_level
        return is_new

    def _keep(self, relation_id: str) -> None:
        """Have a relation stand for its checkpoint; `PlanningError` if that is gone, or has not been made."""
        folder = join(local_path(self._exchange_dir), checkpoint(relation_id))
        described = read_description(folder)
        if described is None:
            raise PlanningError(f"the checkpoint {relation_id} is not there: its files are gone, or its job has failed")
        self.connect.keep(relation_id, folder, described.schema)

    def table_name(self, name: str) -> str:
        """Return the name of a table or a database with each part quoted; Spark's error for what is no name."""
        parts = jvm_session(self.spark).sessionState().sqlParser().parseMultipartIdentifier(name)
        return ".".join(quoted(str(part)) for part in Jvm.of(self.spark).items(parts))

    def why(self, error: PySparkException | Py4JJavaError) -> Exception | None:
        """Return why what *error* complains of could not be made again; None: *error* tells it all."""
        text = str(error).lower()
        return next((why for mark, why in self._lost.items() if mark in text), None)


@contextmanager
def opened(message: pb.ConnectSession, session: SparkSession, exchange_dir: str) -> Iterator[ConnectSession]:
    """Yield the stored session *message*, made in *session*, a new one; Spark's errors if that cannot be.

    Who needs views or functions of it makes them.
    """
    files = ProgramFiles(message.artifacts, exchange_dir)
    with files_given(session, files.digest, files.make(session)) if files.digest else nullcontext():
        yield from _opened(message, session, exchange_dir)


def _opened(message: pb.ConnectSession, session: SparkSession, exchange_dir: str) -> Iterator[ConnectSession]:
    connect = JavaConnect(session, message.user)
    try:
        for artifact in message.artifacts:
            if program_file(artifact.name) is None:
                connect.add_artifact(artifact.name, artifact_path(artifact, exchange_dir))
        _settings_changed(session, {}, message.conf)
        connect.use(message.database or _DEFAULT)
        made = ConnectSession(message, session, connect, exchange_dir)
        try:
            yield made
        except (PySparkException, Py4JJavaError) as error:
            if why := made.why(error):
                raise why from error
            raise
    finally:
        connect.close()


def _stand_in(session: SparkSession, name: str) -> None:
    """Make a temporary view that can be listed and dropped, but not read."""
    absent = _LOST + name
    session.range(0).createOrReplaceTempView(quoted(absent))
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quoted(name)} AS TABLE {quoted(absent)}")
    session.catalog.dropTempView(absent)


def _settings_changed(session: SparkSession, before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
    for key in before.keys() - after.keys():
        if not key.startswith(PREFIX):
            session.conf.unset(kept_as(session, key))
    for key, value in sorted(after.items()):
        if not key.startswith(PREFIX) and before.get(key) != value:
            session.conf.set(kept_as(session, key), value)
    return after


def request_of(command: bytes) -> bytes:
    """Return the request that carries out an encoded command."""
    request = ExecutePlanRequest()
    request.plan.command.CopyFrom(Command.FromString(command))
    return bytes(request.SerializeToString())
