"""Where tasks read from, as executors are told it: inputs that are many go to each once, not with every launch."""

from collections.abc import Callable
from typing import Final

import structlog

from onager.errors import OnagerError
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.blobs import BlobStore, digest_of

log = structlog.get_logger("onager.scheduler")

INLINE_BYTES: Final = 16 * 1024
"""More than this is stored as a blob: 10,000 tasks that read from 10,000 others are 100 million places else."""


class StageInputs:
    """Stores inputs of stages, as blobs of their jobs.

    No graph names these blobs. They stay until the job's record goes, and are collected then.
    """

    def __init__(self, blobs: BlobStore, fetches: Callable[[str], bool]) -> None:
        """Make it; *fetches* tells whether an executor can be told of them by their digest."""
        self._blobs = blobs
        self.fetches = fetches

    async def digest(self, job_id: JobId, inputs: pb.TaskSet) -> str:
        """Return the digest of the blob with *inputs*; empty where they are few, or cannot be stored now."""
        if inputs.ByteSize() <= INLINE_BYTES:
            return ""
        content = inputs.SerializeToString(deterministic=True)
        try:
            await self._blobs.put(job_id, [content])
        except OnagerError as error:
            log.warning("stage_inputs_not_stored", job_id=job_id, error=str(error))
            return ""
        return digest_of(content)
