"""Responses: from any id on, the same ones follow that would have."""

import pyarrow as pa
import pytest

from onager.protocol.spark_connect import ExecutePlanResponse
from onager.result_files import split_messages
from onager.scheduler.connect import responses
from onager.scheduler.connect.failures import ConnectError
from onager.scheduler.connect.responses import Ids, cursor_after, row_count, rows
from onager.scheduler.jobs.results import ResultBatch

IDS = Ids("s", "server", "op")
SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
ARROW = pa.schema([("a", pa.int64())])


def message(values):
    batch = pa.record_batch([pa.array(values, pa.int64())], ARROW)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW) as writer:
        writer.write_batch(batch)
    schema, batch_message = split_messages(sink.getvalue().to_pybytes())
    return schema, batch_message


PARTITIONS = [[[1, 2], [], [3]], [], [[4] * 50], [[5]]]


async def batches(partitions, cursor):
    for partition, of_it in enumerate(partitions):
        for number, values in enumerate(of_it):
            if (partition, number) >= (cursor.partition, cursor.batch):
                yield ResultBatch(partition, number, message(values)[1])


async def answers_to(partitions, response_id="", *, in_pieces=False):
    cursor = cursor_after(response_id)
    found = rows(IDS, cursor, SCHEMA, message([])[0], batches(partitions, cursor), in_pieces=in_pieces)
    return [ExecutePlanResponse.FromString(each) async for each in found]


def values(answers):
    found, piece = [], b""
    for answer in answers:
        if answer.HasField("arrow_batch"):
            piece += answer.arrow_batch.data
            if answer.arrow_batch.chunk_index + 1 >= answer.arrow_batch.num_chunks_in_batch:
                table = pa.ipc.open_stream(piece).read_all()
                assert (table.num_rows, len(found)) == (answer.arrow_batch.row_count, answer.arrow_batch.start_offset)
                found += table.column("a").to_pylist()
                piece = b""
    return found


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_from_every_id_on_the_same_follows(monkeypatch, in_pieces):
    monkeypatch.setattr(responses, "_PIECE_BYTES", 300)
    whole = await answers_to(PARTITIONS, in_pieces=in_pieces)
    assert values(whole) == [1, 2, 3, *[4] * 50, 5]
    assert any(answer.arrow_batch.num_chunks_in_batch > 1 for answer in whole) is in_pieces
    assert whole[0].schema.struct.fields[0].name == "a"
    assert whole[-1].HasField("result_complete")
    ids = [answer.response_id for answer in whole]
    assert len(set(ids)) == len(ids)
    for number, response_id in enumerate(ids[:-1], 1):
        assert await answers_to(PARTITIONS, response_id, in_pieces=in_pieces) == whole[number:], response_id


@pytest.mark.parametrize("partitions", [[], [[]], [[[]], [[], []]]])
async def test_a_result_without_rows_has_one_batch_that_says_so(partitions):
    answers = await answers_to(partitions)
    assert values(answers) == []
    assert sum(answer.HasField("arrow_batch") for answer in answers) == 1


@pytest.mark.parametrize("response_id", ["nonsense", "1.2", "-1.0.0", "9" * 100, "+1"])
def test_an_id_of_somebody_else_is_refused(response_id):
    with pytest.raises(ConnectError, match="INVALID_CURSOR"):
        cursor_after(response_id)


@pytest.mark.parametrize("count", [0, 1, 127, 70_000])
def test_rows_are_counted_as_arrow_counts_them(count):
    assert row_count(message(range(count))[1]) == count
