"""Heartbeats tell what running tasks have read, and nothing of tasks that do not run any more."""

from onager.executor.agent.progress_watch import ProgressWatch
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_REPORTED_ATTEMPTS
from tests.support.fakes.scripted_gateway import key, rig, task_set
from tests.support.waiting import eventually


def task(partition: int) -> pb.TaskId:
    return pb.TaskId(job_id="j", stage_id=1, partition=partition)


async def seen(found: list[pb.AttemptProgress], *, is_working: bool = True) -> ProgressWatch:
    """Return a watch that has looked once."""
    looks: list[int] = []

    async def look() -> list[pb.AttemptProgress]:
        looks.append(1)
        return found

    watch = ProgressWatch(look, lambda: is_working)
    running = watch.run()
    running.send(None)  # to its first pause
    running.close()
    assert len(looks) == is_working
    return watch


async def test_only_what_is_listed_is_reported_and_no_more_than_the_limit() -> None:
    watch = await seen([pb.AttemptProgress(task=task(p), rows_read=p) for p in range(1_000)])
    request = pb.HeartbeatRequest(running=[task(3), task(5)])
    watch.add_to(request)
    assert [each.rows_read for each in request.progress] == [3, 5]
    request = pb.HeartbeatRequest(running=[task(p) for p in range(1_000)])
    watch.add_to(request)
    assert len(request.progress) == MAX_REPORTED_ATTEMPTS


async def test_nobody_is_asked_while_nothing_runs() -> None:
    watch = await seen([pb.AttemptProgress(task=task(1))], is_working=False)
    request = pb.HeartbeatRequest(running=[task(1)])
    watch.add_to(request)
    assert not request.progress


async def test_an_agent_tells_how_far_its_tasks_are() -> None:
    async with rig(heartbeat_interval_ms=20) as r:
        r.worker.permille = 300
        await r.gateway.launches.put(task_set(0))
        await eventually(lambda: r.gateway.heartbeats[-1:] and r.gateway.heartbeats[-1].progress)
        (progress,) = r.gateway.heartbeats[-1].progress
        assert (progress.permille, progress.rows_read, progress.task.partition) == (300, 7, 0)
        r.worker.succeed(key(0))
        await eventually(lambda: not r.gateway.heartbeats[-1].progress)
