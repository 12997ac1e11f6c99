from structlog.testing import capture_logs

from onager.executor.agent.quarantine_notice import QuarantineNotice
from onager.protocol import onager_pb2 as pb


def test_it_is_said_once_and_once_that_it_is_over():
    notice = QuarantineNotice("e1")
    quarantine = pb.Quarantine(until_ms=9_000, reason="everything fails")
    with capture_logs() as logs:
        for answer in (
            pb.HeartbeatResponse(),
            pb.HeartbeatResponse(quarantine=quarantine),
            pb.PollWorkResponse(quarantine=quarantine),
            pb.HeartbeatResponse(quarantine=quarantine),
            pb.PollWorkResponse(),
            pb.HeartbeatResponse(),
            pb.HeartbeatResponse(quarantine=pb.Quarantine(until_ms=20_000)),
        ):
            notice.note(answer)
    assert [entry["event"] for entry in logs] == [
        "quarantined_by_schedulers",
        "taking_work_again",
        "quarantined_by_schedulers",
    ]
    assert logs[0]["reason"] == "everything fails"
