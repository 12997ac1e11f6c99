"""One attempt of a program: begun at a scheduler, run in a process of its own, ended there, and reported."""

import asyncio
import contextlib
import errno
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import psutil
import structlog

from onager.clock import Clock
from onager.errors import (
    ExchangeError,
    ExchangeFullError,
    InvalidRequestError,
    NotFoundError,
    OnagerError,
    PlanningError,
    SchemaVersionError,
    StateCorruptError,
)
from onager.exchange_layout import local_path, program_output
from onager.execution_graph import FailureCause, FailureKind
from onager.executor.agent.backoff import Backoff
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.attempt_logs import AttemptLogs
from onager.executor.exchange import check_exchange_dir
from onager.executor.programs.folder import Folder, folder_of, put_sent
from onager.executor.programs.printed import Printed
from onager.executor.programs.process import Pipes, ProgramProcess, WarmProgram, started
from onager.executor.programs.relay import Name, Schedulers, relaying
from onager.executor.warm.processes import NotStartedError, WarmProcesses
from onager.ids import TaskKey
from onager.program_errors import EXIT_CLASS, AttemptSupersededError, ProgramDiffersError
from onager.program_output import Cut, OutputFolder, shown
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id
from onager.redaction import shown_text

_CALL_S: Final = 10.0
_MEMORY_LOOK_S: Final = 2.0
_LAST_OUTPUT_S: Final = 2.0
"""How long the end of the output is waited for: a process that a program has left behind may hold it open."""

log = structlog.get_logger()
T = TypeVar("T")


class Host(NamedTuple):
    """What attempts have in common."""

    executor_id: str
    incarnation: str
    exchange_dir: str
    folder: Path
    """Where the folders of attempts are."""
    memory_bytes: int
    """How much memory the processes of a program may use."""
    gateway: SchedulerGateway
    schedulers: Schedulers
    warm: WarmProcesses[WarmProgram]
    clock: Clock
    logs: AttemptLogs


class _Over(Exception):  # noqa: N818 - never leaves this module
    """The attempt is over before its process has ended by itself."""

    def __init__(self, kind: FailureKind, message: str, error_class: str = "", sql_state: str = "") -> None:
        super().__init__(message)
        self.failure = pb.Failure(kind=kind, message=message, error_class=error_class, sql_state=sql_state)


@dataclass(eq=False)
class Attempt:
    """An attempt of the program that the job *spec* is, which is the task *key*."""

    host: Host
    key: TaskKey
    spec: pb.JobSpec
    _is_cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self) -> None:
        """End it at once."""
        self._is_cancelled.set()

    async def run(self) -> pb.TaskReport:
        """Run it; return its report, whatever came of it."""
        report = pb.TaskReport(task=task_id(self.key), started_ms=self.host.clock.now_ms())
        try:
            code, why = await self._run()
        except _Over as over:
            report.failure.CopyFrom(over.failure)
        except PlanningError as error:
            report.failure.kind, report.failure.message = FailureKind.USER_ERROR, str(error)
        except (OSError, ExchangeError, NotStartedError) as error:
            report.failure.CopyFrom(_passing(error))
        except Exception as error:  # the scheduler has to learn of it, whatever it is
            if not isinstance(error, OnagerError):
                log.exception("program_not_run")
            report.failure.kind = FailureKind.IO_ERROR
            report.failure.message = f"the program could not be run: {error}"
        else:
            if code:
                report.failure.kind, report.failure.error_class = FailureKind.USER_ERROR, EXIT_CLASS
                report.failure.message = f"the program ended with exit code {code}{f': {why}' if why else ''}"
            else:
                report.success.output.nonce, report.success.output.shared = secrets.token_hex(8), True
        report.ended_ms = self.host.clock.now_ms()
        return report

    async def _run(self) -> tuple[int, str]:
        """Return the program's exit code, and why it ended unless by itself; raises `_Over`, or what went wrong.

        What this executor lacks is found before the attempt begins, since one that makes no call counts.
        """
        await asyncio.to_thread(check_exchange_dir, self.host.exchange_dir)
        async with folder_of(self.spec.program, self.host.folder) as folder:
            return await self._run_in(folder)

    async def _run_in(self, folder: Folder) -> tuple[int, str]:
        secret = secrets.token_hex(16)
        request = pb.BeginAttemptRequest(
            task=task_id(self.key),
            executor_id=self.host.executor_id,
            incarnation=self.host.incarnation,
            secret=secret,
            user=self.spec.program.user,
        )
        answer = await self._answered(lambda: self.host.gateway.begin_attempt(request, _CALL_S))
        if answer.begun.ended:
            return answer.begun.exit_code, answer.begun.why_ended
        await asyncio.to_thread(put_sent, folder, self.spec.program, self.host.exchange_dir, answer.folder)
        shown_as = f"{answer.program_id}/{answer.begun.attempt}/{secret}"
        async with relaying(self.host.schedulers, Name(answer.owner, shown_as), folder.socket) as target:
            terms = {
                "program_id": answer.program_id,
                "attempt": answer.begun.attempt,
                "secret": secret,
                "seed": answer.begun.seed,
                "calls": answer.begun.calls,
                "retries": answer.begun.retries,
                "user": answer.user,
                "addresses": [target],
                "session_id": self.spec.program.script.session_id,
                "conf": {k: v for k, v in self.spec.conf.items() if k.startswith("spark.")},
            }
            kept = Path(local_path(self.host.exchange_dir)) / program_output(answer.folder)
            code, printed = await self._process(folder, kept, _cuts(answer.retried), terms)
        if code < 0:
            name = signal.Signals(-code).name
            raise _Over(FailureKind.TASK_KILLED, f"the process of the program was killed by {name}")
        end = pb.EndProgramRequest(
            program_id=answer.program_id,
            attempt=answer.begun.attempt,
            secret=secret,
            exit_code=code,
            failed=printed.failed if code else None,
        )
        await self._answered(
            lambda: self.host.gateway.end_attempt(pb.EndAttemptRequest(task=task_id(self.key), end=end), _CALL_S)
        )
        if code and printed.raised:
            message = shown_text(printed.raised["message"])
            error_class = printed.raised["error_class"] or EXIT_CLASS
            raise _Over(FailureKind.USER_ERROR, message, error_class, printed.raised["sql_state"])
        return code, ""

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of a scheduler, which is waited for as long as the attempt is wanted."""
        backoff = Backoff(first_s=0.1, limit_s=1.0)
        while not self._is_cancelled.is_set():
            try:
                return await call()
            except (NotFoundError, AttemptSupersededError) as error:
                raise _Over(FailureKind.TASK_KILLED, str(error)) from error
            except (InvalidRequestError, ProgramDiffersError) as error:
                raise _Over(FailureKind.USER_ERROR, str(error)) from error
            except (StateCorruptError, SchemaVersionError) as error:
                raise _Over(FailureKind.IO_ERROR, str(error)) from error
            except OnagerError as error:
                log.warning("program_waits_for_scheduler", program_id=self.key.job_id, error=str(error))
                await backoff.sleep()
        raise _Over(FailureKind.TASK_KILLED, "the attempt was stopped")

    # ---------------------------------------------------------------- the process

    async def _process(
        self, folder: Folder, kept: Path, cuts: Sequence[Cut], terms: dict[str, object]
    ) -> tuple[int, Printed]:
        """Run the process to its end; return its exit code, or a signal's number with a minus, and what it said.

        *kept*: where what it prints is kept; *cuts*: from where retries have gone on.
        """
        before = await asyncio.to_thread(shown, kept, cuts)
        output = await asyncio.to_thread(OutputFolder, kept, int(str(terms["attempt"])))
        printed = Printed(output, before, lambda text: self.host.logs.add(self.key, shown_text(text)))
        pairs = [os.pipe() for _ in Pipes._fields]
        ours, theirs = Pipes(*(pair[0] for pair in pairs)), Pipes(*(pair[1] for pair in pairs))
        try:
            process = await started(self.host.warm, self.spec.program, folder, {**terms, "shown": before}, theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reading = asyncio.create_task(printed.read(*ours))
        try:
            code = await self._ended(process)
        finally:
            process.kill()
            _, late = await asyncio.wait([reading], timeout=_LAST_OUTPUT_S)
            for task in late:
                task.cancel()
        if printed.refused:
            raise _Over(FailureKind.USER_ERROR, f"the program cannot go on: {printed.refused}")
        if printed.is_lost:
            raise _Over(FailureKind.TASK_KILLED, "another attempt of the program counts")
        return code, printed

    async def _ended(self, process: ProgramProcess) -> int:
        """Return how the process ended; one that uses too much memory, or is not wanted any more, is killed."""
        end = asyncio.create_task(process.wait())
        cancelled = asyncio.create_task(self._is_cancelled.wait())
        try:
            while not end.done():
                await asyncio.wait([end, cancelled], timeout=_MEMORY_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if cancelled.done() and not end.done():
                    process.kill()
                    await end
                    raise _Over(FailureKind.TASK_KILLED, "the attempt was stopped")
                used = await asyncio.to_thread(_memory_of, process.pid)
                if used > self.host.memory_bytes and not end.done():
                    process.kill()
                    await end
                    most = self.host.memory_bytes
                    raise _Over(
                        FailureKind.USER_ERROR,
                        f"the program used {used:,} bytes of memory, and may use {most:,}: keep rows in Spark, or give "
                        "executors a higher ONAGER_EXECUTOR_PROGRAM_MEMORY_BYTES",
                    )
        finally:
            cancelled.cancel()
        return end.result()


def _cuts(retried: Iterable[pb.RetriedFrom]) -> list[Cut]:
    return [
        Cut(each.attempt) if each.other else Cut(each.attempt, each.call.task, each.call.number, each.call.tasks)
        for each in retried
        if each.other or each.HasField("call")
    ]


def _passing(error: Exception) -> pb.Failure:
    """Return the failure of an attempt for which there was no disk, or no process: that may pass, and does not count.

    The program goes on at another executor, or waits.
    """
    if getattr(error, "errno", 0) in (errno.E2BIG, errno.EACCES, errno.ENOEXEC):
        message = f"the process of the program cannot be started: {error}"
        return pb.Failure(kind=FailureKind.USER_ERROR, message=message)
    is_full = isinstance(error, ExchangeFullError) or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT)
    cause = FailureCause.NO_SPACE if is_full else FailureCause.NO_PLACE
    return pb.Failure(
        kind=FailureKind.TASK_KILLED, cause=cause, message=f"the program cannot be run by this executor now: {error}"
    )


def _memory_of(pid: int) -> int:
    """Return how many bytes of memory a process and those below it use."""
    try:
        process = psutil.Process(pid)
        found = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    used = 0
    for each in found:
        with contextlib.suppress(psutil.Error):
            used += each.memory_info().rss
    return used
