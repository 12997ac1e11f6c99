"""Files that a disk returns damaged: an error, never wrong rows."""

from pathlib import Path

import pyarrow as pa
import pytest

from onager.errors import FetchFailedError
from onager.exchange_layout import result_file
from onager.result_files import read_inline, read_result, split_messages
from tests.support.damage import TIMES, damaged
from tests.support.spark.runner import cut


@pytest.fixture
def large(spark, job, exchange_dir):
    """A result that lies in a file: where, and as what it was reported."""
    frame = spark.range(0, 150_000, 1, 1).selectExpr("id", "sha2(CAST(id AS STRING), 256) h")
    (report,) = job.run_all(cut(spark, frame))
    output = report.success.output
    return exchange_dir / result_file(job.job_id, 1, 0, output.nonce), output


def test_a_result_file_that_is_damaged_anywhere_is_refused(large, tmp_path):
    path, output = large
    content = path.read_bytes()
    copy = tmp_path / path.name
    for what, bytes_ in damaged(content, seed=1):
        copy.write_bytes(bytes_)
        with pytest.raises(FetchFailedError, match=r"result file \S+ is missing or damaged: (its|it|batch) "):
            pytest.fail(f"{what}: {len(list(read_result(str(tmp_path), copy.name, output.checksum)))} batches")


def test_another_executions_file_is_not_taken_for_the_one_that_was_reported(large):
    path, output = large
    other = f"crc32:{int(output.checksum[6:], 16) ^ 1:08x}"
    with pytest.raises(FetchFailedError, match="its index is not the one that was reported"):
        list(read_result(str(path.parent), path.name, other))
    with pytest.raises(FetchFailedError, match="of a kind that this version does not know"):
        list(read_result(str(path.parent), path.name, "xxh64:0"))


def test_reading_begins_at_any_batch(large):
    path, output = large
    _, *batches = split_messages(path.read_bytes())
    assert len(batches) > 5
    for first in range(len(batches) + 2):
        assert list(read_result(str(path.parent), path.name, output.checksum, first)) == batches[first:]
    # What an executor of the version before wrote comes without a checksum, and ends with the stream.
    assert list(read_result(str(path.parent), path.name, "", 2)) == batches[2:]


def test_an_inline_result_that_is_damaged_anywhere_is_refused(spark, job):
    (report,) = job.run_all(cut(spark, spark.range(0, 500, 1, 1).selectExpr("id", "CAST(id AS STRING) s")))
    content, checksum = report.success.inline_result, report.success.output.checksum
    schema, *batches = split_messages(content)
    assert list(read_inline(content, "it", checksum)) == batches
    assert len(pa.ipc.read_record_batch(pa.py_buffer(batches[0]), pa.ipc.read_schema(pa.py_buffer(schema)))) == 500
    for what, bytes_ in damaged(content, seed=2):
        with pytest.raises(FetchFailedError, match="the result is damaged"):
            pytest.fail(f"{what}: {len(list(read_inline(bytes_, 'the result', checksum)))} batches")


def test_an_exchange_file_that_is_damaged_anywhere_is_refused_or_gives_its_rows(spark, job, exchange_dir, tell):
    first, second = cut(spark, spark.range(0, 500, 1, 1).selectExpr("id", "CAST(id AS STRING) s").repartition(2, "id"))
    job.run(1, first.plan)
    expected = rows(job.run(2, second.plan))
    output = job.outputs[1][0]
    file = exchange_dir / job.job_id / "1" / f"0-{output.nonce}.rows"
    content, refused = file.read_bytes(), 0
    for number, (what, bytes_) in enumerate(damaged(content, seed=3)):
        output.nonce = f"d{number}"  # indexes are remembered by name
        Path(file.with_name(f"0-{output.nonce}.rows")).write_bytes(bytes_)
        reports = job.run(2, second.plan)
        failures = [r.failure.kind for r in reports if r.HasField("failure")]
        assert set(failures) <= {"fetch_failed"}, what
        assert failures or rows(reports) == expected, what
        refused += bool(failures)
    assert refused >= TIMES * 2 - 5
    tell(f"exchange file damaged {TIMES * 2} times: refused {refused} times, the rest harmless")


def rows(reports):
    """Return the rows of inline results, in order."""
    tables = [pa.ipc.open_stream(report.success.inline_result).read_all() for report in reports]
    return pa.concat_tables(tables).to_pylist()
