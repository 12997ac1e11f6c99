"""What people see of times and of the rest that is left."""

from dataclasses import replace

import pytest

from onager.cli.live import LineView
from onager.cli.times import far_text, latency_rows, shares_text
from onager.client.progress import JobProgress, TimeShare
from onager.protocol import onager_pb2 as pb

RUNNING = JobProgress.from_message(pb.JobProgress(job_id="j", state=pb.RUNNING))


def test_the_largest_share_comes_first_and_crumbs_are_left_out() -> None:
    shares = [TimeShare("waiting", 2_000), TimeShare("running", 7_990), TimeShare("writing", 10)]
    assert shares_text(shares) == "where 10.0 s went: running 8.0 s (80 %), waiting for a slot 2.0 s (20 %)"
    assert shares_text([]) == ""


@pytest.mark.parametrize(
    ("eta_ms", "reported"),
    [
        (None, "43 %"),
        ((12_100, 17_200), "43 %, 12 to 18 s left"),
        ((400, 900), "43 %, 0 to 1 s left"),
        ((70_000, 185_000), "43 %, 1 to 4 min left"),
        ((6_500_000, 7_300_000), "43 %, 1 to 3 h left"),
    ],
)
def test_how_far_a_job_is(eta_ms, reported) -> None:
    assert far_text(replace(RUNNING, fraction=0.439, eta_ms=eta_ms)) == reported


def test_a_job_that_has_ended_or_just_begun_is_not_reported_to_be_anywhere() -> None:
    assert far_text(replace(RUNNING, fraction=0.001)) == ""
    ended = JobProgress.from_message(pb.JobProgress(job_id="j", state=pb.SUCCESSFUL, fraction=0.5))
    assert far_text(ended) == ""


def test_a_fall_is_explained() -> None:
    assert (
        far_text(replace(RUNNING, fraction=0.2, fraction_fell="stage 1 runs again"))
        == "20 % (fell: stage 1 runs again)"
    )


def test_lines_tell_each_tenth_once_and_every_fall(capsys) -> None:
    view = LineView()
    for fraction, fell in ((0.05, ""), (0.11, ""), (0.12, ""), (0.35, ""), (0.2, "lost"), (0.21, "lost"), (0.36, "")):
        view.show(replace(RUNNING, fraction=fraction, fraction_fell=fell))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines if "%" in line] == ["11 %", "35 %", "20 % (fell: lost)", "36 %"]


def test_stages_of_more_than_one_task_have_a_line() -> None:
    run = pb.Latency(part="run", tasks=9, p50_ms=1_500, p95_ms=20_000, p99_ms=21_000, max_ms=21_500)
    queued = pb.Latency(part="queued", tasks=9, p95_ms=3)
    stages = [
        pb.StageInfo(stage_id=0, latencies=[pb.Latency(part="run", tasks=1, p50_ms=4)]),
        pb.StageInfo(stage_id=1, latencies=[queued, run]),
        pb.StageInfo(stage_id=2),
    ]
    progress = JobProgress.from_message(pb.JobProgress(job_id="j", state=pb.RUNNING, stages=stages))
    assert latency_rows(progress.stages) == [(1, 9, "1.500", "20.0", "21.0", "21.5", "0.003", "0.000", "0.000")]
