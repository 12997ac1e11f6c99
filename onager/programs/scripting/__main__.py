"""The program of ``onager run --local script.sql``: runs the script, and prints what its last query gave.

    … SCRIPT.SQL [NAME=VALUE…]

A value is JSON, or else a text; it stands for ``:NAME`` in the script.
"""

import os
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.cli.output import write_table
from onager.programs.scripting.arguments import arguments_of
from onager.programs.scripting.calls import ConnectCalls
from onager.programs.scripting.errors import ScriptError
from onager.programs.scripting.scripts import carry_out
from onager.programs.scripting.values import ArrowRows
from onager.programs.stub import Program


def main() -> None:
    """Run the script that the command line names."""
    path, *given = sys.argv[1:]
    name = os.path.basename(path)

    def note(line: int) -> None:
        Program.line = f"{name}:{line}"

    with open(path, encoding="utf-8") as file:
        text = file.read()
    note(1)
    spark: Any = SparkSession.builder.getOrCreate()
    try:
        rows = carry_out(ConnectCalls(spark, note), text, arguments_of(given))
    except (PySparkException, ScriptError) as error:
        message = str(error).partition("\n\nJVM stacktrace:")[0]
        print(f"{Program.line}: {message}", file=sys.stderr)
        sys.exit(1)
    if isinstance(rows, ArrowRows):
        write_table(rows.table.schema, rows.table.to_batches())


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file is no place for modules
    main()
