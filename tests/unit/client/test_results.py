"""Results arrive whole and once, wherever the connection breaks."""

import pyarrow as pa
import pytest

from onager.errors import InvalidRequestError, OnagerError, ResultExpiredError
from onager.protocol import onager_pb2 as pb


def _batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], names=["n"])


@pytest.fixture
def job(scheduler, connect):
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.SUCCESSFUL)]
    scheduler.partitions = [[_batch(1, 2), _batch(3)], [], [_batch(4, 5), _batch(6)]]
    return connect(scheduler.address).job("j")


def test_partitions_and_batches_come_in_order(job):
    assert job.to_arrow().column("n").to_pylist() == [1, 2, 3, 4, 5, 6]
    assert [batch.num_rows for batch in job.batches()] == [2, 1, 2, 1]
    assert job.to_pandas()["n"].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("piece_bytes", [1 << 20, 64])
@pytest.mark.parametrize("break_after", [[0], [1], [2], [1, 1], [2, 2, 2], [3, 1, 2], [4], [7], [0, 0, 0]])
def test_a_broken_stream_goes_on_without_missing_or_doubled_rows(scheduler, job, piece_bytes, break_after):
    scheduler.piece_bytes = piece_bytes
    job.wait()
    scheduler.break_after_messages = [1 << 30, *break_after]  # the first stream is the wait's
    assert job.to_arrow().column("n").to_pylist() == [1, 2, 3, 4, 5, 6]


def test_a_break_is_taken_up_at_the_batch_behind_the_last_whole_one(scheduler, job):
    scheduler.break_after_messages = [1 << 30, 3]
    job.to_arrow()
    requests = [request for method, request in scheduler.calls if method == "FetchResult"]
    assert [(request.partition, request.batch) for request in requests] == [(0, 0), (0, 2)]


def test_an_empty_result_has_its_schema(scheduler, job):
    scheduler.partitions = []
    table = job.to_arrow()
    assert table.num_rows == 0
    assert table.schema == scheduler.schema


def test_duplicate_column_names_are_kept(scheduler, job):
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    scheduler.schema, scheduler.partitions = batch.schema, [[batch]]
    table = job.to_arrow()
    assert table.schema.names == ["a", "a"]
    assert [column.to_pylist() for column in table.columns] == [[1], ["x"]]


def test_a_result_of_zero_columns_keeps_its_row_count(scheduler, job):
    batch = _batch(1, 2, 3).select([])
    scheduler.schema, scheduler.partitions = batch.schema, [[batch], [batch]]
    assert job.to_arrow().num_rows == 6


def test_a_stream_that_ends_inside_a_batch_is_an_error(scheduler, job):
    whole = scheduler._chunks

    def cut(request):
        chunks = list(whole(request))
        chunks[-1].more = True
        yield from chunks

    scheduler._chunks = cut
    with pytest.raises(OnagerError, match="ended in the middle of a batch"):
        job.to_arrow()


def test_a_result_past_retention_says_so(scheduler, job):
    def expire(method: str) -> None:
        if method == "FetchResult":
            raise ResultExpiredError("j")

    scheduler.on_call = expire
    with pytest.raises(ResultExpiredError):
        job.to_arrow()


def test_the_result_of_a_sink_is_not_fetched(scheduler, job):
    scheduler.progress[0].sink_path = "/data/out"
    with pytest.raises(InvalidRequestError, match="/data/out"):
        job.to_arrow()
