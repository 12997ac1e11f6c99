"""Failures of tasks in their reports."""

from onager.protocol import onager_pb2 as pb


def failure_of(reports: list[pb.TaskReport]) -> pb.Failure:
    (failed,) = [r.failure for r in reports if r.HasField("failure")]
    return failed
