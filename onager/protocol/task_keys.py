"""Task identities on the wire, and as the rest of the code names them."""

from collections.abc import Iterable, Mapping

from onager.ids import JobId, TaskKey
from onager.protocol import onager_pb2 as pb

Reports = Mapping[TaskKey, pb.TaskReport]
"""Reports by the task attempts that they are about."""


def task_key(task: pb.TaskId) -> TaskKey:
    """Return the key that *task* names on the wire. This is done for every task, hence no call of `TaskKey`."""
    named = (task.job_id, task.stage_id, task.stage_attempt, task.partition, task.task_attempt)
    return tuple.__new__(TaskKey, named)


def by_key(reports: Iterable[pb.TaskReport]) -> Reports:
    """Return *reports* in their order, by their task attempts."""
    return {task_key(report.task): report for report in reports}


def by_job(reports: Reports) -> dict[JobId, Reports]:
    """Return *reports* apart by job; nearly always there is one."""
    jobs = {key.job_id for key in reports}
    if len(jobs) == 1:
        return {jobs.pop(): reports}
    apart: dict[JobId, dict[TaskKey, pb.TaskReport]] = {}
    for key, report in reports.items():
        apart.setdefault(key.job_id, {})[key] = report
    return dict(apart)


def task_keys(task_set: pb.TaskSet) -> list[TaskKey]:
    """Return the keys of all tasks of *task_set*, in its order."""
    job_id, stage_id = task_set.job_id, task_set.stage_id
    stage_attempt = task_set.stage_attempt
    return [
        tuple.__new__(TaskKey, (job_id, stage_id, stage_attempt, task.partition, task.task_attempt))
        for task in task_set.tasks
    ]


def task_id(key: TaskKey) -> pb.TaskId:
    """Return *key* as on the wire."""
    return pb.TaskId(
        job_id=key.job_id,
        stage_id=key.stage_id,
        stage_attempt=key.stage_attempt,
        partition=key.partition,
        task_attempt=key.task_attempt,
    )
