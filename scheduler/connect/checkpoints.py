"""Checkpoints of sessions: made by jobs, removed once no session has them and nobody can be reading them any more."""

import asyncio
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from onager.clock import Clock
from onager.exchange_layout import CHECKPOINTS, has_scheme, local_path
from onager.ids import JobId, is_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import CHECKPOINT, KEPT, ExecutePlanResponse
from onager.scheduler.connect.failures import unsupported
from onager.scheduler.connect.sessions import Session
from onager.scheduler.jobs.job_heads import JobHeads

log = structlog.get_logger(__name__)

GRACE_MS: Final = 600_000
"""How long an operation may take from its beginning until its job is known."""


def begun(session: Session, job_id: JobId, exchange_dir: str) -> tuple[pb.ConnectJob, pb.ConnectApplied]:
    """Return the job that makes a checkpoint, and the session with it; nobody knows the relation's id until it is made.

    So nothing is left to do when the job has ended.
    """
    if has_scheme(exchange_dir):
        raise unsupported("checkpoints while the exchange directory is a URI: write a table instead")
    response = ExecutePlanResponse()
    response.checkpoint_command_result.relation.relation_id = job_id
    kept = pb.ConnectEntry(kind=KEPT, name=job_id, command=pb.ConnectMade(name=job_id).SerializeToString())
    now = session.message
    return (
        pb.ConnectJob(work=CHECKPOINT, responses=[response.SerializeToString()]),
        pb.ConnectApplied(changes=True, put=[kept], conf=now.conf, catalog=now.catalog, database=now.database),
    )


class Checkpoints:
    """The checkpoints in the exchange directory."""

    def __init__(self, exchange_dir: str, heads: JobHeads, clock: Clock) -> None:
        self._exchange_dir = exchange_dir
        self._heads = heads
        self._clock = clock
        self._unwanted_since_ms: dict[str, int] = {}

    async def sweep(self, kept: Collection[str]) -> None:
        """Remove those that are not *kept* by a session, and were not when the oldest active job began."""
        if has_scheme(self._exchange_dir):
            return
        folder, now_ms = Path(local_path(self._exchange_dir)) / CHECKPOINTS, self._clock.now_ms()
        found = await asyncio.to_thread(_names, folder)
        since_ms = self._unwanted_since_ms
        self._unwanted_since_ms = {name: since_ms.get(name, now_ms) for name in found if _job_of(name) not in kept}
        began_ms = min((head.submitted_ms for head in self._heads.active()), default=now_ms)
        for name, unwanted_ms in self._unwanted_since_ms.items():
            if unwanted_ms < min(began_ms, now_ms) - GRACE_MS:
                await asyncio.to_thread(shutil.rmtree, folder / name, ignore_errors=True)
                log.info("checkpoint_removed", job_id=name)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if is_job_id(_job_of(path.name))] if folder.is_dir() else []


def _job_of(name: str) -> str:
    """Return the job to which a checkpoint belongs, or what was staged for it."""
    return name.removeprefix(".").partition(".")[0]
