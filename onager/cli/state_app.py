"""The commands of ``onager state`` with their flags."""

from pathlib import Path
from typing import Annotated

import typer

from onager.cli.access import Output, Scheduler, connecting
from onager.cli.exits import one_of
from onager.protocol.limits import DEFAULT_ADDRESS

app = typer.Typer(
    help="""Look into the state store, and look after it.

Every command goes through a running scheduler, or with --backend straight to the store when none runs: a LevelDB
directory is open in one process at a time.""",
    no_args_is_help=True,
)

Backend = Annotated[
    str | None,
    typer.Option(metavar="leveldb:DIR|etcd://H:P/NS", help="Open this store here, and ask no scheduler."),
]
Prefix = Annotated[str, typer.Argument(metavar="[KEYSPACE[/PREFIX]]")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def _format(output: str) -> str:
    return one_of("-o", output, ("table", "json"))


@app.command("ls")
@connecting
def ls(
    prefix: Prefix = "",
    limit: Annotated[int, typer.Option(min=1, help="How many keys.")] = 1000,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """List keys."""
    from onager.cli import state

    output = _format(output)
    with state.source(scheduler, backend) as found:
        state.ls(found, prefix, limit, output)


@app.command("get")
@connecting
def get(
    key: Annotated[str, typer.Argument(metavar="KEYSPACE/KEY")],
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Print one record as JSON; -o json adds its key and revision.

    GraphChunks/JOB/SNAPSHOT and Plans/DIGEST stand for all chunks of a snapshot or blob.
    """
    from onager.cli import state

    output = _format(output)
    with state.source(scheduler, backend) as found:
        state.get(found, key, output)


@app.command("watch")
@connecting
def watch(
    prefix: Prefix = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Print every change until ^C: revision, what happened, key, value.

    Where events were lost it says so, and lists what is there.
    """
    from onager.cli import state

    output = _format(output)
    with state.source(scheduler, backend) as found:
        state.watch(found, prefix, output)


@app.command("rm")
@connecting
def rm(
    path: Annotated[str, typer.Argument(metavar="KEYSPACE/KEY|KEYSPACE/[PREFIX/]")],
    yes: Yes = False,
    force: Annotated[bool, typer.Option("--force", help="Also what running jobs and executors need.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Remove a record, or with / at the end all below a prefix in one operation."""
    from onager.cli import state

    output = _format(output)
    with state.source(scheduler, backend) as found:
        state.rm(found, path, is_agreed=yes, is_forced=force, is_dry_run=dry_run, output=output)


@app.command("check")
@connecting
def check(
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count, too.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Look for damage: records that cannot be read, references to nothing, graphs that cannot be.

    Ends with 0 when there is no error, with 1 when there is one. Warnings are what schedulers look after themselves.
    """
    from onager.cli import state

    output = _format(output)
    with state.source(scheduler, backend) as found:
        code = state.check(found, is_strict=strict, output=output)
    raise typer.Exit(code)


@app.command("backup")
@connecting
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Write all records as of one moment to a file, compressed JSON lines; jobs go on meanwhile."""
    from onager.cli import state

    output = _format(output)
    with state.source(scheduler, backend) as found:
        state.backup(found, file, is_overwriting=overwrite, output=output)


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    backend: Annotated[str, typer.Option(metavar="leveldb:DIR|etcd://H:P/NS", help="The store to write to.")],
    replace: Annotated[bool, typer.Option("--replace", help="Delete what is in the store first.")] = False,
    yes: Yes = False,
    output: Output = "table",
) -> None:
    """Write a backup's records into an empty store of any kind that no scheduler runs on, then check it."""
    from onager.cli import state

    output = _format(output)
    raise typer.Exit(state.restore(backend, file, is_replacing=replace, is_agreed=yes, output=output))
