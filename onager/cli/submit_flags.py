"""The flags of ``onager submit``."""

from pathlib import Path
from typing import Annotated

import typer

Sql = Annotated[str | None, typer.Option("-e", "--sql", metavar="SQL", help="SQL; the last statement is the query.")]
File = Annotated[Path | None, typer.Option("-f", "--file", metavar="FILE", help="SQL in a file; -: standard input.")]
PythonFunction = Annotated[
    str | None, typer.Option(metavar="FILE[:function]", help="Function of the session; default main.")
]
Arguments = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Argument of --py: JSON, else text.")]
PythonFiles = Annotated[list[str] | None, typer.Option(metavar="MODULE", help="Module or zip that the code imports.")]
Views = Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="A dataset and its name.")]
ViewOptions = Annotated[list[str] | None, typer.Option(metavar="NAME.K=V", help="Option of Spark's reader for a view.")]
ViewsFrom = Annotated[Path | None, typer.Option(metavar="DIR", help="A view of each dataset in DIR.")]
Conf = Annotated[list[str] | None, typer.Option(metavar="K=V", help="spark.* or onager.* setting.")]
Name = Annotated[str | None, typer.Option(help="The job's name in lists.", show_default="the query's first words")]
OutputDirectory = Annotated[str | None, typer.Option("--output", metavar="DIR", help="Write the result as a dataset.")]
Format = Annotated[str, typer.Option("--format", help="parquet, csv, json, orc, text or xml.")]
Mode = Annotated[str, typer.Option("--mode", help="error, overwrite or append.")]
OutputOptions = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Option of Spark's writer for --output.")]
PartitionColumns = Annotated[
    str | None, typer.Option(metavar="COLUMNS", help="Columns of --output that become directories, with commas.")
]
Parameters = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Value of :K in the SQL: JSON, else text.")]
Labels = Annotated[list[str] | None, typer.Option(metavar="K=V", help="What to find the job by in lists.")]
Deadline = Annotated[
    str | None, typer.Option(metavar="90s|15m|2h|1d", help="Fail the job if it has not ended by then.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Print the job's id, and do not wait.")]
PrintedAs = Annotated[
    str, typer.Option("-o", "--output-format", metavar="table|json|csv|arrow=FILE", help="How to print the result.")
]
