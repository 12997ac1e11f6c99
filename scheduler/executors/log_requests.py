"""Requests for what tasks have logged, to the executors that wait at this scheduler."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from onager.errors import BusyError
from onager.protocol import onager_pb2 as pb
from onager.protocol.limits import MIB
from onager.scheduler.executors.executor_requests import ExecutorRequests, Pending, RequestKind

log = structlog.get_logger(__name__)

_MAX_BYTES: Final = 16 * MIB
"""Text of one answer: more is left out."""


async def request_logs(
    requests: ExecutorRequests, ask: pb.LogsAsk, wait_s: float, only: Collection[str] = ()
) -> pb.AskExecutorsResponse:
    """Return what the executors that wait here, or those of *only*, answer within *wait_s*."""
    collected = _Collected()
    sent: list[Pending] = []
    for executor_id in requests.waiting(RequestKind.LOGS):
        if only and executor_id not in only:
            continue
        with suppress(BusyError):
            pending = requests.add(RequestKind.LOGS, executor_id, pb.ExecutorRequest(logs=ask))
            pending.answer.add_done_callback(partial(collected.add, pending))
            sent.append(pending)
    if not sent:
        return collected.response
    try:
        _, silent = await asyncio.wait([pending.answer for pending in sent], timeout=wait_s)
        if silent:
            log.debug("executors_did_not_answer", count=len(silent), wait_s=wait_s)
    finally:
        for pending in sent:
            requests.withdraw(pending)
    return collected.response


class _Collected:
    """The answers of executors, up to the limit."""

    def __init__(self) -> None:
        self.response = pb.AskExecutorsResponse()
        self._size = 0

    def add(self, pending: Pending, answered: "asyncio.Future[pb.RequestAnswer | None]") -> None:
        """Add an executor's answer, if one came."""
        if answered.cancelled() or (answer := answered.result()) is None:
            return
        self.response.answered.append(pending.executor_id)
        self.response.left_out += answer.logs.left_out
        for each in answer.logs.logs:
            self._size += len(each.text)
            if self._size > _MAX_BYTES:
                self.response.left_out += 1
                continue
            each.executor_id = pending.executor_id  # it speaks for itself alone
            self.response.logs.append(each)
