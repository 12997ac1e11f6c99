"""Checkpoints of sessions: made by jobs, removed once no session has them and no reader can be left."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from onager.clock import Clock
from onager.errors import DiskError
from onager.exchange_layout import CHECKPOINTS, local_path
from onager.ids import JobId, is_job_id
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import CHECKPOINT, KEPT, ExecutePlanResponse
from onager.scheduler import timing
from onager.scheduler.connect.sessions import Session
from onager.scheduler.disk import EXCHANGE
from onager.scheduler.jobs.job_heads import JobHeads

log = structlog.get_logger(__name__)

GRACE_MS: Final = 600_000
"""How long an operation may take from its beginning until its job is known."""


def begun(session: Session, job_id: JobId) -> tuple[pb.ConnectJob, pb.ConnectApplied]:
    """Return the job that makes a checkpoint, and the session with it.

    The client does not know the relation's id before the job has ended, so nothing is left to do then.
    """
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
        self._known: set[str] = set()
        """The jobs whose checkpoints sessions had; others may belong to another cluster."""
        self._unwanted_since_ms: dict[str, int] = {}
        """By job."""

    def note(self, kept: Collection[str]) -> None:
        """Take in which checkpoints sessions have now, also where another scheduler removes the others this time."""
        self._known.update(kept)
        since_ms, now_ms = self._unwanted_since_ms, self._clock.now_ms()
        unwanted = (self._known | since_ms.keys()) - set(kept)
        self._unwanted_since_ms = {job_id: since_ms.get(job_id, now_ms) for job_id in unwanted}

    async def sweep(self, kept: Collection[str]) -> None:
        """Remove those that are not *kept* by a session, and were not when the oldest active job began."""
        folder, now_ms = Path(local_path(self._exchange_dir)) / CHECKPOINTS, self._clock.now_ms()
        self.note(kept)
        found = await EXCHANGE.call(_names, folder)
        self._known.intersection_update(found.values())
        since_ms = self._unwanted_since_ms
        self._unwanted_since_ms = {
            job_id: since_ms.get(job_id, now_ms)
            for job_id in found.values()
            if job_id not in kept and (job_id in self._known or self._heads.get(job_id) is not None)
        }
        began_ms = min((head.submitted_ms for head in self._heads.active()), default=now_ms)
        for name, job_id in found.items():
            if self._unwanted_since_ms.get(job_id, now_ms) < min(began_ms, now_ms) - GRACE_MS:
                await self._remove(folder / name)

    @staticmethod
    async def _remove(path: Path) -> None:
        try:
            is_removed = await EXCHANGE.call(_removed, path, within_s=timing.DISK_LONG_S)
        except DiskError as error:
            if error.hangs:
                raise  # each of the others would wait as long
            log.warning("checkpoint_not_removed", path=str(path), error=str(error))
        else:
            if is_removed:
                log.info("checkpoint_removed", path=str(path))


def _removed(path: Path) -> bool:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return False  # another scheduler does it
    return True


def _names(folder: Path) -> dict[str, JobId]:
    """Return the checkpoints in *folder*, and what is staged for them, with their jobs."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    jobs = {name: name.removeprefix(".").partition(".")[0] for name in names}
    return {name: JobId(job_id) for name, job_id in jobs.items() if is_job_id(job_id)}
