"""Backup files: contents survive a round trip, and a damaged file is refused before anything is restored."""

import base64
import hashlib
import json
import stat

import pytest
import zstandard

from onager.clock import SystemClock
from onager.errors import InvalidRequestError, SchemaVersionError, StateCorruptError
from onager.protocol import onager_pb2 as pb
from onager.protocol.security import Caller
from onager.scheduler.app import SchedulerApp
from onager.scheduler.executors.records import ExecutorRecord
from onager.scheduler.jobs.audit import Audit
from onager.scheduler.records import pack
from onager.scheduler.settings import SchedulerSettings
from onager.state_admin.auditing import list_audit
from onager.state_admin.backing_up import backup_records
from onager.state_admin.backup_file import BackupReader, BackupWriter
from onager.state_admin.checking import check_everything
from onager.state_admin.contents import read_contents
from onager.state_admin.restoring import check_no_restore_pending, look_at_target, new_mark, restore_records
from onager.state_backend import MAX_TXN_OPS, Committed, Keyspace, OutcomeUnknown, open_backend
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.unit.scheduler.sound_store import SoundStore

CALLER = Caller("ann", "10.0.0.7")
ODD = {
    (Keyspace.Sessions, "a\0b/ü/\U0001f40e"): "ключ\0\n{".encode(),
    (Keyspace.Sessions, "empty"): b"",
    (Keyspace.Results, "binary"): bytes(range(256)),
    (Keyspace.Plans, "large"): b"\xff" * (1024 * 1024),
}


@pytest.fixture
async def store(backend, clock):
    found = SoundStore(backend, clock)
    await found.fill()
    return found


async def back_up(backend, clock, path, **options):
    with BackupWriter(path, is_overwriting=False, **options) as writer:
        async for message in backup_records(backend, clock, "memory:"):
            writer.write(message)
        return writer.finish()


async def restore(backend, clock, path):
    with BackupReader(path) as reader:
        found = reader.check()
        target = await look_at_target(backend)
        mark = new_mark(clock, path.name, found.records)
        return await restore_records(backend, target, reader.records(), mark, CALLER, clock)


async def contents(backend):
    """Return all values but heartbeats and the audit, executors without the lease that they had."""
    result = {}
    for keyspace, found in (await read_contents(backend)).records.items():
        for key, item in found.items():
            value = item.value
            if keyspace is Keyspace.Executors:
                value = ExecutorRecord.decoded(value, key).model_copy(update={"lease_id": 0})
            if keyspace not in (Keyspace.Heartbeats, Keyspace.Audit):
                result[keyspace, key] = value
    return result


def lines_of(path):
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).readall().splitlines(keepends=True)


def write_lines(path, lines):
    path.write_bytes(zstandard.compress(b"".join(lines)))
    return path


def sealed(lines):
    """Return *lines* with the right last line."""
    end = {"end": True, "records": len(lines) - 1, "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    return [*lines, json.dumps(end).encode() + b"\n"]


def check(path):
    with BackupReader(path) as reader:
        return reader.check()


async def test_all_that_was_there_is_there_again(store, clock, tmp_path):
    for (keyspace, key), value in ODD.items():
        await store.backend.put(keyspace, key, value)
    path = tmp_path / "backup.zst"
    records = await back_up(store.backend, clock, path)
    revision = (await read_contents(store.backend)).revision
    before = await contents(store.backend)
    assert records == len(before)

    said = check(path)
    assert said.records == records
    assert said.left_out == {"Heartbeats": 1}
    assert said.revision == revision
    async with await open_backend(f"leveldb:{tmp_path / 'state'}", clock=SystemClock()) as other:
        assert await restore(other, clock, path) == records
        assert await contents(other) == before
        assert (await read_contents(other)).records[Keyspace.Admin] == {}


async def test_a_restored_store_is_sound_and_its_executors_are_to_call_again(store, clock, tmp_path):
    await back_up(store.backend, clock, tmp_path / "b.zst")
    async with MemoryBackend(MemoryStore(clock)) as other:
        await restore(other, clock, tmp_path / "b.zst")
        (found,) = check_everything(await read_contents(other))
        assert (found.kind, found.key, found.is_warning) == ("missing", "e1", True)
        record = ExecutorRecord.decoded((await other.get(Keyspace.Executors, "e1")).value, "e1")
        assert record.lease_id == 0, "the number may be that of another lease here"


async def test_a_backup_is_one_moment_whatever_is_written_meanwhile(store, clock, tmp_path):
    messages = backup_records(store.backend, clock, "memory:")
    header = (await anext(messages)).header
    await store.backend.delete_range(Keyspace.Plans, "")
    rest = [record async for message in messages for record in message.records]
    assert len(rest) == sum(header.records.values())
    assert sum(record.keyspace == "Plans" for record in rest) == header.records["Plans"] > 0


async def test_the_file_is_its_owner_s_alone_and_readable_as_lines_of_json(store, clock, tmp_path):
    path = tmp_path / "b.zst"
    await back_up(store.backend, clock, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["b.zst"]
    first, *records, last = map(json.loads, lines_of(path))
    assert first["onager_backup"] == "2.0"
    assert last["records"] == len(records) == sum(first["records"].values())
    head = next(r for r in records if r["keyspace"] == "JobHeads" and r["key"] == "active")
    assert json.loads(head["text"])["state"] == "running"
    assert all(base64.b64decode(r["base64"]) for r in records if "base64" in r)


async def test_an_existing_file_stays_unless_it_is_to_be_replaced(store, clock, tmp_path):
    path = tmp_path / "b.zst"
    path.write_text("precious")
    with pytest.raises(InvalidRequestError, match="exists: give another name, or --overwrite"):
        BackupWriter(path, is_overwriting=False)
    assert path.read_text() == "precious"
    with BackupWriter(path, is_overwriting=True) as writer:
        async for message in backup_records(store.backend, clock, "memory:"):
            writer.write(message)
        assert path.read_text() == "precious", "the new one takes the name when it is whole"
        writer.finish()
    assert check(path).records > 0


@pytest.mark.parametrize(
    ("path", "message"), [("nowhere/b.zst", "No such file or directory"), (".", "is a directory: give the name")]
)
def test_where_a_backup_cannot_be_written(tmp_path, path, message):
    with pytest.raises(InvalidRequestError, match=message):
        BackupWriter(tmp_path / path, is_overwriting=False)


async def test_a_backup_that_breaks_off_leaves_nothing(store, clock, tmp_path):
    messages = [m async for m in backup_records(store.backend, clock, "memory:")]
    with BackupWriter(tmp_path / "b.zst", is_overwriting=False) as writer:
        writer.write(messages[0])
        with pytest.raises(StateCorruptError, match=r"ended after 0 of \d+ records; take it again"):
            writer.finish()
    assert list(tmp_path.iterdir()) == []


async def test_a_stream_that_starts_anew_starts_the_file_anew(store, clock, tmp_path):
    messages = [m async for m in backup_records(store.backend, clock, "memory:")]
    with BackupWriter(tmp_path / "b.zst", is_overwriting=False) as writer:
        for message in [messages[0], messages[1], *messages]:
            writer.write(message)
        records = writer.finish()
    assert check(tmp_path / "b.zst").records == records == sum(messages[0].header.records.values())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: lines[:-1], r"line \d+: it ends after \d+ records, without its last line: it was cut off"),
        (lambda lines: [*lines[:-1], lines[-1][:10]], "the line has no end: the file was cut off"),
        (lambda lines: [lines[0], *lines[2:]], "it has .* records, its last line"),
        (lambda lines: [lines[0], lines[1].replace(b"e1", b"e2"), *lines[2:]], "its checksum does not match"),
        (lambda lines: [b"{}\n", *lines[1:]], "line 1: it is not a backup of Onager"),
        (lambda lines: [lines[0].replace(b'"revision"', b'"r"'), *lines[1:]], "line 1: its header is incomplete"),
        (
            lambda lines: [lines[0].replace(b'"JobHeads": 3', b'"JobHeads": "3"'), *lines[1:]],
            "its header is incomplete",
        ),
        (lambda lines: [lines[0], b"no json\n", *lines[2:]], "line 2: it is no JSON"),
        (lambda lines: [lines[0], b"[]\n", *lines[2:]], "line 2: it is no JSON object"),
        (lambda lines: [lines[0], b'{"keyspace":"Plans"}\n', *lines[2:]], "line 2: the record has no keyspace or no"),
        (lambda lines: [lines[0], b'{"keyspace":"Plans","key":"k"}\n', *lines[2:]], "line 2: Plans/k has no value"),
        (lambda lines: [lines[0], b'{"keyspace":"Plans","key":"k","base64":"?"}\n'], "line 2: the value of Plans/k"),
        (lambda lines: [*lines, b"{}\n"], "there is more behind its last line"),
        (lambda _: [], "line 1: it is empty"),
    ],
)
async def test_a_damaged_file_is_refused_with_the_place(store, clock, tmp_path, damage, message):
    await back_up(store.backend, clock, tmp_path / "b.zst")
    path = write_lines(tmp_path / "damaged.zst", damage(lines_of(tmp_path / "b.zst")))
    with pytest.raises(StateCorruptError, match=message) as refused:
        check(path)
    assert str(path) in str(refused.value)
    assert "Nothing was restored; use another backup" in str(refused.value)


async def test_every_way_to_cut_or_flip_a_file_is_noticed(store, clock, tmp_path):
    await back_up(store.backend, clock, tmp_path / "b.zst")
    whole = (tmp_path / "b.zst").read_bytes()
    places = [*range(0, len(whole), 97), *range(len(whole) - 16, len(whole))]
    cut = (whole[:at] for at in places)
    flipped = (whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :] for at in places)
    path = tmp_path / "damaged.zst"
    for damaged in (*cut, *flipped):
        path.write_bytes(damaged)
        try:
            check(path)
        except StateCorruptError:
            continue
        # A few bits of a zstd frame mean nothing, nor does its end behind the last line: then nothing is different.
        assert lines_of(path) == lines_of(tmp_path / "b.zst")


def test_what_is_no_backup_at_all(tmp_path):
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(StateCorruptError, match="line 1: it is no zstd file"):
        check(tmp_path / "text")
    with pytest.raises(InvalidRequestError, match="No such file"):
        BackupReader(tmp_path / "nothing")


def header(**fields):
    plain = {"onager_backup": "2.0", "onager_version": "9.9", "revision": 1, "records": {}, "left_out": {}}
    return json.dumps({**plain, **fields}).encode() + b"\n"


def test_another_format_is_refused_and_a_newer_minor_one_read(tmp_path):
    for major in (1, 3):
        other = write_lines(tmp_path / "other", sealed([header(onager_backup=f"{major}.0")]))
        with pytest.raises(SchemaVersionError, match=f"has schema version {major}, and Onager .* reads 2"):
            check(other)
    assert check(write_lines(tmp_path / "minor", sealed([header(onager_backup="2.7", more=True)]))).records == 0


def test_an_unknown_keyspace_is_refused_before_anything_is_written(tmp_path):
    record = b'{"keyspace":"Moons","key":"k","text":""}\n'
    path = write_lines(tmp_path / "b", sealed([header(records={"Moons": 1}), record]))
    with pytest.raises(InvalidRequestError, match=r"keyspace 'Moons', which this Onager does not know.* Onager 9\.9"):
        check(path)


async def test_what_was_there_before_is_replaced(store, clock, tmp_path):
    await back_up(store.backend, clock, tmp_path / "b.zst")
    before = await contents(store.backend)
    async with MemoryBackend(MemoryStore(clock)) as other:
        await other.put(Keyspace.Sessions, "old", b"{}")
        assert (await look_at_target(other)).counts == {"Sessions": 1}
        await restore(other, clock, tmp_path / "b.zst")
        assert await contents(other) == before


def records_of(count, *, breaks_at=None):
    for n in range(count):
        if n == breaks_at:
            raise OSError("the disk with the backup was unplugged")
        yield pb.StateRecord(keyspace="Sessions", key=f"s{n:04d}", value=b"{}")


async def test_a_restore_that_breaks_off_is_noticed_and_can_be_repeated(backend, clock, tmp_path):
    count = 3 * MAX_TXN_OPS
    mark = new_mark(clock, "b.zst", count)
    with pytest.raises(OSError, match="unplugged"):
        await restore_records(
            backend, await look_at_target(backend), records_of(count, breaks_at=200), mark, CALLER, clock
        )

    target = await look_at_target(backend)
    assert target.counts == {"Sessions": MAX_TXN_OPS}
    assert target.mark == mark
    (found,) = [f for f in check_everything(await read_contents(backend)) if not f.is_warning]
    assert found.kind == "unfinished"
    with pytest.raises(StateCorruptError, match=r"the restore of b\.zst into this store was not finished"):
        await SchedulerApp(SchedulerSettings(), backend, clock).start()
    with pytest.raises(InvalidRequestError, match="a restore into this store was not finished"):
        await back_up(backend, clock, tmp_path / "b.zst")

    again = new_mark(clock, "b.zst", count)
    assert await restore_records(backend, target, records_of(count), again, CALLER, clock) == count
    assert len(await backend.scan_keys(Keyspace.Sessions, limit=10_000)) == count
    await check_no_restore_pending(backend)


class BetweenBatches(MemoryBackend):
    """Does something between the begin of a restore and its first batch."""

    between = None

    async def _commit(self, ops, expect):
        if self.between is not None and all(op.keyspace is Keyspace.Sessions for op in ops):
            between, self.between = self.between, None
            await between()
        return await super()._commit(ops, expect)


async def test_of_two_restores_at_once_the_earlier_goes_on(clock, monkeypatch):
    monkeypatch.setattr("onager.state_admin.restoring._WAIT_S", 0)
    count = 3 * MAX_TXN_OPS
    async with BetweenBatches(MemoryStore(clock)) as backend:
        refused = []

        async def another():
            mark, seen = new_mark(clock, "second", 1), await look_at_target(backend)
            with pytest.raises(InvalidRequestError, match="another restore into this store is under way") as error:
                await restore_records(backend, seen, records_of(1), mark, CALLER, clock)
            refused.append(error)

        backend.between = another
        target, mark = await look_at_target(backend), new_mark(clock, "first", count)
        assert await restore_records(backend, target, records_of(count), mark, CALLER, clock) == count
        assert refused
        assert len(await backend.scan_keys(Keyspace.Sessions, limit=10_000)) == count
        assert not await backend.get_from_prefix(Keyspace.Locks, "")


async def test_a_restore_that_was_paused_past_its_lease_is_kept_out_by_the_next(clock, monkeypatch):
    monkeypatch.setattr("onager.state_admin.restoring._WAIT_S", 0)
    count = 3 * MAX_TXN_OPS
    async with BetweenBatches(MemoryStore(clock)) as backend:

        async def pause():
            clock.advance(60_000)
            mark, seen = new_mark(clock, "second", 1), await look_at_target(backend)
            assert await restore_records(backend, seen, records_of(1), mark, CALLER, clock) == 1

        backend.between = pause
        target, mark = await look_at_target(backend), new_mark(clock, "first", count)
        with pytest.raises(InvalidRequestError, match="or this one was held up for 30 s"):
            await restore_records(backend, target, records_of(count), mark, CALLER, clock)
        assert (await backend.scan_keys(Keyspace.Sessions, limit=10)).items == ("s0000",)


async def test_a_restore_of_what_another_has_restored_since_is_refused(backend, clock):
    target = await look_at_target(backend)
    with pytest.raises(OSError, match="unplugged"):
        await restore_records(backend, target, records_of(9, breaks_at=3), new_mark(clock, "a", 9), CALLER, clock)
    with pytest.raises(InvalidRequestError, match="another restore into this store"):
        await restore_records(backend, target, records_of(1), new_mark(clock, "b", 1), CALLER, clock)


class LosesAnswers(MemoryBackend):
    """Every second commit is done, and its answer lost."""

    commits = 0

    async def _commit(self, ops, expect):
        result = await super()._commit(ops, expect)
        self.commits += 1
        is_lost = self.commits % 2 and isinstance(result, Committed)
        return OutcomeUnknown("the answer was lost") if is_lost else result


async def test_lost_answers_change_nothing(clock):
    async with LosesAnswers(MemoryStore(clock)) as backend:
        count = 5 * MAX_TXN_OPS + 1
        written = await restore_records(
            backend, await look_at_target(backend), records_of(count), new_mark(clock, "b", count), CALLER, clock
        )
        assert written == count
        assert len(await backend.scan_keys(Keyspace.Sessions, limit=10_000)) == count
        await check_no_restore_pending(backend)


async def test_a_damaged_executor_record_travels_as_it_is(backend, clock):
    damaged = [b"{", b"[]", pack(b'{"lease_id"')]
    records = [pb.StateRecord(keyspace="Executors", key=f"e{n}", value=v) for n, v in enumerate(damaged)]
    await restore_records(backend, await look_at_target(backend), records, new_mark(clock, "b", 3), CALLER, clock)
    assert [item.value for item in await backend.get_from_prefix(Keyspace.Executors, "")] == damaged


async def test_the_audit_travels_and_that_of_the_store_stays_and_tells_of_the_restore(store, clock, tmp_path):
    async with Audit(store.backend, clock, "s1").act(CALLER, "cancel", "job-1"):
        pass
    await back_up(store.backend, clock, tmp_path / "b.zst")
    async with MemoryBackend(MemoryStore(clock)) as other:
        clock.advance(1)
        async with Audit(other, clock, "s2").act(CALLER, "cancel", "job-2"):
            pass
        assert (await look_at_target(other)).counts == {}, "nothing would be deleted"
        clock.advance(1)
        records = await restore(other, clock, tmp_path / "b.zst")
        entries = (await list_audit(other, pb.ListAuditRequest())).entries
        assert [(e.scheduler_id, e.action, e.target, e.outcome) for e in entries] == [
            ("s1", "cancel", "job-1", "done"),
            ("s2", "cancel", "job-2", "done"),
            ("", "restore", "b.zst", f"done: {records} records"),
        ]
        assert not [f for f in check_everything(await read_contents(other)) if f.keyspace is Keyspace.Audit]
