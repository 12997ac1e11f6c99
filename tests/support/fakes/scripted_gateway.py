# ruff: noqa: N802, ARG002 - gRPC names the methods; conditions of a test have no events
"""A gateway that does what a test tells it, behind a real gRPC server, and a worker that runs nothing by itself."""

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import grpc

from onager.clock import SystemClock
from onager.errors import ExchangeFullError
from onager.executor.agent.agent import Agent
from onager.executor.agent.endings import Outcome
from onager.executor.agent.gateway import SchedulerGateway
from onager.executor.agent.push import Port
from onager.executor.agent.registration import Identity
from onager.executor.attempt_logs import AttemptLogs
from onager.executor.exchange import Contents
from onager.executor.settings import ExecutorSettings
from onager.executor.work import Assignment, OnReport, WorkerEnd
from onager.ids import Incarnation, JobId, Partition, StageId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol import status
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import (
    OnagerExecutorGatewayServicer,
    add_OnagerExecutorGatewayServicer_to_server,
)
from onager.protocol.security import ServerAccess
from onager.protocol.task_keys import task_id, task_key, task_keys

PLAN_BLOB = b"a plan"
PLAN_DIGEST = hashlib.sha256(PLAN_BLOB).hexdigest()

Context = grpc.aio.ServicerContext
Fault = Callable[[object, Context], Awaitable[None]]


def task_set(
    *partitions: int,
    job: str = "job-1",
    stage: int = 1,
    attempt: int = 0,
    digest: str = PLAN_DIGEST,
    reply_to: str = "",
):
    tasks = [pb.TaskAttempt(partition=p, task_attempt=attempt) for p in partitions]
    return pb.TaskSet(
        job_id=job,
        stage_id=stage,
        work=pb.QUERY,
        plan_digest=digest,
        partitions=8,
        tasks=tasks,
        reply_to=reply_to,
    )


def key(partition: int, job: str = "job-1", stage: int = 1, attempt: int = 0) -> TaskKey:
    return TaskKey(JobId(job), StageId(stage), 0, Partition(partition), attempt)


@dataclass
class ScriptedGateway(OnagerExecutorGatewayServicer):
    """Answers from queues, and records every request; `faults[method]` runs before an answer."""

    lease_ttl_ms: int = 600
    launches: asyncio.Queue = field(default_factory=asyncio.Queue)
    refills: list = field(default_factory=list)
    cancels: list = field(default_factory=list)
    clean_ups: list = field(default_factory=list)
    forgotten: list = field(default_factory=list)
    blobs: dict = field(default_factory=lambda: {PLAN_DIGEST: PLAN_BLOB})
    registrations: list = field(default_factory=list)
    heartbeats: list = field(default_factory=list)
    polls: list = field(default_factory=list)
    reports: list = field(default_factory=list)
    blob_requests: list = field(default_factory=list)
    goodbyes: list = field(default_factory=list)
    requests: asyncio.Queue = field(default_factory=asyncio.Queue)
    """Answers to the call that waits for requests for logs."""
    awaited: list = field(default_factory=list)
    connect_at: list = field(default_factory=list)
    """Where calls for Spark Connect are to wait."""
    connect_calls: asyncio.Queue = field(default_factory=asyncio.Queue)
    connect_waiting: int = 0
    """How many of those calls wait here."""
    acknowledges: bool = True
    credits: bool = False
    """Whether what is not filled is added to the poll that waits."""
    sent_along: list = field(default_factory=list)
    before: dict = field(default_factory=dict)
    after: dict = field(default_factory=dict)

    async def _fault(self, table, method, request, context):
        fault = table.get(method)
        if fault is not None:
            await fault(request, context)

    async def RegisterExecutor(self, request, context):
        self.registrations.append(request)
        await self._fault(self.before, "register", request, context)
        return pb.RegisterExecutorResponse(scheduler_id="s", lease_ttl_ms=self.lease_ttl_ms)

    async def Heartbeat(self, request, context):
        self.heartbeats.append(request)
        await self._fault(self.before, "heartbeat", request, context)
        cancels, self.cancels = self.cancels, []
        clean_ups, self.clean_ups = list(self.clean_ups), []
        forgotten, self.forgotten = self.forgotten, []
        clean_ups += [pb.CleanUp(job_id=job_id, memory_only=True) for job_id in forgotten]
        return pb.HeartbeatResponse(
            cancel=[task_id(k) for k in cancels], clean_ups=clean_ups, connect_at=self.connect_at
        )

    async def _await_connect_requests(self):
        self.connect_waiting += 1
        try:
            return pb.AwaitRequestsResponse(requests=[pb.ExecutorRequest(connect=await self.connect_calls.get())])
        finally:
            self.connect_waiting -= 1

    async def PollWork(self, request, context):
        self.polls.append(request)
        await self._fault(self.before, "poll", request, context)
        answer = pb.PollWorkResponse(will_call=any(r.mode == "push" for r in self.registrations))
        if answer.will_call:
            answer.clean_ups.extend(self.clean_ups)
            self.clean_ups = []
            return answer
        with suppress(TimeoutError, asyncio.QueueEmpty):
            waits = asyncio.wait_for(self.launches.get(), request.wait_ms / 1000) if request.wait_ms else None
            answer.task_sets.append(await waits if waits else self.launches.get_nowait())
        answer.clean_ups.extend(self.clean_ups)
        answer.blobs.extend(self.sent_along)
        self.clean_ups = []
        await self._fault(self.after, "poll", request, context)
        return answer

    async def ReportTasks(self, request, context):
        self.reports.append(request)
        await self._fault(self.before, "report", request, context)
        answer = pb.ReportTasksResponse()
        if self.acknowledges:
            answer.acknowledged.extend(report.task for report in request.reports)
        if request.freed_slots and self.refills:
            answer.task_sets.append(self.refills.pop(0))
        elif self.credits:
            answer.credited_slots = request.freed_slots
        await self._fault(self.after, "report", request, context)
        return answer

    async def AwaitRequests(self, request, context):
        if request.connect:
            return await self._await_connect_requests()
        self.awaited.append(request)
        await self._fault(self.before, "requests", request, context)
        return await self.requests.get()

    async def FetchBlob(self, request, context):
        self.blob_requests.append(request.digest)
        await self._fault(self.before, "blob", request, context)
        content = self.blobs[request.digest]
        for i in range(0, len(content), 3):
            yield pb.BlobChunk(content=content[i : i + 3])

    async def DeregisterExecutor(self, request, context):
        self.goodbyes.append(request)
        return pb.DeregisterExecutorResponse()

    def reported(self) -> list[TaskKey]:
        return [task_key(report.task) for request in self.reports for report in request.reports]

    def outcomes(self) -> dict[TaskKey, str]:
        return {
            task_key(report.task): report.failure.kind or "success"
            for request in self.reports
            for report in request.reports
        }


@dataclass
class ScriptedWorker:
    """Holds started tasks until the test ends them."""

    stream_address: str = ""
    alive: bool = True
    cancels_obeyed: bool = True
    started: list = field(default_factory=list)
    assignments: list = field(default_factory=list)
    cancelled: list = field(default_factory=list)
    cleaned: list = field(default_factory=list)
    contents: Contents | None = None
    kept: set = field(default_factory=set)
    streamed: set = field(default_factory=set)
    running: dict = field(default_factory=dict)
    full: str = ""
    permille: int = 0
    load: pb.ExecutorLoad | None = None
    start_error: Exception | None = None
    ended: WorkerEnd | None = None
    stuck: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, assignment: Assignment, on_report: OnReport) -> None:
        if self.start_error is not None:
            raise self.start_error
        with self.lock:
            self.assignments.append(assignment)
            for k in task_keys(assignment.task_set):
                self.running[k] = on_report
                self.started.append(k)

    def cancel(self, tasks) -> None:
        self.cancelled.extend(tasks)
        if self.cancels_obeyed:
            for k in tasks:
                self.fail(k, "task_killed")

    def kept_jobs(self) -> set:
        return self.kept

    def streamed_jobs(self) -> set:
        return self.streamed

    def clean_up(self, request) -> None:
        self.streamed.discard(request.job_id)
        self.kept.discard(request.job_id)
        self.cleaned.append(request.job_id)

    def connect(self, _call, _catalog):
        return pb.ConnectReply(failure=pb.ConnectFailure(message="there is no Spark here"))

    def exchange_contents(self) -> Contents | None:
        return self.contents

    def check_exchange(self) -> None:
        if self.full:
            raise ExchangeFullError(self.full)

    def sample_load(self) -> pb.ExecutorLoad | None:
        return self.load

    def progress(self) -> list[pb.AttemptProgress]:
        return [pb.AttemptProgress(task=task_id(k), rows_read=7, permille=self.permille) for k in self.running]

    def is_alive(self) -> bool:
        return self.alive

    def end(self) -> WorkerEnd | None:
        return self.ended

    def enforce_deadlines(self) -> str:
        return self.stuck

    def kill(self) -> None:
        self.alive = False

    def close(self) -> None:
        self.alive = False

    def succeed(self, k: TaskKey) -> None:
        self.running.pop(k)(pb.TaskReport(task=task_id(k), success=pb.TaskSuccess()))

    def fail(self, k: TaskKey, kind: str, message: str = "broken", cause: str = "") -> None:
        on_report = self.running.pop(k, None)
        if on_report is not None:
            on_report(pb.TaskReport(task=task_id(k), failure=pb.Failure(kind=kind, message=message, cause=cause)))


@dataclass
class Rig:
    """One agent against scripted gateways."""

    gateways: list[ScriptedGateway]
    servers: list[grpc.aio.Server]
    worker: ScriptedWorker
    agent: Agent
    address: str
    outcome: "asyncio.Task[Outcome]"

    @property
    def gateway(self) -> ScriptedGateway:
        return self.gateways[0]


async def serve(gateway: ScriptedGateway, address: str = "127.0.0.1:0") -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_OnagerExecutorGatewayServicer_to_server(gateway, server)
    port = server.add_insecure_port(address)
    await server.start()
    return server, port


@asynccontextmanager
async def rig(
    *,
    slots: int = 2,
    schedulers: int = 1,
    contents: Contents | None = None,
    load: pb.ExecutorLoad | None = None,
    logs: AttemptLogs | None = None,
    runs_programs: bool = False,
    **settings,
) -> AsyncIterator[Rig]:
    gateways = [ScriptedGateway() for _ in range(schedulers)]
    served = [await serve(gateway) for gateway in gateways]
    worker = ScriptedWorker(contents=contents, load=load)
    config = ExecutorSettings(
        scheduler=",".join(f"127.0.0.1:{port}" for _, port in served),
        slots=slots,
        exchange_dir="/nowhere",
        executor_id="e-1",
        host="here",
        **{"poll_wait_ms": 500, **settings},
    )
    identity = Identity(
        incarnation=Incarnation("life-1"),
        pid=1,
        spark_version="4.3.0",
        python_version="3.11",
        runs_programs=runs_programs,
    )
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(SchedulerGateway(config.scheduler_addresses))
        port = Port(config, ServerAccess(config.server_security, config.listen)) if config.mode == "push" else None
        address = "" if port is None else port.address
        agent = Agent(config, identity, worker, client, SystemClock(), address=address, logs=logs)
        if port is not None:
            await stack.enter_async_context(port.serving(agent))
        outcome = asyncio.create_task(agent.run())
        try:
            yield Rig(gateways, [server for server, _ in served], worker, agent, address, outcome)
        finally:
            outcome.cancel()
            await asyncio.gather(outcome, return_exceptions=True)
            for server, _ in served:
                await server.stop(None)


def refuse(error) -> Fault:
    async def fault(request, context):
        await status.abort(context, error)

    return fault


def lose(times: int) -> Fault:
    """Drop the next *times* answers, like a broken connection."""
    left = [times]

    async def fault(request, context):
        if left[0]:
            left[0] -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")

    return fault
