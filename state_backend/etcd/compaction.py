"""Keeps etcd's history short: etcd keeps it in the database until a client compacts it.

Every client looks regularly, and one client of a namespace compacts: the one that moves the marker key on from where it
saw it last. It compacts what was older than that last look, so history reaches back one to two periods.
"""

import asyncio
import json
from typing import Any, Final

import structlog
from aetcd import rpc

from onager.errors import OnagerError, StateAccessError, StateFullError
from onager.state_backend.etcd.calls import Calls, Metadata, unary
from onager.state_backend.etcd.endpoints import Endpoint
from onager.state_backend.etcd.failures import is_compacted
from onager.state_backend.etcd.keys import KeyLayout
from onager.state_backend.etcd.messages import get_op, is_modified_at

log = structlog.get_logger(__name__)

_GROWN_REVISIONS: Final = 10_000
"""This many commits without any compaction mean that no client compacts."""
_ADVICE: Final = (
    "start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=5m, or its database fills up"
)


class Compactor:
    """Compacts the history of the cluster every *period_s* seconds."""

    def __init__(self, calls: Calls, layout: KeyLayout, period_s: float) -> None:
        self._calls = calls
        self._marker = layout.compaction
        self._period_s = period_s
        self._seen_modified = 0
        self._seen_revision = 0

    async def run(self) -> None:
        """Compact until cancelled, or until etcd forbids it."""
        while True:
            try:
                await self.step()
            except StateAccessError as error:
                log.warning("etcd_history_not_compacted", error=str(error), advice=_ADVICE)
                return
            except OnagerError as error:
                log.warning("etcd_compaction_failed", error=str(error))
            await asyncio.sleep(self._period_s)

    async def step(self) -> int | None:
        """Look once; return the revision that was compacted, or `None` if it was not our turn."""
        target = self._seen_revision
        try:
            if not await self._take_turn() or not target:
                return None
        except StateFullError:
            # A full database rejects the marker, and needs compaction all the more.
            if not target:
                raise
        await compact(self._calls, target)
        return target

    async def _take_turn(self) -> bool:
        """Move the marker on; return whether no other client did since we saw it."""
        value = json.dumps({"revision": self._seen_revision}).encode()
        request = rpc.TxnRequest(
            compare=[is_modified_at(self._marker, self._seen_modified)],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=self._marker, value=value))],
            failure=[get_op(self._marker)],
        )
        answer: Any = await self._calls.write(unary(lambda member: member.kv.Txn, request))
        self._seen_revision = answer.header.revision
        if answer.succeeded:
            self._seen_modified = answer.header.revision
        else:
            [found] = answer.responses[0].response_range.kvs or [rpc.KeyValue()]
            self._seen_modified = found.mod_revision
        return bool(answer.succeeded)


async def compact(calls: Calls, revision: int) -> None:
    """Compact the history before *revision*; repeating a compaction is no error."""
    request = rpc.CompactionRequest(revision=revision)

    async def send(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> None:
        try:
            await endpoint.kv.Compact(request, timeout=timeout_s, metadata=metadata)
        except rpc.AioRpcError as error:
            if not is_compacted(error):
                raise

    await calls.read(send)


async def warn_when_history_grows(calls: Calls, layout: KeyLayout) -> None:
    """Log a warning when history is long and was never compacted."""
    request = rpc.RangeRequest(key=layout.compaction, revision=1)

    async def send(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> Any:
        try:
            return await endpoint.kv.Range(request, timeout=timeout_s, metadata=metadata)
        except rpc.AioRpcError as error:
            if is_compacted(error):
                return None
            raise

    answer = await calls.read(send)
    if answer is not None and answer.header.revision > _GROWN_REVISIONS:
        log.warning("etcd_history_never_compacted", revisions=answer.header.revision, advice=_ADVICE)
