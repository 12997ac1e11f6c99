"""The etcd adapter: the port's primitives as etcd's requests."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

import structlog
from aetcd import rpc

from onager.errors import (
    LeaseExpiredError,
    OutcomeUnknownError,
    SchemaVersionError,
    StateCorruptError,
    StateUnavailableError,
)
from onager.state_backend.etcd.calls import Calls, Metadata, Send, unary
from onager.state_backend.etcd.compaction import Compactor, warn_when_history_grows
from onager.state_backend.etcd.endpoints import Endpoint
from onager.state_backend.etcd.keys import KeyLayout
from onager.state_backend.etcd.messages import (
    delete_request,
    get_op,
    is_modified_at,
    key_value,
    put_request,
    txn,
    watch_event,
)
from onager.state_backend.etcd.reading import Reader
from onager.state_backend.etcd.url import EtcdUrl
from onager.state_backend.etcd.watch import EtcdWatch
from onager.state_backend.model import (
    Committed,
    Conflict,
    KeyRange,
    Keyspace,
    Lease,
    LeaseId,
    OutcomeUnknown,
    Page,
    Put,
    SingleOp,
    Snapshot,
    TxnResult,
    WatchEvent,
)
from onager.state_backend.port import StateBackendClient
from onager.supervision import restarted

log = structlog.get_logger(__name__)

SCHEMA_VERSION: Final = "2.0"
_SCHEMA_MAJOR: Final = 2


class EtcdBackend(StateBackendClient):
    """A client of one namespace of an etcd cluster; `open` makes it.

    Any number of processes may have one. Revisions are those of the cluster, which other namespaces raise, too.
    """

    def __init__(self, url: EtcdUrl, calls: Calls) -> None:
        self.url = url
        self._layout = KeyLayout(url.namespace)
        self._calls = calls
        self._reader = Reader(calls, self._layout)
        self._compacting: asyncio.Task[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, url: str | EtcdUrl) -> Self:
        """Connect, and check that the namespace is one of Onager's.

        `InvalidSettingError` for a URL that cannot be used, `StateUnavailableError` when no endpoint answers,
        `StateAccessError` when etcd refuses us, `SchemaVersionError` when a newer Onager wrote the namespace,
        `StateCorruptError` when etcd says that its data is damaged.
        """
        url = EtcdUrl.parse(url) if isinstance(url, str) else url
        backend = cls(url, Calls(url))
        try:
            await backend._start()
        except BaseException:
            await backend.close()
            raise
        return backend

    async def close(self) -> None:
        """Close the connections."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._compacting is not None:
            self._compacting.cancel()
            await asyncio.gather(self._compacting, return_exceptions=True)
        await self._calls.close()

    async def _start(self) -> None:
        await self._check_health()
        await self._check_schema()
        if self.url.compact_history_s is None:
            await warn_when_history_grows(self._calls, self._layout)
        else:
            compactor = Compactor(self._calls, self._layout, self.url.compact_history_s)
            self._compacting = asyncio.create_task(
                restarted("compaction of etcd's history", compactor.run, again_s=self.url.compact_history_s)
            )

    async def _check_health(self) -> None:
        found: Any = await self._calls.read(unary(lambda member: member.maintenance.Status, rpc.StatusRequest()))
        log.info("etcd_connected", version=found.version, endpoints=self.url.endpoints, namespace=self.url.namespace)
        for alarm in await self._calls.alarms():
            if alarm.alarm == rpc.CORRUPT:
                raise StateCorruptError(
                    f"etcd has a CORRUPT alarm for member {alarm.memberID:x}: its data differs from the others'. "
                    "Replace that member (etcdctl member remove, member add), then etcdctl alarm disarm"
                )
            if alarm.alarm == rpc.NOSPACE:
                log.warning(
                    "etcd_is_full",
                    member=f"{alarm.memberID:x}",
                    advice="etcdctl compact --physical, defrag, alarm disarm",
                )

    async def _check_schema(self) -> None:
        """Read the namespace's version, or write it if the namespace is new."""
        key = self._layout.schema
        what = f"namespace /{self.url.namespace} of etcd"
        found = await self._reader.range(rpc.RangeRequest(key=key))
        if not found.kvs:
            value = json.dumps({"schema_version": SCHEMA_VERSION}).encode()
            request = rpc.TxnRequest(
                compare=[is_modified_at(key, 0)],
                success=[rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))],
                failure=[get_op(key)],
            )
            # Repeating it changes nothing more.
            answer = await self._calls.read(_txn(request))
            if answer.succeeded:
                return
            found = answer.responses[0].response_range
        try:
            major = int(json.loads(found.kvs[0].value)["schema_version"].partition(".")[0])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateCorruptError(f"{what} has no schema version at {key.decode()}: is it Onager's?") from error
        if major != _SCHEMA_MAJOR:
            raise SchemaVersionError(what, major, _SCHEMA_MAJOR)

    # -- primitives of the port

    async def _read(self, keys: Collection[tuple[Keyspace, str]], ranges: Sequence[KeyRange]) -> Snapshot:
        return await self._reader.read(keys, ranges)

    async def _read_keys(self, key_range: KeyRange) -> Page[str]:
        return await self._reader.read_keys(key_range)

    async def _commit(self, ops: Collection[SingleOp], expect: Mapping[tuple[Keyspace, str], int]) -> TxnResult:
        try:
            if len(ops) == 1 and not expect:
                return await self._commit_one(next(iter(ops)))
            needs_space = any(isinstance(op, Put) for op in ops)
            answer = await self._calls.write(_txn(txn(self._layout, ops, expect)), needs_space=needs_space)
        except OutcomeUnknownError as error:
            return OutcomeUnknown(str(error))
        if answer.succeeded:
            deleted = sum(part.response_delete_range.deleted for part in answer.responses)
            return Committed(answer.header.revision, deleted)
        found = [part.response_range.kvs for part in answer.responses]
        return Conflict(
            {
                (keyspace, key): key_value(self._layout, keyspace, kvs[0]) if kvs else None
                for (keyspace, key), kvs in zip(expect, found, strict=True)
            },
            answer.header.revision,
        )

    async def _commit_one(self, op: SingleOp) -> Committed:
        """Do *op* by a request of its own, which costs etcd a third less than a transaction."""
        if isinstance(op, Put):
            put = unary(lambda member: member.kv.Put, put_request(self._layout, op))
            return Committed((await self._calls.write(put)).header.revision)
        delete = unary(lambda member: member.kv.DeleteRange, delete_request(self._layout, op))
        answer = await self._calls.write(delete, needs_space=False)
        return Committed(answer.header.revision, answer.deleted)

    async def _grant(self, ttl_s: float) -> Lease:
        grant = unary(lambda member: member.lease.LeaseGrant, rpc.LeaseGrantRequest(TTL=math.ceil(ttl_s)))
        # A lease that was granted without our knowing ends by itself.
        answer: Any = await self._calls.read(grant)
        return Lease(LeaseId(answer.ID), float(answer.TTL))

    async def keep_alive(self, lease: LeaseId) -> None:
        """Renew *lease* for its whole time, without a write."""

        async def send(endpoint: Endpoint, timeout_s: float, metadata: Metadata) -> int:
            return await endpoint.renewals.renew(lease, timeout_s, metadata)

        if await self._calls.read(send) <= 0:
            raise LeaseExpiredError(f"lease {lease} is gone")

    async def revoke(self, lease: LeaseId) -> None:
        """End *lease* now."""
        with suppress(LeaseExpiredError):
            await self._calls.read(unary(lambda member: member.lease.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease)))

    @asynccontextmanager
    async def _watch(
        self, keyspace: Keyspace, prefix: str, from_revision: int | None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if from_revision is None:
            newest = await self._reader.range(rpc.RangeRequest(key=self._layout.schema, count_only=True))
            from_revision = newest.header.revision + 1
        elif self._is_closed:
            raise StateUnavailableError("the state backend is closed")
        first, end = self._layout.below(keyspace, prefix)
        async with EtcdWatch(self._calls, first, end, from_revision) as watch:
            yield _Events(watch, self._layout, keyspace)


class _Events:
    """The events of a watch, one by one."""

    def __init__(self, watch: EtcdWatch, layout: KeyLayout, keyspace: Keyspace) -> None:
        self._watch = watch
        self._layout = layout
        self._keyspace = keyspace
        self._batch: list[Any] = []

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._batch:
            self._batch = (await anext(self._watch))[::-1]
        return watch_event(self._layout, self._keyspace, self._batch.pop())


def _txn(request: Any) -> Send[Any]:
    return unary(lambda member: member.kv.Txn, request)
