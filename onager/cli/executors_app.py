"""The commands ``onager executors``: the list, and draining one."""

from typing import Annotated

import typer

from onager.cli.access import Output, Scheduler, connecting
from onager.protocol.limits import DEFAULT_ADDRESS

app = typer.Typer(help="List executors, or drain one.", invoke_without_command=True)


@app.callback()
@connecting
def executors(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=0, help="Print at most so many; 0: all. JSON has all.")] = 100,
    state: Annotated[
        str, typer.Option(help="Only these: alive, quarantined, no_space, no_place, draining, left or lost.")
    ] = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """List executors; `drain` has one leave."""
    from onager.cli import admin

    if context.invoked_subcommand is None:
        admin.executors(scheduler, output, limit, state)


@app.command()
@connecting
def drain(
    executor_id: Annotated[str, typer.Argument(metavar="ID")],
    reason: Annotated[str, typer.Option(help="Stored in the audit.")] = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Have an executor take no more work, finish what it runs, and leave; for operators.

    This cannot be taken back, and an executor that runs nothing leaves at once. After a mistake, start it again.
    """
    from onager.cli import admin

    admin.drain(scheduler, executor_id, reason, output)
