"""The commands of ``onager state`` with their flags."""

from pathlib import Path
from typing import Annotated

import typer

from onager.cli.access import Output, Scheduler, connecting
from onager.protocol.limits import DEFAULT_ADDRESS

app = typer.Typer(
    help="""Inspect and maintain the state store.

Every command uses a running scheduler or, with --backend, opens the store itself. Only one process at a time can open a
LevelDB directory, so --backend works there only while no scheduler runs.""",
    no_args_is_help=True,
)

Backend = Annotated[
    str | None,
    typer.Option(metavar="leveldb:DIR|etcd://H:P/NS", help="Open this store, without a scheduler."),
]
Prefix = Annotated[str, typer.Argument(metavar="[KEYSPACE[/PREFIX]]")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


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

    GraphChunks/JOB/SNAPSHOT and Plans/DIGEST join all chunks of a snapshot or blob.
    """
    from onager.cli import state

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
    """Print every change until ^C: revision, kind, key, value.

    When events were lost, it says so, and lists the current records.
    """
    from onager.cli import state

    with state.source(scheduler, backend) as found:
        state.watch(found, prefix, output)


@app.command("rm")
@connecting
def rm(
    path: Annotated[str, typer.Argument(metavar="KEYSPACE/KEY|KEYSPACE/[PREFIX/]")],
    yes: Yes = False,
    force: Annotated[bool, typer.Option("--force", help="Even if running jobs or executors need it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Remove a record or, if the path ends with /, every record below it, in one operation."""
    from onager.cli import state

    with state.source(scheduler, backend) as found:
        state.rm(found, path, is_agreed=yes, is_forced=force, is_dry_run=dry_run, output=output)


@app.command("check")
@connecting
def check(
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Look for damage: unreadable records, dangling references, inconsistent graphs.

    Ends with 1 if there is an error, else with 0. Warnings are about problems that schedulers repair themselves.
    """
    from onager.cli import state

    with state.source(scheduler, backend) as found:
        code = state.check(found, is_strict=strict, output=output)
    raise typer.Exit(code)


@app.command("backup")
@connecting
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it exists.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
    backend: Backend = None,
) -> None:
    """Write all records at one revision to a file, as compressed JSON lines; jobs continue meanwhile."""
    from onager.cli import state

    with state.source(scheduler, backend) as found:
        state.backup(found, file, is_overwriting=overwrite, output=output)


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    backend: Annotated[str, typer.Option(metavar="leveldb:DIR|etcd://H:P/NS", help="The store to write to.")],
    replace: Annotated[bool, typer.Option("--replace", help="Delete the store's records first.")] = False,
    yes: Yes = False,
    output: Output = "table",
) -> None:
    """Restore a backup into an empty store of any kind that no scheduler uses, then check it."""
    from onager.cli import state

    raise typer.Exit(state.restore(backend, file, is_replacing=replace, is_agreed=yes, output=output))
