"""The commands of ``onager`` and their flags; implementations are imported when they run, so that help is fast."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from onager.cli.access import (
    INSECURE_HELP,
    TLS_CA_HELP,
    TLS_CERT_HELP,
    TLS_KEY_HELP,
    TOKEN_HELP,
    Output,
    Scheduler,
    connecting,
    say_by_variables,
)
from onager.cli.catalog_app import app as catalog_app
from onager.cli.executors_app import app as executors_app
from onager.cli.exits import ExitCode, errors_as_exit_codes, fail, one_of, pairs
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

Listen = Annotated[str | None, typer.Option(metavar="H:P", help="Address to serve at.", show_default=DEFAULT_ADDRESS)]
Catalogs = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=iceberg:URI?K=V&…", help="A catalog besides Onager's own; repeatable."),
]
Roots = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIR",
        help="A directory that jobs may read and write; repeatable.",
        show_default="any, where all is on loopback and without tokens",
    ),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(metavar="jdbc|s3a:|transform|…", help="What else jobs may use; repeatable.", show_default="nothing"),
]


def _exchange_dir(default: str) -> Any:
    """Return the option for the exchange directory, which shows *default*."""
    return typer.Option(
        metavar="DIR",
        help="Where stages write their output; all executors and schedulers share it.",
        show_default=default,
    )


def _own(process: str, name: str) -> list[str]:
    """Return the variables of a flag that clients also have; the one for this process takes precedence."""
    return [f"ONAGER_{process}_{name}", f"ONAGER_{name}"]


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
    exchange_dir: Annotated[str | None, _exchange_dir("beside the state")] = None,
    listen: Listen = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Tasks at once.", show_default="one per core")] = None,
    spark_conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Spark setting; repeatable.")] = None,
    catalog: Catalogs = None,
    root: Roots = None,
    allow: Allowed = None,
    http_listen: Annotated[
        str | None,
        typer.Option(
            metavar="H:P", help="Serve the page and REST here.", show_default="127.0.0.1:50080, or a free port"
        ),
    ] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Serve neither the page nor REST.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate to serve with: encrypt.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help=TLS_KEY_HELP)] = None,
    tls_ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of its authority.")] = None,
    auth_token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Require one of these tokens.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Serve other machines without TLS or token.")] = False,
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

    directories = layout(backend, state_dir, exchange_dir)
    supervisor = Standalone(
        directories,
        listen or DEFAULT_ADDRESS,
        slots,
        pairs("--spark-conf", spark_conf or [], last_counts=True),
        catalogs=catalog or [],
        roots=root or [],
        allow=allow or [],
        http_listen=http_listen,
        has_page=not no_http,
    )
    raise typer.Exit(supervisor.run())


@app.command()
def scheduler(
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="etcd://H:P,…|leveldb:DIR",
            help="Where jobs are kept.",
            show_default="memory:, lost with the process",
        ),
    ] = None,
    listen: Listen = None,
    exchange_dir: Annotated[str | None, _exchange_dir("var/exchange")] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="H:P", help="Where others reach it.", show_default="--listen")
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(metavar="H:P", help="Serve metrics for Prometheus at http://H:P/metrics.")
    ] = None,
    health_listen: Annotated[
        str | None, typer.Option(metavar="H:P", help="Answer gRPC health checks here, in plaintext and to anyone.")
    ] = None,
    http_listen: Annotated[
        str | None, typer.Option(metavar="H:P", help="Serve the page, REST and metrics at http://H:P/.")
    ] = None,
    scaler_listen: Annotated[
        str | None, typer.Option(metavar="H:P", help="Tell KEDA here how many slots are wanted.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate to serve with: encrypt.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help=TLS_KEY_HELP)] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Require client certificates of these authorities.")
    ] = None,
    auth_token_file: Annotated[
        Path | None,
        typer.Option(envvar=_own("SCHEDULER", "AUTH_TOKEN_FILE"), metavar="FILE", help="Require one of these tokens."),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure", envvar=_own("SCHEDULER", "INSECURE"), help="Serve other machines without TLS or token."
        ),
    ] = None,
) -> None:
    """Run a scheduler; further settings are ONAGER_SCHEDULER_… variables."""
    from onager.cli.services import run_scheduler

    settings: dict[str, Any] = {
        "backend": backend,
        "listen": listen,
        "advertise": advertise,
        "exchange_dir": exchange_dir,
        "metrics_listen": metrics_listen,
        "health_listen": health_listen,
        "http_listen": http_listen,
        "scaler_listen": scaler_listen,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "auth_token_file": auth_token_file,
        "insecure": insecure,
    }
    raise typer.Exit(run_scheduler(settings))


@app.command()
def executor(
    scheduler: Annotated[
        str | None,
        typer.Option(
            envvar="ONAGER_SCHEDULER",
            metavar="H:P[,H:P]",
            help="Schedulers of the cluster.",
            show_default=DEFAULT_ADDRESS,
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Tasks at once.", show_default="one per core")] = None,
    exchange_dir: Annotated[str | None, _exchange_dir("none: required")] = None,
    exchange_shared: Annotated[
        bool | None,
        typer.Option("--exchange-shared", help="The path is a volume that all machines of the Spark cluster share."),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Tables without a location.", show_default="warehouse beside --exchange-dir"),
    ] = None,
    spark_conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Spark setting; repeatable.")] = None,
    catalog: Catalogs = None,
    root: Roots = None,
    allow: Allowed = None,
    executor_id: Annotated[
        str | None, typer.Option(metavar="ID", help="A fixed id.", show_default="host name and a random part")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="pull|push", help="Poll for tasks, or have them pushed.", show_default="pull")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="H:P", help="Push mode: receive tasks here.", show_default="a free port of 127.0.0.1"),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="H:P", help="Push mode: where schedulers reach it.", show_default="--listen"),
    ] = None,
    stream_listen: Annotated[
        str | None,
        typer.Option(
            metavar="H:P", help="Serve streams to other executors here.", show_default="a free port of 127.0.0.1"
        ),
    ] = None,
    stream_advertise: Annotated[
        str | None,
        typer.Option(metavar="H:P", help="Where executors reach that port.", show_default="--stream-listen"),
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Push mode: require schedulers' certificates of these authorities."),
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(envvar=_own("EXECUTOR", "TLS_CA"), metavar="FILE", help=TLS_CA_HELP)
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(envvar=_own("EXECUTOR", "TLS_CERT"), metavar="FILE", help=TLS_CERT_HELP)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar=_own("EXECUTOR", "TLS_KEY"), metavar="FILE", help=TLS_KEY_HELP)
    ] = None,
    auth_token_file: Annotated[
        Path | None, typer.Option(envvar=_own("EXECUTOR", "AUTH_TOKEN_FILE"), metavar="FILE", help=TOKEN_HELP)
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", envvar=_own("EXECUTOR", "INSECURE"), help=INSECURE_HELP)
    ] = None,
) -> None:
    """Run an executor; further settings are ONAGER_EXECUTOR_… variables."""
    from onager.cli.services import run_executor

    settings: dict[str, Any] = {
        "scheduler": scheduler,
        "slots": slots,
        "exchange_dir": exchange_dir,
        "exchange_shared": exchange_shared,
        "warehouse": warehouse,
        "catalogs": catalog or None,
        "roots": root or None,
        "allow": allow or None,
        "executor_id": executor_id,
        "mode": mode,
        "listen": listen,
        "advertise": advertise,
        "stream_listen": stream_listen,
        "stream_advertise": stream_advertise,
        "tls_client_ca": tls_client_ca,
        "spark_conf": pairs("--spark-conf", spark_conf, last_counts=True) if spark_conf else None,
        "tls_ca": tls_ca,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "auth_token_file": auth_token_file,
        "insecure": insecure,
    }
    raise typer.Exit(run_executor(settings))


@app.command()
@connecting
def submit(
    sql: Annotated[
        str | None, typer.Option("-e", "--sql", metavar="SQL", help="SQL; the last statement is the query.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="SQL in a file; -: standard input.")
    ] = None,
    py: Annotated[
        str | None, typer.Option(metavar="FILE[:function]", help="Function of the session; default main.")
    ] = None,
    arg: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Argument of --py: JSON, else text.")] = None,
    py_file: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="Module or zip that the code imports.")
    ] = None,
    view: Annotated[list[str] | None, typer.Option(metavar="NAME=PATH", help="A dataset and its name.")] = None,
    view_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME.K=V", help="Option of Spark's reader for a view.")
    ] = None,
    views_from: Annotated[Path | None, typer.Option(metavar="DIR", help="A view of each dataset in DIR.")] = None,
    conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="spark.* or onager.* setting.")] = None,
    name: Annotated[
        str | None, typer.Option(help="The job's name in lists.", show_default="the query's first words")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", help="Write the result as a dataset.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="parquet, csv, json, orc, text or xml.")] = "parquet",
    mode: Annotated[str, typer.Option("--mode", help="error, overwrite or append.")] = "error",
    output_option: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Option of Spark's writer for --output.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Columns of --output that become directories, with commas.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Value of :K in the SQL: JSON, else text.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="K=V", help="What to find the job by in lists.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="90s|15m|2h|1d", help="Fail the job if it has not ended by then.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Print the job's id, and do not wait.")] = False,
    output_format: Annotated[
        str, typer.Option("-o", "--output-format", metavar="table|json|csv|arrow=FILE", help="How to print the result.")
    ] = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Run a query or a Python function, show its progress, and print its result."""
    from onager.cli.submit import Submission, run

    if sum(given is not None for given in (sql, file, py)) != 1:
        fail("give exactly one of -e SQL, -f FILE and --py FILE[:function]", ExitCode.USAGE)
    if arg and py is None:
        fail("--arg needs --py: it is an argument of the function", ExitCode.USAGE)
    if param and py is not None:
        fail("--param is a value of SQL; the argument of a function is --arg", ExitCode.USAGE)
    if output_option and output is None:
        fail("--output-option needs --output DIR", ExitCode.USAGE)
    if partition_by and output is None:
        fail("--partition-by needs --output DIR", ExitCode.USAGE)
    if not output_format.startswith("arrow="):
        one_of("-o", output_format, ("table", "json", "csv", "arrow=FILE"))
    run(
        Submission(
            scheduler=scheduler,
            sql=sql,
            file=file,
            py=py,
            args=pairs("--arg", arg or []),
            py_files=py_file or [],
            views=pairs("--view", view or [], "NAME=PATH"),
            view_options=_view_options(view_option or []),
            views_from=views_from,
            conf=pairs("--conf", conf or [], last_counts=True),
            name=name,
            output=output,
            format=format,
            mode=mode,
            output_options=pairs("--output-option", output_option or []),
            partition_by=partition_by.split(",") if partition_by else (),
            params=pairs("--param", param or []),
            labels=pairs("--label", label or []),
            deadline=deadline,
            is_detached=detach,
            output_format=output_format,
        )
    )


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
    steps: Annotated[bool, typer.Option("--steps", help="Also the jobs of programs' steps.")] = False,
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
    admin.jobs(scheduler, wanted, one_of("-o", output, ("table", "json")))


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

    form = one_of("-o", output, ("table", "json"))
    if per_task and not analyze:
        fail("--per-task needs --analyze: it lists the tasks that the plan sums up", ExitCode.USAGE)
    if timeline is not None or spark_event_log is not None:
        from onager.cli.exports import export, timeline_kind

        files = {} if timeline is None else {timeline_kind(timeline): timeline}
        export(scheduler, job_id, files | ({} if spark_event_log is None else {"spark-event-log": spark_event_log}))
    elif analyze:
        if plan:
            fail("--analyze shows the plan as it ran, and --plan as it was planned: give one of them", ExitCode.USAGE)
        analyzing.analyze(scheduler, job_id, form, per_task=per_task)
    else:
        admin.job(scheduler, job_id, form, has_plan=plan)


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

    show(scheduler, job_id, after, one_of("-o", output, ("table", "json")), follow=follow)


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
    """Show what tasks logged: Spark, functions that print, and what was kept of failed attempts."""
    from onager.cli.logs import logs as show

    show(scheduler, job_id, stage, partition, attempt, tail, one_of("-o", output, ("table", "json")), follow=follow)


@app.command()
@connecting
def retry(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Submit an ended job again as a new one, and print its id."""
    from onager.cli import admin

    admin.retry(scheduler, job_id, one_of("-o", output, ("table", "json")))


@app.command()
@connecting
def top(
    once: Annotated[bool, typer.Option("--once", help="Print once, and exit.")] = False,
    every: Annotated[float, typer.Option(min=0.5, max=3600.0, metavar="SECONDS", help="How often to look.")] = 2.0,
    output: Output = "table",
    scheduler: Scheduler = DEFAULT_ADDRESS,
) -> None:
    """Show what runs and what waits, and the executors, until interrupted.

    Taken slots are those that executors told last: for some seconds, a task that has just ended still counts.
    """
    from onager.cli.top import top as show

    show(scheduler, every, one_of("-o", output, ("table", "json")), once=once)


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

    admin.cancel(scheduler, job_id, reason, one_of("-o", output, ("table", "json")))


@app.command()
@connecting
def audit(
    since: Annotated[str, typer.Option(metavar="30m|1h|7d", help="How far back.")] = "1d",
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

    show(scheduler, since, action, target, by, one_of("-o", output, ("table", "json")))


@app.command()
@connecting
def schedulers(output: Output = "table", scheduler: Scheduler = DEFAULT_ADDRESS) -> None:
    """List schedulers."""
    from onager.cli import admin

    admin.schedulers(scheduler, one_of("-o", output, ("table", "json")))
