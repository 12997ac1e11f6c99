"""What came of calls of programs: few rows lie in the store, more in a file, and no job is needed for either."""

import asyncio
from pathlib import Path

import pytest

from onager.errors import StateUnavailableError
from onager.exchange_layout import PROGRAMS
from onager.protocol.spark_connect import ExecutePlanResponse
from onager.scheduler import program_limits
from onager.scheduler.connect.program_calls import ProgramCalls, ProgramStore
from onager.scheduler.connect.running import CALL
from onager.scheduler.jobs.job_heads import JobTerms
from onager.state_backend import Keyspace
from onager.state_backend.faulty import FaultKind, FaultyBackend, scripted
from tests.unit.connect.recorded_program import (
    Attempt,
    RefusedError,
    again,
    answers,
    doing,
    finish,
    forget,
    ids,
    job_of,
    left,
    operation,
    record_of,
    submitted,
)

FEW = [range(100), range(100, 200)]
MANY = [range(n * 10_000, (n + 1) * 10_000) for n in range(40)]
"""3.2 MB."""


def files(attempt):
    root = Path(attempt.pair.here.settings.exchange_dir) / PROGRAMS
    return sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else []


def numbers(responses):
    """Return how many rows came, and at which positions they begin."""
    batches = [ExecutePlanResponse.FromString(each).arrow_batch for each in responses]
    return [(each.start_offset, each.row_count) for each in batches if each.data]


@pytest.mark.parametrize("batches", [FEW, MANY])
async def test_the_rows_of_a_query_outlive_its_job(first, program_pair, batches):
    known = answers(await doing(first, first.query(), 1, batches))
    assert sum(rows for _, rows in numbers(known)) == sum(map(len, batches))
    assert len(files(first)) == (batches is MANY)
    await forget(program_pair, 1)
    second = await again(first)
    assert await second.query(b"the same, with other ids", at=program_pair.there) == known


@pytest.mark.parametrize("batches", [FEW, MANY])
async def test_a_client_goes_on_at_the_same_response_whether_the_job_or_the_record_answers(
    first, program_pair, batches
):
    known = answers(await doing(first, first.query(), 1, batches))
    await forget(program_pair, 1)
    for at, last in list(enumerate(ids(known)))[:: max(1, len(known) // 5)]:
        rest = await first.ask("ReattachExecute", number=1, operation_id=operation(1), last_response_id=last)
        assert rest == known[at + 1 :]
    with pytest.raises(RefusedError, match="INVALID_CURSOR"):
        await first.ask("ReattachExecute", number=1, operation_id=operation(1), last_response_id="7.7.7")


@pytest.mark.parametrize("batches", [FEW, MANY])
async def test_a_stream_that_breaks_leaves_the_rows_to_the_job_until_that_goes(first, program_pair, clock, batches):
    """A client gets the first rows from the job, and the others, after the job's time, from the record."""
    whole = answers(await doing(first, first.query(), 1, batches))
    await left(first, first.query(), 2)
    await finish(program_pair, 2, batches)
    cursor = ids(whole)[1]
    rest = await first.ask("ReattachExecute", number=2, operation_id=operation(2), last_response_id=cursor)
    assert not (await record_of(first, 2)).is_done, "this stream did not have all of it"
    await expire(program_pair, clock)
    assert (await record_of(first, 2)).is_done
    await forget(program_pair, 2)
    after = await first.ask("ReattachExecute", number=2, operation_id=operation(2), last_response_id=cursor)
    assert after == rest
    assert ids(after) == ids(whole)[2:]


async def expire(pair, clock, ms=3_700_000):
    """Let the results of jobs expire."""
    clock.advance(ms)
    for scheduler in pair.schedulers.values():
        await scheduler.heads.refresh()
        await scheduler.retention.sweep()


async def has_result(pair, number):
    await pair.here.heads.refresh()
    return pair.here.heads.get(job_of(number)).has_result


ACTS = {
    "a write": lambda attempt: attempt.sql("INSERT INTO t VALUES (1)"),
    "few rows": Attempt.query,
    "many rows": Attempt.query,
}


@pytest.mark.parametrize("name", ACTS)
async def test_what_ends_after_its_attempt_is_recorded_before_its_job_goes(first, program_pair, clock, name):
    await left(first, ACTS[name](first), 1)
    await finish(program_pair, 1, {"few rows": FEW, "many rows": MANY}.get(name))
    await expire(program_pair, clock)
    assert not await has_result(program_pair, 1)
    await forget(program_pair, 1)
    second = await again(first)
    await ACTS[name](second)
    assert not await program_pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10), "nothing runs again"
    assert len(files(first)) == (name == "many rows")


async def test_an_error_that_comes_after_its_attempt_is_recorded_before_its_job_goes(first, program_pair, clock):
    await left(first, first.query(), 1)
    for scheduler in program_pair.schedulers.values():
        if scheduler.ownership.is_mine(job_of(1)):
            await scheduler.local.coordinator(job_of(1)).cancel_job("enough", "")
    await expire(program_pair, clock)
    await forget(program_pair, 1)
    second = await again(first)
    for _ in range(2):
        with pytest.raises(RefusedError, match="OPERATION_CANCELED") as raised:
            await second.query(number=1)
        assert raised.value.is_recorded


@pytest.mark.parametrize(
    "label", ["x", "%/nightly/0/000001", "%/other/0/000001", "a/b/c/d/e", "%/nightly/0/1", "/" * 500]
)
async def test_a_label_that_anybody_gives_a_job_records_nothing_and_keeps_no_job(first, program_pair, clock, label):
    await left(first, first.query(), 1)
    await program_pair.run_job("job-1", 0, terms=JobTerms(labels={CALL: label}))
    await expire(program_pair, clock)
    assert not program_pair.here.heads.get("job-1").has_result
    assert not (await record_of(first, 1)).is_done, "its own job goes on"


@pytest.mark.parametrize("fault", [FaultKind.UNAVAILABLE, FaultKind.UNKNOWN_WRITTEN, FaultKind.UNKNOWN_UNWRITTEN])
@pytest.mark.parametrize("batches", [FEW, MANY])
async def test_a_job_stays_until_its_call_is_recorded(first, program_pair, clock, batches, fault, monkeypatch):
    """The scheduler fails at the write; another one, or a later sweep, does it."""
    await left(first, first.query(), 1)
    await finish(program_pair, 1, batches)
    for scheduler in program_pair.schedulers.values():
        store = scheduler.spark_connect.calls.store
        faulty = FaultyBackend(store.backend, scripted({"put_txn": [fault]}))
        calls = type(store)(faulty, store.clock, store.files, store.usages)
        settling = scheduler.retention.settle_calls.__self__
        monkeypatch.setattr(
            scheduler.retention, "settle_calls", type(settling)(type(settling.calls)(calls), settling.operations).settle
        )
    await expire(program_pair, clock)
    if fault is FaultKind.UNAVAILABLE:
        assert await has_result(program_pair, 1)
        assert not (await record_of(first, 1)).is_done
        await expire(program_pair, clock, 61_000)
    assert not await has_result(program_pair, 1)
    await forget(program_pair, 1)
    rows = await (await again(first)).query()
    assert sum(count for _, count in numbers(rows)) == sum(map(len, batches))
    named = [(await record_of(first, 1)).file] if batches is MANY else []
    assert [path.name for path in files(first) if path.name in named] == named


async def test_a_scheduler_that_dies_in_the_middle_of_many_rows_leaves_them_to_the_next(first, program_pair):
    operations = program_pair.here.spark_connect.operations
    asked = asyncio.ensure_future(first.query())
    await submitted(program_pair, 1)
    rows = operations._rows

    async def cut(*given):
        count = 0
        async for response in rows(*given):
            yield response
            if (count := count + 1) == 20:
                raise StateUnavailableError("dead")

    operations._rows = cut
    await finish(program_pair, 1, MANY)
    with pytest.raises(RefusedError, match="dead"):
        await asked
    assert not (await record_of(first, 1)).is_done
    second = await again(first)
    rows = await second.query(at=program_pair.there)
    assert sum(count for _, count in numbers(rows)) == 400_000
    assert (await record_of(first, 1)).file


async def test_a_job_stays_while_its_rows_cannot_be_kept(first, program_pair, clock, monkeypatch):
    await left(first, first.query(), 1)
    await finish(program_pair, 1, MANY)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("onager.scheduler.outcome_files._append", fail)
        await expire(program_pair, clock)
    assert await has_result(program_pair, 1)
    await expire(program_pair, clock, 61_000)
    assert not await has_result(program_pair, 1)
    assert (await record_of(first, 1)).file == files(first)[0].name


async def test_a_file_stays_if_nobody_knows_whether_the_record_names_it(first, program_pair):
    store = program_pair.here.spark_connect.calls.store
    await left(first, first.query(), 1)
    await finish(program_pair, 1, MANY)
    faulty = FaultyBackend(store.backend, scripted({"put_txn": [FaultKind.UNKNOWN_WRITTEN, FaultKind.UNAVAILABLE]}))
    calls = ProgramCalls(ProgramStore(faulty, store.clock, store.files, store.usages))
    program_pair.here.spark_connect.calls = calls
    with pytest.raises(RefusedError, match="may have been written"):
        await first.query(number=1)
    await asyncio.sleep(0.2)  # what removes files does so later
    rows = await (await again(first)).query(at=program_pair.there)
    assert sum(count for _, count in numbers(rows)) == 400_000
    assert (await record_of(first, 1)).file == files(first)[0].name


async def test_rows_are_answered_where_their_file_cannot_be_written(first, program_pair, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onager.scheduler.outcome_files._append", fail)
    rows = await doing(first, first.query(), 1, MANY)
    assert sum(count for _, count in numbers(rows)) == 400_000
    assert not (await record_of(first, 1)).is_done


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
async def test_a_file_that_is_damaged_is_an_error_and_nothing_runs_again(first, program_pair, damage):
    await doing(first, first.query(), 1, MANY)
    (file,) = files(first)
    content = file.read_bytes()
    match damage:
        case "gone":
            file.unlink()
        case "cut":
            file.write_bytes(content[:-5])
        case "changed":
            file.write_bytes(content[:5_000] + b"!" + content[5_001:])
    await forget(program_pair, 1)
    with pytest.raises(RefusedError, match="what came of a call of a program is") as raised:
        await (await again(first)).query()
    assert not raised.value.is_recorded
    assert not await program_pair.here._backend.scan_keys(Keyspace.ActiveJobs, limit=10)


async def test_an_answer_that_is_too_large_for_the_store_lies_in_a_file(first, spark):
    spark.more = 200_000
    known = await first.analyze()
    await first.sql("SHOW TABLES")
    spark.more = 0
    assert len(files(first)) == 1
    second = await again(first)
    assert await second.analyze(at=first.pair.there) == known
    assert spark.asked == 2


async def test_beyond_its_share_of_the_store_all_lies_in_files(first, monkeypatch):
    monkeypatch.setattr(program_limits, "MAX_STORE_BYTES", 4_000)
    known = [await first.sql("SHOW TABLES") for _ in range(12)]
    assert 0 < len(files(first)) < 12
    second = await again(first)
    assert [await second.sql("SHOW TABLES", at=first.pair.there) for _ in range(12)] == known


async def test_files_go_with_their_program(first, program_pair, clock):
    await doing(first, first.query(), 1, MANY)
    assert len(files(first)) == 1
    await first.end()
    await program_pair.here.spark_connect.sweep(with_files=True)
    assert len(files(first)) == 1
    clock.advance(8 * 24 * 3_600_000)
    await program_pair.there.spark_connect.sweep(with_files=True)
    assert not files(first)
    assert not await program_pair.here._backend.scan_keys(Keyspace.Programs, limit=10)


async def test_files_of_a_program_that_an_admin_has_removed_go_and_those_of_other_clusters_stay(first, program_pair):
    await doing(first, first.query(), 1, MANY)
    other = files(first)[0].parent.parent / ("f" * 32) / "file"
    other.parent.mkdir()
    other.write_bytes(b"x")
    await program_pair.here.spark_connect.sweep(with_files=True)
    await program_pair.here._backend.delete(Keyspace.Programs, "%/nightly")
    await program_pair.here.spark_connect.sweep(with_files=True)
    assert files(first) == [other]
