"""Any sequence of calls has the same effect on a store and on a dictionary, and a broken store is detected."""

from abc import ABC, abstractmethod

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RULE_MARKER, run_state_machine_as_test

from onager.errors import LeaseExpiredError
from onager.state_backend import (
    Conflict,
    Delete,
    DeleteRange,
    EventKind,
    KeyRange,
    Keyspace,
    KeyValue,
    LeaseId,
    Put,
    Snapshot,
)
from onager.state_backend.forwarding import ForwardingBackend
from onager.state_backend.model import Page
from tests.contract.store_machine import StoreMachine
from tests.contract.stores import MemoryHarness
from tests.support.selection import IS_ALL, some


def test_any_sequence_of_calls_does_what_it_does_to_a_dictionary(new_harness, store_kind):
    run_state_machine_as_test(
        lambda: StoreMachine(new_harness),
        settings=settings(
            max_examples=store_kind.examples // (1 if IS_ALL else 2),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


# -- what the model is good for: each of these stores breaks one promise, and is found out


def is_about_locks(ops):
    return any(op.keyspace is Keyspace.Locks for op in ops)


class IgnoresFences(ForwardingBackend):
    async def _commit(self, ops, expect):
        if is_about_locks(ops):
            return await super()._commit(ops, expect)
        fences = {ref: KeyValue(ref[1], b"", revision) for ref, revision in expect.items() if ref[0] is Keyspace.Locks}
        others = {ref: revision for ref, revision in expect.items() if ref not in fences}
        result = await super()._commit(ops, others)
        return Conflict({**result.found, **fences}, result.revision) if isinstance(result, Conflict) else result


class IgnoresExpectations(ForwardingBackend):
    async def _commit(self, ops, expect):
        fences = {ref: revision for ref, revision in expect.items() if ref[0] is Keyspace.Locks}
        return await super()._commit(ops, fences)


class ExpectationsFirst(ForwardingBackend):
    """Reports a broken expectation before a broken fence."""

    async def put_txn(self, ops, *, expect=None, fence=()):
        result = await super().put_txn(ops, expect=expect) if expect and fence else None
        if isinstance(result, Conflict):
            return result
        return await super().put_txn(ops, expect={} if result else expect, fence=fence)


class FindsNothing(ForwardingBackend):
    """A conflict that does not report the current record."""

    async def _commit(self, ops, expect):
        result = await super()._commit(ops, expect)
        if not isinstance(result, Conflict):
            return result
        found = {ref: item if ref[0] is Keyspace.Locks else None for ref, item in result.found.items()}
        return Conflict(found, result.revision)


class HalfATransaction(ForwardingBackend):
    """A conflict leaves the first operation behind."""

    async def _commit(self, ops, expect):
        result = await super()._commit(ops, expect)
        if isinstance(result, Conflict) and ops:
            await super()._commit([next(iter(ops))], {})
        return result


class MovesOntoOthers(ForwardingBackend):
    """A move that ignores an existing target."""

    async def _commit(self, ops, expect):
        if [type(op) for op in ops] == [Put, Delete] and 0 in expect.values():
            expect = {ref: revision for ref, revision in expect.items() if revision}
        return await super()._commit(ops, expect)


class StaysBound(ForwardingBackend):
    """A key put again without a lease stays bound to the one before."""

    def __init__(self, inner):
        super().__init__(inner)
        self.bound: dict[tuple[Keyspace, str], LeaseId] = SHARED.setdefault("bound", {})

    async def _commit(self, ops, expect):
        kept = [
            Put(op.keyspace, op.key, op.value, self.bound.get((op.keyspace, op.key)))
            if isinstance(op, Put) and op.lease is None
            else op
            for op in ops
        ]
        self.bound |= {(op.keyspace, op.key): op.lease for op in ops if isinstance(op, Put) and op.lease is not None}
        return await super()._commit(kept, expect)


class PrefixWithoutSlash(ForwardingBackend):
    """``job1/`` means ``job10/`` too."""

    async def _read(self, keys, ranges):
        seen = await super()._read(keys, [KeyRange(r.keyspace, "", r.start_after) for r in ranges])
        pages = [
            [item for item in page if item.key.startswith(wanted.prefix.removesuffix("/"))]
            for wanted, page in zip(ranges, seen.ranges, strict=True)
        ]
        cut = [
            Page(tuple(items[: wanted.limit]), seen.revision, wanted.limit is not None and len(items) > wanted.limit)
            for wanted, items in zip(ranges, pages, strict=True)
        ]
        return Snapshot(seen.revision, seen.values, tuple(cut))


class StartsAtTheStart(ForwardingBackend):
    """A page begins with the last key of the one before."""

    async def _read_keys(self, key_range):
        page = await super()._read_keys(KeyRange(key_range.keyspace, key_range.prefix))
        names = [key for key in page if key_range.start_after is None or key >= key_range.start_after]
        return Page(tuple(names[: key_range.limit]), page.revision, len(names) > key_range.limit)


class NeverHasMore(ForwardingBackend):
    async def _read(self, keys, ranges):
        seen = await super()._read(keys, ranges)
        return Snapshot(seen.revision, seen.values, tuple(Page(p.items, p.revision) for p in seen.ranges))


class StaleReads(ForwardingBackend):
    """Every fourth read of this client is answered with what the same read saw before."""

    def __init__(self, inner):
        super().__init__(inner)
        self.reads = 0
        self.before = {}

    async def _read(self, keys, ranges):
        self.reads += 1
        asked = frozenset(keys), tuple(ranges)
        if self.reads % 4 == 0 and asked in self.before:
            return self.before[asked]
        self.before[asked] = await super()._read(keys, ranges)
        return self.before[asked]


class SnapshotInParts(ForwardingBackend):
    """The ranges of one read are of another revision than its keys say."""

    async def _read(self, keys, ranges):
        seen = await super()._read(keys, ranges)
        if not keys:
            return seen
        pages = tuple(Page(page.items, page.revision - 1, page.has_more) for page in seen.ranges)
        return Snapshot(seen.revision, seen.values, pages)


class RangeLeavesOne(ForwardingBackend):
    async def _commit(self, ops, expect):
        changed = []
        for op in ops:
            if isinstance(op, DeleteRange):
                keys = (await super()._read_keys(KeyRange(op.keyspace, op.prefix))).items
                changed += [Delete(op.keyspace, key) for key in keys[:2]]
            else:
                changed.append(op)
        return await super()._commit(changed, expect)


class KeysOutliveLeases(ForwardingBackend):
    async def _commit(self, ops, expect):
        ops = [Put(op.keyspace, op.key, op.value) if isinstance(op, Put) else op for op in ops]
        return await super()._commit(ops, expect)


class ForgetsToKeepAlive(ForwardingBackend):
    async def keep_alive(self, lease):
        pass


class UnlocksForOthers(ForwardingBackend):
    """A release frees the lock of its current holder, whoever that is."""

    async def _acquire(self, keyspace, key, lease, timeout_s):
        token = await super()._acquire(keyspace, key, lease, timeout_s)
        SHARED[keyspace, key] = token
        return token

    async def _release(self, token):
        await super()._release(SHARED[token.keyspace, token.key])


def only(*kept: str) -> type[StoreMachine]:
    """Return a machine with some rules alone: among all rules, the steps that show some mistakes seldom meet."""
    rules = [name for name, value in vars(StoreMachine).items() if hasattr(value, RULE_MARKER)]
    assert set(kept) < set(rules)
    return type("FewRules", (StoreMachine,), dict.fromkeys(set(rules) - set(kept)))


class Filtered(ForwardingBackend, ABC):
    """A store whose watches pass each batch through *passed*."""

    @abstractmethod
    def passed(self, events): ...

    def _watch(self, keyspace, prefix, from_revision):
        return _FilteredWatch(super()._watch(keyspace, prefix, from_revision), self.passed)


class _FilteredWatch:
    def __init__(self, watch, passed):
        self.watch, self.passed = watch, passed

    async def __aenter__(self):
        self.events = await self.watch.__aenter__()
        return self

    async def __aexit__(self, *error):
        return await self.watch.__aexit__(*error)

    async def __anext__(self):
        while True:
            if (event := self.passed(await anext(self.events))) is not None:
                return event


class DeletesAreNotReported(Filtered):
    def passed(self, event):
        return None if event.kind is EventKind.DELETE else event


class WatchTellsStaleValues(Filtered):
    def passed(self, event):
        return event._replace(value=event.value[:1])


class WatchForgetsPrefix(ForwardingBackend):
    def _watch(self, keyspace, prefix, from_revision):  # noqa: ARG002
        return super()._watch(keyspace, "", from_revision)


class WatchStartsLate(ForwardingBackend):
    def _watch(self, keyspace, prefix, from_revision):
        return super()._watch(keyspace, prefix, from_revision and from_revision + 1)


SHARED: dict = {}
"""State that the clients of one broken store share."""
MACHINES = {
    MovesOntoOthers: only("put", "mv"),
    StaysBound: only("put", "put_bound", "grant", "revoke", "let_pass"),
    StartsAtTheStart: only("put", "scan"),
    RangeLeavesOne: only("put", "delete_range"),
    UnlocksForOthers: only("grant", "revoke", "let_pass", "lock", "unlock", "fenced_put"),
}


@pytest.mark.parametrize(
    "broken",
    some(
        [
            IgnoresFences,
            IgnoresExpectations,
            ExpectationsFirst,
            FindsNothing,
            HalfATransaction,
            MovesOntoOthers,
            StaysBound,
            PrefixWithoutSlash,
            StartsAtTheStart,
            NeverHasMore,
            StaleReads,
            SnapshotInParts,
            RangeLeavesOne,
            KeysOutliveLeases,
            ForgetsToKeepAlive,
            UnlocksForOthers,
            DeletesAreNotReported,
            WatchTellsStaleValues,
            WatchForgetsPrefix,
            WatchStartsLate,
        ]
    ),
)
def test_a_store_that_breaks_a_promise_is_found_out(broken, monkeypatch):
    def new_store():
        SHARED.clear()
        return MemoryHarness()

    machine = MACHINES.get(broken, StoreMachine)
    monkeypatch.setattr("tests.contract.store_machine.PATIENCE_S", 0.05)  # for events that never come
    with pytest.raises((AssertionError, TimeoutError, LeaseExpiredError)):
        run_state_machine_as_test(
            lambda: machine(new_store, broken),
            settings=settings(
                max_examples=3_000,  # draws depend on what is loaded; the rarest find takes hundreds
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
                derandomize=True,
                database=None,
                report_multiple_bugs=False,
                phases=[Phase.generate],
            ),
        )
