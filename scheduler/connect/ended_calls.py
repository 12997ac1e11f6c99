"""Calls of programs whose jobs have ended, and whose attempt did not live to see that: recorded before the jobs go."""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from onager.errors import OnagerError
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.operation import Operation
from onager.scheduler.connect.operations import Operations
from onager.scheduler.connect.program_calls import ProgramCalls
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.connect.running import CALL
from onager.scheduler.jobs.job_heads import JobHead

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EndedCalls:
    """Records what came of calls by their jobs."""

    calls: ProgramCalls
    operations: Operations

    async def settle(self, heads: Iterable[JobHead]) -> set[str]:
        """Record what came of the calls whose jobs are *heads*; return the ids of those where it fails."""
        unsettled = set()
        for head in heads:
            if CALL not in head.labels:
                continue
            try:
                await self._settle(head)
            except (OnagerError, ConnectError) as error:
                log.warning("call_not_recorded", job_id=head.job_id, call=head.labels[CALL], error=str(error))
                unsettled.add(head.job_id)
        return unsettled

    async def _settle(self, head: JobHead) -> None:
        call = await self.calls.as_recorded(head.labels[CALL])
        if call is None or call.record.is_done:
            return
        session = await self.operations.sessions.find(SessionKey(call.program.user, call.record.session_id))
        if session is None:
            return
        operation = Operation(session.key, session.record.server_side_session_id, call.record.operation_id, call)
        if operation.job_id == head.job_id:  # anybody may give a job this label
            await self.operations.settle(operation)
