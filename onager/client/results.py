"""Results as Arrow batches, assembled from the chunks of a stream that may break anywhere.

A batch is received when its last chunk has arrived. After a break, the stream resumes at the batch after the last one
received, so that no row is lost or duplicated.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onager.client.connection import Connection
from onager.client.events import watch_events
from onager.client.final_plan import counts_few_tasks, get_final_plan
from onager.client.plan_text import plan_text
from onager.client.task_costs import task_costs
from onager.errors import OnagerError
from onager.explain_analyze import COLUMN, is_analyzed
from onager.protocol import onager_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa  # which takes a quarter of a second: only for those who read a result


class ResultReader:
    """Reads one job's result, in the order of partitions and batches."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection = connection
        self._job_id = job_id
        self._partition = 0
        self._batch = 0
        self._pieces: list[bytes] = []
        self._schema: pa.Schema | None = None
        self.is_plan = False
        """Whether it is that of EXPLAIN ANALYZE; known, like the schema, once the first message has arrived."""

    @property
    def schema(self) -> "pa.Schema":
        """The result's schema; known once the first message has arrived."""
        if self._schema is None:
            raise OnagerError(f"the scheduler sent no schema for the result of job {self._job_id}")
        return self._schema

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the record batches; only one is in memory at a time."""
        import pyarrow as pa

        for chunk in self._connection.stream(self._open):
            if chunk.schema:
                self._schema = pa.ipc.read_schema(pa.py_buffer(chunk.schema))
                if is_analyzed(self._schema):
                    yield self._plan()
                    return
            batch = self._take(chunk)
            if batch is not None:
                yield batch
        if self._pieces:
            raise OnagerError(f"the result of job {self._job_id} ended in the middle of a batch")

    def _plan(self) -> "pa.RecordBatch":
        """Return the plan as it ran, which is shown in place of the rows that EXPLAIN ANALYZE has made."""
        import pyarrow as pa

        plan = get_final_plan(self._connection, self._job_id)
        has_costs = counts_few_tasks(plan)
        costs = task_costs(watch_events(self._connection, self._job_id, 0, follow=False)) if has_costs else {}
        self.is_plan = True
        batch = pa.RecordBatch.from_pydict({COLUMN: [plan_text(plan, costs)]})
        self._schema = batch.schema
        return batch

    def _open(self, stub: Any, deadline_s: float) -> Iterator[pb.ResultChunk]:
        self._pieces.clear()
        request = pb.FetchResultRequest(job_id=self._job_id, partition=self._partition, batch=self._batch)
        messages: Iterator[pb.ResultChunk] = stub.FetchResult(request, timeout=deadline_s)
        return messages

    def _take(self, chunk: pb.ResultChunk) -> "pa.RecordBatch | None":
        import pyarrow as pa

        if not chunk.record_batch:
            return None
        self._pieces.append(chunk.record_batch)
        if chunk.more:
            return None
        message = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._partition, self._batch = chunk.partition, chunk.batch + 1
        return pa.ipc.read_record_batch(pa.py_buffer(message), self.schema)
