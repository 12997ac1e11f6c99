"""Requests that need Spark, and no job: analysis of plans, checks of settings, commands that change only a session."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.errors import InvalidSettingError, OnagerError
from onager.executor.exchange.seen_places import NO_PLACES, SeenPlaces
from onager.executor.foreign import ForeignTables
from onager.executor.spark.connect import caching, entries
from onager.executor.spark.connect.commands import Carried, carry_out
from onager.executor.spark.connect.scripting import in_script
from onager.executor.spark.connect.sessions import ConnectSession, opened
from onager.executor.spark.deadlines import Deadlines
from onager.executor.spark.failures import is_passing, is_unanswered
from onager.executor.spark.jvm import jvm_error
from onager.executor.spark.kernel.access import kept_as, refused_setting
from onager.executor.spark.kernel.connect import connect_error, connect_settings
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.spark.place_checks import planning_in
from onager.executor.spark.planning.catalog import PlanningCatalog, with_catalog
from onager.executor.spark.planning.job_session import active
from onager.executor.work import CatalogReader, SparkLostError
from onager.job_settings import PREFIX
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import AnalyzePlanRequest, ConfigRequest, ConfigResponse, ExecutePlanRequest

MAX_DETAILS_BYTES: Final = 64 * 1024

log = structlog.get_logger()


_numbers = itertools.count(1)
"""Of the requests to this process's Spark, which takes no more work under the name of one that was cancelled."""


class ConnectRequests:
    """Answers what schedulers ask for sessions, in any thread. It remembers nothing."""

    def __init__(
        self,
        spark: SparkSession,
        exchange_dir: str,
        *,
        spark_version: str,
        has_own_catalog: bool,
        foreign: ForeignTables | None = None,
        kernel: Kernel,
        deadlines: Deadlines,
        places: SeenPlaces = NO_PLACES,
    ) -> None:
        """*has_own_catalog*: tables are those of this executor's Spark, and not of the store. *foreign*: of others.

        *places*: the shared directories, without which tables that are in them cannot be looked at.
        """
        self._places = places
        self._foreign = foreign
        self._spark = spark
        self._exchange_dir = exchange_dir
        self._spark_version = spark_version
        self._has_own_catalog = has_own_catalog
        self._kernel = kernel
        self._deadlines = deadlines

    def answer(self, call: pb.ConnectCall, reader: CatalogReader) -> pb.ConnectReply:
        """Return the reply to *call*, which has its error, if any; `SparkLostError` if Spark is no more.

        Once nobody waits for the reply any more, the work is stopped.
        """
        try:
            with self._limited(call.deadline_ms / 1000 or math.inf):
                return self._answered(call, None if self._has_own_catalog else reader)
        except Exception as error:
            if is_unanswered(error):
                raise SparkLostError(str(error)) from error
            failure = failure_of(self._spark, error)
            failure.is_passing = is_passing(self._kernel, error)
            return pb.ConnectReply(failure=failure)

    @contextmanager
    def _limited(self, limit_s: float) -> Iterator[None]:
        """Do a request within the context, in its own job group; it is stopped after *limit_s*."""
        name, is_stopped = f"request {next(_numbers)} of Spark Connect", threading.Event()

        def was_cancelled() -> bool:
            self._deadlines.stopped(name)  # what goes on in Spark is stopped, too
            return is_stopped.is_set()

        try:
            with self._kernel.control(name, f"onager {name}", "", was_cancelled):
                self._deadlines.begin(name, partial(self._stop, name, is_stopped), lambda: None)
                self._deadlines.limit(name, limit_s)
                yield
        finally:
            self._deadlines.end(name)

    def _stop(self, name: str, was_cancelled: threading.Event) -> None:
        was_cancelled.set()
        try:
            self._kernel.cancel_control(name)
        except (Py4JError, OSError) as error:  # the JVM is gone, and the request with it
            log.warning("cancel_failed", request=name, error=str(error))

    def _answered(self, call: pb.ConnectCall, reader: CatalogReader | None) -> pb.ConnectReply:
        match call.WhichOneof("request"):
            case "describe":
                return pb.ConnectReply(defaults=self._defaults())
            case "analyze":
                return self._within(call, reader, partial(_analyzed, call))
            case "persist":
                return self._within(call, reader, lambda session, _: _applied(call, _persisted(call, session)))
            case "configure":
                return self._within(
                    call, reader, lambda session, _: pb.ConnectReply(applied=_configured(call, session.spark))
                )
            case "apply":
                return self._within(call, reader, lambda *at: _applied(call, carry_out(call.apply, *at)))
            case _:
                raise OnagerError("a scheduler asks for something of a newer version")

    def _within(
        self,
        call: pb.ConnectCall,
        reader: CatalogReader | None,
        act: Callable[[ConnectSession, PlanningCatalog | None], pb.ConnectReply],
    ) -> pb.ConnectReply:
        def done(spark: SparkSession, tables: PlanningCatalog | None) -> pb.ConnectReply:
            opening = opened(call.session, spark, self._exchange_dir)
            with active(spark), opening as session, in_script(_request_of(call), spark):
                session.slots = call.slots
                return act(session, tables)

        with planning_in(self._places) as note_read:
            return with_catalog(self._spark, reader, done, foreign=self._foreign, on_read=note_read, what="it was read")

    def _defaults(self) -> pb.ConnectDefaults:
        defaults = pb.ConnectDefaults(spark_version=self._spark_version)
        for setting in connect_settings(self._spark.newSession()):
            key = setting["key"]
            if setting["value"] is None:
                defaults.known.append(key)
            else:
                defaults.conf[key] = setting["value"]
            if setting["is_fixed"]:
                defaults.fixed.append(key)
            if setting["is_set"]:
                defaults.set.append(key)
        return defaults


def _request_of(call: pb.ConnectCall) -> Any:
    """Return the client's request, which says where its script is, if it has one."""
    match call.WhichOneof("request"):
        case "analyze":
            return AnalyzePlanRequest.FromString(call.analyze)
        case "persist":
            return AnalyzePlanRequest.FromString(call.persist)
        case "configure":
            return ConfigRequest.FromString(call.configure)
        case _:
            return ExecutePlanRequest.FromString(call.apply)


def _analyzed(call: pb.ConnectCall, session: ConnectSession, tables: PlanningCatalog | None) -> pb.ConnectReply:
    asked = AnalyzePlanRequest.FromString(call.analyze)
    is_level, is_shown = asked.HasField("get_storage_level"), asked.HasField("explain") and tables is not None
    caches = entries.caches(session.stored) if is_level or is_shown else set[str]()
    session.make({*session.reads("AnalyzePlanRequest", call.analyze), *caches})
    if is_level:
        return pb.ConnectReply(analyzed=caching.storage_level(call.analyze, session))
    if session.caches and asked.explain.plan.root:
        session.caches.show(session.connect.dataset(session.connect.plan(asked.explain.plan.root)))
    return pb.ConnectReply(analyzed=session.connect.analyze(call.analyze))


def _persisted(call: pb.ConnectCall, session: ConnectSession) -> Carried:
    put, removed = caching.persist(call.persist, session)
    return Carried([], put=put, removed=removed)


def _configured(call: pb.ConnectCall, session: SparkSession) -> pb.ConnectApplied:
    operation = ConfigRequest.FromString(call.configure).operation
    conf = dict(call.session.conf)
    for pair in operation.set.pairs:
        if not pair.key.startswith(PREFIX):
            try:
                _set(session, pair.key, pair.value)
            except (PySparkException, Py4JJavaError, InvalidSettingError):
                if operation.set.silent:
                    continue
                raise
        conf[pair.key] = pair.value
    for key in operation.unset.keys:
        if not key.startswith(PREFIX):
            session.conf.unset(kept_as(session, key))
        conf.pop(key, None)
    return pb.ConnectApplied(
        responses=[ConfigResponse().SerializeToString()],
        changes=conf != dict(call.session.conf),
        conf=conf,
        catalog=call.session.catalog,
        database=call.session.database,
    )


def _set(session: SparkSession, key: str, value: str) -> None:
    if (why := refused_setting(session, key, value)) is not None:
        raise InvalidSettingError(key, value, why)
    session.conf.set(kept_as(session, key), value)


def _applied(call: pb.ConnectCall, carried: Carried) -> pb.ConnectReply:
    if carried.work:
        return pb.ConnectReply(job=pb.ConnectJob(work=carried.work, responses=carried.responses))
    database = carried.database if carried.database is not None else call.session.database
    conf = {**call.session.conf, **carried.set}
    for key in carried.unset:
        conf.pop(key, None)
    changes = bool(carried.put or carried.removed or carried.set or carried.unset or database != call.session.database)
    return pb.ConnectReply(
        applied=pb.ConnectApplied(
            responses=carried.responses,
            changes=changes,
            put=carried.put,
            removed=[pb.ConnectEntry(kind=entry.kind, name=entry.name) for entry in carried.removed],
            conf=conf,
            catalog=call.session.catalog,
            database=database,
        )
    )


def failure_of(spark: SparkSession, error: BaseException) -> pb.ConnectFailure:
    """Return *error* as a client gets it: an error of Spark with all that Spark's own server would tell."""
    origin = jvm_error(error)
    if origin is not None:
        try:
            condition, state, message, details = connect_error(spark, origin, MAX_DETAILS_BYTES)
        except (Py4JError, OSError) as gone:
            return pb.ConnectFailure(message=f"{error} (and Spark says no more about it: {gone})")
        return pb.ConnectFailure(error_class=condition, sql_state=state, message=message, details=details)
    name = type(error).__name__
    if isinstance(error, OnagerError):
        return pb.ConnectFailure(error_class=name, message=str(error))
    return pb.ConnectFailure(message=f"{name}: {error}")
