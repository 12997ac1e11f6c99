"""The inputs of stages, as sent to executors: large ones go to each executor once, not with every launch."""

from typing import Final

import structlog

from onager.errors import OnagerError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.blobs import BlobStore, digest_of

log = structlog.get_logger("onager.scheduler")

INLINE_BYTES: Final = 16 * 1024
"""Larger inputs are stored as a blob: 10,000 tasks that read from 10,000 others would take 100 million places."""


class StageInputs:
    """Stores inputs of stages, as blobs of their jobs.

    No graph names these blobs. They stay until the job's record goes, and are collected then.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def digest(self, job_id: JobId, inputs: pb.TaskSet) -> str:
        """Return the digest of the blob with *inputs*; empty if they are small, or cannot be stored now."""
        if inputs.ByteSize() <= INLINE_BYTES:
            return ""
        content = inputs.SerializeToString(deterministic=True)
        try:
            await self._blobs.put(job_id, [content])
        except OnagerError as error:
            log.warning("stage_inputs_not_stored", job_id=job_id, error=str(error))
            return ""
        return digest_of(content)
