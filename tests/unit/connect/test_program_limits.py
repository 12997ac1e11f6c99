"""What programs may record: calls, bytes of one, bytes in the store of all together."""

import uuid
from pathlib import Path

import grpc
import pytest

from onager.program_errors import ProgramLimitError
from onager.protocol.status import ERROR_KEY
from onager.scheduler import program_limits
from onager.scheduler.connect.call_names import CALL_HEADER, PROGRAM_HEADER, call_name
from onager.scheduler.connect.program_calls import CallRecord
from onager.scheduler.connect.records import SessionKey
from onager.scheduler.program_limits import MAX_CALLS, ProgramUsages, Usage
from onager.state_backend import Keyspace, Put
from tests.unit.connect.recorded_program import PROGRAM, Attempt, RefusedError, again, doing, record_of

PATH = f"%/{PROGRAM}"


def usages(scheduler):
    return scheduler.programs.usages


async def limit(pair, size):
    """Let all programs have *size* bytes in the store."""
    for scheduler in pair.schedulers.values():
        usages(scheduler)._limit_bytes = size


async def test_the_hundred_thousand_and_first_call_ends_a_program_and_recorded_ones_are_answered(first, program_pair):
    known = await first.sql("SHOW TABLES")
    record = await record_of(first, 1)
    stored = record.encoded()
    keys = (f"{PATH}/{task}/{number:06d}" for task in ("0.0", "0.1") for number in range(1, MAX_CALLS // 2 + 1))
    await program_pair.here._backend.put_all(Put(Keyspace.ProgramCalls, key, stored) for key in list(keys)[:-2])
    second = await again(first)
    assert second.begun.calls == MAX_CALLS - 1
    assert await second.sql("SHOW TABLES") == known
    assert await second.sql("SHOW TABLES")
    for scheduler in program_pair.schedulers.values():
        if scheduler is program_pair.there:
            second = await again(
                second, "c"
            )  # the other one has counted what it recorded itself, and this at the begin
            second.number = 2
        with pytest.raises(RefusedError) as raised:
            await second.sql("SHOW TABLES", at=scheduler, number=3)
        assert str(raised.value) == (
            "program nightly has reached its limit of 100,000 calls: call 3 of task 0 at app.py:3 cannot be recorded"
        )
        assert not raised.value.is_recorded
        assert b"ProgramLimitError" in raised.value.metadata[ERROR_KEY]
    assert await second.sql("SHOW TABLES", number=1) == known


def test_a_number_beyond_all_calls_is_over_the_limit():
    metadata = [(PROGRAM_HEADER, f"{PROGRAM}/1/{'a' * 32}"), (CALL_HEADER, f"0/{MAX_CALLS + 1}")]
    with pytest.raises(ProgramLimitError, match="100,000 calls"):
        call_name(metadata)


def test_the_limits_of_a_program_are_those_that_the_docs_name():
    Usage(calls=99_999, store_bytes=1).check("p", "call 1")
    Usage(file_bytes=10 * 2**30 - 1).check("p", "call 1")
    with pytest.raises(ProgramLimitError, match="10 GiB"):
        Usage(file_bytes=10 * 2**30, store_bytes=1).check("p", "call 1")
    assert Usage(store_bytes=2**26 - 2**16).has_room(2**16)
    assert not Usage(store_bytes=2**26 - 2**16 + 1).has_room(2**16)
    assert not Usage().has_room(2**16 + 1)


async def test_rows_beyond_the_bytes_of_a_program_end_it_in_the_middle_of_them(first, monkeypatch):
    monkeypatch.setattr(program_limits, "MAX_BYTES", 2**20)
    with pytest.raises(RefusedError, match=r"limit of 0 GiB: call 1 of task 0 at app\.py:1 cannot be recorded"):
        await doing(first, first.query(), 1, [range(50_000)] * 8)
    root = Path(first.pair.here.settings.exchange_dir) / ".programs"
    assert not (await record_of(first, 1)).is_done
    assert sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) < 2**21


async def test_an_answer_beyond_the_bytes_of_a_program_ends_it(first, spark, monkeypatch):
    monkeypatch.setattr(program_limits, "MAX_BYTES", 100_000)
    spark.more = 200_000
    with pytest.raises(RefusedError, match="cannot be recorded"):
        await first.analyze()
    assert await record_of(first, 1) is None


async def test_what_is_counted_while_calls_are_made_is_what_is_there(first, program_pair, spark):
    await first.set(mode="static")
    await first.sql("SET mode dynamic")
    await first.sql("SHOW TABLES")
    with pytest.raises(RefusedError):
        await first.sql("FAIL sales")
    await doing(first, first.sql("INSERT INTO t VALUES (1)"), 5)
    await doing(first, first.query(), 6, [range(3)])
    await doing(first, first.query(), 7, [range(50_000)])
    spark.more = 100_000
    await first.analyze()
    counted = await usages(program_pair.here).count(PATH)
    _, known = usages(program_pair.here)._going_on[PATH]
    assert known == counted
    assert (counted.calls, counted.file_bytes > 400_000) == (8, True)
    second = await again(first)
    await second.set(mode="static")
    await second.analyze(number=9, at=program_pair.there)
    assert usages(program_pair.there)._going_on[PATH][1] == await usages(program_pair.there).count(PATH)


async def many(pair, spark, *names, clock=None, ended=()):
    """Begin programs, each with some calls; end some of them, one a second."""
    for number, name in enumerate(names):
        attempt = Attempt(pair, spark, "0123456789abcdef"[number] * 32, program=name)
        await attempt.begin()
        for _ in range(10):
            await attempt.sql("SHOW TABLES")
        if name in ended:
            clock.advance(1_000)
            await attempt.end()
    return attempt


async def there(pair):
    return [key.partition("/")[2] for key in await pair.here._backend.scan_keys(Keyspace.Programs, limit=100)]


async def test_while_all_have_too_much_ended_ones_go_the_oldest_end_first(program_pair, spark, clock):
    await many(program_pair, spark, "c", "a", "b", "goes-on", clock=clock, ended="cab")
    await program_pair.here.spark_connect.sweep(with_files=False)
    size = (await usages(program_pair.here).count("%/a")).store_bytes
    for room, left in ((4, ["a", "b", "c", "goes-on"]), (3, ["a", "b", "goes-on"]), (1, ["goes-on"])):
        await limit(program_pair, int((room + 0.5) * size))
        await program_pair.here.spark_connect.sweep_in_turn(program_pair.here.rounds)
        assert await there(program_pair) == left
    assert len(await program_pair.here._backend.scan_keys(Keyspace.ProgramCalls, limit=100)) == 10


async def test_while_nothing_can_go_new_calls_wait_and_all_else_is_served(program_pair, spark, clock):
    attempt = await many(program_pair, spark, "goes-on", clock=clock)
    known = await attempt.sql("SHOW TABLES", number=3)
    await limit(program_pair, 2_000)
    for scheduler in program_pair.schedulers.values():
        await scheduler.spark_connect.sweep(with_files=False)
        with pytest.raises(RefusedError, match=r"2,000 bytes.*program_store_bytes.*new calls wait") as raised:
            await attempt.sql("SHOW TABLES", at=scheduler, number=11)
        assert raised.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not raised.value.is_recorded
        assert await attempt.sql("SHOW TABLES", at=scheduler, number=3) == known
        await scheduler.spark_connect.sessions.open(SessionKey("bob", str(uuid.UUID(int=1))))
    await limit(program_pair, 2**20)
    assert await attempt.sql("SHOW TABLES", number=11)


async def test_what_was_recorded_since_the_last_count_counts_at_once(program_pair, spark, clock):
    attempt = await many(program_pair, spark, "goes-on", clock=clock)
    await program_pair.here.spark_connect.sweep(with_files=False)
    size = (await usages(program_pair.here).count("%/goes-on")).store_bytes
    await limit(program_pair, size + 100)
    await attempt.sql("SHOW TABLES")
    assert program_pair.here.programs.lack_room
    with pytest.raises(RefusedError, match="program_store_bytes"):
        await attempt.sql("SHOW TABLES")


async def test_only_programs_that_made_calls_are_counted_again(program_pair, spark, clock, monkeypatch):
    attempt = await many(program_pair, spark, "a", "b", clock=clock)
    await program_pair.here.spark_connect.sweep(with_files=False)
    counted = []
    count = ProgramUsages.count

    async def noted(self, path):
        counted.append(path)
        return await count(self, path)

    monkeypatch.setattr(ProgramUsages, "count", noted)
    await attempt.sql("SHOW TABLES")
    await program_pair.here.spark_connect.sweep(with_files=False)
    assert counted == ["%/b"]
    total = [(await count(usages(program_pair.here), path)).store_bytes for path in ("%/a", "%/b")]
    assert usages(program_pair.here)._all_bytes == sum(total)


def test_the_size_of_a_file_is_found_in_any_record():
    line = 'app.py:1 "file_bytes":77'
    for record in (CallRecord(at_ms=1, file_bytes=5, line=line), CallRecord(at_ms=1, file_bytes=5, error="x" * 99_999)):
        assert program_limits.file_bytes_of(record.encoded(), "a record") == 5
