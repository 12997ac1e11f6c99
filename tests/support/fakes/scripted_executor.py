"""An executor without Spark: speaks the real protocol over real gRPC, and its tasks do what the test says."""

import asyncio
import hashlib
import json
import secrets
from array import array
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import grpc
import pyarrow as pa

from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import CHANNEL_OPTIONS, PROTOCOL_VERSION
from onager.protocol.onager_pb2_grpc import OnagerExecutorGatewayStub, OnagerSchedulerStub
from tests.support.waiting import HANGS_S

SCHEMA = pa.schema([("n", pa.int64())])
Run = Callable[[pb.TaskSet, pb.TaskAttempt], pb.TaskReport | None]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def arrow_stream(values: Iterable[int], batches: int = 1) -> bytes:
    numbers = list(values)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        size = max(1, -(-len(numbers) // batches))
        for start in range(0, len(numbers), size):
            some = array("q", numbers[start : start + size])
            # `pa.array` would import pandas first, and all that runs in this event loop would wait for seconds.
            column = pa.Array.from_buffers(pa.int64(), len(some), [None, pa.py_buffer(some)])
            writer.write_batch(pa.record_batch([column], schema=SCHEMA))
    return sink.getvalue().to_pybytes()


def plan_outcome(stages: Iterable[tuple[int, int, str]], *, is_sink: str = "") -> pb.PlanOutcome:
    """Return a plan of a chain of stages, each given as (partitions, buckets, kind)."""
    outcome = pb.PlanOutcome(arrow_schema=SCHEMA.serialize().to_pybytes(), schema_json="{}", plan="the plan")
    for number, (partitions, buckets, kind) in enumerate(stages, start=1):
        content = f"plan of stage {number} of {partitions}".encode()
        outcome.blobs.add(digest=digest(content), content=content)
        stage = outcome.stages.add(
            stage_id=number,
            name=f"stage {number}",
            work=pb.QUERY,
            plan_digest=digest(content),
            partitions=partitions,
            output=pb.OutputLayout(kind=kind, buckets=buckets),
            deterministic=True,
            plan=f"text {number}",
        )
        if number > 1:
            stage.inputs.add(stage_id=number - 1, read="bucket")
    if is_sink:
        outcome.sink.CopyFrom(pb.Sink(path=is_sink, format="parquet", mode="error"))
    return outcome


def identity(task_set: pb.TaskSet, task: pb.TaskAttempt) -> pb.TaskId:
    return pb.TaskId(
        job_id=task_set.job_id,
        stage_id=task_set.stage_id,
        stage_attempt=task_set.stage_attempt,
        partition=task.partition,
        task_attempt=task.task_attempt,
    )


def success(
    task_set: pb.TaskSet, task: pb.TaskAttempt, executor_id: str, *, inline: bytes | None = None, rows: int = 1
) -> pb.TaskReport:
    output = pb.TaskOutput(
        nonce=secrets.token_hex(8), executor_id=executor_id, shared=True, rows=rows, bytes=10, inline=inline is not None
    )
    done = pb.TaskSuccess(output=output, metrics=pb.TaskMetrics(run_ms=1, rows_out=rows), inline_result=inline or b"")
    return pb.TaskReport(task=identity(task_set, task), success=done)


def failure(task_set: pb.TaskSet, task: pb.TaskAttempt, kind: str, message: str = "it broke", **more) -> pb.TaskReport:
    return pb.TaskReport(task=identity(task_set, task), failure=pb.Failure(kind=kind, message=message, **more))


class ScriptedExecutor:
    """Polls and reports as the agent does; `run` makes the report of a task, or None to keep it running."""

    def __init__(self, address: str, executor_id: str, run: Run, *, slots: int = 2, pid: int = 0) -> None:
        self.pid = pid
        self.registrations = 0
        self.executor_id = executor_id
        self.incarnation = secrets.token_hex(8)
        self.slots = slots
        self.run_task = run
        self.held: dict[bytes, pb.TaskId] = {}
        self.to_repeat: dict[bytes, pb.TaskReport] = {}
        self.known: set[bytes] = set()
        self.ran: list[tuple[str, int, int, int, int]] = []
        self.cancelled: list[pb.TaskId] = []
        self.quarantine: list[pb.Quarantine] = []
        """The quarantine notices that it received, by polls and by heartbeats."""
        self.cleaned: list[pb.CleanUp] = []
        self.lists = 0
        self.wait_ms = 5_000
        self.changed = asyncio.Event()
        self.channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.stub = OnagerExecutorGatewayStub(self.channel)
        self.tasks: list[asyncio.Task[None]] = []
        self._cleaned_up: list[str] = []
        self.is_draining = False
        self.load: pb.ExecutorLoad | None = None
        self.lose_answers = 0
        """How many answers to polls get lost on their way."""

    async def register(self) -> pb.RegisterExecutorResponse:
        answer = await self.stub.RegisterExecutor(
            pb.RegisterExecutorRequest(
                executor_id=self.executor_id,
                incarnation=self.incarnation,
                host="test",
                slots=self.slots,
                protocol_version=PROTOCOL_VERSION,
                spark_version="4.3.0",
                python_version="3.11",
                exchange_dir="/tmp",
                running=list(self.held.values()),
                pid=self.pid,
            ),
            wait_for_ready=True,
        )
        self.registrations += 1
        return answer

    async def finish(self, tasks: Iterable[pb.TaskId], run: Run) -> None:
        """Report tasks that were kept running."""
        reports = []
        for task in tasks:
            task_set = pb.TaskSet(
                job_id=task.job_id, stage_id=task.stage_id, stage_attempt=task.stage_attempt, work=pb.QUERY
            )
            attempt = pb.TaskAttempt(partition=task.partition, task_attempt=task.task_attempt)
            reports.append(run(task_set, attempt))
        await self.work(await self.report(reports))

    async def poll(self) -> None:
        self.lists += 1
        answer = await self.stub.PollWork(
            pb.PollWorkRequest(
                executor_id=self.executor_id,
                incarnation=self.incarnation,
                free_slots=self.slots - len(self.held),
                list_number=self.lists,
                running=list(self.held.values()),
                wait_ms=self.wait_ms,
                cleaned_up=self._cleaned_up,
            )
        )
        self.take_answer(answer)
        if self.lose_answers and answer.task_sets:
            self.lose_answers -= 1
            return
        self._cleaned_up = []
        for clean_up in answer.clean_ups:
            self.cleaned.append(clean_up)
            self._cleaned_up.append(clean_up.job_id)
        self.cancel(answer.cancel)
        await self.work(answer.task_sets)

    def take_answer(self, answer: pb.HeartbeatResponse | pb.PollWorkResponse) -> None:
        if answer.HasField("quarantine"):
            self.quarantine.append(answer.quarantine)

    def cancel(self, tasks: Iterable[pb.TaskId]) -> None:
        for task in tasks:
            self.cancelled.append(task)
            self.held.pop(task.SerializeToString(deterministic=True), None)
        self.changed.set()

    async def work(self, task_sets: Iterable[pb.TaskSet]) -> None:
        while task_sets:
            reports = []
            for task_set in task_sets:
                for task in task_set.tasks:
                    task_id = identity(task_set, task)
                    key = task_id.SerializeToString(deterministic=True)
                    if key in self.known:
                        continue
                    self.known.add(key)
                    self.held[key] = task_id
                    self.ran.append(
                        (task_set.job_id, task_set.stage_id, task_set.stage_attempt, task.partition, task.task_attempt)
                    )
                    report = self.run_task(task_set, task)
                    if report is not None:
                        reports.append(report)
            if not reports:
                return
            task_sets = await self.report(reports)

    async def report(self, reports: list[pb.TaskReport]) -> list[pb.TaskSet]:
        sent = {report.task.SerializeToString(deterministic=True): report for report in reports}
        acknowledged: set[bytes] = set()
        try:
            answer = await self.stub.ReportTasks(
                pb.ReportTasksRequest(
                    executor_id=self.executor_id,
                    incarnation=self.incarnation,
                    reports=reports,
                    freed_slots=len(reports),
                )
            )
            acknowledged = {task_id.SerializeToString(deterministic=True) for task_id in answer.acknowledged}
        finally:
            # Not while it is under way: a slot is freed once.
            self.to_repeat |= {key: report for key, report in sent.items() if key not in acknowledged}
        for key in acknowledged:
            self.held.pop(key, None)
        self.cancel(answer.cancel)
        return list(answer.task_sets)

    async def repeat(self) -> None:
        """Send again what was not acknowledged."""
        reports, self.to_repeat = list(self.to_repeat.values()), {}
        if reports:
            await self.work(await self.report(reports))

    async def loop(self) -> None:
        await self.register()
        while True:
            try:
                if len(self.held) >= self.slots:
                    self.changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.changed.wait(), 0.2)
                    continue
                await self.poll()
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    await self.register()
                else:
                    await asyncio.sleep(0.1)

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(0.4)
            if not self.registrations:
                continue  # it would be asked to register, and does so already
            request = pb.HeartbeatRequest(
                executor_id=self.executor_id, incarnation=self.incarnation, draining=self.is_draining, load=self.load
            )
            try:
                await self.repeat()
                answer = await self.stub.Heartbeat(request)
                self.take_answer(answer)
                self.cancel(answer.cancel)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    await self.register()

    def start(self) -> None:
        self.tasks += [asyncio.create_task(self.loop()), asyncio.create_task(self.beat())]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks = []

    async def close(self) -> None:
        await self.stop()
        await self.channel.close()


@asynccontextmanager
async def executor(
    address: str, executor_id: str, run: Run, *, slots: int = 2, pid: int = 0
) -> AsyncIterator[ScriptedExecutor]:
    scripted = ScriptedExecutor(address, executor_id, run, slots=slots, pid=pid)
    scripted.start()
    try:
        yield scripted
    finally:
        await scripted.close()


class Client:
    """Calls of a client, in few words."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.stub = OnagerSchedulerStub(self.channel)

    async def submit(self, job_id: str, text: str = "SELECT 1", **conf: str) -> pb.SubmitJobResponse:
        spec = pb.JobSpec(sql=pb.SqlScript(text=text), name=job_id, conf=conf)
        return await self.stub.SubmitJob(
            pb.SubmitJobRequest(job_id=job_id, spec=spec, client_id="test", protocol_version=PROTOCOL_VERSION),
            wait_for_ready=True,
        )

    async def detail(self, job_id: str) -> pb.JobDetail:
        return await self.stub.GetJob(pb.GetJobRequest(job_id=job_id), wait_for_ready=True)

    async def wait(self, job_id: str, timeout_s: float = HANGS_S) -> pb.JobProgress:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    last = None
                    async for progress in self.stub.WatchJob(pb.WatchJobRequest(job_id=job_id), wait_for_ready=True):
                        last = progress
                    if last is not None:
                        return last
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                await asyncio.sleep(0.05)

    async def fetch(self, job_id: str, partition: int = 0, batch: int = 0) -> list[int]:
        schema, pieces, values = None, [], []
        request = pb.FetchResultRequest(job_id=job_id, partition=partition, batch=batch)
        async for chunk in self.stub.FetchResult(request):
            if chunk.schema:
                schema = pa.ipc.read_schema(pa.py_buffer(chunk.schema))
            if chunk.record_batch:
                pieces.append(chunk.record_batch)
                if not chunk.more:
                    found = pa.ipc.read_record_batch(pa.py_buffer(b"".join(pieces)), schema)
                    values += found.column(0).to_pylist()
                    pieces = []
        return values

    async def close(self) -> None:
        await self.channel.close()


def sql_of(spec: bytes) -> str:
    return json.loads(spec)["sql"]["text"]
