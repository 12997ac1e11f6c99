"""Scripts of SQL with control flow, run by plain Spark, and by Onager's interpreter over a session of Spark Connect."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.connect import plan as plans

from onager.errors import OnagerError
from onager.exchange_layout import default_warehouse
from onager.executor.spark.connect import failure_of
from onager.programs.scripting.calls import ConnectCalls
from onager.programs.scripting.errors import ScriptError
from onager.programs.scripting.interpreter import Answer, Ask
from onager.programs.scripting.scripts import carry_out
from onager.scheduler.connect.failures import from_reply
from onager.testing.job import DistributedRunError
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.support.spark.one_executor import OneExecutor, rows_of

FOLDER = Path(__file__).with_name("scripts_of_sql")
SETTINGS = {
    "spark.sql.scripting.continueHandlerEnabled": "true",
    "spark.sql.scripting.cursorEnabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_CASE, _THEN = "--- ", "-- then: "
_DRAWN = re.compile(r"`?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`?")
"""The label of a block that has none of its own, in the name of a column."""
_HASH = re.compile(r"@[0-9a-f]{1,8}\b")


class Case(NamedTuple):
    """A script; what is asked after it, and the settings that it runs under."""

    name: str
    text: str
    then: str
    settings: dict[str, str]


def cases() -> Iterator[Case]:
    """Yield those of all files: ``--- NAME [SETTING=VALUE]``, the script, perhaps ``-- then: QUERY``."""
    for path in sorted(FOLDER.glob("*.sql")):
        for part in ("\n" + path.read_text()).split("\n" + _CASE)[1:]:
            title, _, text = part.partition("\n")
            words = title.split()
            settings = dict(word.split("=") for word in words if "=" in word)
            script, _, then = text.strip("\n").partition("\n" + _THEN)
            name = " ".join(word for word in words if "=" not in word)
            yield Case(f"{path.stem}: {name}", script, then, SETTINGS | settings)


Outcome = tuple[list[str], list[Any]] | str
"""The names of columns and the rows, or the condition of the error."""


def named(columns: list[str]) -> list[str]:
    return [_HASH.sub("", _DRAWN.sub("label", column)) for column in columns]


def plainly(executor: OneExecutor, case: Case) -> list[Outcome]:
    spark = executor.spark.newSession()
    for key, value in case.settings.items():
        spark.conf.set(key, value)
    outcomes: list[Outcome] = []
    for text in filter(None, (case.text, case.then)):
        try:
            frame = spark.sql(text)
            outcomes.append((named(frame.columns), rows_of(frame.toArrow())))
        except PySparkException as error:
            outcomes.append(error.getCondition())
        except Py4JJavaError as error:
            outcomes.append(error.java_exception.getCondition())
    for table in spark.catalog.listTables("default"):
        if not table.isTemporary:
            spark.sql(f"DROP TABLE {table.name}")
    return outcomes


class InProcess(ConnectCalls):
    """Calls of a client without a server, whose errors are what the client would get."""

    def __init__(self, client: ConnectClient, executor: OneExecutor) -> None:
        super().__init__(client.spark)
        self._client, self._executor = client, executor
        self.asked: list[Ask] = []

    def answer(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        try:
            return super().answer(ask)
        except ScriptError as error:
            raise self.translated(error.__cause__ or error) from error.__cause__
        except (ConnectError, DistributedRunError, Py4JJavaError, OnagerError) as error:
            raise self.translated(error) from error

    def translated(self, error: BaseException) -> ScriptError:
        if isinstance(error, DistributedRunError):
            state = self._executor.spark._jvm.org.apache.spark.SparkThrowableHelper.getSqlState(error.error_class)
            return ScriptError(str(error), error.error_class, state)
        failure = error.failure if isinstance(error, ConnectError) else failure_of(self._executor.spark, error)
        said = from_reply(failure)
        is_analysis = isinstance(error, ConnectError | AnalysisException)
        return ScriptError(str(error), said.error_class, said.sql_state, is_analysis=is_analysis)


def by_onager(client: ConnectClient, executor: OneExecutor, case: Case) -> list[Outcome]:
    for key, value in case.settings.items():
        client.set(key, value)
    calls = InProcess(client, executor)
    outcomes: list[Outcome] = []
    try:
        rows = carry_out(calls, case.text, {})
        outcomes.append(([], []) if rows is None else (named(rows.table.column_names), rows_of(rows.table)))
    except ConnectError as error:
        outcomes.append(error.getCondition())
    except ScriptError as error:
        outcomes.append(error.condition)
    except (PySparkException, OnagerError, Py4JJavaError) as error:
        outcomes.append(calls.translated(error).condition)
    if case.then:
        try:
            table, _, _ = client.spark.client.to_table(plans.SQL(case.then).to_proto(client.spark.client), {})
            outcomes.append((named(table.column_names), rows_of(table)))
        except (ConnectError, PySparkException, Py4JJavaError, OnagerError) as error:
            outcomes.append(calls.translated(error).condition)
    shutil.rmtree(default_warehouse(str(executor.directory)), ignore_errors=True)
    return outcomes
