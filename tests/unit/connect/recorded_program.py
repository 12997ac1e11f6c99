"""A program whose calls are recorded, at two schedulers, whose Spark answers each question otherwise every time."""

import asyncio
import base64
import hashlib
import uuid
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
from msgspec.structs import replace

from onager.exchange_layout import result_file
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import (
    CACHE,
    AnalyzePlanRequest,
    AnalyzePlanResponse,
    ConfigRequest,
    ConfigResponse,
    ExecutePlanRequest,
    ExecutePlanResponse,
    FetchErrorDetailsResponse,
    request_of,
)
from onager.protocol.task_keys import by_key, task_id
from onager.scheduler.connect.call_names import CALL_HEADER, LINE_HEADER, PLAN_HEADER, PROGRAM_HEADER
from onager.scheduler.connect.failures import RECORDED_KEY
from onager.scheduler.connect.handler import SparkConnectHandler
from onager.scheduler.connect.program_calls import CallRecord
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import job_id_of
from onager.scheduler.jobs.job_writers import Decision
from onager.scheduler.policy.reservations import ExecutorReservation
from onager.state_backend import Keyspace
from tests.unit.scheduler.pair import SLOT
from tests.unit.scheduler.small_graphs import planned

SESSION = str(uuid.UUID(int=0xABC))
PROGRAM = "nightly"
KEY = SessionKey("ann", SESSION)
SERVICE = "/spark.connect.SparkConnectService/"
SCHEMA = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'


class Spark:
    """Answers otherwise each time; a statement says what comes of it."""

    def __init__(self):
        self.asked = 0
        self.before_answer = None
        self.more = 0

    async def call(self, call, *_):
        self.asked += 1
        if self.before_answer is not None:
            act, self.before_answer = self.before_answer, None
            await act()
        if call.HasField("describe"):
            return pb.ConnectReply(defaults=pb.ConnectDefaults(spark_version="4.3.0"))
        if call.HasField("analyze"):
            answer = AnalyzePlanResponse()
            answer.tree_string.tree_string = f"answer {self.asked} {'x' * self.more}"
            return pb.ConnectReply(analyzed=answer.SerializeToString())
        applied = pb.ConnectApplied(changes=True, conf=call.session.conf, responses=[b""])
        if call.HasField("configure"):
            for pair in ConfigRequest.FromString(call.configure).operation.set.pairs:
                applied.conf[pair.key] = pair.value
            return pb.ConnectReply(applied=applied)
        if call.HasField("persist"):
            named = {"kind": CACHE, "name": "cached"}
            if AnalyzePlanRequest.FromString(call.persist).HasField("persist"):
                applied.put.add(command=b"c", **named)
            else:
                applied.removed.add(**named)
            return pb.ConnectReply(applied=applied)
        return self._carried_out(call, applied)

    def _carried_out(self, call, applied):
        text = ExecutePlanRequest.FromString(call.apply).plan.command.sql_command.sql
        response = ExecutePlanResponse()
        response.sql_command_result.relation = f"answer {self.asked}".encode()
        verb, *words = text.split()
        match verb:
            case "FAIL" | "BUSY":
                failure = pb.ConnectFailure(error_class="TABLE_OR_VIEW_NOT_FOUND", message=f"no {words[0]}: {text}")
                details = FetchErrorDetailsResponse(root_error_idx=0)
                cause = details.errors.add(message=failure.message).spark_throwable
                cause.error_class = failure.error_class
                for number in range(9):
                    cause.message_parameters[f"parameter{number}"] = str(number)
                failure.details = details.SerializeToString()
                failure.is_passing = verb == "BUSY"
                return pb.ConnectReply(failure=failure)
            case "INSERT":
                return pb.ConnectReply(job=pb.ConnectJob(work="write", responses=[response.SerializeToString()]))
            case "SET":
                applied.conf[words[0]] = words[1]
                applied.responses[:] = [response.SerializeToString()]
                return pb.ConnectReply(applied=applied)
        unchanged = pb.ConnectApplied(conf=call.session.conf, responses=[response.SerializeToString()])
        return pb.ConnectReply(applied=unchanged)


class RefusedError(Exception):
    def __init__(self, code, message, metadata):
        super().__init__(message)
        self.code = code
        self.metadata = dict(metadata)
        self.is_recorded = RECORDED_KEY in self.metadata


class Context:
    def __init__(self, metadata):
        self._metadata = metadata
        self.written = []

    def peer(self):
        return "ipv4:192.0.2.1:1"

    def invocation_metadata(self):
        return self._metadata

    async def write(self, message):
        self.written.append(message)

    async def abort(self, code, message, metadata=()):
        raise RefusedError(code, message, metadata)


class Attempt:
    """A process of the program, which makes one call after the other at any scheduler."""

    def __init__(self, pair, spark, secret, program=PROGRAM):
        self.pair, self.spark, self.secret, self.program = pair, spark, secret, program
        self.number = 0

    async def begin(self, user="ann", **more):
        request = pb.BeginProgramRequest(program_id=self.program, secret=self.secret, user=user, **more)
        self.begun = await self.pair.here.programs.begin("", request)
        return self

    async def end(self, code=0):
        request = pb.EndProgramRequest(
            program_id=self.program, attempt=self.begun.attempt, secret=self.secret, exit_code=code
        )
        await self.pair.there.programs.end("", request)

    async def ask(self, method, *, at=None, number=None, user="ann", task="0", line=None, **fields):
        """Make the next call, or that of *number* (0: one without a number); return its answers."""
        if number is None:
            self.number += 1
            number = self.number
        request = fields.pop("request", None) or request_of(method)(**fields)
        request.session_id = SESSION
        request.user_context.user_id = user
        metadata = [(PROGRAM_HEADER, f"{self.program}/{self.begun.attempt}/{self.secret}")]
        if number:
            metadata += [(CALL_HEADER, f"{task}/{number}"), (LINE_HEADER, f"app.py:{line or number}".encode())]
            metadata += [(PLAN_HEADER, asked_by(request))]
        scheduler = at or self.pair.here
        handler = SparkConnectHandler(scheduler.spark_connect, asyncio.Event(), 100)
        rpc = handler.service(SimpleNamespace(method=f"{SERVICE}{method}"))
        context = Context(metadata)
        if rpc.unary_stream is not None:
            await rpc.unary_stream(request.SerializeToString(), context)
            return context.written
        if rpc.stream_unary is not None:

            async def messages():
                yield request.SerializeToString()

            return [await rpc.stream_unary(messages(), context)]
        return [await rpc.unary_unary(request.SerializeToString(), context)]

    async def set(self, **pairs):
        request = ConfigRequest()
        for key, value in pairs.items():
            request.operation.set.pairs.add(key=key, value=value)
        return await self.ask("Config", request=request)

    async def get(self, key):
        request = ConfigRequest()
        request.operation.get_option.keys.append(key)
        (answer,) = await self.ask("Config", request=request)
        return [pair.value for pair in ConfigResponse.FromString(answer).pairs]

    async def analyze(self, plan=b"relation", **more):
        request = request_of("AnalyzePlan")()
        request.tree_string.plan.root = plan
        (answer,) = await self.ask("AnalyzePlan", request=request, **more)
        return AnalyzePlanResponse.FromString(answer).tree_string.tree_string

    async def sql(self, text, **more):
        request = ExecutePlanRequest(operation_id=operation(more.get("number") or self.number + 1))
        request.plan.command.sql_command.sql = text
        return await self.ask("ExecutePlan", request=request, **more)

    async def query(self, plan=b"relation", **more):
        request = ExecutePlanRequest(operation_id=operation(more.get("number") or self.number + 1))
        request.plan.root = plan
        return await self.ask("ExecutePlan", request=request, **more)


def asked_by(request):
    """Return a digest of what a request asks for, as a program's process makes one."""
    asked = request_of(request.DESCRIPTOR.name.removesuffix("Request"))()
    asked.CopyFrom(request)
    for name in ("operation_id", "session_id", "user_context"):
        asked.ClearField(name) if name in asked.DESCRIPTOR.fields_by_name else None
    return hashlib.sha256(asked.SerializeToString(deterministic=True)).hexdigest()[:32]


def operation(number):
    return str(uuid.UUID(int=0xF000 + number))


def job_of(number):
    return job_id_of(KEY, operation(number))


async def again(attempt, letter="b"):
    return await Attempt(attempt.pair, attempt.spark, letter * 32).begin()


async def conf(pair):
    return dict((await pair.there.spark_connect.sessions.find(KEY)).message.conf)


async def finish(pair, number, batches=None):
    """Plan the job of a call, and have it succeed: without rows, or with *batches* of numbers, in a file."""
    schema = base64.b64encode(pa.schema([pa.field("n", pa.int64())]).serialize().to_pybytes()).decode()
    event = planned(0 if batches is None else 1)
    summary = replace(event.summary, arrow_schema=schema, schema_json=SCHEMA)
    for scheduler in pair.schedulers.values():
        if (await scheduler.jobs.load(job_of(number))).graph.is_active and scheduler.ownership.is_mine(job_of(number)):
            await scheduler.local.fill_reservations(job_of(number), [ExecutorReservation.of(SLOT)])
            await scheduler.writers.record_decision(
                job_of(number), lambda _: Decision([replace(event, summary=summary)])
            )
            if batches is not None:
                await _have_rows(pair, scheduler, job_of(number), batches)


async def _have_rows(pair, scheduler, job_id, batches):
    await pair.settle()
    (key,) = await pair.fill(1, scheduler)
    nonce = "a" * 16
    path = Path(pair.here.settings.exchange_dir) / result_file(job_id, 1, 0, nonce)
    path.parent.mkdir(parents=True)
    schema = pa.schema([pa.field("n", pa.int64())])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(pa.record_batch([pa.array(batch, pa.int64())], schema=schema))
    output = pb.TaskOutput(nonce=nonce, executor_id="e1", shared=True, rows=sum(map(len, batches)), bytes=1)
    report = pb.TaskReport(task=task_id(key), success=pb.TaskSuccess(output=output))
    await scheduler.tasks.update_task_statuses(SLOT, by_key([report]), 1)


async def doing(attempt, work, number, batches=None):
    """Make a call whose job ends while it is waited for, with *batches*."""
    asked = asyncio.ensure_future(work)
    await submitted(attempt.pair, number)
    await finish(attempt.pair, number, batches)
    return await asked


async def submitted(pair, number):
    """Wait until the job of a call is there."""
    while not await pair.here._backend.get(Keyspace.ActiveJobs, job_of(number)):  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(0)


async def left(attempt, work, number):
    """Begin a call, and die before its job ends."""
    asked = asyncio.ensure_future(work)
    await submitted(attempt.pair, number)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def forget(pair, number):
    """Remove all records of a call's job, as after its retention."""
    for keyspace in (Keyspace.ActiveJobs, Keyspace.CompletedJobs, Keyspace.JobHeads):
        await pair.here._backend.delete(keyspace, job_of(number))
    for scheduler in pair.schedulers.values():
        await scheduler.heads.refresh()
        scheduler.jobs.forget(job_of(number))


def answers(responses):
    """Return the responses that are more than how far a job is."""
    return [each for each in responses if not ExecutePlanResponse.FromString(each).HasField("execution_progress")]


def ids(responses):
    return [ExecutePlanResponse.FromString(each).response_id for each in responses]


async def record_of(attempt, number):
    found = await attempt.pair.here._backend.get(Keyspace.ProgramCalls, f"%/{PROGRAM}/0/{number:06d}")
    return None if found is None else CallRecord.decoded(found.value, "call")
