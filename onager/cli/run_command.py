"""The commands of programs, ``onager run`` and ``onager calls``, and their flags."""

from pathlib import Path
from typing import Annotated

import typer

from onager.cli import submit_flags
from onager.cli.access import Output, Scheduler, connecting
from onager.cli.exits import ExitCode, fail, pairs
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
        str, typer.Option("--id", metavar="ID", help="The program's id; the same one again is the same program.")
    ] = "",
    detach: submit_flags.Detach = False,  # noqa: FBT002
    conf: submit_flags.Conf = None,
    py_files: Annotated[str, typer.Option(metavar="PY,…", help="Modules and zips that it imports.")] = "",
    files: Annotated[str, typer.Option(metavar="FILE,…", help="Files for its working directory.")] = "",
    archives: Annotated[str, typer.Option(metavar="ZIP#DIR,…", help="Archives to unpack there.")] = "",
    env: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A variable of its environment.")] = None,
    name: submit_flags.Name = None,
    label: submit_flags.Labels = None,
    deadline: submit_flags.Deadline = None,
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Run a program of PySpark, or a script of SQL, that goes on, whatever dies.

    Its output and its exit code are those of the command.
    """
    if local:
        from onager.cli.run import run as run_here

        if detach or conf or py_files or files or archives or env or name or label or deadline:
            fail("with --local the program has what this machine has: give --id and its arguments only", ExitCode.USAGE)
        run_here(scheduler, file, arguments or [], program_id)
    from onager.cli.run_hosted import run_hosted

    run_hosted(
        scheduler,
        file,
        is_detached=detach,
        args=arguments or [],
        py_files=_split(py_files),
        files=_split(files),
        archives=_split(archives),
        environment=pairs("--env", env or []),
        conf=pairs("--conf", conf or [], last_counts=True),
        name=name,
        labels=pairs("--label", label or []),
        deadline=deadline,
        program_id=program_id or None,
    )


@connecting
def calls(
    program_id: Annotated[str, typer.Argument(metavar="ID")],
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show the calls of a program that are recorded: when, at which line, what came of them, and their jobs."""
    from onager.cli.programs import calls as show

    show(scheduler, program_id, output)


def _split(given: str) -> list[str]:
    return [part.strip() for part in given.split(",") if part.strip()]
