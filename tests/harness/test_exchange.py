"""The exchanges, as whole queries meet them: bounds, beginnings, ends, failures, and what is left afterwards."""

import contextlib
import dataclasses
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from onager.errors import OnagerError
from onager.testing import DistributedRunError, HarnessConfig, assert_distributed_eq, executors, run_distributed
from onager.testing.job import JobRun
from onager.testing.kernel import jvm_with_kernel
from tests.harness.conftest import await_nothing_left
from tests.harness.faults import before, fault, faults, together
from tests.support.waiting import HANGS_S, until

ROWS = 24_000
DEALT = "select /*+ repartition(3, id) */ id, k from many"
EMPTY_JOIN = """
    select /*+ merge(b) */ a.id, b.k from (select id from sales where amount < 0) a
    join (select id, k from many) b on a.id = b.id"""
STREAMS = HarnessConfig(exchange="streams", channel_frames=1, frame_bytes=1024)
EXCHANGES = [HarnessConfig(), STREAMS]
ids = [config.exchange for config in EXCHANGES]


@pytest.fixture(scope="module", autouse=True)
def many(spark, tables):
    faults(jvm_with_kernel(spark))  # what is planted is compiled into a directory that outlives a test's
    spark.range(0, ROWS, 1, 3).selectExpr("id", "id % 7 as k").createOrReplaceTempView("many")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The directory below which runs keep their files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


class Watched:
    """The executors of a run while they are there."""

    def __init__(self) -> None:
        self.executors = []
        self.submitted = []
        """Stages, what they were bound to, and the partitions of it."""

    def __call__(self, executor):
        self.executors.append(executor)
        submit = executor.kernel.submit

        def noted(bound, spec, expression):
            stage = int(spec["run"].split("/")[2].partition(".")[0])
            self.submitted.append((stage, bound, list(spec["partitions"])))
            submit(bound, spec, expression)

        executor.kernel.submit = noted

    def use(self):
        """Return bytes of streams in memory, those ever spilled, and requests that wait, of all executors."""
        uses = [executor.kernel.stream_use() for executor in self.executors]
        return sum(use[0] for use in uses), sum(use[1] for use in uses), sum(use[3] for use in uses)


@pytest.fixture
def watched():
    return Watched()


@contextlib.contextmanager
def held(spark):
    """Let what is to be held be so until the end."""
    classes = faults(jvm_with_kernel(spark))
    classes.open(False)
    try:
        yield
    finally:
        classes.open(True)


class InTheBackground:
    """A run on a thread of its own."""

    def __init__(self, frame, config, plant):
        self._pool = ThreadPoolExecutor(1)
        self._run = self._pool.submit(run_distributed, frame, config, plant=plant)
        self._pool.shutdown(wait=False)

    def until(self, condition):
        """Wait until *condition* holds while it runs; raise its error if it fails before."""
        until(lambda: self._run.done() or condition())
        assert condition() or self.result() is None

    def result(self):
        return self._run.result(HANGS_S)


# ---------------------------------------------------------------- bounds


def test_channels_are_bounded(spark, watched):
    """While nobody reads, a channel holds one frame in memory; what does not fit lies in a file."""
    with held(spark):
        running = InTheBackground(spark.sql(DEALT), STREAMS, together(watched, fault("hold", 2)))
        held_bytes = []
        running.until(lambda: watched.executors and watched.use()[1] > 0)
        until(lambda: held_bytes.append(watched.use()[0]) or len(held_bytes) > 50)
    run = running.result()
    assert run.table.num_rows == ROWS
    assert 0 < max(held_bytes) <= 9 * (STREAMS.frame_bytes + 64)
    assert run.spilled_bytes > 9 * STREAMS.frame_bytes


def test_frames_within_the_channels_and_the_memory_are_not_spilled(spark):
    config = HarnessConfig(exchange="streams", channel_frames=1 << 20)
    assert assert_distributed_eq(spark.sql(DEALT), config).spilled_bytes == 0


def test_frames_beyond_the_memory_lie_in_a_file_that_goes_with_the_run(spark, scratch):
    text = "with t as (select /*+ repartition(3, id) */ id, k from many) select sum(id), (select max(k) from t) from t"
    config = HarnessConfig(exchange="streams", memory_bytes=1, frame_bytes=1024)
    run = assert_distributed_eq(spark.sql(text), config)
    assert run.spilled_bytes > 0
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_a_row_larger_than_a_channel_goes_through(spark, config):
    text = "select /*+ repartition(3, id) */ id, repeat('x', 5000) from sales"
    assert_distributed_eq(spark.sql(text), config)


# ---------------------------------------------------------------- a plan for each task, a reader for each bucket


def test_each_task_decodes_its_own_plan(spark, watched):
    config = HarnessConfig(tasks=3, executors=3)
    assert_distributed_eq(spark.sql(DEALT), config, plant=watched)
    assert sorted((stage, partitions) for stage, _, partitions in watched.submitted) == [
        (stage, [partition]) for stage in (1, 2) for partition in range(3)
    ]
    identity = jvm_with_kernel(spark).java_class("java.lang.System").identityHashCode
    assert len({identity(bound.plan()) for _, bound, _ in watched.submitted}) == 6
    assert not any(bound.session().equals(spark._jsparkSession) for _, bound, _ in watched.submitted)


def test_tasks_of_an_executor_share_what_it_has_decoded(spark, watched):
    assert_distributed_eq(spark.sql(DEALT), HarnessConfig(executors=1), plant=watched)
    assert [(stage, partitions) for stage, _, partitions in watched.submitted] == [(1, [0, 1, 2]), (2, [0, 1, 2])]


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_each_bucket_has_one_reader(spark, config):
    run = assert_distributed_eq(spark.sql(DEALT), config)
    given, read = run.tasks_of(1), run.tasks_of(2)
    assert sum(task.rows for task in given) == sum(task.rows for task in read) == ROWS
    assert len(given) == len(read) == 3
    assert all(task.bytes_read > 0 for task in read)
    assert sum(task.bytes_read for task in read) <= sum(task.bytes for task in given)


# ---------------------------------------------------------------- beginnings


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_a_side_that_a_join_never_asks_for_is_not_read(spark, config):
    run = assert_distributed_eq(spark.sql(EMPTY_JOIN), config)
    assert run.rows == []
    assert sum(task.rows for stage in (1, 2) for task in run.tasks_of(stage)) > 0
    assert [task.bytes_read for task in run.tasks_of(3)] == [0, 0, 0]


def test_nothing_is_asked_for_before_the_first_read(spark, watched):
    """While its readers are held before their first row, all that a stage gives stays where it is."""
    with held(spark):
        running = InTheBackground(spark.sql(DEALT), STREAMS, together(watched, fault("hold", 2)))
        running.until(lambda: {stage for stage, _, _ in watched.submitted} == {1, 2})
        running.until(lambda: sum(executor.kernel.stream_use()[2] for executor in watched.executors) == 3)
        requests = []
        until(lambda: requests.append(watched.use()[2]) or len(requests) > 20)
        assert set(requests) == {0}
    assert running.result().table.num_rows == ROWS


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("rest", ["limit 5", "limit 5 offset 3"])
def test_a_writer_stops_when_nobody_reads_any_more(spark, rest):
    text = f"select id from (select /*+ repartition(1) */ id, uuid() u from range(0, {10**12}, 1, 1)) {rest}"
    run = run_distributed(spark.sql(text), dataclasses.replace(STREAMS, timeout_s=HANGS_S))
    assert run.table.num_rows == 5
    stage_id = next(stage.stage_id for stage in run.graph.stages if stage.name.startswith("range"))
    assert 0 < sum(task.rows for task in run.tasks_of(stage_id)) < 10**12


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_readers_that_stop_do_not_take_rows_from_those_that_go_on(spark, config):
    text = f"""
        with t as ({DEALT})
        select sum(id + k) from t union all select * from (select id + k from t limit 3)"""
    run = run_distributed(spark.sql(text), config)
    assert len([stage for stage in run.graph.stages if stage.name.startswith("range")]) == 1
    assert run.table.num_rows == 4
    assert run.rows[0] == (sum(n + n % 7 for n in range(ROWS)),)


# ---------------------------------------------------------------- slots


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_streams_need_no_more_slots_than_there_are(spark, monkeypatch, slots):
    """With fewer slots than tasks, a reader never has one that its writer needs."""
    most = []
    launch = JobRun._launch
    monkeypatch.setattr(JobRun, "_launch", lambda job: (launch(job), most.append(len(job._running)))[0])
    monkeypatch.setattr(executors, "slots_of", lambda _: slots)
    text = f"""
        with t as ({DEALT})
        select /*+ merge(b) */ count(*), max(b.n) from t a
        join (select id + 1 id, max(k) n from t group by 1) b using (id) where a.id > (select min(id) from t)"""
    run = assert_distributed_eq(spark.sql(text), STREAMS)
    assert len(run.tasks) > 2 * slots
    assert max(most) == slots


def test_runs_over_streams_side_by_side_do_not_wait_for_each_others_slots(spark):
    texts = [DEALT, f"select count(*) from ({DEALT})"] * 2
    running = [InTheBackground(spark.sql(text), STREAMS, None) for text in texts]
    assert [each.result().table.num_rows for each in running] == [ROWS, 1] * 2


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
@pytest.mark.parametrize("text", [DEALT, f"select count(*) from ({DEALT})", f"select * from ({DEALT}) order by id"])
def test_a_writer_that_dies_is_a_failure_and_no_end(spark, text, config):
    with held(spark), pytest.raises(DistributedRunError, match="the first reason") as caught:
        run_distributed(spark.sql(text), config, plant=fault("fail", 1))
    assert caught.value.stage_id == 1
    assert caught.value.error_class == "java.lang.LinkageError"


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_the_first_of_several_failures_is_reported(spark, config):
    with held(spark), pytest.raises(DistributedRunError) as caught:
        run_distributed(spark.sql(DEALT), config, plant=fault("fail", 1))
    assert str(caught.value).startswith("task 0 of stage 1 failed: LinkageError: the first reason")
    assert "a later reason" not in caught.value.details


def test_what_the_user_did_wrong_is_reported_and_not_what_others_met_because_of_it(spark):
    text = f"""
        select a.id, b.n
        from (select /*+ repartition(3, id) */ if(id = 16000, raise_error('no such thing'), id) id from many) a
        join (select k, count(*) n from ({DEALT}) group by k) b on a.id = b.k"""
    with pytest.raises(DistributedRunError) as caught:
        run_distributed(spark.sql(text), STREAMS)
    assert caught.value.error_class == "USER_RAISED_EXCEPTION"
    assert "no such thing" in str(caught.value)
    assert "BrokenStream" not in caught.value.details


def test_a_failure_while_a_writer_waits_for_room_is_reported(spark):
    """A reader fails for a reason of its own, while everybody upstream waits for it."""
    with (
        held(spark),
        pytest.raises(DistributedRunError, match="task 0 of stage 2 failed: LinkageError: the first reason"),
    ):
        run_distributed(spark.sql(DEALT), STREAMS, plant=fault("fail", 2))


def test_a_session_whose_tasks_run_elsewhere_is_refused(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")
    with pytest.raises(OnagerError, match="in its own process, not in spark://elsewhere:7077"):
        run_distributed(spark.sql(DEALT))


# ---------------------------------------------------------------- what is left


def assert_nothing_is_left(spark, scratch, watched):
    await_nothing_left(spark)  # threads whose work has ended may take a moment
    assert list(scratch.iterdir()) == []
    assert watched.executors
    for executor in watched.executors:
        assert not executor.is_alive()
        if executor.stream_address:
            host, port = executor.stream_address.split(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=HANGS_S)


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_a_run_that_is_interrupted_leaves_nothing(spark, scratch, monkeypatch, watched, config):
    """Tasks are held, others are done, rows are in memory and in files: all of it goes."""
    met = []
    following = JobRun._next

    def interrupted(job, deadline):
        while True:
            report = following(job, min(deadline, time.monotonic() + 0.2))
            if report is not None:
                return report
            if 2 in {stage for stage, _, _ in watched.submitted} and len(job.reports) == 3:
                met.append(list(scratch.iterdir()))
                raise KeyboardInterrupt

    monkeypatch.setattr(JobRun, "_next", interrupted)
    with held(spark), pytest.raises(KeyboardInterrupt):
        run_distributed(spark.sql(DEALT), config, plant=together(watched, fault("hold", 2)))
    assert met[0]
    assert_nothing_is_left(spark, scratch, watched)


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_a_run_that_fails_leaves_nothing_while_its_error_is_kept(spark, scratch, watched, config):
    with held(spark), pytest.raises(DistributedRunError) as caught:
        run_distributed(spark.sql(DEALT), config, plant=together(watched, fault("fail", 2)))
    assert caught.value.__traceback__ is not None
    assert_nothing_is_left(spark, scratch, watched)


@pytest.mark.parametrize("config", EXCHANGES, ids=ids)
def test_a_run_that_succeeds_leaves_nothing(spark, scratch, watched, config):
    run = run_distributed(spark.sql(f"select * from ({DEALT}) limit 5"), config, plant=watched)
    assert run.table.num_rows == 5
    assert_nothing_is_left(spark, scratch, watched)


@pytest.mark.parametrize("exchange", ["files", "streams"])
def test_a_timeout_says_which_tasks_had_not_ended(spark, scratch, exchange):
    for timeout_s in (5, 40, 320):
        config, says = HarnessConfig(exchange=exchange, timeout_s=timeout_s), f"not done after {timeout_s} s"
        with held(spark), pytest.raises(DistributedRunError, match=says) as caught:
            run_distributed(spark.sql(f"select sum(id) from ({DEALT})"), config, plant=fault("hold", 2))
        if "of stage 1" not in str(caught.value):
            break  # else the machine is so busy that stage 1 had not ended
    assert "task 0 of stage 2 (executor 1)" in str(caught.value)
    assert "had not ended" in str(caught.value)
    assert "of stage 1" not in str(caught.value)
    assert list(scratch.iterdir()) == []


def test_a_writer_that_is_killed_is_a_failure_and_no_end(spark, scratch):
    def kill(executor, task_set):
        del task_set
        executor.cancel([key for run in executor._runs.values() for key, _ in run.open.values()])

    plant = together(fault("hold", 1), before(2, kill))
    # Of one that reads from the task that was stopped, or of that task where no reader tells of it in time.
    with held(spark), pytest.raises(DistributedRunError, match=r"task \d of stage [12] failed: .*[cC]ancelled"):
        run_distributed(spark.sql(DEALT), STREAMS, plant=plant)
    assert list(scratch.iterdir()) == []
