"""What happened to a job, as a client learns of it."""

import json

from onager.protocol import onager_pb2 as pb


def batch(position, *partitions, more=False):
    events = [
        pb.JobEvent(type="task_succeeded", at_ms=7, json=json.dumps({"type": "task_succeeded", "partition": p}))
        for p in partitions
    ]
    return pb.EventBatch(position=position, scheduler_id="s1", events=events, more=more)


def test_events_come_with_their_position_and_scheduler(connect, scheduler):
    scheduler.batches = [pb.EventBatch(position=3, not_kept=True), batch(4, 0, 1)]
    first, *others = connect(scheduler.address).job("j").events()
    assert (first.position, first.type) == (3, "not_kept")
    assert [(e.position, e.scheduler_id, e.at_ms, e.type, e.fields) for e in others] == [
        (4, "s1", 7, "task_succeeded", {"partition": 0}),
        (4, "s1", 7, "task_succeeded", {"partition": 1}),
    ]


def test_a_stream_that_breaks_within_a_batch_is_taken_up_with_nothing_missed_and_nothing_twice(connect, scheduler):
    scheduler.batches = [batch(1, 0), batch(2, 1, more=True), batch(2, 2), batch(3, 3)]
    scheduler.break_after_messages = [2]
    events = connect(scheduler.address).job("j").events()
    assert [event.fields["partition"] for event in events] == [0, 1, 2, 3]
    assert [request.after for method, request in scheduler.calls if method == "WatchEvents"] == [0, 1]


def test_only_what_comes_after_a_position(connect, scheduler):
    scheduler.batches = [batch(1, 0), batch(2, 1)]
    assert [event.position for event in connect(scheduler.address).job("j").events(after=1, follow=True)] == [2]
    ((_, request),) = scheduler.calls
    assert request.follow
