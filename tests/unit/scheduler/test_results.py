"""Results come back whole, in order, from anywhere, in small pieces."""

import base64
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from onager import exchange_layout
from onager.errors import FetchFailedError, PlaceNotSeenError, StateCorruptError
from onager.execution_graph import TaskOutput
from onager.ids import JobId
from onager.protocol.limits import RESULT_CHUNK_BYTES
from onager.scheduler.jobs import results
from onager.scheduler.jobs.results import InlineResult, ResultStore, stream_result
from onager.state_backend import KeyRange, Keyspace
from tests.support.damage import damaged, sealed

JOB = JobId("job-1")
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def stream(*batches):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for numbers in batches:
            columns = [pa.array(numbers, pa.int64()), pa.array([str(n) * 100 for n in numbers], pa.string())]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
    return sink.getvalue().to_pybytes()


def output(nonce, *, is_inline, checksum=""):
    return TaskOutput(nonce=nonce, is_shared=True, rows=1, bytes=1, is_inline=is_inline, checksum=checksum)


def graph(*outputs):
    """Stand for the parts of a graph that a reader of results looks at."""
    stage = SimpleNamespace(
        spec=SimpleNamespace(stage_id=3, partitions=len(outputs)),
        ledger=SimpleNamespace(outputs=dict(enumerate(outputs))),
    )
    plan = SimpleNamespace(arrow_schema=base64.b64encode(SCHEMA.serialize().to_pybytes()).decode())
    return SimpleNamespace(job_id=JOB, plan=plan, result_stage=stage)


async def read(found, store, directory, partition=0, batch=0):
    numbers, pieces, chunks = [], [], 0
    schema = None
    async for chunk in stream_result(found, store, str(directory), partition=partition, batch=batch):
        chunks += 1
        assert chunk.ByteSize() < 2 * 1024 * 1024
        if chunk.schema:
            schema = pa.ipc.read_schema(pa.py_buffer(chunk.schema))
        if chunk.record_batch:
            pieces.append(chunk.record_batch)
            if not chunk.more:
                rows = pa.ipc.read_record_batch(pa.py_buffer(b"".join(pieces)), schema)
                numbers += rows.column(0).to_pylist()
                pieces = []
    assert not pieces
    return numbers, chunks


def as_written(is_sealed, *batches):
    """Return a result and what its checksum was reported as, of an executor that makes some or of one before those."""
    return sealed(stream(*batches)) if is_sealed else (stream(*batches), "")


@pytest.fixture(params=[True, False], ids=["sealed", "of an older executor"])
async def found(request, backend, tmp_path):
    store = ResultStore(backend)
    (a, b, c), checksums = zip(
        *(as_written(request.param, *batches) for batches in ([[1, 2], [3]], [[4], [5]], [[6]])), strict=True
    )
    await store.put([InlineResult(JOB, 0, "a", a), InlineResult(JOB, 2, "c", c)])
    path = tmp_path / exchange_layout.result_file(JOB, 3, 1, "b")
    path.parent.mkdir(parents=True)
    path.write_bytes(b)
    outputs = [
        output(nonce, is_inline=nonce != "b", checksum=checksum)
        for nonce, checksum in zip("abc", checksums, strict=True)
    ]
    return graph(*outputs), store, tmp_path, path


async def test_partitions_and_batches_come_in_order(found):
    assert (await read(*found[:3]))[0] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("partition", "batch", "rest"),
    [(0, 1, [3, 4, 5, 6]), (0, 2, [4, 5, 6]), (1, 1, [5, 6]), (2, 0, [6]), (2, 1, []), (3, 0, [])],
)
async def test_reading_goes_on_where_it_stopped(found, partition, batch, rest):
    assert (await read(*found[:3], partition, batch))[0] == rest


async def test_a_large_batch_travels_in_pieces(backend, tmp_path):
    numbers = list(range(100_000))
    path = tmp_path / exchange_layout.result_file(JOB, 3, 0, "b")
    path.parent.mkdir(parents=True)
    path.write_bytes(stream(numbers))
    read_numbers, chunks = await read(graph(output("b", is_inline=False)), ResultStore(backend), tmp_path)
    assert read_numbers == numbers
    assert chunks > path.stat().st_size // RESULT_CHUNK_BYTES


async def test_many_small_results_are_made_ready_beside_the_event_loop(backend, monkeypatch):
    """What comes in one report may be as large as a message."""
    threads = []
    monkeypatch.setattr(results, "pack_blob", lambda data: threads.append(threading.current_thread()) or data)
    contents = [bytes([n]) * 10_000 for n in range(1, 21)]
    await ResultStore(backend).put([InlineResult(JOB, n, "a", content) for n, content in enumerate(contents)])
    assert len(threads) == 20
    assert threading.current_thread() not in threads


async def test_an_empty_result_still_has_its_schema(backend, tmp_path):
    assert await read(graph(), ResultStore(backend), tmp_path) == ([], 1)


async def test_what_is_missing_or_damaged_is_never_an_answer(found):
    made, store, directory, path = found
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FetchFailedError, match="damaged"):
        await read(made, store, directory)
    path.unlink()
    with pytest.raises(FetchFailedError, match="missing"):
        await read(made, store, directory)
    await store.put([InlineResult(JOB, 0, "a", b"rubbish")])
    with pytest.raises(FetchFailedError, match="partition 0"):
        await read(made, store, directory)
    await store._backend.delete_range(Keyspace.Results, f"{JOB}/")
    with pytest.raises(FetchFailedError, match="missing"):
        await read(made, store, directory)


async def test_a_stored_result_that_is_damaged_anywhere_is_refused(backend, tmp_path):
    content, checksum = sealed(stream(list(range(400))))
    store, made = ResultStore(backend), graph(output("a", is_inline=True, checksum=checksum))
    await store.put([InlineResult(JOB, 0, "a", content)])
    (kept,) = (await backend.read_txn(ranges=[KeyRange(Keyspace.Results, "")])).ranges[0]
    harmless = 0
    for what, value in damaged(kept.value, seed=4):
        await backend.put(Keyspace.Results, kept.key, value)
        try:
            numbers, _ = await read(made, store, tmp_path)
        except (FetchFailedError, StateCorruptError) as error:
            assert "is damaged" in str(error)  # noqa: PT017 some damage does no harm
        else:
            assert numbers == list(range(400)), what
            harmless += 1
    assert harmless <= 5


async def test_a_scheduler_that_sees_another_directory_says_so_and_not_that_the_result_is_gone(found):
    made, store, directory, path = found
    path.unlink()

    def unseen() -> None:
        raise PlaceNotSeenError("exchange", "scheduler s reads nothing there")

    store.check_exchange = unseen
    with pytest.raises(PlaceNotSeenError):
        await read(made, store, directory)
