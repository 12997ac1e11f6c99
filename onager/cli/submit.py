"""``onager submit``: submit a job, show its progress, print its result."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import onager
from onager.cli import output
from onager.cli.exits import ExitCode, fail
from onager.cli.interrupts import wish
from onager.cli.live import progress_view
from onager.client import JobHandle, JobProgress, OnagerClient
from onager.client.spec import View, views_from


@dataclass(frozen=True, slots=True)
class Submission:
    """The flags of ``onager submit``; exactly one of *sql*, *file* and *py* is set."""

    scheduler: str
    sql: str | None
    file: Path | None
    py: str | None
    args: Mapping[str, str]
    params: Mapping[str, str]
    views: Mapping[str, str]
    view_options: Mapping[str, Mapping[str, str]]
    """By view."""
    views_from: Path | None
    is_detached: bool
    output_format: str
    options: Mapping[str, Any]
    """The other parameters of `OnagerClient.sql` and `OnagerClient.python`."""


def run(submission: Submission) -> None:
    """Submit the job, and unless detached, wait for it and print its result; errors raise."""
    arrow = submission.output_format.removeprefix("arrow=") if submission.output_format.startswith("arrow=") else None
    if arrow is not None:
        _check_writable(Path(arrow))
    with onager.connect(submission.scheduler) as client:
        job = _submit(client, submission)
        if submission.is_detached:
            print(json.dumps({"job_id": job.id}) if submission.output_format == "json" else job.id)
            return
        progress = _wait(job)
        if progress.sink_path:
            _print_sink(progress, submission.output_format)
        else:
            _print_result(client, job, submission.output_format, arrow)


def _submit(client: OnagerClient, submission: Submission) -> JobHandle:
    views: dict[str, View | str] = {}
    if submission.views_from is not None:
        views.update(views_from(submission.views_from))
    views.update(submission.views)
    for name, options in submission.view_options.items():
        if name not in views:
            fail(f"--view-option {name}.{next(iter(options))}: there is no view {name}", ExitCode.USAGE)
        given = views[name]
        known = given if isinstance(given, View) else View(given)
        views[name] = View(known.path, known.format, {**known.options, **options})
    common: dict[str, Any] = {**submission.options, "views": views}
    if submission.py is not None:
        return client.python(submission.py, args={k: _argument(v) for k, v in submission.args.items()}, **common)
    text = submission.sql if submission.sql is not None else _script(submission.file)
    params = {name: _argument(value) for name, value in submission.params.items()}
    return client.sql(text, params=params, **common)


def _argument(text: str) -> object:
    """Return *text* parsed as JSON, else the text itself: ``--arg n=3``, ``--arg name=Ada``."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _script(file: Path | None) -> str:
    if file is None or str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"-f {file}: {error.strerror}", ExitCode.USAGE)
    except UnicodeDecodeError as error:
        fail(f"-f {file}: not UTF-8 text ({error.reason} at byte {error.start})", ExitCode.USAGE)


def _check_writable(path: Path) -> None:
    if not path.parent.is_dir():
        fail(f"-o arrow={path}: there is no directory {path.parent}", ExitCode.USAGE)


def _wait(job: JobHandle) -> JobProgress:
    """Wait for the job's end; an interrupt asks what to do on a terminal, and detaches elsewhere."""
    while True:
        try:
            with progress_view() as view:
                return job.wait(on_progress=view.show)
        except KeyboardInterrupt:
            _interrupted(job)


def _interrupted(job: JobHandle) -> None:
    """Ask whether to continue waiting; if not, cancel or detach the job, and end the process."""
    answer = wish(f"job {job.id}", "keep waiting")
    if answer == "c":
        state = job.cancel("interrupted by the user")
        fail(f"job {job.id} is {state}", ExitCode.JOB_FAILED)
    if answer == "d":
        fail(
            f"job {job.id} continues; onager job {job.id} shows it, onager cancel {job.id} cancels it",
            ExitCode.DETACHED,
        )


def _print_sink(progress: JobProgress, output_format: str) -> None:
    if output_format == "json":
        output.print_json(
            {
                "job_id": progress.job_id,
                "state": str(progress.state),
                "sink_path": progress.sink_path,
                "rows": progress.result_rows,
            }
        )
    else:
        print(_written(progress.result_rows, progress.sink_path))


def _written(rows: int, where: str) -> str:
    return f"{rows:,} {'row' if rows == 1 else 'rows'} written to {where}"


def _print_result(client: OnagerClient, job: JobHandle, output_format: str, arrow: str | None) -> None:
    reader = client.results(job.id)
    rest = reader.batches()
    first = list(islice(rest, 1))  # the schema comes with it
    batches = chain(first, rest)
    if arrow is not None:
        rows = output.write_arrow(Path(arrow), reader.schema, batches)
        print(_written(rows, arrow), file=sys.stderr)
    elif output_format == "table" and reader.is_plan:
        print(first[0].column(0)[0].as_py())
    else:
        write = {"json": output.write_json, "csv": output.write_csv}.get(output_format, output.write_table)
        write(reader.schema, batches)
