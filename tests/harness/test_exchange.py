"""The streaming exchange, as whole queries meet it: bounds, beginnings, ends, failures, and what is left afterwards."""

import tempfile
from types import SimpleNamespace

import pytest

from onager.testing import DistributedRunError, HarnessConfig, assert_distributed_eq, run_distributed
from onager.testing import run as running
from tests.harness.conftest import left_behind
from tests.harness.faults import Gate, failures, fault

ROWS = 60_000
DEALT = "select /*+ repartition(3, id) */ id, k from many"
EMPTY_JOIN = """
    select /*+ merge(b) */ a.id, b.k from (select id from sales where amount < 0) a
    join (select id, k from many) b on a.id = b.id"""
UNBOUNDED = 1 << 30


@pytest.fixture(scope="module", autouse=True)
def many(spark, tables):
    spark.range(0, ROWS, 1, 3).selectExpr("id", "id % 7 as k").createOrReplaceTempView("many")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The directory below which runs keep their files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def pipelines(monkeypatch):
    """The JVM's side of every run, from when its tasks begin."""
    seen = []
    carry_out = running._carry_out
    monkeypatch.setattr(running, "_carry_out", lambda made, config: (seen.append(made), carry_out(made, config))[1])
    return seen


def watched(monkeypatch, gate, then):
    """Let the run's clock call *then* as soon as writers behind *gate* are stuck."""
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: then() if gate.is_stuck else 0.0))


# ---------------------------------------------------------------- bounds


def test_a_fast_writer_waits_at_the_channels_bytes(spark):
    gate = Gate(held=2, stage=1, tasks=3, frames=UNBOUNDED, bytes_=4096)
    config = HarnessConfig(channel_frames=UNBOUNDED, channel_bytes=4096, frame_bytes=1024)
    run = assert_distributed_eq(spark.sql(DEALT), config, plant=gate)
    assert run.table.num_rows == ROWS
    assert run.grants == 0
    assert len(gate.most_bytes) == 9
    assert max(gate.most_bytes) >= 4096
    assert all(n < 4096 + 1024 for n in gate.most_bytes)


def test_a_fast_writer_waits_at_the_channels_frames(spark):
    gate = Gate(held=2, stage=1, tasks=3, frames=2)
    config = HarnessConfig(channel_frames=2, frame_bytes=1024)
    run = assert_distributed_eq(spark.sql(DEALT), config, plant=gate)
    assert run.grants == 0
    assert max(gate.most_frames) == 2


def test_a_row_larger_than_a_channel_goes_through(spark):
    config = HarnessConfig(channel_bytes=64, frame_bytes=64)
    text = "select /*+ repartition(3, id) */ id, repeat('x', 5000) from sales"
    run = assert_distributed_eq(spark.sql(text), config)
    assert run.spilled_bytes == 0


def test_frames_beyond_the_memory_lie_in_a_file_that_goes_with_the_run(spark, scratch):
    run = assert_distributed_eq(spark.sql(DEALT), HarnessConfig(memory_bytes=1, frame_bytes=1024))
    assert run.spilled_bytes > 0
    assert list(scratch.iterdir()) == []


# ---------------------------------------------------------------- beginnings


def test_a_side_that_a_join_never_asks_for_is_not_read(spark):
    gate = Gate(held=0, stage=2, tasks=3, frames=1)
    config = HarnessConfig(channel_frames=1, frame_bytes=1024)
    run = assert_distributed_eq(spark.sql(EMPTY_JOIN), config, plant=gate)
    assert run.rows == []
    assert run.graph.stages[1].name.startswith("range")
    assert gate.most_frames
    assert max(gate.most_frames) == 1  # what the channel holds: nobody took it
    assert run.grants == 0


def test_what_a_task_does_not_ask_for_stays_where_it_is(spark, monkeypatch, pipelines):
    gate = Gate(held=2, stage=1, tasks=3, frames=1, for_good=True)
    held = []

    def stop():
        held.append(pipelines[0].held_bytes())
        raise KeyboardInterrupt

    watched(monkeypatch, gate, stop)
    with pytest.raises(KeyboardInterrupt):
        run_distributed(spark.sql(DEALT), HarnessConfig(channel_frames=1, frame_bytes=1024), plant=gate)
    assert held[0] == sum(gate.most_bytes) > 0


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize(
    "text",
    [f"select id from ({DEALT}) limit 5", f"select id from ({DEALT}) limit 5 offset 3", EMPTY_JOIN],
    ids=["limit", "limit with offset", "empty join"],
)
def test_a_writer_stops_when_nobody_reads_any_more(spark, text):
    run = run_distributed(spark.sql(text), HarnessConfig(channel_frames=1, frame_bytes=1024))
    assert run.table.num_rows == (0 if text == EMPTY_JOIN else 5)
    stage_id = next(stage.stage_id for stage in run.graph.stages if stage.name.startswith("range"))
    given = sum(task.rows for task in run.tasks_of(stage_id))
    assert 0 < given < ROWS / 4


def test_readers_that_stop_do_not_take_rows_from_those_that_go_on(spark):
    text = f"""
        with t as ({DEALT})
        select sum(id + k) from t union all select * from (select id + k from t limit 3)"""
    run = run_distributed(spark.sql(text), HarnessConfig(channel_frames=1, frame_bytes=1024))
    assert len([stage for stage in run.graph.stages if stage.name.startswith("range")]) == 1
    assert run.table.num_rows == 4
    assert run.rows[0] == (sum(n + n % 7 for n in range(ROWS)),)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("text", [DEALT, f"select count(*) from ({DEALT})", f"select * from ({DEALT}) order by id"])
def test_a_writer_that_dies_is_a_failure_and_no_end(spark, text):
    with pytest.raises(DistributedRunError, match="the first reason") as caught:
        run_distributed(spark.sql(text), plant=failures(1))
    assert caught.value.stage_id == 1
    assert caught.value.error_class == "java.lang.LinkageError"


def test_the_first_of_several_failures_is_told(spark):
    config = HarnessConfig(channel_frames=1, frame_bytes=1024)
    with pytest.raises(DistributedRunError) as caught:
        run_distributed(spark.sql(DEALT), config, plant=failures(1))
    assert str(caught.value).startswith("task 0 of stage 1 failed: LinkageError: the first reason")
    assert "a later reason" not in caught.value.details


def test_what_the_user_did_wrong_is_told_and_not_what_others_met_because_of_it(spark):
    text = f"""
        select a.id, b.n
        from (select /*+ repartition(3, id) */ if(id = 40000, raise_error('no such thing'), id) id from many) a
        join (select k, count(*) n from ({DEALT}) group by k) b on a.id = b.k"""
    with pytest.raises(DistributedRunError) as caught:
        run_distributed(spark.sql(text), HarnessConfig(channel_frames=1, frame_bytes=1024))
    assert caught.value.error_class == "USER_RAISED_EXCEPTION"
    assert "no such thing" in str(caught.value)
    assert "BrokenStream" not in caught.value.details


def test_a_failure_while_a_writer_waits_for_room_is_told(spark):
    """A reader fails for a reason of its own, while everybody upstream waits for it."""
    config = HarnessConfig(channel_frames=1, frame_bytes=64)
    with pytest.raises(DistributedRunError, match="task 0 of stage 2 failed: LinkageError: the first reason"):
        run_distributed(spark.sql(DEALT), config, plant=failures(2, alone=True))


# ---------------------------------------------------------------- what is left


def test_a_run_that_is_interrupted_leaves_nothing(spark, scratch, monkeypatch, pipelines):
    """Tasks wait for room, tasks are held, frames are in memory and in a file: all of it goes."""
    gate = Gate(held=2, stage=1, tasks=3, frames=4, for_good=True)
    met = []

    def interrupt():
        spilled = pipelines[0].report()["spilled_bytes"]
        met.append((len(left_behind(spark)), pipelines[0].held_bytes(), spilled, pipelines[0].waits()))
        raise KeyboardInterrupt

    watched(monkeypatch, gate, interrupt)
    config = HarnessConfig(channel_frames=4, frame_bytes=1024, memory_bytes=8192)
    with pytest.raises(KeyboardInterrupt):
        run_distributed(spark.sql(DEALT), config, plant=gate)
    ((threads, held, spilled, waits),) = met
    assert threads >= 6
    assert 0 < held <= 8192
    assert waits.count("waits for room in") == 3
    assert spilled > 0
    assert pipelines[0].held_bytes() == 0
    assert left_behind(spark) == []
    assert list(scratch.iterdir()) == []


def test_a_run_that_fails_leaves_nothing_while_its_error_is_kept(spark, scratch, pipelines):
    config = HarnessConfig(channel_frames=4, frame_bytes=1024, memory_bytes=8192)
    with pytest.raises(DistributedRunError) as caught:
        run_distributed(spark.sql(DEALT), config, plant=failures(2, alone=True))
    assert caught.value.__traceback__ is not None
    assert pipelines[0].held_bytes() == 0
    assert left_behind(spark) == []
    assert list(scratch.iterdir()) == []


def test_a_run_that_succeeds_leaves_nothing(spark, scratch, pipelines):
    run = run_distributed(spark.sql(f"select * from ({DEALT}) limit 5"))
    assert run.table.num_rows == 5
    assert pipelines[0].held_bytes() == 0
    assert left_behind(spark) == []
    assert list(scratch.iterdir()) == []


def test_a_timeout_says_who_waits_for_whom(spark, monkeypatch, scratch):
    gate = Gate(held=2, stage=1, tasks=3, frames=1, for_good=True)
    watched(monkeypatch, gate, lambda: 1e9)
    with pytest.raises(DistributedRunError, match="not done after 120 s") as caught:
        run_distributed(spark.sql(DEALT), HarnessConfig(channel_frames=1, frame_bytes=1024), plant=gate)
    assert [line for line in str(caught.value).splitlines() if line.startswith("task 1 of stage 1 waits for room in")]
    assert list(scratch.iterdir()) == []


def test_a_writer_that_falls_silent_leaves_nothing(spark, scratch):
    with pytest.raises(DistributedRunError, match="ended without saying"):
        run_distributed(spark.sql(DEALT), plant=fault("fall silent", 1))
    assert list(scratch.iterdir()) == []
