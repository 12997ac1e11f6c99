"""What other replicas call: they hand over what concerns jobs that this one acts on."""

import asyncio
from typing import Any

from execution_graph import ExecutorSlot
from onager.ids import ExecutorId, Incarnation, JobId
from onager.protocol import onager_pb2 as pb
from onager.protocol.onager_pb2_grpc import OnagerReplicaServicer
from onager.protocol.serving import translated
from onager.protocol.task_keys import task_id, task_key
from scheduler.tasks.job_actor import LocalActor, NotActingError
from scheduler.tasks.job_loads import JobLoads
from scheduler.tasks.reservations import ExecutorReservation

Context = Any
Part = pb.ForwardedReports | pb.ForwardedSlots | pb.ForwardedList


class ReplicaService(OnagerReplicaServicer):  # type: ignore[misc]
    """The service for other replicas. Whatever comes is worked off here: who acts may look different to others."""

    def __init__(self, local: LocalActor, loads: JobLoads) -> None:
        self._local = local
        self._loads = loads

    @translated
    async def Forward(self, request: pb.ForwardRequest, context: Context) -> pb.ForwardResponse:  # noqa: ARG002, N802
        """Work off all parts at once, and answer each."""
        self._loads.take(request.loads)
        reports, slots, lists = await asyncio.gather(
            asyncio.gather(*map(self._update, request.reports)),
            asyncio.gather(*map(self._fill, request.slots)),
            asyncio.gather(*map(self._compare, request.lists)),
        )
        jobs = [JobId(part.job_id) for part in request.slots]
        jobs += [JobId(report.task.job_id) for part in request.reports for report in part.reports]
        return pb.ForwardResponse(loads=self._loads.of(jobs), reports=reports, slots=slots, lists=lists)

    async def _update(self, part: pb.ForwardedReports) -> pb.AppliedReports:
        updated = await self._local.update(_slot(part), part.reports, part.freed_slots)
        return pb.AppliedReports(
            acknowledged=[task_id(key) for key in updated.acknowledged],
            task_sets=[launch.task_set for launch in updated.launches],
        )

    async def _fill(self, part: pb.ForwardedSlots) -> pb.FilledSlots:
        reservation = ExecutorReservation(
            ExecutorId(part.executor_id), Incarnation(part.incarnation), part.list_number, JobId(part.job_id)
        )
        try:
            filled = await self._local.fill(JobId(part.job_id), [reservation] * part.slots)
        except NotActingError:
            return pb.FilledSlots(failed=True)
        return pb.FilledSlots(task_sets=[launch.task_set for launch in filled.launches])

    async def _compare(self, part: pb.ForwardedList) -> pb.ComparedList:
        held = [task_key(task) for task in part.held]
        compared = await self._local.compare(_slot(part), held, disproves=part.disproves)
        return pb.ComparedList(
            task_sets=[launch.task_set for launch in compared.launches],
            cancel=[task_id(key) for key in compared.unwanted],
        )


def _slot(part: Part) -> ExecutorSlot:
    return ExecutorSlot(part.executor_id, part.incarnation, part.list_number)
