"""A dataset has the query's rows however its stages are laid out, and as many files as were asked for."""

import pytest

from onager.executor.exchange import carry_out, plan_publish
from onager.ids import Nonce
from onager.protocol import onager_pb2 as pb
from tests.support.spark.one_executor import CUT, as_multiset, rows_of

SUMS = "select k, count(*) c, sum(id) s from sales group by k"
DEALT = f"select /*+ repartition(3) */ * from ({SUMS})"


@pytest.mark.parametrize(
    ("text", "layout", "files"),
    [
        (SUMS, "planned", 3),
        (SUMS, "merged", 2),
        (SUMS, "fused whole", 1),
        (f"{SUMS} order by s", "fused", 1),
        (DEALT, "fused whole", 3),
    ],
    ids=["planned", "merged", "fused whole", "sorted and fused", "a number of files that was asked for"],
)
def test_rows_and_files(executor, tables, tmp_path, text, layout, files):
    sink = pb.Sink(path=str(tmp_path / "out"), format="parquet", mode="error")
    outcome = executor.plan(pb.JobSpec(sql=pb.SqlScript(text=text), views=tables, conf=CUT, sink=sink))
    with executor.running(outcome, layout) as job:
        last = outcome.stages[-1].stage_id
        outputs = [report.success.output for (stage_id, _), report in sorted(job.reports.items()) if stage_id == last]
        carry_out(plan_publish(executor.job_id, outcome.sink, outputs, Nonce("n")))

    assert len(list((tmp_path / "out").glob("part-*"))) == files
    got = executor.spark.read.parquet(sink.path).toArrow()
    assert as_multiset(rows_of(got)) == as_multiset(rows_of(executor.spark.sql(text).toArrow()))
