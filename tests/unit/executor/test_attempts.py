"""The attempt table: what is new, what is held, what is free."""

from onager.clock import ManualClock
from onager.executor.agent.attempts import AttemptState, AttemptTable
from onager.executor.agent.reporting import killed
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import task_id, task_keys
from tests.support.fakes.scripted_gateway import key, task_set


def done(k):
    return pb.TaskReport(task=task_id(k), success=pb.TaskSuccess())


def running(table, *partitions):
    table.accept(task_set(*partitions))
    for part in table.take_startable():
        table.mark_running(task_keys(part))


def test_a_slot_is_free_only_when_its_report_is_acknowledged():
    table = AttemptTable(2, ManualClock())
    running(table, 0)
    assert (table.free_slots, table.active) == (1, 1)
    assert table.finish(done(key(0)))
    assert (table.free_slots, table.active) == (1, 0)
    assert table.freed_by(1) == 1
    table.acknowledge([key(0)])
    assert table.free_slots == 2
    assert table.is_empty


def test_an_acknowledged_attempt_is_known_for_a_while():
    clock = ManualClock()
    table = AttemptTable(1, clock)
    for partition in range(3):
        running(table, partition)
        table.finish(done(key(partition)))
        table.acknowledge([key(partition)])
        for earlier in range(partition + 1):
            launch = table.accept(task_set(earlier))
            assert launch.known == (key(earlier),)  # it may have been under way for long
        clock.advance(50_000)
    clock.advance(50_000)
    table.acknowledge([])
    clock.advance(60_000)
    table.acknowledge([])
    assert table.accept(task_set(0)).accepted == (key(0),)


def test_few_of_many_acknowledged_attempts_are_remembered(monkeypatch):
    monkeypatch.setattr("onager.executor.agent.attempts._REMEMBERED", 100)
    table = AttemptTable(1, ManualClock())
    for partition in range(250):
        running(table, partition)
        table.finish(done(key(partition)))
        table.acknowledge([key(partition)])
    assert table.accept(task_set(249)).known
    assert table.accept(task_set(0)).accepted


def test_a_task_that_streams_waits_for_no_slot_behind_tasks_that_may_read_from_it():
    table = AttemptTable(2, ManualClock())
    running(table, 0)
    streams = task_set(1, 2, stage=2)
    streams.streaming = True
    launch = table.accept(streams)
    assert (launch.accepted, launch.refused) == ((key(1, stage=2),), (key(2, stage=2),))
    assert table.held() == [key(0), key(1, stage=2), key(2, stage=2)]  # that one is to be reported
    assert table.accept(task_set(3)).accepted == (key(3),)  # the slot of a durable job's task comes free by itself


def test_the_report_of_an_attempt_goes_to_the_scheduler_that_sent_it_last():
    table = AttemptTable(1, ManualClock())
    for reply_to in ("h:1", "h:2", ""):
        table.accept(task_set(0, reply_to=reply_to))
    table.finish(done(key(0)))
    assert [(k, reply_to) for k, _, reply_to in table.reports()] == [(key(0), "h:2")]


def test_another_attempt_of_the_same_partition_is_a_new_one():
    table = AttemptTable(2, ManualClock())
    running(table, 0)
    assert table.accept(task_set(0, attempt=1)).accepted == (key(0, attempt=1),)


def test_tasks_of_one_launch_start_together_and_others_apart():
    table = AttemptTable(4, ManualClock())
    table.accept(task_set(0, 1))
    table.accept(task_set(5, stage=2))
    assert [[k.partition for k in task_keys(part)] for part in table.take_startable()] == [[0, 1], [5]]


def test_what_exceeds_the_slots_waits_in_order():
    table = AttemptTable(2, ManualClock())
    running(table, 0, 1, 2, 3)
    assert table.take_startable() == []
    table.finish(done(key(1)))
    assert [task_keys(part) for part in table.take_startable()] == [[key(2)]]


def test_tasks_beyond_the_queue_are_refused_but_held_until_that_is_acknowledged():
    table = AttemptTable(1, ManualClock())
    launch = table.accept(task_set(0, 1, 2))
    assert (launch.accepted, launch.refused) == ((key(0), key(1)), (key(2),))
    assert key(2) in table.held()
    for report in killed(launch.refused, "full", 0):
        assert table.finish(report)
    table.acknowledge([key(2)])
    assert key(2) not in table.held()


def test_freed_slots_are_none_while_more_is_held_than_there_are_slots():
    table = AttemptTable(2, ManualClock())
    running(table, 0, 1, 2, 3)
    table.finish(done(key(0)))
    assert table.freed_by(1) == 0
    assert table.freed_by(3) == 1


def lone(partition):
    found = task_set(partition)
    found.tasks[0].alone = True
    return found


def test_a_task_that_runs_alone_waits_for_all_others_and_keeps_the_slots():
    table = AttemptTable(4, ManualClock())
    running(table, 0)
    assert table.accept(lone(1)).accepted == (key(1),)
    assert table.take_startable() == []
    assert table.running() == [key(0)]
    assert table.has_lone
    assert not table.runs_lone, "what runs was there before"
    assert (table.free_slots, table.freed_by(1)) == (0, 0)
    assert table.accept(task_set(2)).refused == (key(2),), "another executor can have it now"
    table.finish(done(key(0)))
    table.finish(done(key(2)))
    assert table.take_startable(is_quiet=False) == [], "something else than a task is done here"
    (part,) = table.take_startable()
    assert task_keys(part) == [key(1)]
    assert table.mark_running([key(1)]) == table.running() == [key(1)]
    assert table.runs_lone
    table.acknowledge([key(0), key(2)])
    assert table.free_slots == 0
    table.finish(done(key(1)))
    assert (table.free_slots, table.freed_by(1)) == (3, 1)
    table.acknowledge([key(1)])
    assert table.free_slots == 4


def test_a_task_that_was_to_run_alone_and_was_cancelled_keeps_nothing():
    table = AttemptTable(2, ManualClock())
    running(table, 0)
    table.accept(lone(1))
    for report in killed([key(1)], "cancelled", 0):
        table.finish(report)
    assert not table.has_lone
    assert table.accept(task_set(2)).accepted == (key(2),)
    assert [task_keys(part) for part in table.take_startable()] == [[key(2)]]


def test_a_second_report_of_an_attempt_is_dropped():
    table = AttemptTable(1, ManualClock())
    running(table, 0)
    assert table.finish(done(key(0)))
    assert not table.finish(killed([key(0)], "late", 0)[0])
    assert [report.WhichOneof("outcome") for _, report, _ in table.reports()] == ["success"]
    assert table.active == 0


def test_a_report_of_an_attempt_that_is_not_held_is_dropped():
    assert not AttemptTable(1, ManualClock()).finish(done(key(0)))


def test_cancelled_before_it_ran_an_attempt_is_not_handed_to_the_worker():
    table = AttemptTable(1, ManualClock())
    table.accept(task_set(0))
    (part,) = table.take_startable()
    assert table.in_state([key(0)], AttemptState.PREPARING) == [key(0)]
    table.finish(killed([key(0)], "cancelled", 0)[0])
    assert table.mark_running(task_keys(part)) == []
    assert table.active == 0


def test_an_acknowledgement_of_a_running_attempt_is_ignored():
    table = AttemptTable(1, ManualClock())
    running(table, 0)
    table.acknowledge([key(0)])
    assert table.held() == [key(0)]


def test_a_report_gets_how_long_its_attempt_waited():
    clock = ManualClock()
    table = AttemptTable(4, clock)
    begun_ms = clock.now_ms() + 70
    running(table, 0, 1, 2, 3)
    clock.advance(500)
    fused = pb.TaskSuccess(plan=pb.PlanOutcome(fused_output=pb.TaskOutput(nonce="n")))
    another_clock_ms = clock.now_ms() + 60_000
    reports = [
        pb.TaskReport(task=task_id(key(0)), started_ms=begun_ms, success=pb.TaskSuccess()),
        pb.TaskReport(task=task_id(key(1)), started_ms=begun_ms, ended_ms=begun_ms + 9, failure=pb.Failure()),
        pb.TaskReport(task=task_id(key(2)), started_ms=begun_ms, success=fused),
        pb.TaskReport(task=task_id(key(3)), started_ms=another_clock_ms, success=pb.TaskSuccess()),
    ]
    assert all(map(table.finish, reports))
    assert reports[0].success.metrics == pb.TaskMetrics(queued_ms=70)
    assert reports[1].failed_metrics == pb.TaskMetrics(queued_ms=70, run_ms=9)
    assert reports[2].success.plan.fused_metrics == pb.TaskMetrics(queued_ms=70)
    assert reports[3].success.metrics == pb.TaskMetrics(queued_ms=500)
