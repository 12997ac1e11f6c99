"""What a script asks for, as calls of Spark Connect: one for each statement, condition and query."""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql.connect.plan import SQL
from pyspark.sql.connect.session import SparkSession

from onager.programs.scripting.errors import ScriptError
from onager.programs.scripting.interpreter import COMMAND, QUERY, Answer, Ask
from onager.programs.scripting.values import ArrowRows

TYPE_URL = "type.googleapis.com/onager.ScriptStatement"
"""The type of what says with a request where the script is."""


class ConnectCalls:
    """Makes the calls on a session."""

    def __init__(self, spark: SparkSession, on_line: Callable[[int], None] = lambda line: None) -> None:
        """*on_line* gets the line of the script that a call is for."""
        self._spark = spark
        self._on_line = on_line

    def parse(self, text: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tree of a script, with *args* in its places; ``{}``: *text* is something else. Spark's errors."""
        from pyspark.sql.connect.functions import lit

        named = {name: lit(value) for name, value in args.items()}
        return self.parse_command(SQL(text, [], named).command(self._spark.client))

    def parse_command(self, command: Any) -> dict[str, Any]:
        """Return the tree of the script that *command*, Spark Connect's of a statement of SQL, has, as `parse` does."""
        answer = self._asked("parse", command, [])
        return json.loads(answer) if answer else {}

    def answer(self, ask: Ask) -> Answer:
        """Return the answer to *ask*; raises `ScriptError` for an error, whose cause is PySpark's."""
        self._on_line(ask.line)
        try:
            if ask.kind == QUERY:
                return self._rows(ask)
            if ask.kind == COMMAND:
                self._carried_out(ask)
                return None
            command = SQL(ask.text).command(self._spark.client)
            return json.loads(self._asked(ask.kind, command, ask.frames or []))
        except PySparkException as error:
            is_analysis = isinstance(error, AnalysisException | ParseException)
            condition, state = error.getCondition() or "", error.getSqlState() or ""
            raise ScriptError(str(error), condition, state, is_analysis=is_analysis) from error

    def _rows(self, ask: Ask) -> ArrowRows:
        client = self._spark.client
        with _Placed(client, "", ask.frames):
            table, schema, _ = client.to_table(SQL(ask.text).to_proto(client), {})
        return ArrowRows(table, schema)

    def _carried_out(self, ask: Ask) -> None:
        client = self._spark.client
        with _Placed(client, "", ask.frames):
            client.execute_command(SQL(ask.text).command(client))

    def _asked(self, ask: str, command: Any, frames: list[Any]) -> str:
        client = self._spark.client
        with _Placed(client, ask, frames):
            _, properties, _ = client.execute_command(command)
        return zlib.decompress(properties["sql_command_result"].extension.value).decode()


def tree_in(relation: Any) -> dict[str, Any]:
    """Return the tree of the script that the result *relation* of a statement stands for; ``{}`` if it is rows."""
    if not relation.HasField("extension") or relation.extension.type_url != TYPE_URL:
        return {}
    found: dict[str, Any] = json.loads(zlib.decompress(relation.extension.value))
    return found


class _Placed:
    """Says with the requests within the context where the script is, and what it asks; *frames* None: nothing."""

    def __init__(self, client: Any, ask: str, frames: list[Any] | None) -> None:
        self._client = client
        self._said = None if frames is None else json.dumps({"ask": ask, "frames": frames}).encode()
        self._extension = ""

    def __enter__(self) -> None:
        if self._said is not None:
            said = AnyMessage(type_url=TYPE_URL, value=self._said)
            self._extension = self._client.add_threadlocal_user_context_extension(said)

    def __exit__(self, *_: object) -> None:
        if self._extension:
            self._client.remove_user_context_extension(self._extension)
