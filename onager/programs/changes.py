"""What is changed in PySpark 4.3, in memory, so that a later attempt of a program makes the same calls.

A test holds `DRAWING` against PySpark's sources: a module that draws anew is found there.
"""

import functools
import hashlib
import importlib
import os
import random
import types
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

from onager.programs.call_digest import knowing_functions, note_drawn
from onager.programs.channels import way
from onager.programs.stub import CALL, Program, Stub
from onager.programs.tasks import current
from onager.programs.terms import Terms


class _OfTask:
    """Stands for a module that draws, in PySpark's modules: what it draws follows from the task."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def uuid4(self) -> uuid.UUID:
        drawn = current().uuid4()
        note_drawn(str(drawn))
        return drawn

    def randint(self, low: int, high: int) -> int:
        return current().draws.randint(low, high)

    def uniform(self, low: float, high: float) -> float:
        """Return the jitter of a retry, which nothing follows from."""
        return random.SystemRandom().uniform(low, high)


class _PerTask:
    """An attribute of which each task has its own value: else who asks first would be a race."""

    def __init__(self, default: Any) -> None:
        self._default = default
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_onager{name}"

    def __get__(self, thing: Any, owner: Any = None) -> Any:
        if thing is None:
            return self
        return thing.__dict__.get(self._name, {}).get(current().path, self._default)

    def __set__(self, thing: Any, value: Any) -> None:
        thing.__dict__.setdefault(self._name, {})[current().path] = value


DRAWING = (
    ("pyspark.sql.connect.client.core", "uuid"),
    ("pyspark.sql.connect.client.retries", "random"),
    ("pyspark.sql.connect.dataframe", "random"),
    ("pyspark.sql.dataframe", "random"),
    ("pyspark.sql.connect.functions.builtin", "py_random"),
    ("pyspark.sql.connect.observation", "uuid"),
    ("pyspark.sql.connect.sql_formatter", "uuid"),
)
"""Modules of PySpark, and the names in them of modules that draw."""
CACHES = (
    ("pyspark.sql.connect.dataframe", "DataFrame", "_cached_schema", None),
    ("pyspark.sql.connect.dataframe", "DataFrame", "_cached_schema_serialized", None),
    ("pyspark.sql.connect.client.core", "SparkConnectClient", "_plan_compression_threshold", None),
    ("pyspark.sql.connect.client.core", "SparkConnectClient", "_plan_compression_algorithm", None),
)
"""What PySpark keeps of answers, for all threads."""


ANEW = ("isEmpty", "isLocal", "inputFiles", "semanticHash")
"""Questions about a DataFrame whose answers PySpark keeps for all threads."""


def change_pyspark(terms: Terms) -> None:
    """Change PySpark in memory, so that it names its calls and draws from tasks."""
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    for variable in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "MASTER"):
        os.environ.pop(variable, None)
    for module, name in DRAWING:
        found = importlib.import_module(module)
        setattr(found, name, _OfTask(getattr(found, name)))
    for module, owner, name, default in CACHES:
        kept = _PerTask(default)
        kept.__set_name__(object, name)
        setattr(getattr(importlib.import_module(module), owner), name, kept)
    _change_client(terms)
    _change_sessions(terms)
    _ask_anew()
    from pyspark import cloudpickle as pickling
    from pyspark.cloudpickle import cloudpickle
    from pyspark.sql.connect.expressions import UnresolvedNamedLambdaVariable
    from pyspark.sql.connect.plan import LogicalPlan

    LogicalPlan._fresh_plan_id = staticmethod(lambda: current().plan_id())
    UnresolvedNamedLambdaVariable.fresh_var_name = staticmethod(lambda name: f"{name}_{current().variable()}")
    pickling.dumps = knowing_functions(cloudpickle)
    cloudpickle.uuid = types.SimpleNamespace(uuid4=_Trackers(terms.seed).uuid4)


def _ask_anew() -> None:
    """Have each task ask by itself: else who asks first would be a race."""
    from pyspark.errors import utils
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.session import SparkSession

    for name in ANEW:
        setattr(DataFrame, name, getattr(DataFrame, name).__wrapped__)
    DataFrame.isStreaming = property(DataFrame.__dict__["isStreaming"].func)
    SparkSession.version = property(SparkSession.__dict__["version"].func)
    utils._enable_debugging_cache = True


class _Trackers:
    """Ids of classes that cloudpickle sends by value: by their order, as the program makes them."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._numbers = count()

    def uuid4(self) -> uuid.UUID:
        digest = hashlib.sha256(f"{self._seed}/class {next(self._numbers)}".encode()).digest()
        return uuid.UUID(bytes=digest[:16], version=4)


def _change_client(terms: Terms) -> None:
    from pyspark.sql.connect.client import core
    from pyspark.sql.connect.proto import base_pb2_grpc

    make = base_pb2_grpc.SparkConnectServiceStub
    base_pb2_grpc.SparkConnectServiceStub = Stub
    client, builder = core.SparkConnectClient, core.DefaultChannelBuilder
    init = client.__init__

    request = client._execute_plan_request_with_metadata

    def requested(self: Any, operation_id: Any = None) -> Any:
        """Return a request; its id, which finalizers ask for, too, draws nothing from the task."""
        return request(self, operation_id or str(uuid.UUID(bytes=os.urandom(16), version=4)))

    def made(self: Any, connection: Any, *arguments: Any, **named: Any) -> None:
        built = builder(terms.remote)
        if getattr(connection, "session_id", None) is None:
            built.set(core.ChannelBuilder.PARAM_SESSION_ID, terms.session_id or current().session_id())
        else:
            built.set(core.ChannelBuilder.PARAM_SESSION_ID, connection.session_id)
        init(self, built, *arguments, **named)
        self._use_reattachable_execute = False

    handle = client._handle_error

    def handled(self: Any, error: Exception, operation_id: Any = None) -> None:
        """Raise PySpark's error for that of a call, which says what call it was, wherever it is raised again."""
        try:
            handle(self, error, operation_id)
        except Exception as raised:
            if (call := getattr(error, CALL, None)) is not None:
                setattr(raised, CALL, call)
            raise

    client.__init__ = made
    client._handle_error = handled
    client._execute_plan_request_with_metadata = requested
    client._on_exit = lambda self: None
    options = builder(terms.remote)._effective_channel_options()
    to_schedulers = way(terms, options, make)
    Program.stub = Stub(to_schedulers)
    builder.toChannel = lambda self: to_schedulers


def _change_sessions(terms: Terms) -> None:
    from pyspark.sql import session as classic
    from pyspark.sql.connect import session as connect

    for builder in (classic.SparkSession.Builder, connect.SparkSession.Builder):
        builder.master = lambda self, master: self
        builder.remote = lambda self, url: self
    connect.SparkSession.sql = _with_scripts(connect.SparkSession.sql)
    for owner in (classic.SparkSession.Builder, connect.SparkSession.Builder):
        for name in ("getOrCreate", "create"):
            if (given := owner.__dict__.get(name)) is not None:
                setattr(owner, name, _with_remote(given, terms))


def _with_scripts(given: Callable[..., Any]) -> Callable[..., Any]:
    """Return `sql` that walks a script (BEGIN … END) here: each of its statements is a call of the program."""

    @functools.wraps(given)
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        frame = given(self, *arguments, **named)
        if not isinstance(frame._plan, CachedRelation):
            return frame
        from onager.programs.scripting.calls import ConnectCalls, tree_in
        from onager.programs.scripting.scripts import frame_of, walk

        tree = tree_in(frame._plan._plan)
        return frame_of(self, walk(ConnectCalls(self), tree)) if tree else frame

    from pyspark.sql.connect.plan import CachedRelation

    return wrapped


def _with_remote(given: Callable[..., Any], terms: Terms) -> Callable[..., Any]:
    @functools.wraps(given)
    def wrapped(self: Any) -> Any:
        options = {key: value for key, value in self._options.items() if key != "spark.master"}
        self._options = {**terms.conf, **options, "spark.remote": terms.remote}
        return given(self)

    return wrapped
