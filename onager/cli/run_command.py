"""The command ``onager run`` and its flags."""

from pathlib import Path
from typing import Annotated

import typer

from onager.cli.access import Scheduler, connecting
from onager.cli.exits import ExitCode, fail
from onager.protocol.limits import DEFAULT_ADDRESS


@connecting
def run(
    file: Annotated[
        Path,
        typer.Argument(metavar="APP.PY|SCRIPT.SQL", help="A program of PySpark, or a script of SQL (BEGIN … END)."),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARG…", help="Its arguments; of a script NAME=VALUE, for :NAME.")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Its process runs on this machine.")] = False,  # noqa: FBT002
    program_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="Go on with the program of this id, if there is one.")
    ] = "",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Run a program of PySpark, or a script of SQL, that goes on where its process was killed."""
    from onager.cli.run import run as run_here

    if not local:
        fail("programs run on this machine: give --local", ExitCode.USAGE)
    run_here(scheduler, file, arguments or [], program_id)
