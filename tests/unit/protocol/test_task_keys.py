"""Reports by their task attempts, and apart by job."""

from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb
from onager.protocol.task_keys import by_job, by_key, task_id


def test_reports_are_distinguished_by_job_in_their_order():
    keys = [TaskKey(job_id, 0, 0, partition, 0) for job_id, partition in (("b", 2), ("a", 1), ("b", 1))]
    reports = by_key(pb.TaskReport(task=task_id(key)) for key in keys)
    assert list(reports) == keys
    apart = by_job(reports)
    assert {job_id: list(mine) for job_id, mine in apart.items()} == {"b": [keys[0], keys[2]], "a": [keys[1]]}
    assert apart["a"][keys[1]] is reports[keys[1]]
    assert by_job(apart["b"]) == {"b": apart["b"]}
    assert by_job({}) == {}
