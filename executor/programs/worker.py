"""Runs the programs that the agent of their executor takes."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

import structlog
from google.protobuf.json_format import Parse

from onager.clock import Clock
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.attempt_logs import AttemptLogs
from onager.executor.exchange import Contents, check_exchange_dir
from onager.executor.programs.attempt import Attempt, Host
from onager.executor.programs.folder import parent_of
from onager.executor.programs.process import warm_processes
from onager.executor.programs.relay import Schedulers
from onager.executor.settings import ExecutorSettings
from onager.executor.work import Assignment, CatalogReader, OnReport, SparkLostError, WorkerEnd
from onager.ids import BlobDigest, Incarnation, JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import ClientAccess
from onager.protocol.task_keys import task_keys
from onager.supervision import Background

_CLOSE_S: Final = 5.0

log = structlog.get_logger()


class ProgramWorker:
    """Runs programs, each in a process of its own, on the event loop of its agent: a `Worker`.

    Another loop would take in each message of a program twice, since gRPC wakes all loops of a process.
    """

    stream_address = ""

    def __init__(
        self,
        settings: ExecutorSettings,
        incarnation: Incarnation,
        access: ClientAccess,
        clock: Clock,
        logs: AttemptLogs,
    ) -> None:
        self._settings = settings
        self._attempts: dict[TaskKey, Attempt] = {}
        self._cancelled_early: set[TaskKey] = set()
        self._background = Background()
        self._loop = asyncio.get_running_loop()
        addresses = settings.scheduler_addresses
        self._host = Host(
            executor_id=settings.executor_id,
            incarnation=incarnation,
            exchange_dir=settings.exchange_dir,
            folder=parent_of(settings.executor_id, settings.exchange_dir),
            memory_bytes=settings.program_memory_bytes,
            gateway=SchedulerGateway(addresses, access),
            schedulers=Schedulers(addresses, access),
            warm=warm_processes(),
            clock=clock,
            logs=logs,
        )

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        """Start a program."""
        content = assignment.blobs[BlobDigest(assignment.task_set.spec_digest)]
        spec = Parse(content, pb.JobSpec(), ignore_unknown_fields=True)
        for key in task_keys(assignment.task_set):
            attempt = Attempt(self._host, key, spec)
            self._attempts[key] = attempt
            if key in self._cancelled_early:
                attempt.cancel()
            self._loop.call_soon_threadsafe(self._begin, key, attempt, on_report)

    def _begin(self, key: TaskKey, attempt: Attempt, on_report: OnReport) -> None:
        self._background.start("program", self._run(key, attempt, on_report))

    async def _run(self, key: TaskKey, attempt: Attempt, on_report: OnReport) -> None:
        log.info("program_started", program_id=key.job_id, task_attempt=key.task_attempt)
        report = await attempt.run()
        del self._attempts[key]
        self._cancelled_early.discard(key)
        log.info("program_attempt_ended", program_id=key.job_id, task_attempt=key.task_attempt)
        on_report(report)

    def cancel(self, tasks: Collection[TaskKey]) -> None:
        """Kill the processes of programs."""
        for key in tasks:
            if (attempt := self._attempts.get(key)) is not None:
                self._loop.call_soon_threadsafe(attempt.cancel)
            else:
                self._cancelled_early.add(key)  # unless it has just ended

    def kept_jobs(self) -> Collection[JobId]:
        """Return none: nothing is kept in memory."""
        return ()

    def streamed_jobs(self) -> Collection[JobId]:
        """Return none."""
        return ()

    def clean_up(self, request: pb.CleanUp) -> None:
        """Do nothing: schedulers ask the executors of tasks."""

    def exchange_contents(self) -> Contents | None:
        """Return None: the executors of tasks look at the exchange."""
        return None

    def check_exchange(self) -> None:
        """Raise `ExchangeFullError` while the exchange directory has no space."""
        check_exchange_dir(self._settings.exchange_dir)

    def sample_load(self) -> pb.ExecutorLoad | None:
        """Return a load without what processes use: only how many programs run counts."""
        return pb.ExecutorLoad()

    def progress(self) -> Sequence[pb.AttemptProgress]:
        """Return nothing: how far a program is, nobody knows."""
        return ()

    def connect(self, call: pb.ConnectCall, catalog: CatalogReader) -> pb.ConnectReply:  # noqa: ARG002
        """Raise `SparkLostError`: there is no Spark here, and schedulers ask no such executor."""
        raise SparkLostError("this executor runs programs, and has no Spark")

    def is_alive(self) -> bool:
        """Return True: it ends with its process."""
        return True

    def end(self) -> WorkerEnd | None:
        """Return None: it ends with its process."""
        return None

    def enforce_deadlines(self) -> str:
        """Return nothing: each attempt kills what is to end."""
        return ""

    def kill(self) -> None:
        """Kill all processes of programs."""
        self.cancel(list(self._attempts))

    def close(self) -> None:
        """Kill all processes of programs, and end the one that they are forked from."""
        self.kill()
        self._host.warm.close()

    async def end_attempts(self) -> None:
        """Kill all processes of programs, wait until their attempts have ended, and close what calls schedulers."""
        self.kill()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._background.join()
        except TimeoutError:
            log.warning("programs_not_ended", running=len(self._attempts))
        await self._host.schedulers.close()
        await self._host.gateway.close()
