"""The calls of other schedulers: they forward what concerns jobs that this one drives."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from onager.execution_graph import ExecutorSlot
from onager.ids import JobId, SchedulerId
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerSchedulerGatewayServicer
from onager.protocol.serving import translated
from onager.protocol.task_keys import by_key, task_id, task_key
from onager.scheduler import timing
from onager.scheduler.api.progress import ProgressView
from onager.scheduler.cluster.forwarding import Forwarding
from onager.scheduler.cluster.job_driver import NotDrivingError
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.ownership import Ownership
from onager.scheduler.engine.local_driver import LocalDriver
from onager.scheduler.engine.query_coordinator import Share
from onager.scheduler.executors.executor_requests import ExecutorRequests
from onager.scheduler.executors.log_requests import request_logs
from onager.scheduler.jobs.job_store import JobStore
from onager.scheduler.jobs.live_progress import LiveProgress
from onager.scheduler.loops import a_few_at_once
from onager.waiting import is_set_within

Context = Any
Part = pb.ForwardedReports | pb.ForwardedSlots | pb.ForwardedList


@dataclass(eq=False, repr=False)
class SchedulerGatewayService(OnagerSchedulerGatewayServicer):  # type: ignore[misc]
    """The service for other schedulers; it handles whatever arrives, since others may see another driver."""

    local: LocalDriver
    loads: JobLoads
    forwarding: Forwarding
    jobs: JobStore
    ownership: Ownership
    schedulers: LiveSchedulers
    view: ProgressView
    live: LiveProgress
    requests: ExecutorRequests
    _leaving: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def release(self) -> None:
        """Answer the calls that wait, because this scheduler leaves."""
        self._leaving.set()

    @translated
    async def Attend(self, request: pb.AttendRequest, context: Context) -> pb.AttendResponse:  # noqa: ARG002, N802
        """Answer when the caller's wait is over, or when this scheduler leaves."""
        await is_set_within(self._leaving, min(request.wait_ms / 1000, timing.ATTEND_WAIT_S))
        record = self.schedulers.record
        return pb.AttendResponse(
            scheduler_id=record.scheduler_id,
            incarnation=record.incarnation,
            leaving=self._leaving.is_set(),
            now_ms=self.schedulers.clock.now_ms(),
            machine_ms=self.schedulers.clock.machine_ms,
        )

    @translated
    async def AskExecutors(self, request: pb.AskExecutorsRequest, context: Context) -> pb.AskExecutorsResponse:  # noqa: ARG002, N802
        """Return what the executors that wait here answer in time."""
        wait_s = min(request.wait_ms / 1000, timing.LOGS_ANSWERED_S)
        return await request_logs(self.requests, request.ask, wait_s, request.executor_ids)

    @translated
    async def Forward(self, request: pb.ForwardRequest, context: Context) -> pb.ForwardResponse:  # noqa: ARG002, N802
        """Handle all parts concurrently, and answer each."""
        self.loads.take_loads(request.loads)
        self.live.record(each for each in request.progress if self._is_active(JobId(each.task.job_id)))
        reports, slots, lists = await asyncio.gather(
            a_few_at_once([self._update(part) for part in request.reports], most=16),
            a_few_at_once([self._fill(part) for part in request.slots]),
            a_few_at_once([self._compare(part) for part in request.lists], most=16),
        )
        watched = []
        for part in request.watched:
            watched.append(self._progress(JobId(part.job_id)))
            await asyncio.sleep(0)  # one with many stages takes a while
        loads, change = self.loads.changed_since(request.known_change)
        caller = self.forwarding.drivers().get(SchedulerId(request.scheduler_id))
        if caller is not None:
            caller.answered(request.known_change, change)
        others = [JobId(part.job_id) for part in request.slots if not self.ownership.follows(JobId(part.job_id))]
        return pb.ForwardResponse(
            loads=[*loads, *self.loads.of(others)],
            change=change,
            reports=reports,
            slots=slots,
            lists=lists,
            watched=watched,
        )

    def _is_active(self, job_id: JobId) -> bool:
        head = self.jobs.heads.get(job_id)
        return head is not None and head.is_active

    def _progress(self, job_id: JobId) -> pb.WatchedJob:
        job = self.jobs.cached(job_id)
        if job is None or (job.graph.is_active and not self.ownership.follows(job_id)):
            return pb.WatchedJob(job_id=job_id)
        return pb.WatchedJob(job_id=job_id, log_seq=job.seq, progress=self.view.progress(job.graph, job.header))

    async def _update(self, part: pb.ForwardedReports) -> pb.AppliedReports:
        slot, reports = _slot(part, is_empty=part.empty), by_key(part.reports)
        updated = await self.local.update_task_statuses(slot, reports, part.freed_slots)
        is_all = len(updated.acknowledged) == len(reports)
        return pb.AppliedReports(
            all_acknowledged=is_all,
            acknowledged=[] if is_all else [task_id(key) for key in updated.acknowledged],
            task_sets=[launch.task_set for launch in updated.launches],
        )

    async def _fill(self, part: pb.ForwardedSlots) -> pb.FilledSlots:
        try:
            slot = _slot(part, is_empty=part.empty)
            launches = await self.local.fill_shares(JobId(part.job_id), [Share(slot, part.slots)])
        except NotDrivingError:
            return pb.FilledSlots(failed=True)
        return pb.FilledSlots(task_sets=[launch.task_set for launch in launches])

    async def _compare(self, part: pb.ForwardedList) -> pb.ComparedList:
        held = [task_key(task) for task in part.held]
        compared = await self.local.compare_tasks(_slot(part), held, disproves=part.disproves)
        return pb.ComparedList(
            task_sets=[launch.task_set for launch in compared.launches],
            cancel=[task_id(key) for key in compared.unwanted],
        )


def _slot(part: Part, *, is_empty: bool = False) -> ExecutorSlot:
    return ExecutorSlot(part.executor_id, part.incarnation, part.list_number, is_empty=is_empty)
