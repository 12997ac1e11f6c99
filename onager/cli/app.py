"""Every command of ``onager`` with its flags; the work is imported when a command runs, so that help is instant."""

from pathlib import Path
from typing import Annotated, Any

import typer

from onager.cli.exits import ExitCode, errors_as_exit_codes, fail, one_of, pairs
from onager.protocol.limits import DEFAULT_ADDRESS

app = typer.Typer(
    name="onager",
    help="Run Spark SQL and DataFrame jobs that outlive every process that runs them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
state = typer.Typer(help="Look into the state store: one record per key, decoded.", no_args_is_help=True)
app.add_typer(state, name="state")

Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler", envvar="ONAGER_SCHEDULER", metavar="H:P[,H:P]", help="Schedulers; any one that answers will do."
    ),
]
Output = Annotated[str, typer.Option("--output-format", "-o", metavar="table|json", help="How to print.")]
Listen = Annotated[str | None, typer.Option(metavar="H:P", help=f"Address to serve at. [default: {DEFAULT_ADDRESS}]")]
ExchangeDir = Annotated[
    str | None, typer.Option(metavar="DIR", help="Where stages leave their output; shared by all executors.")
]


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    with errors_as_exit_codes():
        app()


@app.command()
def standalone(
    state_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Where jobs are kept.")] = None,
    exchange_dir: ExchangeDir = None,
    listen: Listen = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Tasks at once. [default: one per core]")] = None,
    spark_conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Spark setting; repeatable.")] = None,
) -> None:
    """Run a scheduler and an executor on this machine, and start them again when they die."""
    from onager.cli.standalone import Standalone, layout

    directories = layout(state_dir, exchange_dir)
    supervisor = Standalone(directories, listen or DEFAULT_ADDRESS, slots, pairs("--spark-conf", spark_conf or []))
    raise typer.Exit(supervisor.run())


@app.command()
def scheduler(
    backend: Annotated[str | None, typer.Option(metavar="leveldb:DIR|memory:", help="The state backend.")] = None,
    listen: Listen = None,
    exchange_dir: ExchangeDir = None,
) -> None:
    """Run one scheduler; further settings are ONAGER_SCHEDULER_… variables."""
    from onager.cli.services import run_scheduler

    raise typer.Exit(run_scheduler({"backend": backend, "listen": listen, "exchange_dir": exchange_dir}))


@app.command()
def executor(
    scheduler: Annotated[
        str | None, typer.Option(envvar="ONAGER_SCHEDULER", metavar="H:P[,H:P]", help="Schedulers to work for.")
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Tasks at once. [default: one per core]")] = None,
    exchange_dir: ExchangeDir = None,
    spark_conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Spark setting; repeatable.")] = None,
    executor_id: Annotated[str | None, typer.Option(metavar="ID", help="A fixed identity. [default: drawn]")] = None,
) -> None:
    """Run one executor; further settings are ONAGER_EXECUTOR_… variables."""
    from onager.cli.services import run_executor

    settings: dict[str, Any] = {
        "scheduler": scheduler,
        "slots": slots,
        "exchange_dir": exchange_dir,
        "executor_id": executor_id,
        "spark_conf": pairs("--spark-conf", spark_conf) if spark_conf else None,
    }
    raise typer.Exit(run_executor(settings))


@app.command()
def submit(
    sql: Annotated[
        str | None, typer.Option("-e", "--sql", metavar="SQL", help="A script; its last is the query.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="The script in a file; - reads it.")
    ] = None,
    py: Annotated[
        str | None, typer.Option(metavar="FILE[:function]", help="A function of the session; main by default.")
    ] = None,
    arg: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Argument of --py: JSON, else text.")] = None,
    py_file: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="Module or zip that the code imports.")
    ] = None,
    view: Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="A dataset under a name.")] = None,
    views_from: Annotated[Path | None, typer.Option(metavar="DIR", help="A view of every dataset in DIR.")] = None,
    conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="spark.* or onager.* setting.")] = None,
    name: Annotated[str | None, typer.Option(help="What lists show. [default: the query's first words]")] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", help="Write the result as a dataset.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="parquet, csv, json or orc.")] = "parquet",
    mode: Annotated[str, typer.Option("--mode", help="error, overwrite or append.")] = "error",
    detach: Annotated[bool, typer.Option("--detach", help="Print the job's id and do not wait.")] = False,
    output_format: Annotated[
        str, typer.Option("-o", "--output-format", metavar="table|json|csv|arrow=FILE", help="How to print the result.")
    ] = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Run a query or a Python function, show its progress, and print its result."""
    from onager.cli.submit import Submission, run

    if sum(given is not None for given in (sql, file, py)) != 1:
        fail("give the job once: -e SQL, -f FILE or --py FILE[:function]", ExitCode.USAGE)
    if arg and py is None:
        fail("--arg goes to the function of --py", ExitCode.USAGE)
    if not output_format.startswith("arrow="):
        one_of("-o", output_format, ("table", "json", "csv"))
    run(
        Submission(
            scheduler=scheduler,
            sql=sql,
            file=file,
            py=py,
            args=pairs("--arg", arg or []),
            py_files=py_file or [],
            views=pairs("--view", view or []),
            views_from=views_from,
            conf=pairs("--conf", conf or []),
            name=name,
            output=output,
            format=format,
            mode=mode,
            is_detached=detach,
            output_format=output_format,
        )
    )


@app.command()
def jobs(
    state: Annotated[str, typer.Option(metavar="STATE", help="Only jobs in this state.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 100,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """List jobs, newest first."""
    from onager.cli import admin

    admin.jobs(scheduler, state, limit, one_of("-o", output, ("table", "json")))


@app.command()
def job(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    plan: Annotated[bool, typer.Option("--plan", help="Show Spark's plan, too.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show a job: its state, its stages, why it failed."""
    from onager.cli import admin

    admin.job(scheduler, job_id, one_of("-o", output, ("table", "json")), has_plan=plan)


@app.command()
def cancel(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    reason: Annotated[str, typer.Option(help="Kept with the job.")] = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Stop a job."""
    from onager.cli import admin

    admin.cancel(scheduler, job_id, reason, one_of("-o", output, ("table", "json")))


@app.command()
def executors(output: Output = "table", scheduler: Scheduler = DEFAULT_ADDRESS) -> None:
    """List executors."""
    from onager.cli import admin

    admin.executors(scheduler, one_of("-o", output, ("table", "json")))


@state.command("ls")
def state_ls(
    prefix: Annotated[str, typer.Argument(metavar="[KEYSPACE[/PREFIX]]")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many keys.")] = 1000,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """List keys."""
    from onager.cli import admin

    admin.state_ls(scheduler, prefix, limit, one_of("-o", output, ("table", "json")))


@state.command("get")
def state_get(
    key: Annotated[str, typer.Argument(metavar="KEYSPACE/KEY")],
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Print one record as JSON; -o json adds its key and revision."""
    from onager.cli import admin

    admin.state_get(scheduler, key, one_of("-o", output, ("table", "json")))
