"""The commands of ``onager`` and their flags; implementations are imported when they run, so that help is fast."""

import os
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from onager.cli import submit_flags
from onager.cli.access import (
    TLS_KEY_HELP,
    Output,
    Scheduler,
    connecting,
    connection_flags,
    flag,
    own_variables,
    say_by_variables,
    with_flags,
)
from onager.cli.catalog_app import app as catalog_app
from onager.cli.executors_app import app as executors_app
from onager.cli.exits import ExitCode, errors_as_exit_codes, fail, one_of, pairs
from onager.cli.run_command import calls, run
from onager.cli.state_app import app as state_app
from onager.protocol.limits import DEFAULT_ADDRESS

app = typer.Typer(
    name="onager",
    help="Run Spark SQL and DataFrame jobs that outlive every process that runs them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(state_app, name="state")
app.add_typer(executors_app, name="executors")
app.add_typer(catalog_app, name="catalog")
app.command(context_settings={"allow_interspersed_args": False})(run)
app.command()(calls)

_EXCHANGE_HELP: Final = "Where stages write their output; all executors and schedulers share it."
_SERVE_CERT_HELP: Final = "Certificate to serve with: encrypt."
_REQUIRED_TOKENS_HELP: Final = "Require one of these tokens."
_OPEN_HELP: Final = "Serve other machines without TLS or token."

Listen = Annotated[str | None, typer.Option(metavar="H:P", help="Address to serve at.", show_default=DEFAULT_ADDRESS)]
Slots = Annotated[int | None, typer.Option(min=1, help="Tasks at once.", show_default="one per core")]
SparkConf = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Spark setting; repeatable.")]
Catalogs = Annotated[
    list[str] | None,
    typer.Option("--catalog", metavar="NAME=iceberg:URI?K=V&…", help="A catalog besides Onager's own; repeatable."),
]
Roots = Annotated[
    list[str] | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="A directory that jobs may read and write; repeatable.",
        show_default="any, where all is on loopback and without tokens",
    ),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(metavar="jdbc|s3a:|transform|…", help="What else jobs may use; repeatable.", show_default="nothing"),
]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help=_SERVE_CERT_HELP)]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help=TLS_KEY_HELP)]


_SCHEDULER_FLAGS: Final = {
    "backend": flag("etcd://H:P,…|leveldb:DIR", "Where jobs are kept.", shown="memory:, lost with the process"),
    "listen": Listen,
    "exchange_dir": flag("DIR", _EXCHANGE_HELP, shown="var/exchange"),
    "advertise": flag("H:P", "Where others reach it.", shown="--listen"),
    "metrics_listen": flag("H:P", "Serve metrics for Prometheus at http://H:P/metrics."),
    "health_listen": flag("H:P", "Answer gRPC health checks here, in plaintext and to anyone."),
    "http_listen": flag("H:P", "Serve the page, REST and metrics at http://H:P/."),
    "scaler_listen": flag("H:P", "Tell KEDA here how many slots are wanted."),
    "tls_cert": TlsCert,
    "tls_key": TlsKey,
    "tls_client_ca": flag("FILE", "Require client certificates of these authorities."),
    "auth_token_file": flag("FILE", _REQUIRED_TOKENS_HELP, variables=own_variables("SCHEDULER", "AUTH_TOKEN_FILE")),
    "insecure": flag(None, _OPEN_HELP, "--insecure", kind=bool, variables=own_variables("SCHEDULER", "INSECURE")),
}
"""By the names of settings."""
_EXECUTOR_FLAGS: Final = {
    "scheduler": flag("H:P[,H:P]", "Schedulers of the cluster.", shown=DEFAULT_ADDRESS, variables="ONAGER_SCHEDULER"),
    "slots": Slots,
    "program_slots": Annotated[int | None, typer.Option(min=0, help="Programs at once.", show_default="8")],
    "exchange_dir": flag("DIR", _EXCHANGE_HELP, shown="none: required"),
    "exchange_shared": flag(
        None, "The path is a volume that all machines of the Spark cluster share.", "--exchange-shared", kind=bool
    ),
    "warehouse": flag("DIR", "Tables without a location.", shown="warehouse beside --exchange-dir"),
    "spark_conf": SparkConf,
    "catalogs": Catalogs,
    "roots": Roots,
    "allow": Allowed,
    "executor_id": flag("ID", "A fixed id.", shown="host name and a random part"),
    "mode": flag("pull|push", "Poll for tasks, or have them pushed.", shown="pull"),
    "listen": flag("H:P", "Push mode: receive tasks here.", shown="a free port of 127.0.0.1"),
    "advertise": flag("H:P", "Push mode: where schedulers reach it.", shown="--listen"),
    "stream_listen": flag("H:P", "Serve streams to other executors here.", shown="a free port of 127.0.0.1"),
    "stream_advertise": flag("H:P", "Where executors reach that port.", shown="--stream-listen"),
    "tls_client_ca": flag("FILE", "Push mode: require schedulers' certificates of these authorities."),
    **connection_flags("EXECUTOR"),
}
"""By the names of settings."""


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    # Otherwise gRPC would log each failed connection to standard error. It reads the variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with errors_as_exit_codes():
        app()


def _print_version(is_wanted: bool) -> None:  # noqa: FBT001  (Typer calls it so)
    if is_wanted:
        from onager.version import __version__

        print(f"onager {__version__}")
        raise typer.Exit


@app.callback()
def onager(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run Spark SQL and DataFrame jobs that outlive every process that runs them."""


def _view_options(items: list[str]) -> dict[str, dict[str, str]]:
    """Return ``NAME.K=V`` texts as options by view."""
    form = "NAME.K=V"
    found: dict[str, dict[str, str]] = {}
    for key, value in pairs("--view-option", items, form).items():
        name, dot, option = key.partition(".")
        if not dot or not name or not option:
            fail(f"--view-option {key}={value!r}: expected {form}", ExitCode.USAGE)
        found.setdefault(name, {})[option] = value
    return found


@app.command()
def standalone(
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="etcd://H:P[,H:P]|leveldb:DIR", help="Where jobs are kept.", show_default="leveldb: in --state-dir"
        ),
    ] = None,
    state_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Directory of the LevelDB store.")] = None,
    exchange_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help=_EXCHANGE_HELP, show_default="beside the state")
    ] = None,
    listen: Listen = None,
    slots: Slots = None,
    spark_conf: SparkConf = None,
    catalogs: Catalogs = None,
    roots: Roots = None,
    allow: Allowed = None,
    http_listen: Annotated[
        str | None,
        typer.Option(
            metavar="H:P", help="Serve the page and REST here.", show_default="127.0.0.1:50080, or a free port"
        ),
    ] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Serve neither the page nor REST.")] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of its authority.")] = None,
    auth_token_file: Annotated[Path | None, typer.Option(metavar="FILE", help=_REQUIRED_TOKENS_HELP)] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help=_OPEN_HELP)] = False,
) -> None:
    """Run a scheduler and an executor on this machine, and restart them when they die."""
    from onager.cli.standalone import Standalone, layout

    # The child processes and this process's own connection read them.
    say_by_variables(
        ONAGER_SCHEDULER_TLS_CERT=tls_cert,
        ONAGER_SCHEDULER_TLS_KEY=tls_key,
        ONAGER_TLS_CA=tls_ca,
        ONAGER_AUTH_TOKEN_FILE=auth_token_file,
        ONAGER_INSECURE=insecure,
    )

    supervisor = Standalone(
        layout(backend, state_dir, exchange_dir),
        listen or DEFAULT_ADDRESS,
        slots,
        pairs("--spark-conf", spark_conf or [], last_counts=True),
        catalogs=catalogs or [],
        roots=roots or [],
        allow=allow or [],
        http_listen=http_listen,
        has_page=not no_http,
    )
    raise typer.Exit(supervisor.run())


@app.command()
@with_flags(_SCHEDULER_FLAGS)
def scheduler(**given: Any) -> None:
    """Run a scheduler; further settings are ONAGER_SCHEDULER_… variables."""
    from onager.cli.services import run_scheduler

    raise typer.Exit(run_scheduler(given))


@app.command()
@with_flags(_EXECUTOR_FLAGS)
def executor(**given: Any) -> None:
    """Run an executor; further settings are ONAGER_EXECUTOR_… variables."""
    from onager.cli.services import run_executor

    if conf := given["spark_conf"]:
        given["spark_conf"] = pairs("--spark-conf", conf, last_counts=True)
    raise typer.Exit(run_executor(given))


@app.command()
@connecting
def submit(
    sql: submit_flags.Sql = None,
    file: submit_flags.File = None,
    py: submit_flags.PythonFunction = None,
    arg: submit_flags.Arguments = None,
    py_file: submit_flags.PythonFiles = None,
    view: submit_flags.Views = None,
    view_option: submit_flags.ViewOptions = None,
    views_from: submit_flags.ViewsFrom = None,
    conf: submit_flags.Conf = None,
    name: submit_flags.Name = None,
    output: submit_flags.OutputDirectory = None,
    format: submit_flags.Format = "parquet",
    mode: submit_flags.Mode = "error",
    output_option: submit_flags.OutputOptions = None,
    partition_by: submit_flags.PartitionColumns = None,
    param: submit_flags.Parameters = None,
    label: submit_flags.Labels = None,
    deadline: submit_flags.Deadline = None,
    detach: submit_flags.Detach = False,
    output_format: submit_flags.PrintedAs = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Run a query or a Python function, show its progress, and print its result."""
    from onager.cli.submit import Submission, run

    _check_code(sql, file, py, arg, param)
    if not output_format.startswith("arrow="):
        one_of("-o", output_format, ("table", "json", "csv", "arrow=FILE"))
    run(
        Submission(
            scheduler=scheduler,
            sql=sql,
            file=file,
            py=py,
            args=pairs("--arg", arg or []),
            params=pairs("--param", param or []),
            views=pairs("--view", view or [], "NAME=PATH"),
            view_options=_view_options(view_option or []),
            views_from=views_from,
            is_detached=detach,
            output_format=output_format,
            options={
                "conf": pairs("--conf", conf or [], last_counts=True),
                "name": name,
                **_dataset(output, format, mode, output_option, partition_by),
                "py_files": py_file or [],
                "labels": pairs("--label", label or []),
                "deadline": deadline,
            },
        )
    )


def _check_code(
    sql: str | None, file: Path | None, py: str | None, arg: list[str] | None, param: list[str] | None
) -> None:
    """End the process unless one kind of code is given, and only what goes with it."""
    if sum(given is not None for given in (sql, file, py)) != 1:
        fail("give exactly one of -e SQL, -f FILE and --py FILE[:function]", ExitCode.USAGE)
    if arg and py is None:
        fail("--arg needs --py: it is an argument of the function", ExitCode.USAGE)
    if param and py is not None:
        fail("--param is a value of SQL; the argument of a function is --arg", ExitCode.USAGE)


def _dataset(
    output: str | None, kind: str, mode: str, options: list[str] | None, partition_by: str | None
) -> dict[str, Any]:
    """Return the arguments for a client that describe the dataset that the result is written as."""
    if options and output is None:
        fail("--output-option needs --output DIR", ExitCode.USAGE)
    if partition_by and output is None:
        fail("--partition-by needs --output DIR", ExitCode.USAGE)
    return {
        "output": output,
        "format": kind,
        "mode": mode,
        "output_options": pairs("--output-option", options or []),
        "partition_by": partition_by.split(",") if partition_by else (),
    }


@app.command()
@connecting
def jobs(
    state: Annotated[str, typer.Option(metavar="STATE", help="Only jobs in this state.")] = "",
    name: Annotated[str, typer.Option(metavar="TEXT", help="Only jobs whose name contains this, ignoring case.")] = "",
    session: Annotated[str, typer.Option(metavar="NAME", help="Only jobs of this session.")] = "",
    since: Annotated[str, typer.Option(metavar="30m|1h|7d|DATE", help="Only jobs submitted since then.")] = "",
    until: Annotated[str, typer.Option(metavar="30m|1h|7d|DATE", help="Only jobs submitted before then.")] = "",
    principal: Annotated[
        str, typer.Option(metavar="NAME", help="Only jobs that the owner of this token submitted.")
    ] = "",
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Only jobs with this label.")] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Also the jobs of scripts' steps, and of programs' calls.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 100,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """List jobs, newest first."""
    from onager.cli import admin
    from onager.cli.moments import moment_ms
    from onager.protocol import onager_pb2 as pb

    wanted = pb.ListJobsRequest(
        limit=min(limit, 2**31),
        state=state,
        name=name,
        session=session,
        since_ms=moment_ms("--since", since),
        until_ms=moment_ms("--until", until),
        principal=principal,
        labels=pairs("--label", label or []),
        steps=steps,
    )
    admin.jobs(scheduler, wanted, output)


@app.command()
@connecting
def job(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    plan: Annotated[bool, typer.Option("--plan", help="Show Spark's plan, too.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Show the plan as it ran: rows, time, memory, and what stands out.")
    ] = False,
    per_task: Annotated[bool, typer.Option("--per-task", help="With --analyze: list the tasks of each stage.")] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|FILE.json", help="Write what ran when and where, as a picture or as data."),
    ] = None,
    spark_event_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an event log for Spark's History Server.")
    ] = None,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show a job: its state, its stages, why it failed; or write files about what it did (-: standard output)."""
    from onager.cli import admin
    from onager.cli import analyze as analyzing

    if per_task and not analyze:
        fail("--per-task needs --analyze: it lists the tasks that the plan sums up", ExitCode.USAGE)
    if timeline is not None or spark_event_log is not None:
        from onager.cli.exports import export, timeline_kind

        files = {} if timeline is None else {timeline_kind(timeline): timeline}
        export(scheduler, job_id, files | ({} if spark_event_log is None else {"spark-event-log": spark_event_log}))
    elif analyze:
        if plan:
            fail("--analyze shows the plan as it ran, and --plan as it was planned: give one of them", ExitCode.USAGE)
        analyzing.analyze(scheduler, job_id, output, per_task=per_task)
    else:
        admin.job(scheduler, job_id, output, has_plan=plan)


@app.command()
@connecting
def events(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    after: Annotated[int, typer.Option(min=0, help="Only what came after this position of the job's log.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the job has ended.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show what happened to a job: launches, results, failures, losses, and which scheduler committed them."""
    from onager.cli.events import events as show

    show(scheduler, job_id, after, output, follow=follow)


@app.command()
@connecting
def logs(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    stage: Annotated[int | None, typer.Option(min=0, help="Only this stage; 0 plans the job.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this task of the stage.")] = None,
    attempt: Annotated[int | None, typer.Option(min=0, help="Only this attempt of each task.")] = None,
    tail: Annotated[
        str, typer.Option(metavar="LINES|BYTES", help="Of each attempt, the last: 100 lines, or 64k bytes.")
    ] = "64k",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the job has ended.")] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show what tasks logged, or what a program printed: Spark, functions, and what was kept of failed attempts."""
    from onager.cli.logs import logs as show

    show(scheduler, job_id, tail, output, follow=follow, stage_id=stage, partition=partition, attempt=attempt)


@app.command()
@connecting
def retry(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    mended: Annotated[
        Path | None,
        typer.Option("--with", metavar="FILE", help="Go on with this mended program, if it fits what is written."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --with: what is written stands, also where the program differs.")
    ] = False,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Submit an ended job again as a new one, and print its id; a program goes on with what it has recorded."""
    from onager.cli import admin

    admin.retry(scheduler, job_id, output, mended=mended, keep=keep)


@app.command()
@connecting
def top(
    once: Annotated[bool, typer.Option("--once", help="Print once, and exit.")] = False,
    every: Annotated[float, typer.Option(min=0.5, max=3600.0, metavar="SECONDS", help="How often to look.")] = 2.0,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show what runs and what waits, and the executors, until interrupted.

    Taken slots are those that executors reported last: for some seconds, a task that has just ended still counts.
    """
    from onager.cli.top import top as show

    show(scheduler, every, output, once=once)


@app.command()
@connecting
def cancel(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    reason: Annotated[str, typer.Option(help="Stored with the job.")] = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Cancel a job."""
    from onager.cli import admin

    admin.cancel(scheduler, job_id, reason, output)


@app.command()
@connecting
def audit(
    since: Annotated[str, typer.Option(metavar="30m|1h|7d|DATE", help="How far back.")] = "1d",
    action: Annotated[
        str,
        typer.Option(metavar="submit|cancel|refuse|…", help="Only acts of this kind (docs/operations.md lists them)."),
    ] = "",
    target: Annotated[str, typer.Option(metavar="ID|PATH", help="Only what was done to this.")] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Only what the owner of this token did.")] = "",
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show who did what, oldest first: submissions, cancels, changes of tables, logins, refused calls; for admins."""
    from onager.cli.audit import audit as show

    show(scheduler, since, action, target, by, output)


@app.command()
@connecting
def schedulers(output: Output = "table", scheduler: Scheduler = DEFAULT_ADDRESS) -> None:
    """List schedulers."""
    from onager.cli import admin

    admin.schedulers(scheduler, output)
