"""What the attempts of a job's tasks logged: asked of the executors that live, and of the record what was kept."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from onager.errors import InvalidRequestError
from onager.execution_graph import ExecutionGraph, FailedStage, RunningStage, Stage
from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_LOG_BYTES
from onager.protocol.task_keys import task_id, task_key
from onager.scheduler import timing
from onager.scheduler.api.kept_ends import Kept, KeptEnds
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.scheduler_calls import SchedulerCalls
from onager.scheduler.executors.executor_requests import ExecutorRequests
from onager.scheduler.executors.log_requests import request_logs
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs.history import JobHistory
from onager.scheduler.jobs.job_log import StoredJob
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.loops import a_few_at_once

_TAIL_BYTES: Final = 64 * 1024
_MAX_FOLLOWED: Final = 1_000
_MAX_NAMED: Final = 8


@dataclass(eq=False, repr=False)
class JobLogs:
    """The logs of jobs, for clients of any scheduler."""

    jobs: JobStore
    history: JobHistory
    executors: ExecutorManager
    requests: ExecutorRequests
    schedulers: LiveSchedulers
    calls: SchedulerCalls

    def __post_init__(self) -> None:
        self._ends = KeptEnds(self.history)

    async def fetch(self, request: pb.FetchLogsRequest) -> AsyncGenerator[pb.AttemptLog, None]:
        """Yield logs in the order of the tasks, and what is missing as notes; when followed, until the job has ended.

        `InvalidRequestError` for a stage or a task that the job does not have.
        """
        job_id = JobId(request.job_id)
        after = {task_key(each.task): each.position for each in request.after}
        is_first, before, seen = True, set[str](), -1
        while True:
            job = await self.jobs.fresh(job_id)
            graph = job.graph
            if is_first:
                check_wanted(graph, request)
            now = running_on(graph, request)
            if job.seq != seen or now or before:
                # Since the last look tasks may have begun and ended, anywhere.
                live = await self._ask(request, after, [] if job.seq != seen else sorted(now | before))
                for each in self._in_order(live, after):
                    yield each
                if is_first and not request.after:
                    async for each in self._beside(job, request, live, after):
                        yield each
                elif not graph.is_active:
                    for each in self._tails(request, await self._kept(job, request), after):
                        yield each
            if not request.follow or not graph.is_active:
                return
            is_first, before, seen = False, now, job.seq
            await asyncio.sleep(timing.LOGS_FOLLOWED_EVERY_S)

    async def _ask(
        self, request: pb.FetchLogsRequest, after: Mapping[TaskKey, int], only: Collection[str]
    ) -> pb.AskExecutorsResponse:
        """Ask the executors that wait here, and those that wait at other schedulers."""
        ask = pb.LogsAsk(
            job_id=request.job_id,
            tail_bytes=min(request.tail_bytes or _TAIL_BYTES, MAX_LOG_BYTES),
            after=[pb.LogPosition(task=task_id(key), position=at) for key, at in list(after.items())[-_MAX_FOLLOWED:]],
        )
        for name in ("stage_id", "partition", "attempt"):
            if request.HasField(name):
                setattr(ask, name, getattr(request, name))
        wait_s = timing.LOGS_ANSWERED_S
        far = pb.AskExecutorsRequest(ask=ask, wait_ms=round(1000 * wait_s), executor_ids=only)
        answers = await a_few_at_once(
            [
                request_logs(self.requests, ask, wait_s, only),
                *(self.calls.ask_executors(s, far) for s in sorted(self.schedulers.live) if s != self.schedulers.id),
            ]
        )
        whole = pb.AskExecutorsResponse()
        seen: set[TaskKey] = set()
        for answer in answers:
            whole.answered.extend(answer.answered)
            whole.left_out += answer.left_out
            for each in answer.logs:
                if (key := task_key(each.task)) not in seen and each.task.job_id == request.job_id:
                    seen.add(key)
                    whole.logs.append(each)
        return whole

    def _in_order(self, answer: pb.AskExecutorsResponse, after: dict[TaskKey, int]) -> Iterator[pb.AttemptLog]:
        for each in sorted(answer.logs, key=lambda log: task_key(log.task)):
            key = task_key(each.task)
            known = after.get(key, 0)
            if each.end <= known:
                continue
            after.pop(key, None)  # attempts that go on come last: executors get the last positions only
            after[key] = each.end
            if each.begin < known and len(each.text) == each.end - each.begin:  # else something in it is redacted
                each.text, each.begin = each.text[known - each.begin :], known
            yield each

    def _tails(
        self, request: pb.FetchLogsRequest, kept: Mapping[TaskKey, Kept], after: dict[TaskKey, int]
    ) -> Iterator[pb.AttemptLog]:
        """Yield what was kept of attempts of which the client has got nothing yet; once."""
        for key in sorted(kept.keys() - after.keys()):
            executor_id, tail = kept[key]
            if tail:
                after[key] = 0
                text = tail.encode()[-min(request.tail_bytes or _TAIL_BYTES, MAX_LOG_BYTES) :]
                yield pb.AttemptLog(task=task_id(key), executor_id=executor_id, text=text, kept=True)

    async def _beside(
        self,
        job: StoredJob,
        request: pb.FetchLogsRequest,
        live: pb.AskExecutorsResponse,
        after: dict[TaskKey, int],
    ) -> AsyncIterator[pb.AttemptLog]:
        """Yield what was kept of attempts that no executor has any more, and notes on what is missing."""
        graph, kept = job.graph, await self._kept(job, request)
        for each in self._tails(request, kept, after):
            yield each
        ran_on = executors_of(graph, request) | {each.executor_id for each in kept.values()}
        for note in notes(
            ran_on=ran_on,
            answered=set(live.answered),
            alive={record.executor_id for record in self.executors.registry if record.state != "lost"},
            left_out=live.left_out,
            is_any=bool(after) or (request.follow and graph.is_active),
        ):
            yield pb.AttemptLog(note=note)

    async def _kept(self, job: StoredJob, request: pb.FetchLogsRequest) -> dict[TaskKey, Kept]:
        """Return what the history has of failed attempts; it is read only if some attempt did not succeed."""
        return await self._ends.of(job, request) if _has_failures(job.graph, request) else {}


def check_wanted(graph: ExecutionGraph, request: pb.FetchLogsRequest) -> None:
    """Raise `InvalidRequestError` for a stage or a task that the job does not have."""
    job_id, stages = graph.job_id, graph.stages
    if not request.HasField("stage_id"):
        if request.HasField("partition"):
            raise InvalidRequestError("a partition is one of a stage: name the stage, too")
        return
    if request.stage_id >= len(stages):
        known = "stage 0 only, which plans it" if len(stages) == 1 else f"stages 0 to {len(stages) - 1}"
        raise InvalidRequestError(f"job {job_id} has no stage {request.stage_id}: it has {known}")
    if not request.HasField("partition"):
        return
    partitions = stages[request.stage_id].spec.partitions
    if request.partition >= partitions:
        known = "partition 0 only" if partitions == 1 else f"partitions 0 to {partitions - 1}"
        raise InvalidRequestError(
            f"stage {request.stage_id} of job {job_id} has no partition {request.partition}: it has {known}"
        )


def _wanted(graph: ExecutionGraph, request: pb.FetchLogsRequest) -> Iterator[Stage]:
    if request.HasField("stage_id"):
        yield graph.stages[request.stage_id]
    else:
        yield from graph.stages


def running_on(graph: ExecutionGraph, request: pb.FetchLogsRequest) -> set[str]:
    """Return the executors that hold such tasks now."""
    return {
        task.executor_id
        for stage in _wanted(graph, request)
        if isinstance(stage, RunningStage)
        for partition, task in stage.in_hand()
        if not request.HasField("partition") or partition == request.partition
    }


def executors_of(graph: ExecutionGraph, request: pb.FetchLogsRequest) -> set[str]:
    """Return the executors that hold such tasks, or made an output that counts."""
    found = running_on(graph, request)
    for stage in _wanted(graph, request):
        outputs = stage.ledger.outputs
        if not request.HasField("partition"):
            found |= {output.executor_id for output in outputs.values()}
        elif (output := outputs.get(request.partition)) is not None:
            found.add(output.executor_id)
    return found


def _has_failures(graph: ExecutionGraph, request: pb.FetchLogsRequest) -> bool:
    return any(
        stage.ledger.attempts or stage.ledger.tasks_failed or isinstance(stage, FailedStage)
        for stage in _wanted(graph, request)
    )


def notes(
    *, ran_on: Collection[str], answered: Collection[str], alive: Collection[str], left_out: int, is_any: bool
) -> Iterator[str]:
    """Yield for people what is missing of the logs of tasks that *ran_on* executors, and why."""
    silent = sorted(e for e in ran_on if e in alive and e not in answered)
    gone = sorted(e for e in ran_on if e not in alive)
    if silent:
        yield f"{_named(silent)} did not answer in time: what tasks logged there is missing here; ask again"
    if gone:
        yield f"{_named(gone)} {_is(gone)} gone, and what tasks logged there, except for the ends kept with failures"
    if left_out:
        yield f"{left_out} more attempts did not fit: name a stage, and a partition"
    if not is_any and not silent:
        yield "no task has run yet" if not ran_on else "nothing is there: such tasks logged nothing, or long ago"


def _named(executors: Collection[str]) -> str:
    some = list(executors)[:_MAX_NAMED]
    more = len(executors) - len(some)
    return f"executor{'s' * (len(executors) > 1)} {', '.join(some)}" + (f" and {more} more" if more else "")


def _is(executors: Collection[str]) -> str:
    return "is" if len(executors) == 1 else "are"
