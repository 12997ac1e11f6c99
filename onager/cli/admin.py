"""The commands that list, show and cancel: jobs, executors and schedulers."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import onager
from onager.cli.exits import ExitCode, fail
from onager.cli.output import print_json, print_table
from onager.cli.programs import print_standing
from onager.cli.times import LATENCY_HEADERS, far_text, latency_rows, shares_text
from onager.client.amounts import size
from onager.client.client import OnagerClient
from onager.client.progress import JobProgress, StageProgress
from onager.errors import NotFoundError
from onager.protocol import onager_pb2 as pb
from onager.protocol.plain import plain, plain_job

_CLOCK_MS = 1_000


def jobs(scheduler: str, wanted: pb.ListJobsRequest, output: str) -> None:
    """Print the jobs that are *wanted*, newest first."""
    with onager.connect(scheduler) as client:
        found = list(client.list_jobs(wanted))
    if output == "json":
        print_json([plain(job) for job in found])
        return
    rows = [JobProgress.from_message(job) for job in found]
    has_names = any(job.principal for job in rows)
    print_table(
        ("JOB", "STATE", "SUBMITTED", "SECONDS", *(("BY",) if has_names else ()), "NAME"),
        [
            (
                *(job.job_id, job.state, when(job.submitted_ms), _seconds(job.submitted_ms, job.ended_ms)),
                *((job.principal,) if has_names else ()),
                job.name,
            )
            for job in rows
        ],
    )


def job(scheduler: str, job_id: str, output: str, *, has_plan: bool) -> None:
    """Print one job with its stages."""
    with onager.connect(scheduler) as client:
        detail = client.job(job_id).detail()
        progress = JobProgress.from_message(detail.progress)
        if output == "json":
            print_json(plain_job(detail))
            return
        print_head(progress)
        if progress.is_program:
            print_standing(client.program(job_id))
            if progress.failure is not None:
                print(f"\n{progress.failure}")
            return
    if progress.is_script:
        _print_steps(progress)
        return
    print_table(
        ("STAGE", "NAME", "STATE", "TASKS", "FAILED", "LOST", "SPECULATED", "SECONDS", "TASK SECONDS", "ROWS", "BYTES"),
        [_stage_row(stage) for stage in progress.stages],
    )
    if rows := latency_rows(progress.stages):
        print()
        print_table(LATENCY_HEADERS, rows)
    if progress.failure is not None:
        print(f"\n{progress.failure}")
    if has_plan:
        print(f"\n{detail.plan}")


def _print_steps(progress: JobProgress) -> None:
    steps = [stage for stage in progress.stages if stage.work == "step"]
    print_table(
        ("STEP", "NAME", "STATE", "SECONDS", "ROWS", "JOB"),
        [
            (
                step.stage_id,
                step.name,
                step_state(step, progress),
                _seconds(step.started_ms, step.ended_ms or progress.ended_ms) if step.started_ms else "",
                step.step_rows if step.state == "successful" else "",
                step.child_job_id,
            )
            for step in steps
        ],
    )
    if progress.failure is not None:
        print(f"\n{progress.failure}")


def step_state(step: StageProgress, progress: JobProgress) -> str:
    """Return the state of a step for people, and whether another script has done it."""
    if step.state == "successful" and step.child_job_id.partition(".")[0] != progress.job_id:
        return "done before"
    if step.state == "unresolved":
        return "waits"
    if step.state == "running" and progress.state.is_final:
        return step.step_state or "stopped"
    return step.state if not step.step_state or step.step_state == step.state else f"{step.state} ({step.step_state})"


def print_head(progress: JobProgress) -> None:
    """Print what concerns a job as a whole."""
    seconds = _seconds(progress.submitted_ms, progress.ended_ms)
    print(f"{progress.job_id}  {progress.state}  {seconds} s  {progress.name}")
    for what, value in (
        ("submitted by", progress.principal),
        ("retry of", progress.retry_of),
        ("step of", progress.parent),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(progress.labels.items()))),
        ("deadline", when(progress.deadline_ms)),
        ("done", far_text(progress)),
        ("waiting for", progress.waiting_for),
    ):
        if value:
            print(f"{what}: {value}")
    if shares := shares_text(progress.time_shares):
        print(shares)
    if progress.retry is not None:
        print(f"waits: {progress.retry.text(time.time_ns() // 1_000_000)}")
    if progress.sink_path:
        print(f"writes to: {progress.sink_path}")
    if exchange := exchange_text(progress):
        print(f"exchange: {exchange}")
    if progress.exchange_bytes:
        print(f"in the exchange directory: {size(progress.exchange_bytes)}")


def exchange_text(progress: JobProgress) -> str:
    """Return how a job that asked for streaming exchanges rows, for people; empty for any other job."""
    if progress.durable_because:
        return f"{progress.exchange} (streaming was given up: {progress.durable_because})"
    return progress.exchange if progress.exchange != "durable" else ""


def _stage_row(stage: StageProgress) -> tuple[object, ...]:
    return (
        stage.stage_id,
        stage.name,
        stage.state if not stage.attempt else f"{stage.state} (attempt {stage.attempt})",
        f"{stage.successful}/{stage.partitions}",
        stage.tasks_failed,
        stage.tasks_lost,
        stage.tasks_speculated,
        _seconds(stage.started_ms, stage.ended_ms) if stage.started_ms else "",
        f"{stage.run_ms / 1000:.1f}",
        stage.rows_out,
        stage.bytes_out,
    )


def cancel(scheduler: str, job_id: str, reason: str, output: str) -> None:
    """Cancel one job, and print its state."""
    with onager.connect(scheduler) as client:
        state = client.job(job_id).cancel(reason)
    if output == "json":
        print_json({"job_id": job_id, "state": str(state)})
    else:
        print(f"job {job_id} is {state}")


def retry(scheduler: str, job_id: str, output: str, *, mended: Path | None = None, keep: bool = False) -> None:
    """Submit an ended job's specification again, and print the new job's id.

    With the file of a *mended* program, once that fits what is written.
    """
    if keep and mended is None:
        fail("--keep is about the writes of a mended program: give that program, too (--with FILE)", ExitCode.USAGE)
    with onager.connect(scheduler) as client:
        if mended is None:
            new = client.job(job_id).retry()
        else:
            new = client.program(job_id).retry(program=mended, keep=keep).job
        if retried := _retried(client, new.id):
            print(f"onager: {retried}", file=sys.stderr)
        if mended is not None:
            client.program(new.id).wait_until_matched()
    if output == "json":
        print_json({"job_id": new.id, "retry_of": job_id})
    else:
        print(new.id)


def _retried(client: OnagerClient, job_id: str) -> str:
    """Return what of a program stands that a job goes on with; empty for any other job."""
    try:
        return client.program(job_id).info().retried
    except NotFoundError:
        return ""


def drain(scheduler: str, executor_id: str, reason: str, output: str) -> None:
    """Have an executor leave, and print what that means."""
    with onager.connect(scheduler) as client:
        answer = client.drain_executor(executor_id, reason)
    if output == "json":
        print_json({"executor_id": executor_id} | plain(answer))
        return
    tasks = f"{answer.running} task{'s' * (answer.running != 1)}"
    begun = "was leaving before" if answer.was_leaving else "takes no more work"
    print(f"executor {executor_id} {begun}; it leaves when the {tasks} that it runs have ended")
    if answer.programs:
        go_on = "program beside its tasks goes on" if answer.programs == 1 else "programs beside its tasks go on"
        print(f"{answer.programs} {go_on} elsewhere")
    if not answer.others:
        print("no other executor takes work: jobs wait until one does", file=sys.stderr)


def executors(scheduler: str, output: str, limit: int, state: str) -> None:
    """Print executors: all as JSON, else at most *limit* (0: all), and how many there are."""
    with onager.connect(scheduler) as client:
        answer = client.list_executors(limit=0 if output == "json" else limit, state=state.replace(" ", "_"))
    found = answer.executors
    if output == "json":
        print_json([plain(executor) for executor in found])
        return
    now_ms = answer.now_ms or time.time_ns() // 1_000_000
    print_table(
        (
            *("EXECUTOR", "STATE", "MODE", "HOST", "PID", "SLOTS", "RUNNING", "PROGRAMS"),
            *("HEAP", "RSS", "CPU", "SPARK"),
            *("SEEN SECONDS AGO", "EXCHANGE", "FILES", "FREE", "ADDRESS", "WHY"),
        ),
        [
            (
                e.executor_id,
                _executor_state(e),
                e.mode or "pull",
                e.host,
                e.pid,
                e.slots,
                e.running,
                f"{e.programs}/{e.program_slots}" if e.program_slots else "",
                *load_text(e.load if e.HasField("load") else None),
                e.spark_version,
                _seconds(e.last_seen_ms, now_ms),
                *_exchange(e.exchange),
                e.address,
                e.reason,
            )
            for e in found
        ],
    )
    if answer.more:
        states = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(answer.states.items()))
        print(f"the first {len(found):,} of {states}: --limit shows more, --state some", file=sys.stderr)


def load_text(load: pb.ExecutorLoad | None) -> tuple[str, str, str]:
    """Return the JVM's heap, the memory of all processes, and their share of a core, as last reported."""
    if load is None:
        return "", "", ""
    return f"{size(load.heap_used_bytes)} of {size(load.heap_max_bytes)}", size(load.rss_bytes), f"{load.cpu_percent} %"


def _exchange(use: pb.ExchangeUse) -> tuple[object, ...]:
    """Return the exchange directory's size, files and free space, as the executor last saw them."""
    return (size(use.bytes), use.files, size(use.free_bytes)) if use.looked_ms else ("", "", "")


def _executor_state(executor: pb.ExecutorInfo) -> str:
    if not executor.quarantined_until_ms:
        return executor.state.replace("_", " ")
    until = datetime.fromtimestamp(executor.quarantined_until_ms / 1000, UTC).astimezone()
    return f"quarantined until {until:%H:%M:%S}"


def schedulers(scheduler: str, output: str) -> None:
    """Print schedulers."""
    with onager.connect(scheduler) as client:
        answer = client.list_schedulers()
    found, now_ms = answer.schedulers, answer.now_ms
    if output == "json":
        print_json([plain(scheduler) for scheduler in found])
        return
    print_table(
        ("SCHEDULER", "ADDRESS", "HOST", "PID", "VERSION", "STARTED", "UP SECONDS", "CLOCK", "ANSWERED"),
        [
            (
                s.scheduler_id,
                s.address,
                s.host,
                s.pid,
                s.version,
                when(s.started_ms),
                _seconds(s.started_ms, now_ms),
                _clock(s.clock_ahead_ms),
                "yes" if s.answering else "",
            )
            for s in found
        ],
    )


def _clock(ahead_ms: int) -> str:
    """Return by how much a machine's clock is ahead of the cluster's time, or behind it; empty for hardly at all."""
    if abs(ahead_ms) < _CLOCK_MS:
        return ""
    return f"{abs(ahead_ms) / 1000:,.0f} s {'ahead' if ahead_ms > 0 else 'behind'}"


def when(moment_ms: int) -> str:
    """Return a moment in local time; empty for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment_ms / 1000)) if moment_ms else ""


def _seconds(start_ms: int, end_ms: int) -> str:
    """Return the seconds between two moments, or until now if *end_ms* is 0."""
    end_ms = end_ms or time.time_ns() // 1_000_000
    return f"{max(0, end_ms - start_ms) / 1000:.1f}" if start_ms else ""
