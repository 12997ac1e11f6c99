"""The program that a script of SQL is: runs it, and prints what its last query gave.

    … SCRIPT.SQL [NAME=VALUE…]
    … SCRIPT.SQL --given FILE

A value is JSON, or else a text; it stands for ``:NAME`` in the script. With FILE the script was given as a query: that
has its values, and what its last query gave is not printed, but the result of the job.
"""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.cli.output import write_table
from onager.programs.output import spark_text
from onager.programs.scripting.arguments import arguments_of, value_of
from onager.programs.scripting.calls import ConnectCalls
from onager.programs.scripting.errors import LIMIT, ScriptError, ScriptLimitError
from onager.programs.scripting.scripts import carry_out, frame_of, walk
from onager.programs.scripting.values import ArrowRows
from onager.programs.stub import Program
from onager.programs.tasks import current

GIVEN = "--given"


def main() -> None:
    """Run the script that the command line names."""
    path, *given = sys.argv[1:]
    name = os.path.basename(path)

    def note(line: int) -> None:
        Program.line = f"{name}:{line}"

    text = Path(path).read_text(encoding="utf-8")
    note(1)
    spark: Any = SparkSession.builder.getOrCreate()
    calls = ConnectCalls(spark, note)
    try:
        if given[:1] == [GIVEN]:
            _as_query(spark, calls, text, json.loads(Path(given[1]).read_bytes()))
            return
        rows = carry_out(calls, text, arguments_of(given))
    except (PySparkException, ScriptError) as error:
        message, _ = spark_text(error)
        print(f"{Program.line}: {message}", file=sys.stderr)
        if Program.output is not None:
            place = f"\nin line {Program.line.rpartition(':')[2]} of the script"
            condition = LIMIT if isinstance(error, ScriptLimitError) else error.getCondition() or ""
            Program.output.raised(condition, error.getSqlState() or "", message, place)
        sys.exit(1)
    if isinstance(rows, ArrowRows):
        write_table(rows.table.schema, rows.table.to_batches())


def _as_query(spark: Any, calls: ConnectCalls, text: str, given: Any) -> None:
    """Run a script that was given as a query; what it gives is the outcome of a call of its own (`Task.of_result`)."""
    if relation := given["relation"]:
        from pyspark.sql.connect.proto import Command, Relation

        command = Command()
        command.sql_command.input.CopyFrom(Relation.FromString(base64.b64decode(relation)))
        rows = walk(calls, calls.parse_command(command))
    else:
        rows = carry_out(
            calls,
            text,
            {each["name"]: value_of(each["name"], each["type"], each["value"]) for each in given["parameters"]},
        )
    client, plan = spark.client, frame_of(spark, rows)._plan

    def result() -> None:
        for _ in client.to_table_as_iterator(plan.to_proto(client), {}):
            pass

    current().of_result().run(result)


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file is no place for modules
    main()
