import msgspec

from onager.execution_graph import NO_METRICS, SinkBuckets, SinkSpec, SinkTable, TaskMetrics
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_AMOUNT
from onager.scheduler.wire import metrics_from, metrics_message, sink_message


def test_every_metric_of_a_task_arrives() -> None:
    metrics = TaskMetrics(**{field.name: number for number, field in enumerate(msgspec.structs.fields(TaskMetrics), 1)})
    message = metrics_message(metrics)
    assert len(message.ListFields()) == len(pb.TaskMetrics.DESCRIPTOR.fields)
    assert metrics_from(message) == metrics
    assert metrics_from(pb.TaskMetrics()) == NO_METRICS


def test_amounts_that_no_task_can_have_are_cut() -> None:
    message = pb.TaskMetrics(run_ms=12, rows_out=2**64 - 1, bytes_out=MAX_AMOUNT)
    assert metrics_from(message) == TaskMetrics(run_ms=12, rows_out=MAX_AMOUNT, bytes_out=MAX_AMOUNT)


def test_a_table_and_its_buckets_are_part_of_a_sink() -> None:
    table = SinkTable(key="tables/d/t", table_id="1", location="file:/w/t", replaces="matching", within="k=1")
    buckets = SinkBuckets(count=4, by=("a", "b"), sort_by=("c",))
    sink = SinkSpec(path="/w/t", format="parquet", mode="append", options=(), table=table, buckets=buckets)
    message = sink_message(sink)
    assert message.table == pb.SinkTable(
        key="tables/d/t", table_id="1", location="file:/w/t", replaces="matching", within="k=1"
    )
    assert message.buckets == pb.SinkBuckets(count=4, by=["a", "b"], sort_by=["c"])
