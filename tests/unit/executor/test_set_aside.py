from structlog.testing import capture_logs

from onager.executor.agent.set_aside import SetAsideNotice
from onager.protocol import onager_pb2 as pb


def test_it_is_said_once_and_once_that_it_is_over():
    notice = SetAsideNotice("e1")
    told = pb.SetAside(until_ms=9_000, reason="everything fails")
    with capture_logs() as logs:
        for answer in (
            pb.HeartbeatResponse(),
            pb.HeartbeatResponse(set_aside=told),
            pb.PollWorkResponse(set_aside=told),
            pb.HeartbeatResponse(set_aside=told),
            pb.PollWorkResponse(),
            pb.HeartbeatResponse(),
            pb.HeartbeatResponse(set_aside=pb.SetAside(until_ms=20_000)),
        ):
            notice.note(answer)
    assert [entry["event"] for entry in logs] == [
        "set_aside_by_schedulers",
        "taking_work_again",
        "set_aside_by_schedulers",
    ]
    assert logs[0]["reason"] == "everything fails"
