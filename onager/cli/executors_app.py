"""The commands ``onager executors``: the list, and draining one."""

from typing import Annotated

import typer

from onager.cli.access import Output, Scheduler, connecting
from onager.cli.exits import one_of
from onager.protocol.limits import DEFAULT_ADDRESS

app = typer.Typer(help="List executors, or drain one.", invoke_without_command=True)


@app.callback()
@connecting
def executors(context: typer.Context, output: Output = "table", scheduler: Scheduler = DEFAULT_ADDRESS) -> None:
    """List executors; `drain` has one leave."""
    from onager.cli import admin

    if context.invoked_subcommand is None:
        admin.executors(scheduler, one_of("-o", output, ("table", "json")))


@app.command()
@connecting
def drain(
    executor_id: Annotated[str, typer.Argument(metavar="ID")],
    reason: Annotated[str, typer.Option(help="Stored in the audit.")] = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Have an executor take no more work, finish what it runs, and leave; for operators."""
    from onager.cli import admin

    admin.drain(scheduler, executor_id, reason, one_of("-o", output, ("table", "json")))
