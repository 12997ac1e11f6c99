"""Runs a single-stage query with plain Spark, on all slots of this executor."""

import base64
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from onager.exchange_layout import stage_directory
from onager.executor.spark.jvm import jvm_session
from onager.executor.spark.kernel.execution import Kernel
from onager.executor.spark.running.binder import bound_plan
from onager.executor.spark.running.metrics import metrics_of
from onager.executor.spark.running.sink_layout import sink_layout
from onager.executor.spark.stage_plan import MetricsWanted
from onager.ids import JobId, new_nonce
from onager.protocol import onager_pb2 as pb

STAGE_ID = 1
"""The only stage of such a query."""


def run_single_stage(
    kernel: Kernel,
    executor_id: str,
    job_id: JobId,
    frame: DataFrame,
    column_names: Sequence[str],
    sink: pb.Sink | None,
    metrics: MetricsWanted = "off",
) -> pb.PlanOutcome:
    """Run the query of *frame* in this thread's job group; write one result partition or the files of *sink*.

    Returns the ``fused_…`` fields of an outcome. Unless *metrics* are off, it has what the operators of Spark's final
    plan measured: all that the driver knows.
    """
    nonce = new_nonce()
    layout: dict[str, Any] = (
        {"layout": "result", "directory": stage_directory(job_id, STAGE_ID)}
        if sink is None
        else sink_layout(sink, job_id)
    )
    spec = {**layout, "nonce": nonce, "names": list(column_names), "metrics": metrics}
    query: Any = frame._jdf.queryExecution()  # noqa: SLF001 - PySpark offers no public way to it
    event, inline = kernel.run_single_stage(jvm_session(frame.sparkSession), query, spec)
    output = pb.TaskOutput(
        nonce=nonce,
        executor_id=executor_id,
        shared=True,
        rows=event["rows"],
        bytes=event["bytes"],
        inline=event["inline"],
        checksum=event["checksum"],
        files=event["files"],
    )
    outcome = pb.PlanOutcome(
        fused_output=output,
        fused_metrics=metrics_of(event),
        fused_inline_result=inline,
        fused_observed=base64.b64decode(event.get("observed", "")),
    )
    if (nodes := event.get("operators")) is not None:
        plan = bound_plan(nodes)
        outcome.fused_op_metrics, outcome.fused_bound_plan = base64.b64decode(event["op_metrics"]), plan.digest
        outcome.blobs.add(digest=plan.digest, content=plan.content)
    return outcome
