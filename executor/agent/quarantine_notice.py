"""Notices of this executor's quarantine, because it fails nearly everything: logged once."""

import structlog

from onager.protocol import onager_pb2 as pb


class QuarantineNotice:
    """The schedulers' last notice."""

    def __init__(self, executor_id: str) -> None:
        self._log = structlog.get_logger().bind(executor_id=executor_id)
        self._until_ms = 0

    def note(self, answer: pb.HeartbeatResponse | pb.PollWorkResponse) -> None:
        """Note what an answer says of the quarantine."""
        until_ms = answer.quarantine.until_ms
        if until_ms > self._until_ms:
            self._log.warning(
                "quarantined_by_schedulers",
                until_ms=until_ms,
                reason=answer.quarantine.reason,
                advice="look at the failures above: a full disk, a missing mount, a broken installation",
            )
        elif self._until_ms and not until_ms:
            self._log.info("taking_work_again")
        self._until_ms = until_ms
