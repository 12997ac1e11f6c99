"""A plan to show: two stages, the first of which stands out in every way."""

from onager.protocol import onager_pb2 as pb

MIB = 1024 * 1024


def metric(name, value, kind="sum"):
    return pb.OperatorMetric(name=name, type=kind, value=value)


SCAN_TEXT = (
    "FileScan parquet [l_orderkey#7L,l_quantity#8] Batched: true, DataFilters: [], Format: Parquet, "
    "Location: FixedFileIndex(1 paths)[file:/data/lineitem.parquet], PartitionFilters: [], ReadSchema: struct<>"
)

SKEWED = pb.FinalStage(
    info=pb.StageInfo(
        stage_id=1,
        name="scan lineitem → partial aggregate",
        work="query",
        state="successful",
        attempt=1,
        partitions=3,
        successful=3,
        started_ms=1000,
        ended_ms=4000,
        metrics=pb.TaskMetrics(
            run_ms=4000,
            rows_out=20,
            bytes_out=9 * MIB,
            spill_bytes=5 * MIB,
            peak_memory_bytes=64 * MIB,
            queued_ms=3000,
            fetch_ms=2000,
        ),
        wasted=pb.TaskMetrics(run_ms=700),
        tasks_failed=1,
    ),
    output=pb.OutputLayout(kind="exchange", buckets=4),
    has_estimate=True,
    estimated_rows=1_000_000,
    reported=2,
    plans=[
        pb.FinalOperators(
            bound_plan="d",
            tasks=2,
            operators=[
                pb.FinalOperator(
                    name="WholeStageCodegen (1)", children=[1], metrics=[metric("pipelineTime", 1900, "timing")]
                ),
                pb.FinalOperator(
                    name="HashAggregate",
                    text="HashAggregate(keys=[l_orderkey#7L], functions=[partial_sum(l_quantity#8)])",
                    children=[2],
                    metrics=[
                        metric("numOutputRows", 20),
                        metric("peakMemory", 64 * MIB, "size"),
                        metric("spillSize", 5 * MIB, "size"),
                    ],
                ),
                pb.FinalOperator(name="Union", text="Union", children=[3, 6]),
                pb.FinalOperator(name="Sort", text="Sort [l_orderkey#7L ASC]", children=[4]),
                pb.FinalOperator(name="ColumnarToRow", text="ColumnarToRow", children=[5]),
                pb.FinalOperator(
                    name="Scan parquet ",
                    text=SCAN_TEXT,
                    metrics=[
                        metric("numOutputRows", 60_175),
                        metric("numFiles", 1),
                        metric("filesSize", 2 * MIB, "size"),
                        metric("scanTime", 1500, "timing"),
                    ],
                ),
                pb.FinalOperator(name="Scan stage 4", text="Scan stage 4[x#9]", metrics=[metric("numOutputRows", 5)]),
            ],
        )
    ],
)
RESULT = pb.FinalStage(
    info=pb.StageInfo(stage_id=2, name="final aggregate", work="query", state="running", partitions=1, running=1),
    inputs=[pb.StageInput(stage_id=1, read="bucket")],
    output=pb.OutputLayout(kind="result", buckets=1),
)
PLANNING = pb.FinalStage(
    info=pb.StageInfo(
        stage_id=0, name="plan", work="plan", state="successful", partitions=1, successful=1, started_ms=1, ended_ms=352
    )
)
STAGES = [PLANNING, SKEWED, RESULT]


def succeeded(partition, run_ms, bytes_in, attempt=0):
    """Return the event of a task of stage 1."""
    import json

    fields = {
        "stage_id": 1,
        "stage_attempt": 0,
        "partition": partition,
        "task_attempt": attempt,
        "executor_id": "executor-1",
        "output": {"rows": 7, "bytes": 3 * MIB},
        "metrics": {"run_ms": run_ms, "bytes_in": bytes_in, "queued_ms": 1000},
    }
    return pb.JobEvent(type="task_succeeded", at_ms=9, json=json.dumps({"type": "task_succeeded", "at_ms": 9} | fields))


EVENTS = [
    pb.EventBatch(position=1, events=[succeeded(0, 500, MIB), succeeded(1, 500, MIB)]),
    pb.EventBatch(position=2, events=[succeeded(2, 3000, 8 * MIB, attempt=1), succeeded(0, 9000, MIB, attempt=1)]),
]
