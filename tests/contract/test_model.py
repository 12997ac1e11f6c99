"""Any sequence of calls does what it does to a plain dictionary."""

import asyncio
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from onager.errors import LeaseExpiredError
from state_backend import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    EventKind,
    Fenced,
    KeyRange,
    Keyspace,
    KeyValue,
    Put,
)
from tests.contract.harness import Harness, LevelDBHarness, MemoryHarness

KEYSPACES = [Keyspace.JobLog, Keyspace.Heartbeats]
KEYS = ["job1", "job1/1", "job10/1", "ü/\0/"]
keyspaces, keys = st.sampled_from(KEYSPACES), st.sampled_from(KEYS)
prefixes = st.sampled_from(["", "job1/", "job10/", "ü/"])
values = st.binary(max_size=3)


class Model(RuleBasedStateMachine):
    """The store beside ``{(keyspace, key): (value, mod_revision, lease)}``."""

    leases = Bundle("leases")
    tokens = Bundle("tokens")

    def make_harness(self) -> Harness:
        """Return the store under test: each adapter's subclass below says which; this base is never run itself."""
        raise NotImplementedError

    @initialize()
    def start(self):
        self.runner = asyncio.Runner()
        self.harness = self.make_harness()
        self.data: dict[tuple[Keyspace, str], tuple[bytes, int, int]] = {}
        self.revision = 0
        self.now_s = 0.0
        self.ends: dict[int, tuple[float, float]] = {}
        self.held: dict[tuple[Keyspace, str], tuple[object, object]] = {}
        self.told: list[tuple] = []
        self.connect()

    def connect(self):
        async def open_watch():
            self.backend = await self.harness.connect()
            page = await self.backend.get_from_prefix(Keyspace.JobLog, "")
            self.watch = self.backend.watch(Keyspace.JobLog, from_revision=page.revision + 1)
            self.events = await self.watch.__aenter__()

        self.runner.run(open_watch())

    def teardown(self):
        if hasattr(self, "runner"):

            async def stop():
                await self.watch.__aexit__(None, None, None)
                await self.harness.stop()

            self.runner.run(stop())
            self.runner.close()

    # -- the model

    def did_commit(self, revision):
        assert revision > self.revision
        self.revision = revision

    def put_in_model(self, keyspace, key, value, lease=0):
        self.data[keyspace, key] = value, self.revision, lease
        if keyspace is Keyspace.JobLog:
            self.told.append((EventKind.PUT, key, value))

    def delete_in_model(self, keyspace, key):
        del self.data[keyspace, key]
        if keyspace is Keyspace.JobLog:
            self.told.append((EventKind.DELETE, key, b""))

    def below(self, keyspace, prefix):
        found = [key for space, key in self.data if space is keyspace and key.startswith(prefix)]
        return sorted(found, key=str.encode)

    def seen(self, keyspace, key):
        found = self.data.get((keyspace, key))
        return None if found is None else KeyValue(key, found[0], found[1])

    def end_in_model(self, lease):
        del self.ends[lease]
        for (keyspace, key), (_, _, bound) in sorted(self.data.items(), key=lambda item: item[0][1].encode()):
            if bound == lease:
                self.delete_in_model(keyspace, key)
        for name, (token, _) in list(self.held.items()):
            if token.lease == lease:
                del self.held[name]

    def expire_in_model(self):
        for lease, (_, end_s) in list(self.ends.items()):
            if end_s <= self.now_s:
                self.end_in_model(lease)

    def run(self, coroutine):
        return self.runner.run(coroutine)

    async def catch_up(self):
        """Revisions that locks and leases used up are not the model's business."""
        self.revision = (await self.backend.get_from_prefix(Keyspace.Plans, "")).revision

    # -- rules

    @rule(keyspace=keyspaces, key=keys, value=values)
    def put(self, keyspace, key, value):
        self.did_commit(self.run(self.backend.put(keyspace, key, value)))
        self.put_in_model(keyspace, key, value)

    @rule(keyspace=keyspaces, key=keys, value=values, lease=leases)
    def put_bound(self, keyspace, key, value, lease):
        try:
            self.did_commit(self.run(self.backend.put(keyspace, key, value, lease=lease)))
        except LeaseExpiredError:
            assert lease not in self.ends
        else:
            assert lease in self.ends
            self.put_in_model(keyspace, key, value, lease)

    @rule(keyspace=keyspaces, key=keys)
    def delete(self, keyspace, key):
        assert self.run(self.backend.delete(keyspace, key)) == ((keyspace, key) in self.data)
        if (keyspace, key) in self.data:
            self.delete_in_model(keyspace, key)

    @rule(keyspace=keyspaces, prefix=prefixes)
    def delete_range(self, keyspace, prefix):
        gone = self.below(keyspace, prefix)
        assert self.run(self.backend.delete_range(keyspace, prefix)) == len(gone)
        for key in gone:
            self.delete_in_model(keyspace, key)

    @rule(
        puts=st.dictionaries(st.tuples(keyspaces, keys), values, max_size=3),
        deletes=st.sets(st.tuples(keyspaces, keys), max_size=2),
        ranges=st.lists(st.tuples(keyspaces, prefixes), max_size=1),
        right=st.sets(st.tuples(keyspaces, keys), max_size=2),
        wrong=st.sets(st.tuples(keyspaces, keys), max_size=1),
    )
    def transaction(self, puts, deletes, ranges, right, wrong):
        ranges = [(s, p) for s, p in ranges if not any(s is k and key.startswith(p) for k, key in (*puts, *deletes))]
        deletes = sorted(deletes - set(puts))
        ops = [Put(*ref, value) for ref, value in puts.items()]
        ops += [Delete(*ref) for ref in deletes] + [DeleteRange(*ref) for ref in ranges]
        expect = {ref: self.data[ref][1] if ref in self.data else ABSENT for ref in right}
        expect |= {ref: ABSENT if ref in self.data else 1 for ref in wrong}
        result = self.run(self.backend.put_txn(ops, expect=expect))
        if wrong:
            assert isinstance(result, Conflict)
            assert result.found == {ref: self.seen(*ref) for ref in expect}
            return
        assert isinstance(result, Committed)
        gone = [ref for ref in deletes if ref in self.data] + [(s, k) for s, p in ranges for k in self.below(s, p)]
        assert result.deleted == len(gone)
        if puts or gone:
            self.did_commit(result.revision)
        for ref, value in puts.items():
            self.put_in_model(*ref, value)
        for ref in gone:
            self.delete_in_model(*ref)

    @rule(source=keyspaces, to=keyspaces, key=keys)
    def mv(self, source, to, key):
        if source is to:
            return
        result = self.run(self.backend.mv(source, key, to))
        if (source, key) in self.data and (to, key) not in self.data:
            assert isinstance(result, Committed)
            self.did_commit(result.revision)
            value = self.data[source, key][0]
            self.put_in_model(to, key, value)
            self.delete_in_model(source, key)
        else:
            assert isinstance(result, Conflict)
            assert result.found == {(source, key): self.seen(source, key), (to, key): self.seen(to, key)}

    @rule(keyspace=keyspaces, prefix=prefixes, limit=st.integers(1, 4), start_after=st.none() | keys)
    def scan(self, keyspace, prefix, limit, start_after):
        expected = [k for k in self.below(keyspace, prefix) if start_after is None or k.encode() > start_after.encode()]
        page = self.run(self.backend.scan(keyspace, prefix, limit=limit, start_after=start_after))
        assert page.items == tuple(self.seen(keyspace, key) for key in expected[:limit])
        assert page.has_more == (len(expected) > limit)
        names = self.run(self.backend.scan_keys(keyspace, prefix, limit=limit, start_after=start_after))
        assert names.items == tuple(expected[:limit])

    @rule(target=leases, ttl_s=st.sampled_from([5, 20]))
    def grant(self, ttl_s):
        lease = self.run(self.backend.lease(ttl_s))
        assert lease.id not in self.ends
        self.ends[lease.id] = lease.ttl_s, self.now_s + lease.ttl_s
        return lease.id

    @rule(lease=leases)
    def keep_alive(self, lease):
        try:
            self.run(self.backend.keep_alive(lease))
        except LeaseExpiredError:
            assert lease not in self.ends
        else:
            self.ends[lease] = self.ends[lease][0], self.now_s + self.ends[lease][0]

    @rule(lease=leases)
    def revoke(self, lease):
        self.run(self.backend.revoke(lease))
        if lease in self.ends:
            self.end_in_model(lease)
        self.run(self.catch_up())

    @rule(seconds=st.sampled_from([1, 6, 30]))
    def let_pass(self, seconds):
        self.now_s += seconds
        self.expire_in_model()
        self.run(self.harness.let_pass(seconds))
        self.run(self.catch_up())

    @rule(target=tokens, keyspace=keyspaces, key=st.just("sweep"), lease=leases)
    def lock(self, keyspace, key, lease):
        if (keyspace, key) in self.held:
            return multiple()
        lock = self.backend.lock(keyspace, key, lease, timeout_s=0)
        try:
            token = self.run(lock.__aenter__())
        except LeaseExpiredError:
            assert lease not in self.ends
            return multiple()
        assert lease in self.ends
        self.did_commit(token.revision)
        self.held[keyspace, key] = token, lock
        return token

    @rule(token=tokens)
    def unlock(self, token):
        held, _ = self.held.get((token.keyspace, token.key), (None, None))
        self.run(self.backend._release(token))  # of a lost lock, too: it must not free another's
        if held == token:
            del self.held[token.keyspace, token.key]
        self.run(self.catch_up())

    @rule(token=tokens, key=keys, value=values)
    def fenced_put(self, token, key, value):
        result = self.run(self.backend.put_txn([Put(Keyspace.JobLog, key, value)], fence=[token]))
        held, _ = self.held.get((token.keyspace, token.key), (None, None))
        if held == token:
            assert isinstance(result, Committed)
            self.did_commit(result.revision)
            self.put_in_model(Keyspace.JobLog, key, value)
        else:
            assert result == Fenced(token)

    # -- what always holds

    @invariant()
    def everything_is_as_in_the_model(self):
        if not hasattr(self, "backend"):
            return
        seen = self.run(self.backend.read_txn(ranges=[KeyRange(keyspace) for keyspace in KEYSPACES]))
        for keyspace, page in zip(KEYSPACES, seen.ranges, strict=True):
            assert page.items == tuple(self.seen(keyspace, key) for key in self.below(keyspace, ""))

    @invariant()
    def the_watch_told_every_change(self):
        if not getattr(self, "told", None):
            return

        async def take():
            async with asyncio.timeout(5):
                return [await anext(self.events) for _ in self.told]

        heard = self.run(take())
        assert [event.mod_revision for event in heard] == sorted(event.mod_revision for event in heard)
        assert [(event.kind, event.key, event.value) for event in heard] == self.told
        self.told = []


class MemoryModel(Model):
    def make_harness(self):
        return MemoryHarness()


class LevelDBModel(Model):
    def make_harness(self):
        self.directory = tempfile.TemporaryDirectory(prefix="onager-model-")
        return LevelDBHarness(Path(self.directory.name))

    @rule()
    def restart(self):
        async def stop():
            await self.watch.__aexit__(None, None, None)
            await self.harness.stop()

        self.run(stop())
        self.held = {}
        self.ends = {lease: (ttl_s, self.now_s + ttl_s) for lease, (ttl_s, _) in self.ends.items()}
        self.connect()
        self.run(self.catch_up())

    def teardown(self):
        super().teardown()
        if hasattr(self, "directory"):
            self.directory.cleanup()


TestMemoryModel = MemoryModel.TestCase
TestMemoryModel.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)
TestLevelDBModel = LevelDBModel.TestCase
TestLevelDBModel.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
