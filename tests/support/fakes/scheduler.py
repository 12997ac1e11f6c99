"""A scheduler in this process that keeps jobs in a dict and breaks connections on demand: a real gRPC server."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pyarrow as pa

from onager.errors import JobConflictError, JobNotFoundError, OnagerError
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.onager_pb2_grpc import OnagerSchedulerServicer, add_OnagerSchedulerServicer_to_server
from onager.protocol.status import to_status


class FakeScheduler(OnagerSchedulerServicer):
    """Set attributes to say what it does next."""

    def __init__(self, jobs: dict[str, pb.JobSpec] | None = None) -> None:
        self.jobs: dict[str, pb.JobSpec] = {} if jobs is None else jobs
        self.address = ""
        self.calls: list[tuple[str, Any]] = []
        self.on_call: Callable[[str], None] = lambda _: None
        self.progress: list[pb.JobProgress] = []
        self.load: pb.ExecutorLoad | None = None
        self.executors: dict[str, str] = {"e1": "alive"}
        """Their states, by id."""
        self.programs = 0
        """That run on each of them."""
        self.program = pb.ProgramInfo()
        self.program_calls: list[pb.ProgramCall] = []
        """Sent one to a page."""
        self.batches: list[pb.EventBatch] = []
        self.final_stages: list[pb.FinalStage] = []
        """Sent one to a page."""
        self.exports: dict[str, list[bytes]] = {}
        self.audit: list[pb.AuditEntry] = []
        """Sent one to a page."""
        self.logs: list[pb.AttemptLog] = []
        self.partitions: list[list[pa.RecordBatch]] = []
        self.schema = pa.schema([("n", pa.int64())])
        self.piece_bytes = 1 << 20
        self.break_after_messages: list[int] = []
        self._server: grpc.Server | None = None

    def start(self, address: str = "127.0.0.1:0") -> str:
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=SERVER_OPTIONS)
        add_OnagerSchedulerServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(address)
        self._server.start()
        return f"127.0.0.1:{port}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()

    def _enter(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        self.calls.append((method, request))
        try:
            self.on_call(method)
        except OnagerError as error:
            _abort(context, error)

    def SubmitJob(self, request, context):  # noqa: N802
        self._enter("SubmitJob", request, context)
        known = self.jobs.get(request.job_id)
        if known is not None and known != request.spec:
            _abort(context, JobConflictError(request.job_id))
        self.jobs[request.job_id] = request.spec
        return pb.SubmitJobResponse(job_id=request.job_id, existed=known is not None)

    def GetJob(self, request, context):  # noqa: N802
        self._enter("GetJob", request, context)
        if request.job_id not in self.jobs:
            _abort(context, JobNotFoundError(request.job_id))
        return pb.JobDetail(progress=self.progress[-1], spec=self.jobs[request.job_id])

    def GetFinalPlan(self, request, context):  # noqa: N802
        self._enter("GetFinalPlan", request, context)
        stages = [stage for stage in self.final_stages if stage.info.stage_id >= request.stage_id]
        following = stages[1].info.stage_id if len(stages) > 1 else 0
        return pb.FinalPlan(job_id=request.job_id, state=self.progress[-1].state, stages=stages[:1], next=following)

    def ListJobs(self, request, context):  # noqa: N802
        self._enter("ListJobs", request, context)
        return pb.ListJobsResponse(jobs=self.progress)

    def WatchJob(self, request, context):  # noqa: N802
        self._enter("WatchJob", request, context)
        yield from self._breaking(iter(self.progress), context)
        if not self.progress or self.progress[-1].state < pb.SUCCESSFUL:
            while context.is_active():
                threading.Event().wait(0.02)

    def WatchEvents(self, request, context):  # noqa: N802
        self._enter("WatchEvents", request, context)
        later = (batch for batch in self.batches if batch.position > request.after)
        yield from self._breaking(later, context)

    def ExportJob(self, request, context):  # noqa: N802
        self._enter("ExportJob", request, context)
        chunks = (pb.ExportChunk(content=content) for content in self.exports[request.format])
        yield from self._breaking(chunks, context)

    def RetryJob(self, request, context):  # noqa: N802
        self._enter("RetryJob", request, context)
        existed = request.new_job_id in self.jobs
        self.jobs[request.new_job_id] = self.jobs[request.job_id]
        return pb.RetryJobResponse(job_id=request.new_job_id, existed=existed)

    def FetchLogs(self, request, context):  # noqa: N802
        self._enter("FetchLogs", request, context)
        after = {each.task.SerializeToString(): each.position for each in request.after}
        later = (log for log in self.logs if log.end > after.get(log.task.SerializeToString(), -1))
        yield from self._breaking(later, context)

    def DrainExecutor(self, request, context):  # noqa: N802
        self._enter("DrainExecutor", request, context)
        return pb.DrainExecutorResponse(running=1, programs=self.programs)

    def CancelJob(self, request, context):  # noqa: N802
        self._enter("CancelJob", request, context)
        return pb.CancelJobResponse(cancelled=True, state=pb.CANCELLED)

    def FetchResult(self, request, context):  # noqa: N802
        self._enter("FetchResult", request, context)
        yield from self._breaking(self._chunks(request), context)

    def ListExecutors(self, request, context):  # noqa: N802
        self._enter("ListExecutors", request, context)
        wanted = [
            pb.ExecutorInfo(
                executor_id=name,
                state=state,
                slots=2,
                load=self.load,
                programs=self.programs,
                program_slots=8 if self.programs else 0,
            )
            for name, state in self.executors.items()
            if request.state in ("", state)
        ]
        shown = wanted[: request.limit or None]
        states = Counter(self.executors.values())
        return pb.ListExecutorsResponse(executors=shown, states=states, more=len(shown) < len(wanted))

    def GetProgram(self, request, context):  # noqa: N802
        self._enter("GetProgram", request, context)
        return self.program

    def ListProgramCalls(self, request, context):  # noqa: N802
        self._enter("ListProgramCalls", request, context)
        at = int(request.after or "0")
        more = str(at + 1) if at + 1 < len(self.program_calls) else ""
        return pb.ListProgramCallsResponse(calls=self.program_calls[at : at + 1], next=more)

    def ListSchedulers(self, request, context):  # noqa: N802
        self._enter("ListSchedulers", request, context)
        one = pb.SchedulerInfo(scheduler_id="s1", address=self.address, version="1", started_ms=1000, answering=True)
        return pb.ListSchedulersResponse(schedulers=[one])

    def ListAudit(self, request, context):  # noqa: N802
        self._enter("ListAudit", request, context)
        number = int(request.cursor or 0)
        following = str(number + 1) if number + 1 < len(self.audit) else ""
        return pb.ListAuditResponse(entries=self.audit[number : number + 1], next=following)

    def ListState(self, request, context):  # noqa: N802
        self._enter("ListState", request, context)
        return pb.ListStateResponse(entries=[pb.StateEntry(key="JobHeads/j", mod_revision=7, size_bytes=9)])

    def GetState(self, request, context):  # noqa: N802
        self._enter("GetState", request, context)
        return pb.GetStateResponse(key=request.key, json='{"a": 1}', mod_revision=7)

    def _breaking(self, messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        limit = self.break_after_messages.pop(0) if self.break_after_messages else None
        for number, message in enumerate(messages):
            if number == limit:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken on demand")
            yield message

    def _chunks(self, request: pb.FetchResultRequest) -> Iterator[pb.ResultChunk]:
        yield pb.ResultChunk(schema=self.schema.serialize().to_pybytes())
        for partition, batches in enumerate(self.partitions):
            for index, batch in enumerate(batches):
                if (partition, index) < (request.partition, request.batch):
                    continue
                message = batch.serialize().to_pybytes()
                pieces = [message[i : i + self.piece_bytes] for i in range(0, len(message), self.piece_bytes)]
                for number, piece in enumerate(pieces):
                    yield pb.ResultChunk(
                        partition=partition, batch=index, record_batch=piece, more=number < len(pieces) - 1
                    )


def _abort(context: grpc.ServicerContext, error: OnagerError) -> None:
    status = to_status(error)
    context.set_trailing_metadata(status.metadata)
    context.abort(status.code, status.message)
