"""Where a job's seconds went."""

import pytest

from benchmarks.tpch.breakdown import Breakdown, breakdown
from onager.protocol import onager_pb2 as pb


def _stage(work: str, run_ms: int, started_ms: int = 0, ended_ms: int = 0) -> pb.StageInfo:
    return pb.StageInfo(work=work, started_ms=started_ms, ended_ms=ended_ms, metrics=pb.TaskMetrics(run_ms=run_ms))


def test_parts_of_a_job_that_was_cut() -> None:
    stages = [_stage("plan", 300), _stage("query", 1500), _stage("query", 500), _stage("publish", 70)]
    progress = pb.JobProgress(submitted_ms=10_000, ended_ms=12_000, stages=stages)

    found = breakdown(progress, 2.25, slots=2)

    assert found == Breakdown(planning_s=0.3, running_s=1.0, waiting_s=pytest.approx(0.7), fetching_s=0.25)


def test_parts_of_a_job_that_its_planning_task_ran() -> None:
    stages = [_stage("plan", 0, 10_010, 10_910), _stage("query", 700)]
    progress = pb.JobProgress(submitted_ms=10_000, ended_ms=11_000, stages=stages)

    found = breakdown(progress, 1.05, slots=2)

    assert found.planning_s == pytest.approx(0.2)
    assert found.running_s == 0.7
    assert found.waiting_s == pytest.approx(0.1)
    assert found.fetching_s == pytest.approx(0.05)
