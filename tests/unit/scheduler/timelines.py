"""Timelines of jobs that never ran."""

from onager.execution_graph import (
    EventBatch,
    TaskMetrics,
    TaskOutput,
    TasksLaunched,
    TaskSucceeded,
)
from onager.ids import JobId
from onager.scheduler.api.timeline.story import Story
from onager.scheduler.api.timeline.telling import timeline_of
from tests.unit.execution_graph.builder import planned, stage

JOB = JobId("job-1")


def timeline_from_log(job, after=0, *, story=None, writers=None):
    """The timeline of a job whose log is committed one event a batch."""
    story = story or Story(job.graph)
    for position, event in enumerate(job.log, 1):
        writer = "s1" if writers is None else writers(position)
        story.feed(position, EventBatch(batch_id=str(position), events=(event,), writer=writer))
    return timeline_of(story, job.graph, after)


def marks(timeline, kind):
    return [mark for mark in timeline.marks if mark.kind is kind]


def bars(timeline, stage_id):
    return [bar for bar in timeline.bars if bar.stage == stage_id]


def many(tasks, executors, *, run_ms=1_000, slots=10, more=0):
    """A story of a job with many attempts, all of which run for *run_ms*; *more* tasks have not begun."""
    job = planned(stage(1, tasks + more, kind="result"))
    assert job.start()
    story = Story(job.graph)
    position = 0

    def feed(*events):
        nonlocal position
        position += 1
        story.feed(position, EventBatch(batch_id=str(position), events=events, writer="s1"))

    for event in job.log:
        feed(event)
    at_ms, partition = job.now_ms, 0
    while partition < tasks:
        for number in range(executors):
            some = range(partition, min(partition + slots, tasks))
            if not some:
                break
            feed(
                TasksLaunched(
                    stage_id=1,
                    stage_attempt=0,
                    executor_id=f"e{number}",
                    incarnation="x",
                    list_number=0,
                    tasks=tuple((p, 0) for p in some),
                    at_ms=at_ms,
                )
            )
            feed(
                *(
                    TaskSucceeded(
                        stage_id=1,
                        stage_attempt=0,
                        partition=p,
                        task_attempt=0,
                        executor_id=f"e{number}",
                        output=TaskOutput(nonce=f"n{p}", is_shared=True, rows=1, bytes=1),
                        metrics=TaskMetrics(run_ms=900),
                        at_ms=at_ms + run_ms,
                    )
                    for p in some
                )
            )
            partition = some.stop
        at_ms += run_ms
    return story
