"""A job handle reports how its job ends."""

import sys
import time

import pytest

from onager.client.progress import JobState
from onager.errors import JobCancelledError, JobFailedError
from onager.protocol import onager_pb2 as pb


def _stages(*done: int) -> list[pb.StageInfo]:
    return [pb.StageInfo(stage_id=i, name=f"s{i}", partitions=4, successful=n) for i, n in enumerate(done)]


def test_wait_shows_every_change_and_returns_the_last(scheduler, connect):
    scheduler.progress = [
        pb.JobProgress(job_id="j", state=pb.PLANNING),
        pb.JobProgress(job_id="j", state=pb.RUNNING, stages=_stages(1, 2)),
        pb.JobProgress(job_id="j", state=pb.SUCCESSFUL, stages=_stages(4, 4), result_rows=9),
    ]
    seen = []
    last = connect(scheduler.address).job("j").wait(on_progress=seen.append)
    assert [progress.state for progress in seen] == [JobState.PLANNING, JobState.RUNNING, JobState.SUCCESSFUL]
    assert [stage.successful for stage in seen[1].stages] == [1, 2]
    assert last.result_rows == 9


def test_a_watch_that_breaks_is_opened_again(scheduler, connect):
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.RUNNING), pb.JobProgress(job_id="j", state=pb.SUCCESSFUL)]
    scheduler.break_after_messages = [1, 0, 1]
    assert connect(scheduler.address).job("j").wait().state is JobState.SUCCESSFUL


def test_a_failed_job_raises_sparks_own_words(scheduler, connect):
    failure = pb.Failure(
        kind="user_error",
        message="[DIVIDE_BY_ZERO] Division by zero.",
        error_class="DIVIDE_BY_ZERO",
        sql_state="22012",
        query_context="== SQL (line 1, position 8) ==\nSELECT 1/0\n       ^^^\n",
        details="java.lang…",
    )
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.FAILED, failure=failure)]
    with pytest.raises(JobFailedError, match=r"Division by zero") as caught:
        connect(scheduler.address).job("j").wait()
    error = caught.value
    assert (error.job_id, error.error_class, error.sql_state) == ("j", "DIVIDE_BY_ZERO", "22012")
    assert "line 1, position 8" in str(error)
    assert error.details == "java.lang…"


def test_the_context_of_an_error_is_shown_once(scheduler, connect):
    context = "== SQL (line 1, position 8) ==\nSELECT 1/0\n       ^^^\n"
    failure = pb.Failure(kind="user_error", message=f"Division by zero.\n{context}".strip(), query_context=context)
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.FAILED, failure=failure)]
    with pytest.raises(JobFailedError) as caught:
        connect(scheduler.address).job("j").wait()
    assert str(caught.value).count("== SQL") == 1


def test_a_cancelled_job_raises_that(scheduler, connect):
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.CANCELLED, failure=pb.Failure(message="enough"))]
    with pytest.raises(JobCancelledError, match="enough"):
        connect(scheduler.address).job("j").to_arrow()


def test_wait_gives_up_after_its_timeout_and_the_job_goes_on(scheduler, connect):
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.RUNNING)]
    job = connect(scheduler.address).job("j")
    start_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"j has not ended within 0\.4 s"):
        job.wait(timeout=0.4)
    assert time.monotonic() - start_s > 0.3
    assert not [method for method, _ in scheduler.calls if method == "CancelJob"]


def test_without_pandas_it_is_said_at_once_what_to_do(scheduler, connect, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.RUNNING)]
    with pytest.raises(ModuleNotFoundError, match=r"pip install pandas, or take to_arrow"):
        connect(scheduler.address).job("j").to_pandas()


def test_cancel_and_progress(scheduler, connect):
    scheduler.progress = [pb.JobProgress(job_id="j", state=pb.RUNNING)]
    client = connect(scheduler.address)
    client.submit(pb.JobSpec(sql=pb.SqlScript(text="SELECT 1")), job_id="j")
    assert client.job("j").progress().state is JobState.RUNNING
    assert scheduler.calls[-1][1].stage_id, "a page that is not the first comes without specification and plan"
    assert client.job("j").cancel("why not") is JobState.CANCELLED
    assert scheduler.calls[-1][1].reason == "why not"
    assert [job.job_id for job in client.jobs()] == ["j"]
