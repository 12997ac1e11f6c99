"""A store beside a plain dictionary: any sequence of calls must do the same to both."""

import asyncio
from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from onager.errors import LeaseExpiredError, LockTimeoutError
from onager.state_backend import (
    ABSENT,
    Committed,
    Conflict,
    Delete,
    DeleteRange,
    EventKind,
    KeyRange,
    Keyspace,
    KeyValue,
    Put,
    StateBackendClient,
)
from onager.state_backend.model import Fenced
from tests.contract.stores import Harness
from tests.support.waiting import HANGS_S

KEYSPACES = [Keyspace.JobLog, Keyspace.Heartbeats]
WATCHED = Keyspace.JobLog
PATIENCE_S = HANGS_S
"""How long to wait for events that must come."""
KEYS = ["job1", "job1/1", "job1/2", "job10/1", "ü/\0/"]
keyspaces, keys = st.sampled_from(KEYSPACES), st.sampled_from(KEYS)
refs = st.tuples(keyspaces, keys)
prefixes = st.sampled_from(["", "job1/", "job10/", "ü/"])
values = st.binary(max_size=3)
limits = st.integers(1, 4)
starts = st.none() | keys


class StoreMachine(RuleBasedStateMachine):
    """The store that *new_harness* gives, through *wrap*, beside ``{(keyspace, key): (value, mod_revision, lease)}``.

    Two clients take turns.
    """

    leases = Bundle("leases")
    tokens = Bundle("tokens")

    def __init__(
        self,
        new_harness: Callable[[], Harness],
        wrap: Callable[[StateBackendClient], StateBackendClient] = lambda client: client,
    ):
        super().__init__()
        self.new_harness = new_harness
        self.wrap = wrap

    @initialize()
    def start(self):
        self.runner = asyncio.Runner()
        self.harness = self.run(self.make_harness())
        self.data: dict[tuple[Keyspace, str], tuple[bytes, int, int]] = {}
        self.now_s = 0.0
        self.ends: dict[int, tuple[float, float]] = {}
        self.held: dict[tuple[Keyspace, str], object] = {}
        self.entered: list[object] = []
        self.turn = 0
        self.connect()

    async def make_harness(self):
        return self.new_harness()

    def connect(self):
        async def open_watch():
            self.clients = [self.wrap(await self.harness.connect()) for _ in range(2)]
            page = await self.backend.get_from_prefix(WATCHED, "")
            self.watch = self.backend.watch(WATCHED, from_revision=page.revision + 1)
            self.events = await self.watch.__aenter__()
            self.revision = page.revision

        self.reported: list[tuple] = []
        self.received: list = []
        self.run(open_watch())

    def teardown(self):
        if hasattr(self, "runner"):

            async def stop():
                if hasattr(self, "watch"):
                    await self.watch.__aexit__(None, None, None)
                await self.harness.stop()

            self.run(stop())
            self.runner.close()

    def run(self, coroutine):
        return self.runner.run(coroutine)

    @property
    def backend(self):
        self.turn += 1
        return self.clients[self.turn % len(self.clients)]

    # -- the model

    def did_commit(self, revision):
        assert revision > self.revision
        self.revision = revision

    def put_in_model(self, keyspace, key, value, lease=0):
        self.data[keyspace, key] = value, self.revision, lease
        if keyspace is WATCHED:
            self.reported.append((EventKind.PUT, key, value))

    def delete_in_model(self, keyspace, key):
        del self.data[keyspace, key]
        if keyspace is WATCHED:
            self.reported.append((EventKind.DELETE, key, b""))

    def move_in_model(self, source, to, key):
        self.put_in_model(to, key, self.data[source, key][0])
        self.delete_in_model(source, key)

    def below(self, keyspace, prefix, start_after=None):
        found = [key for space, key in self.data if space is keyspace and key.startswith(prefix)]
        return sorted((k for k in found if start_after is None or k.encode() > start_after.encode()), key=str.encode)

    def seen(self, keyspace, key):
        found = self.data.get((keyspace, key))
        return None if found is None else KeyValue(key, found[0], found[1])

    def revision_of(self, ref):
        return self.data[ref][1] if ref in self.data else ABSENT

    def end_in_model(self, lease):
        del self.ends[lease]
        for (keyspace, key), (_, _, bound) in sorted(self.data.items(), key=lambda item: item[0][1].encode()):
            if bound == lease:
                self.delete_in_model(keyspace, key)
        self.held = {name: token for name, token in self.held.items() if token.lease != lease}

    def holds(self, token):
        return self.held.get((token.keyspace, token.key)) == token

    # -- single keys

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
    def get(self, keyspace, key):
        assert self.run(self.backend.get(keyspace, key)) == self.seen(keyspace, key)

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

    # -- transactions

    @rule(
        puts=st.dictionaries(refs, values, max_size=3),
        deletes=st.sets(refs, max_size=2),
        ranges=st.lists(st.tuples(keyspaces, prefixes), max_size=1),
        right=st.sets(refs, max_size=2),
        wrong=st.sets(refs, max_size=1),
    )
    def transaction(self, puts, deletes, ranges, right, wrong):
        ranges = [(s, p) for s, p in ranges if not any(s is k and key.startswith(p) for k, key in (*puts, *deletes))]
        deletes = sorted(deletes - set(puts))
        ops = [Put(*ref, value) for ref, value in puts.items()]
        ops += [Delete(*ref) for ref in deletes] + [DeleteRange(*ref) for ref in ranges]
        expect = {ref: self.revision_of(ref) for ref in right}
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

    @rule(source=keyspaces, key=keys, expected=st.sampled_from([None, "right", "wrong"]))
    def mv(self, source, key, expected):
        [to] = {*KEYSPACES} - {source}
        revision = {None: None, "right": self.revision_of((source, key)), "wrong": self.revision + 7}[expected]
        result = self.run(self.backend.mv(source, key, to, expected_revision=revision))
        if (source, key) in self.data and (to, key) not in self.data and expected != "wrong":
            assert isinstance(result, Committed)
            self.did_commit(result.revision)
            self.move_in_model(source, to, key)
        else:
            assert isinstance(result, Conflict)
            assert result.found == {(source, key): self.seen(source, key), (to, key): self.seen(to, key)}

    # -- listings

    @rule(keyspace=keyspaces, prefix=prefixes, limit=limits, start_after=starts)
    def scan(self, keyspace, prefix, limit, start_after):
        expected = self.below(keyspace, prefix, start_after)
        page = self.run(self.backend.scan(keyspace, prefix, limit=limit, start_after=start_after))
        assert page.items == tuple(self.seen(keyspace, key) for key in expected[:limit])
        names = self.run(self.backend.scan_keys(keyspace, prefix, limit=limit, start_after=start_after))
        assert names.items == tuple(expected[:limit])
        assert page.has_more == names.has_more == (len(expected) > limit)

    @rule(asked=st.sets(refs, max_size=3), ranges=st.lists(st.tuples(keyspaces, prefixes, starts, limits), max_size=2))
    def read_txn(self, asked, ranges):
        snapshot = self.run(self.backend.read_txn(asked, [KeyRange(*found) for found in ranges]))
        assert snapshot.values == {ref: self.seen(*ref) for ref in asked}
        for (keyspace, prefix, start_after, limit), page in zip(ranges, snapshot.ranges, strict=True):
            expected = self.below(keyspace, prefix, start_after)
            assert page.items == tuple(self.seen(keyspace, key) for key in expected[:limit])
            assert page.has_more == (len(expected) > limit)
            assert page.revision == snapshot.revision

    # -- leases, locks, fences

    @rule(target=leases, ttl_s=st.sampled_from([5, 20]))
    def grant(self, ttl_s):
        lease = self.run(self.backend.lease(ttl_s if self.harness.has_manual_clock else 3600))
        assert lease.ttl_s >= ttl_s
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
            assert lease in self.ends
            self.ends[lease] = self.ends[lease][0], self.now_s + self.ends[lease][0]

    @rule(lease=leases)
    def revoke(self, lease):
        self.run(self.backend.revoke(lease))
        if lease in self.ends:
            self.end_in_model(lease)

    @precondition(lambda self: self.harness.has_manual_clock)
    @rule(seconds=st.sampled_from([1, 6, 30]))
    def let_pass(self, seconds):
        self.now_s += seconds
        for lease, (_, end_s) in list(self.ends.items()):
            if end_s <= self.now_s:
                self.end_in_model(lease)
        self.run(self.harness.let_pass(seconds))

    @rule(target=tokens, keyspace=keyspaces, key=st.just("sweep"), lease=leases)
    def lock(self, keyspace, key, lease):
        lock = self.backend.lock(keyspace, key, lease, timeout_s=0)
        try:
            token = self.run(lock.__aenter__())
        except LeaseExpiredError:
            assert lease not in self.ends
            return multiple()
        except LockTimeoutError:
            assert (keyspace, key) in self.held
            return multiple()
        assert lease in self.ends
        assert (keyspace, key) not in self.held
        self.did_commit(token.revision)
        self.held[keyspace, key] = token
        self.entered.append(lock)  # nobody leaves the block, for as long as this is known
        return token

    @rule(token=tokens)
    def unlock(self, token):
        self.run(self.backend._release(token))  # of a lost lock, too: it must not free another's
        if self.holds(token):
            del self.held[token.keyspace, token.key]

    @rule(token=tokens, key=keys, value=values, is_expected=st.booleans())
    def fenced_put(self, token, key, value, is_expected):
        ref = WATCHED, key
        expect = {ref: self.revision_of(ref) if is_expected else self.revision + 7}
        result = self.run(self.backend.put_txn([Put(*ref, value)], expect=expect, fence=[token]))
        if not self.holds(token):
            assert result == Fenced(token)
        elif is_expected:
            assert isinstance(result, Committed)
            self.did_commit(result.revision)
            self.put_in_model(*ref, value)
        else:
            assert isinstance(result, Conflict)
            assert result.found == {ref: self.seen(*ref)}

    @rule(token=tokens, source=keyspaces, key=keys)
    def fenced_mv(self, token, source, key):
        [to] = {*KEYSPACES} - {source}
        result = self.run(self.backend.mv(source, key, to, fence=[token]))
        if (source, key) not in self.data:
            assert isinstance(result, Conflict)
        elif not self.holds(token):
            assert result == Fenced(token)
        elif (to, key) in self.data:
            assert isinstance(result, Conflict)
        else:
            assert isinstance(result, Committed)
            self.did_commit(result.revision)
            self.move_in_model(source, to, key)

    # -- watches

    @precondition(lambda self: self.received)
    @rule(place=st.integers(0, 30), prefix=prefixes)
    def watch_the_past(self, place, prefix):
        revision = self.received[-1 - place % len(self.received)].mod_revision
        expected = [e for e in self.received if e.mod_revision >= revision and e.key.startswith(prefix)]

        async def listen():
            async with (
                self.backend.watch(WATCHED, prefix, from_revision=revision) as events,
                asyncio.timeout(PATIENCE_S),
            ):
                return [await anext(events) for _ in expected]

        assert self.run(listen()) == expected

    # -- restarts

    @precondition(lambda self: self.harness.survives_restart)
    @rule()
    def restart(self):
        async def stop():
            await self.watch.__aexit__(None, None, None)
            await self.harness.stop()

        self.run(stop())
        self.ends = {lease: (ttl_s, self.now_s + ttl_s) for lease, (ttl_s, _) in self.ends.items()}
        self.connect()

    # -- what always holds

    @invariant()
    def everything_is_as_in_the_model(self):
        if not hasattr(self, "clients"):
            return
        seen = self.run(self.backend.read_txn(ranges=[KeyRange(keyspace) for keyspace in KEYSPACES]))
        for keyspace, page in zip(KEYSPACES, seen.ranges, strict=True):
            assert page.items == tuple(self.seen(keyspace, key) for key in self.below(keyspace, ""))
        assert seen.revision >= self.revision
        self.revision = seen.revision  # deletes, locks and leases raised it

    @invariant()
    def the_watch_reported_every_change(self):
        if not getattr(self, "reported", None):
            return

        async def take():
            async with asyncio.timeout(PATIENCE_S):
                return [await anext(self.events) for _ in self.reported]

        before = self.received[-1].mod_revision if self.received else 0
        received = self.run(take())
        assert [(event.kind, event.key, event.value) for event in received] == self.reported
        revisions = [event.mod_revision for event in received]
        assert before < revisions[0]
        assert revisions == sorted(revisions)
        assert revisions[-1] <= self.revision
        for event in received:
            found = self.data.get((WATCHED, event.key))
            assert event.kind is EventKind.DELETE or found is None or event.mod_revision <= found[1]
        self.received += received
        self.reported = []
