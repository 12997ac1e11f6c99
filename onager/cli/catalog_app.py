"""The commands of ``onager catalog`` with their flags."""

from typing import Annotated

import typer

from onager.cli.access import Output, Scheduler, connecting
from onager.protocol.limits import DEFAULT_ADDRESS

app = typer.Typer(help="Look at databases, tables, views and functions.", no_args_is_help=True)


@app.command("ls")
@connecting
def ls(
    name: Annotated[str, typer.Argument(metavar="[DB[.TABLE]]")] = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """List databases, what is in one, or the partitions of a table."""
    from onager.cli import catalog

    catalog.ls(scheduler, name, output)


@app.command("show")
@connecting
def show(
    name: Annotated[str, typer.Argument(metavar="DB.NAME")],
    partitions: Annotated[bool, typer.Option("--partitions", help="With a table's partitions.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what the store has of it, as JSON.")] = False,
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Print a table, view or function."""
    from onager.cli import catalog

    catalog.show(scheduler, name, has_partitions=partitions, is_json=json)
